"""How a function leaves a point at which it has no slope: by a jump, late, or at once.

A staircase jumps, however near to the jump one looks. What is flat for a while begins
to move without one. At a minimum, or a saddle, nothing is flat: it moves at once, by
the square of the distance or a higher power.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.evaluation import line_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gradlab.diagnosis.measuring.measures import Case

    Row = NDArray[np.float64]
    Line = Callable[[float], Row]

__all__ = ["Leaving", "leaving"]

_LINES = 3  # random directions, each of them both ways
_FAR = 8.0  # times as far along the last: where the largest of a few takes its turn
_MOVED = 1e3  # rounding units: less is no movement, as of a bias before a mean
_STILL = 8.0  # rounding units: so little is flat
_SUDDEN = 64.0  # times that: what no power up to the sixth skips in half the distance
_HALVINGS = 20  # of the distance; what moves still nearer to the point moves at once
_NEARER = 30  # halvings of the distance in which a jump is
_JUMP = 1e-5  # of the movement: the least jump of many


class Leaving(enum.Enum):
    """How a function leaves a point."""

    NEVER = "it does not move at all, near or far"
    JUMP = "it is flat, and jumps further away"
    LATE = "it is flat, and moves further away without a jump"
    AT_ONCE = "it moves beside the point"


def leaving(case: Case, only: NDArray[np.intp] | None = None) -> Leaving:
    """Walk away from the point, one input moved along a few random directions.

    Of that input all coordinates move, or `only` some. Costs at most eight evaluations
    where nothing moves, else some fifty.
    """
    evidence, which = case.evidence, case.part.which
    size = max(1.0, float(np.abs(case.point).max(initial=0.0)))
    directions: list[Row | None] = [None] * len(evidence.subject.inputs)
    unit = evidence.subject.epsilon * _largest(evidence.base)

    def at(t: float) -> Row:
        rows = line_rows(evidence.subject, directions, (t,), evidence.meter)
        return np.asarray(rows[0])

    for _ in range(_LINES):
        n = evidence.subject.inputs[which].coordinates
        direction = evidence.rng.uniform(-2, 2, n) * size
        if only is not None:
            direction[np.setdiff1d(np.arange(n), only)] = 0.0
        directions[which] = direction
        for side in (1.0, -1.0):
            if _apart(at(side), evidence.base) > _MOVED * unit:
                return _along(at, side, evidence.base, unit)
    for side in (_FAR, -_FAR):
        there = at(side)
        if np.isfinite(there).all() and _apart(there, evidence.base) > _MOVED * unit:
            return _along(at, side, evidence.base, unit)
    return Leaving.NEVER


def _along(at: Line, side: float, base: Row, unit: float) -> Leaving:
    """Halve the distance until nothing moves, and look at what is between."""
    far, there = side, at(side)
    for _ in range(_HALVINGS):
        near, here = far / 2, at(far / 2)
        if _apart(here, base) <= _STILL * unit:
            break
        far, there = near, here
    else:
        return Leaving.AT_ONCE
    whole = _apart(there, here)
    sudden = _apart(there, base) > _SUDDEN * _STILL * unit
    for _ in range(_NEARER):
        middle = (near + far) / 2
        between = at(middle)
        if _apart(between, here) > _apart(there, between):
            far, there = middle, between
        else:
            near, here = middle, between
    if _apart(there, here) > max(_JUMP * whole, _STILL * unit):
        return Leaving.JUMP
    return Leaving.LATE if sudden else Leaving.AT_ONCE


def _apart(one: Row, other: Row) -> float:
    """By how much the output that differs most differs."""
    return _largest(np.nan_to_num(one) - np.nan_to_num(other))


def _largest(values: Row) -> float:
    return float(np.abs(np.nan_to_num(values)).max(initial=0.0))
