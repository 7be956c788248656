"""What a backward answers to some cotangents, held beside what it answers to others.

What came instead of a gradient: none, another dtype, another shape, an exception.
"""

from __future__ import annotations

import functools
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.analytic_sides import Problem
from gradlab.subject.tensors.gradients.cotangents import SLACK
from gradlab.subject.tensors.values import dtype_name
from gradlab.tracebacks import stopped_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.subject.tensors.values import Cell

__all__ = ["about", "add_up", "close", "raised", "weights_of"]

_BAND = 64  # rows that are summed at a time
_GOT = re.compile(r"got \[([\d, ]*)\]")  # a shape, in torch's words


@functools.lru_cache(maxsize=8)
def weights_of(count: int) -> NDArray[np.float64]:
    """Make fixed weights of both signs to add so many cotangents up by, (1, count)."""
    weights = np.random.default_rng(count).uniform(0.5, 1.5, (1, count))
    weights *= -1.0 if count == 1 else 1.0
    weights[:, 1::2] *= -1.0
    weights.setflags(write=False)  # the same for all who ask
    return weights


def add_up(
    weights: NDArray[np.float64],
    blocks: Sequence[NDArray[np.float64]],
    alone: Sequence[NDArray[np.float64]],
    leaves: Sequence[Any],
) -> bool:
    """Whether a sum of cotangents gives the same sum of the answers.

    Parameters
    ----------
    weights
        Of the sum.
    blocks, alone
        For each leaf: the answers, and that to the sum.
    leaves
        Whose dtypes say how well they are known.
    """
    aparts, sizes = [], []
    with np.errstate(all="ignore"):
        for one, block in zip(alone, blocks, strict=True):
            size = sum(  # some rows at a time: they stay in the cache
                np.abs(weights[:, start : start + _BAND])
                @ np.abs(block[start : start + _BAND])
                for start in range(0, len(block), _BAND)
            )
            sizes.append(float(np.max(size, initial=0.0)))
            aparts.append(float(np.max(np.abs(one - weights @ block), initial=0.0)))
    slacks = [SLACK * _round_off(x) * y for x, y in zip(leaves, sizes, strict=True)]
    # a nan anywhere is larger than any slack
    found = list(zip(aparts, slacks, strict=True))
    if all(apart <= slack for apart, slack in found):
        return True
    rests = _rests(leaves, sizes)
    pairs = zip(found, rests, strict=True)
    return all(apart <= max(slack, rest) for (apart, slack), rest in pairs)


def _rests(leaves: Sequence[Any], sizes: Sequence[float]) -> list[float]:
    """Tell for each leaf what rounding may leave of a gradient that cancels to zero.

    That of the bias of keys before a softmax is the rounding of its terms, and no
    multiple of itself. They are no smaller than one unit of round-off of what the leaf
    that moves f most does to it.
    """
    tops = [
        float(leaf.detach().abs().max()) if leaf.numel() else 0.0 for leaf in leaves
    ]
    reaches = [top or 1.0 for top in tops]
    most = max(size * reach for size, reach in zip(sizes, reaches, strict=True))
    if not math.isfinite(most):
        return [0.0] * len(leaves)
    return [
        _round_off(leaf) * most / reach
        for leaf, reach in zip(leaves, reaches, strict=True)
    ]


def close(
    first: Sequence[NDArray[np.float64]],
    second: Sequence[NDArray[np.float64]],
    leaves: Sequence[Any],
) -> bool:
    """Whether answers are equal up to another order of summation, leaf by leaf."""
    for a, b, leaf in zip(first, second, leaves, strict=True):
        finite = np.isfinite(a)
        if a.shape != b.shape or not np.array_equal(
            a[~finite], b[~finite], equal_nan=True
        ):
            return False
        scale = float(np.max(np.abs(a[finite]), initial=0.0))
        slack = SLACK * _round_off(leaf) * scale
        if not np.all(np.abs(a[finite] - b[finite]) <= slack):
            return False
    return True


def _round_off(leaf: Any) -> float:
    import torch

    return float(torch.finfo(leaf.dtype).eps)


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
    text = " ".join(str(error).split()).partition(" Hint: enable anomaly")[0]
    where = cell.variable.name
    if "invalid gradient" in text and "shape" in text:
        detail = f"{where} has shape {cell.variable.shape}; torch says: {text:.300}"
        found = _GOT.search(text)
        sizes = None if found is None else found.group(1).split(",")
        got = None if sizes is None else tuple(int(n) for n in sizes if n.strip())
        return Problem("wrong_shape", where, detail, got)
    detail = f"backward raised {type(error).__name__}: {text:.300}{stopped_at(error)}"
    return Problem("raised", where, detail)
