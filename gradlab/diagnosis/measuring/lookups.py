"""Which rows, or columns, of an input the function looks up, and how often each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.held import held_arrays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.diagnosis.measuring.measures import Case

__all__ = ["counted", "is_table", "lined_up", "overwritten"]

_LARGE = 1_000_000  # indices beyond which an array is not counted
_MOST = 0.5  # of the rows: more that are looked up several times make it likely


def overwritten(case: Case) -> tuple[BugKind, ...]:
    """Name what it may be where most rows, or columns, are looked up repeatedly."""
    if not is_table(case):
        return ()
    shape = case.variable.shape
    often = any(
        (counts > 1).mean() > _MOST
        for axis, _ in lined_up(case)
        for _, counts in counted(case, shape[axis])
    )
    return (BugKind.LOST_ACCUMULATION,) if often else ()


def is_table(case: Case) -> bool:
    """Whether an input has rows all of which are there."""
    variable = case.variable
    plain = variable.support is None and not variable.is_complex
    return bool(variable.shape) and plain and case.part.complete


def lined_up(case: Case) -> list[tuple[int, str]]:
    """Axes along which an input may be looked up, and the names of what is there."""
    both = [(0, "row"), (1, "column")]
    return both if len(case.variable.shape) == 2 else both[:1]


def counted(case: Case, length: int) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """How often each index of an axis stands in the arrays of indices of it."""
    for name, ids in _indices(case):
        if ids.min() >= 0 and ids.max() < length:
            yield name, np.bincount(ids, minlength=length)


def _indices(case: Case) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """Arrays of whole numbers that the function holds, flat."""
    for name, held in held_arrays(case.evidence.subject):
        if "int" not in str(getattr(held.value, "dtype", "")):
            continue
        if not 1 < int(np.prod(held.shape)) <= _LARGE:
            continue
        try:
            ids = np.asarray(held.value).reshape(-1).astype(np.intp)
        except (TypeError, ValueError, RuntimeError):  # on another device, say
            continue
        yield name, ids
