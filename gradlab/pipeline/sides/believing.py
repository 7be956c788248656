"""Is a complex step to be believed: along one direction, beside the adaptive ladder.

``abs``, ``max`` or a conjugate inside f gives a number, but the wrong one; and a solver
that stops when its value has converged stops before its derivative has. Differences
along one random direction through all columns tell, for some twenty evaluations.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.adaptive_columns import adaptive_line
from gradlab.differentiation.complex_step import underflow
from gradlab.differentiation.evaluation import line_of
from gradlab.errors import ComplexStepError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.differentiation.quotients import Quotients

__all__ = ["believed"]

_AGREE = 1e-4  # of the slope: how close differences must come
_BARS = 5.0  # and how many of their bars they may be away
_PLAIN = 100.0  # times what round-off does to a difference: more is something in f
_FINE = 1e-9  # of the slope: a bar this small leaves no room for it


def believed(
    origin: Origin,
    which: int,
    positions: NDArray[np.intp],
    scales: NDArray[np.float64],
    found: Quotients,
    meter: Meter,
) -> Quotients:
    """Compare complex steps with differences along one random direction.

    Parameters
    ----------
    scales
        Of the coordinates, (n,).
    found
        What complex steps say of them.

    Returns
    -------
    Quotients
        The same; where differences find more in f than rounding, or something else,
        with bars as wide as that leaves it open.

    Raises
    ------
    ComplexStepError
        If differences say something else.
    """
    subject, base = origin.subject, origin.base
    rng = np.random.default_rng(0)
    # each by its own size: one step has to suit 1e-8 beside 1e8
    own = np.abs(subject.point(which)[positions])
    own = np.where(np.isfinite(own) & (own > 0), own, scales)
    moves = rng.choice([-1.0, 1.0], len(positions)) * own
    line = adaptive_line(origin, line_of(subject, [(which, positions, moves)]), meter)
    slope, bar, step = line.value[:, 0], line.error[:, 0], line.step[:, 0]
    with np.errstate(all="ignore"):
        expected = found.value @ moves
        size = np.abs(found.value) @ np.abs(moves)
        apart = np.abs(expected - slope)
        least = underflow(subject.epsilon) / found.step
        lost = least @ np.abs(moves)
        wrong = apart > _BARS * bar + _AGREE * size + lost
        if wrong.any():
            msg = (
                f"the function is not analytic in {subject.inputs[which].name}: the "
                f"complex step says {expected[wrong][0]:.6g} along a random direction, "
                f"differences say {slope[wrong][0]:.6g} (abs, max, a comparison or a "
                'conjugate on the way?); use method="central"'
            )
            raise ComplexStepError(msg)
        plain = _PLAIN * subject.epsilon * np.abs(base) / step
        told = (bar <= np.fmax(plain, _FINE * size)) & (apart <= _BARS * bar)
        left_open = np.where(told, 0.0, apart + bar)
        left_open = np.where(np.isnan(left_open), np.inf, left_open)
        error = np.fmax(found.error, left_open[:, None] / own)
    return dataclasses.replace(found, error=error)
