"""Detector of a norm that is taken as a constant: the function ignores a stretch.

Behind a normalisation nothing changes when an input, or each of its rows or columns,
is multiplied by a number: the gradient has no part along the input itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.measures import Case, Clue
from gradlab.diagnosis.measuring.moving import analytic_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["part_along_itself"]

_LARGE = 1_000_000  # entries of a Jacobian beyond which it is not tried
_STILL = 1e-3  # of what cancels: an epsilon beside a variance leaves so little
_ALONE = 1e-6  # the same of one group, which is small by accident more often
_EQUAL = 1e-6  # relative: two numbers that are one
_MOVES = 1e-2  # cosine above which the analytic side is not still


def part_along_itself(case: Case) -> list[Clue]:
    """Detect a gradient along an input that is normalised: terms of it are missing."""
    variable = case.variable
    if case.numeric.size > _LARGE or not case.part.complete:
        return []
    if variable.support is not None:
        return []
    shape = variable.shape
    if variable.is_complex or case.point.size < 3 or not case.numeric.any():
        return []  # what does not move f at all need not be normalised
    if _same_numbers(case):
        return []  # no term is missing from numbers that are right, at other places
    x = case.point.reshape(shape)
    n, a = (side.reshape(-1, *shape) for side in (case.numeric, case.analytic))
    for which, axes in _groups(len(shape)):
        true, ours = _left_along(n, x, axes), _cosines(a, x, axes)
        if true.max() > (_STILL if true.size > 1 else _ALONE) or ours.max() < _MOVES:
            continue
        there = _mixes_entries(case)
        kind, other = BugKind.MISSING_TERM, BugKind.WRONG_DERIVATIVE
        if there:
            kind, other = other, kind
        beyond = case.wrong & case.numeric_zero & ~case.analytic_zero
        if there and beyond.any():  # it mixes what the function keeps apart
            kind = BugKind.WRONG_AXIS
        # of a loss a term that is missing looks like one with another factor
        doubts = (other,) if there or case.scalar else ()
        if which and case.scalar:  # the sum of it may run elsewhere, or be added
            doubts = (*doubts, BugKind.WRONG_AXIS, BugKind.SIGN)
        return [
            Clue(
                kind,
                0.99 if case.scalar and _shrinks(case) else 0.72 if there else 0.88,
                f"The function does not change when {which}{case.name} is stretched: "
                f"it is normalised. The analytic gradient has a part along "
                f"{case.name} itself (cosine {ours.max():.2g}), the numeric one has "
                f"none: the term of the norm is missing, or has another factor.",
                f"Differentiate the norm, or the mean and the deviation, behind "
                f"{case.name} as well: of y = x / |x| that is "
                f"dx = (dy - y sum(y dy)) / |x|. Of a batch norm compare the sign, the "
                f"power and the factor of the derivative of (var + eps)**-0.5.",
                doubts,
            )
        ]
    return []


def _same_numbers(case: Case) -> bool:
    """Whether every row has the numbers that it should, in whatever order."""
    a, n = (np.sort(side, axis=1) for side in (case.analytic, case.numeric))
    return bool((np.abs(a - n) <= _EQUAL * np.abs(n).max(axis=1)[:, None]).all())


def _groups(count: int) -> list[tuple[str, tuple[int, ...]]]:
    """Name what a normalisation of an input of so many axes may stretch by itself."""
    groups: list[tuple[str, tuple[int, ...]]] = [("", tuple(range(-count, 0)))]
    if count == 1:
        return groups
    parts: list[tuple[str, tuple[int, ...]]]
    parts = [("each row of ", (-1,)), ("each column of ", (-count,))]
    blocks = [tuple(range(-last, 0)) for last in range(2, count)]
    if count > 2:  # one for each channel, as a batch norm of images has
        blocks.append((-count, *range(-count + 2, 0)))
    for axes in blocks:
        *first, last = (axis + count for axis in axes)
        named = f"{', '.join(map(str, first))} and {last}"
        parts.append((f"each block over axes {named} of ", axes))
    return [*parts, *groups]


def _mixes_entries(case: Case) -> bool:
    """Whether the term that a norm adds is there, if not as it should be.

    Of an output of the same shape it alone leads from one entry to another.
    """
    if [output.shape for output in case.outputs] != [case.variable.shape]:
        return False
    return not case.analytic_zero[~np.eye(len(case.analytic), dtype=bool)].all()


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
    return _ratio((gradient * point).sum(axis=axes), np.asarray(sizes[0] * sizes[1]))


def _left_along(
    gradient: NDArray[np.float64], point: NDArray[np.float64], axes: tuple[int, ...]
) -> NDArray[np.float64]:
    """Share of the terms of gradient times input that does not cancel, in each group.

    The cosine says less: one entry that is long in the gradient, and short in the
    input, makes them perpendicular where nothing cancels.
    """
    terms = gradient * point
    return _ratio(terms.sum(axis=axes), np.asarray(np.abs(terms).sum(axis=axes)))


def _ratio(
    along: NDArray[np.float64], below: NDArray[np.float64]
) -> NDArray[np.float64]:
    told = below > 1e-9 * below.max(initial=0.0)
    return np.asarray(np.where(told, np.abs(along) / np.where(told, below, 1.0), 0.0))
