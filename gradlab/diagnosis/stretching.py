"""Detector of a norm that is taken as a constant: the function ignores a stretch.

Behind a normalisation nothing changes when an input, or each of its rows or columns,
is multiplied by a number: the gradient has no part along the input itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measures import Case, Clue
from gradlab.diagnosis.moving import analytic_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["part_along_itself"]

_STILL = 1e-3  # cosine: an epsilon beside a variance leaves so little
_ALONE = 1e-6  # cosine of one group, which is small by accident more often
_MOVES = 1e-2  # cosine above which the analytic side is not still


def part_along_itself(case: Case) -> list[Clue]:
    """Detect a gradient along an input that is normalised: terms of it are missing."""
    variable = case.variable
    if not case.scalar or not case.part.complete or variable.support is not None:
        return []
    shape = variable.shape
    if variable.is_complex or case.point.size < 3 or not case.numeric.any():
        return []  # what does not move f at all need not be normalised
    sides = case.point, case.numeric[0], case.analytic[0]
    x, n, a = (side.reshape(shape) for side in sides)
    whole = tuple(range(len(shape)))
    groups: list[tuple[str, tuple[int, ...]]] = [("", whole)]
    if len(shape) > 1:
        groups = [("each row of ", (-1,)), ("each column of ", (0,)), *groups]
    for which, axes in groups:
        true, ours = _cosines(n, x, axes), _cosines(a, x, axes)
        if true.max() > (_STILL if true.size > 1 else _ALONE) or ours.max() < _MOVES:
            continue
        return [
            Clue(
                BugKind.MISSING_TERM,
                0.99 if _shrinks(case) else 0.88,
                f"The function does not change when {which}{case.name} is stretched: "
                f"it is normalised. The analytic gradient has a part along "
                f"{case.name} itself (cosine {ours.max():.2g}), the numeric one has "
                f"none.",
                f"Differentiate the norm, or the mean and the deviation, behind "
                f"{case.name} as well: of y = x / |x| that is "
                f"dx = (dy - y sum(y dy)) / |x|.",
            )
        ]
    return []


def _shrinks(case: Case) -> bool:
    """Whether twice the input has half the slope along itself: a penalty has twice."""
    ours = analytic_at(case.evidence, {case.part.which: 2 * case.point})
    if ours is None:
        return False
    here, there = case.analytic[0] @ case.point, ours[case.part.which] @ case.point
    return bool(abs(there - here / 2) <= _MOVES * abs(here))


def _cosines(
    gradient: NDArray[np.float64], point: NDArray[np.float64], axes: tuple[int, ...]
) -> NDArray[np.float64]:
    """Cosine between gradient and input in each group, 0 where either is zero."""
    sizes = [np.sqrt((side**2).sum(axis=axes)) for side in (gradient, point)]
    below = np.asarray(sizes[0] * sizes[1])
    along = np.abs((gradient * point).sum(axis=axes))
    safe = np.where(below > 0, below, 1.0)
    return np.asarray(np.where(below > 0, along / safe, 0.0))
