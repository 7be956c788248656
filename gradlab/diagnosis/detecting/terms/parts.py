"""What is wrong with a part of a gradient, where the rest of it is known to be right.

A penalty, or another path, hides a factor or an order: only what goes through one input
has it. With that input at zero the rest is left, and is taken off both sides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.measures import Case, Clue
from gradlab.diagnosis.measuring.places import every_entry
from gradlab.diagnosis.measuring.proportions import factor_words, fraction_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["part_through"]

_SAME = 1e-4  # relative: two parts that are one
_FEWEST = 3  # entries, or slices, that have one factor or another order by chance
_REST = 1e-3  # of a gradient: what is left of it must be as much, or there is none


def part_through(
    case: Case, other: str, rest: Sequence[NDArray[np.float64]] | None
) -> list[Clue]:
    """Detect a factor, or another order, in what goes through one other input.

    Parameters
    ----------
    case
        Of a loss, whose gradient is right with all of `other` at zero.
    other
        Name of the other input.
    rest
        The analytic gradients there, by input.
    """
    if rest is None or not case.scalar or case.variable.is_complex:
        return []
    left = np.asarray(rest[case.part.which])[case.part.positions]
    ours, true = case.analytic[0] - left, case.numeric[0] - left
    size = float(np.abs(true).max(initial=0.0))
    whole = float(np.abs(case.numeric).max(initial=0.0))
    if not (np.isfinite(left).all() and size > _REST * whole):
        return []
    if not np.abs(left).max(initial=0.0) > _REST * whole:
        return []  # nothing is left: the whole gradient is that part
    return _factor(case, other, ours, true) or _order(case, other, ours, true)


def _factor(
    case: Case, other: str, ours: NDArray[np.float64], true: NDArray[np.float64]
) -> list[Clue]:
    c = float(ours @ true) / float(true @ true)
    moved = np.abs(true) > _SAME * np.abs(true).max()
    apart = float(np.abs(ours - c * true).max())
    named = fraction_words(c)
    # of two entries a number that nobody writes may be the factor of each by chance
    if moved.sum() < (_FEWEST if named is None else 2) or abs(c) < _SAME:
        return []
    if apart > _SAME * float(np.abs(ours).max()):
        return []
    turned = abs(c + 1) < _SAME
    return [
        Clue(
            BugKind.SIGN if turned else BugKind.SCALE,
            0.92,
            f"With all of {other} at zero the gradient of {case.name} is right; what "
            f"{other} adds to it is {factor_words(c)} times as large as it should be, "
            f"{every_entry(int(moved.sum()))} that it moves.",
            f"Look for a minus on the way through {other} to {case.name}."
            if turned
            else f"Search the path through {other} to {case.name} for that factor.",
        )
    ]


def _order(
    case: Case, other: str, ours: NDArray[np.float64], true: NDArray[np.float64]
) -> list[Clue]:
    """Detect slices that stand in another order, each of them whole."""
    shape = case.variable.shape
    if not case.part.complete or len(shape) < 2:
        return []
    for axis, length in enumerate(shape):
        a, n = (
            np.moveaxis(side.reshape(shape), axis, 0).reshape(length, -1)
            for side in (ours, true)
        )
        apart = np.abs(a[:, None] - n[None]).max(axis=2)
        nearest = apart.argmin(axis=1)
        limit = _SAME * float(np.abs(true).max())
        fits = apart[np.arange(length), nearest] <= limit
        if length < _FEWEST or not fits.all() or len(set(nearest)) < length:
            continue
        steps = (np.arange(length) - nearest) % length
        how = f", each {steps[0]} further on" if not np.ptp(steps) else ""
        return [
            Clue(
                BugKind.WRONG_INDEX,
                0.92,
                f"With all of {other} at zero the gradient of {case.name} is right; "
                f"what {other} adds to it is right as well, at other indices along "
                f"axis {axis}{how}.",
                f"Check the indices at which the backward writes to {case.name}.",
            )
        ]
    return []
