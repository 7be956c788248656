"""What came instead of a gradient: none, another dtype, another shape, an exception."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gradlab.labels import stopped_at
from gradlab.subject.analytic_sides import Problem
from gradlab.subject.tensors.values import dtype_name

if TYPE_CHECKING:
    from gradlab.subject.tensors.values import Cell

__all__ = ["about", "raised"]

_GOT = re.compile(r"got \[([\d, ]*)\]")  # a shape, in torch's words


def about(cell: Cell, dtypes: set[Any]) -> Problem | None:
    """Problem of a gradient that came, or did not, short of its values."""
    name = cell.variable.name
    if not dtypes and cell.variable.size:
        detail = (
            f"autograd has no gradient for {name}: no path leads from the outputs "
            f"to it, or a backward returned None"
        )
        return Problem("none", name, detail)
    wrong = [dtype for dtype in dtypes if dtype != cell.values.dtype]
    if wrong:
        detail = (
            f"the gradient of {name} has dtype {dtype_name(wrong[0])}, "
            f"expected {cell.variable.dtype}"
        )
        return Problem("dtype", name, detail)
    return None


def raised(cell: Cell, error: Exception) -> Problem:
    """Problem for an exception of backward."""
    text = " ".join(str(error).split())
    where = cell.variable.name
    if "invalid gradient" in text and "shape" in text:
        detail = f"{where} has shape {cell.variable.shape}; torch says: {text:.300}"
        found = _GOT.search(text)
        sizes = None if found is None else found.group(1).split(",")
        got = None if sizes is None else tuple(int(n) for n in sizes if n.strip())
        return Problem("wrong_shape", where, detail, got)
    detail = f"backward raised {type(error).__name__}: {text:.300}{stopped_at(error)}"
    return Problem("raised", where, detail)
