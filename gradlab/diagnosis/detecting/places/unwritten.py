"""Detector of slices at an end of an input that are never written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.layer_shapes import layer_of
from gradlab.diagnosis.measuring.measures import Case, Clue, reaches
from gradlab.diagnosis.measuring.sides import side_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["unwritten_ends"]

_BLOCK = 8  # entries at one end that no mask leaves out together by chance


def _wrong_beyond(case: Case, unit: int) -> bool:
    """Whether the weight of a bias is wrong in other ways than by what that loses.

    In other units, or in this one, without being zero: their error signal is wrong.
    """
    layer = layer_of(case.evidence, case.part.which)
    weight = None if layer is None else side_of(case.evidence, layer.weight)
    if layer is None or layer.bias != case.part.which or weight is None:
        return False
    if not weight.part.complete:
        return weight.is_wrong
    wrong = weight.wrong.any(axis=0).reshape(weight.variable.shape)
    axes = [k for k, n in enumerate(wrong.shape) if n == case.variable.size]
    there = (weight.wrong & ~weight.analytic_zero).any(axis=0).reshape(wrong.shape)
    return all(
        np.delete(wrong, unit, axis).any() or there.take(unit, axis).any()
        for axis in axes
    )


def unwritten_ends(
    case: Case, lost: NDArray[np.bool_], extra: NDArray[np.bool_]
) -> list[Clue]:
    """First or last slices that are never written: a loop that ends too early."""
    if extra.any():
        return []
    grid = case.grid(lost.astype(np.float64))
    if grid is None or grid.ndim < 2:
        return []
    touched = np.asarray(grid.any(axis=0), dtype=np.bool_)
    moves = reaches(~case.numeric_zero, 0).reshape(touched.shape)
    for axis, length in enumerate(case.variable.shape):
        others = tuple(i for i in range(touched.ndim) if i != axis)
        hit = np.flatnonzero(reaches(touched, others))
        if 1 < len(hit) < length and np.ptp(hit) == len(hit) - 1:
            clue = _block(case, lost, axis, hit)
            if clue is not None and bool(np.all((touched | ~moves).take(hit, axis))):
                return [clue]
        if len(hit) != 1 or length < (3 if touched.size < 6 else 2):
            continue
        whole = np.take(touched | ~moves, hit[0], axis).all()
        whole &= touched.ndim > 1 or not _wrong_beyond(case, int(hit[0]))
        if hit[0] in {0, length - 1} and whole:
            return [
                Clue(
                    BugKind.WRONG_INDEX,
                    0.94,
                    f"Index {hit[0]} along axis {axis} of {case.name} (the "
                    f"{'first' if hit[0] == 0 else 'last'} of {length}) gets no "
                    f"gradient at all; the others are right.",
                    "Look for a loop or a slice that starts one late or ends one "
                    "early.",
                    # of a vector each entry may have a formula of its own
                    () if touched.ndim > 1 else (BugKind.MISSING_TERM,),
                )
            ]
    return []


def _block(
    case: Case, lost: NDArray[np.bool_], axis: int, hit: NDArray[np.intp]
) -> Clue | None:
    """Recognise whole slices at one end that get nothing, whatever the output.

    A mask stops an entry here and there; so many in a block are no accident.
    """
    length = case.variable.shape[axis]
    if case.scalar or not {0, length - 1} & {int(hit[0]), int(hit[-1])}:
        return None
    gone = ~reaches(~case.analytic_zero & case.usable, 0)[reaches(lost, 0)]
    if not gone.all() or gone.size < _BLOCK:
        return None
    return Clue(
        BugKind.DETACHED,
        0.95,
        f"Indices {hit[0]} to {hit[-1]} along axis {axis} of {case.name} get no "
        f"gradient from any output; the others are right.",
        f"Compute the gradient of that part of {case.name} too: of arrays put together "
        f"before they are multiplied with it, each has its own rows.",
        (BugKind.WRONG_INDEX, BugKind.MISSING_TERM),
    )
