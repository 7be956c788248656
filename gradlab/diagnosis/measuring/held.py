"""Arrays that the user's function holds, its data mostly, and what it calls them.

What a closure, a default, a global name, an object or a container refers to.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["Held", "held_arrays", "real_arrays", "where_nan"]

_REAL = ("float32", "float64")  # the ends of names of dtypes, in NumPy and torch

_MOST = 400  # objects that are looked at
_DEEP = 4  # levels of containers and functions
_LONG, _WIDE = 20, 50  # members of a list, and of an object, that are looked at


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Held:
    """An array, or a tensor, that a function holds, and its shape."""

    value: Any
    shape: tuple[int, ...]


def held_arrays(subject: Any) -> list[tuple[str, Held]]:
    """Arrays that the user's function holds, with the last name each goes by."""
    program = getattr(subject, "program", None)
    roots = [
        getattr(subject, "_call", None),
        getattr(subject, "loss", None),
        getattr(program, "fn", None),
        getattr(program, "_fn", None),
    ]
    tree = getattr(subject, "tree", None)
    roots += [leaf.value for leaf in getattr(tree, "leaves", ())]
    found: list[tuple[str, Held]] = []
    seen: set[int] = set()
    stack = [("", root, 0) for root in roots if root is not None]
    while stack and len(seen) < _MOST:
        name, value, depth = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if _has_no_numbers(value):
            continue
        shape = getattr(value, "shape", None)
        # a class has the property, not the shape
        if isinstance(shape, tuple) and hasattr(value, "dtype"):
            if shape:
                own = tuple(int(length) for length in shape)
                found.append((name, Held(value, own)))
            continue
        if depth < _DEEP:
            stack += [(word or name, inner, depth + 1) for word, inner in _held(value)]
    return found


def _has_no_numbers(value: Any) -> bool:
    """Whether this is a tensor without memory, or one of several shapes at once."""
    return any(getattr(value, kind, False) is True for kind in ("is_meta", "is_nested"))


def real_arrays(
    subject: Any, shape: tuple[int, ...]
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield the real arrays of a shape that the user's function holds, by name."""
    for name, held in held_arrays(subject):
        if name and held.shape == shape and str(held.value.dtype)[-7:] in _REAL:
            try:
                dense = np.asarray(_dense(held.value), dtype=np.float64)
            except (TypeError, ValueError, RuntimeError):  # of a kind of its own
                continue
            yield name, dense


def _dense(value: Any) -> Any:
    """Return an array of any library with its zeros, and where NumPy can read it."""
    if hasattr(value, "detach"):  # of torch
        return value.detach().cpu().to_dense()
    return value.toarray() if hasattr(value, "toarray") else value  # of SciPy


def where_nan(subject: Any) -> str:
    """Say which array beside the inputs holds nan, and where; "" if none does.

    Arguments that are no inputs, buffers of a module, and what the function holds.
    """
    program = getattr(subject, "program", None)
    arguments = getattr(program, "arguments", None)
    leaves = getattr(getattr(arguments, "tree", None), "leaves", ())
    named = [(leaf.name, leaf.value) for leaf in leaves]
    named += list(getattr(program, "buffers", {}).items())
    named += [(name, held.value) for name, held in held_arrays(subject)]
    for name, value in named:
        bad = _nan(value)
        if name and bad is not None and bad.any():
            first = ", ".join(str(i) for i in np.argwhere(bad)[0])
            at = f"{name}[{first}]" if first else name
            return f"{name} is nan in {bad.sum():,} of {bad.size:,} entries, at {at}"
    return ""


def _nan(value: Any) -> NDArray[np.bool_] | None:
    """Where an array or a dense tensor of floating-point numbers is nan."""
    if getattr(getattr(value, "dtype", None), "is_floating_point", False):
        if str(value.layout) != "torch.strided":
            return None
        return np.asarray(value.detach().isnan().cpu())
    if isinstance(value, np.ndarray) and value.dtype.kind in "fc":
        return np.isnan(value)
    return None


def _held(value: Any) -> list[tuple[str, Any]]:
    """Return what a function, a container or an object refers to, by name."""
    if isinstance(value, list | tuple):
        return [("", each) for each in value[:_LONG]]
    if isinstance(value, dict):
        return [(str(key), each) for key, each in list(value.items())[:_WIDE]]
    found: list[tuple[str, Any]] = []
    code = getattr(value, "__code__", None)
    if code is not None:
        cells = value.__closure__ or ()
        for name, cell in zip(code.co_freevars, cells, strict=False):
            try:
                found.append((name, cell.cell_contents))
            except ValueError:  # an empty cell
                continue
        found += [("", each) for each in value.__defaults__ or ()]
        known = value.__globals__
        names = [name for name in code.co_names if name in known]
        found += [(name, known[name]) for name in names if not _is_module(known[name])]
    elif hasattr(value, "__dict__") and not _is_module(value):
        found += list(vars(value).items())[:_WIDE]
    if getattr(value, "__self__", None) is not None:
        found.append(("", value.__self__))
    return found


def _is_module(value: Any) -> bool:
    return isinstance(value, type) or type(value).__name__ == "module"
