"""Functions that do not repeat themselves: no difference of their values is a slope.

Draws that can be frozen are frozen before anything else (`localisation.conditions`).
What is left are generators made afresh inside the function, clocks, and results of
other processes. They show when the point itself is evaluated twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.evaluation import base_row

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.outcome import Outcome

__all__ = ["scatter_of", "set_unsteady_aside"]

# Sums that threads finish in another order differ by a few roundings; that is no draw.
_ROUNDINGS = 1e3
_REPEATS = 3


def scatter_of(origin: Origin, meter: Meter) -> NDArray[np.float64]:
    """Measure how much f differs between evaluations at the same point.

    Three repetitions: a mask may be drawn twice.

    Returns
    -------
    ndarray
        Largest difference of each output, 0 where it repeats itself; shape (rows,).
    """
    subject, base = origin.subject, origin.base
    widest = np.zeros(len(base))
    for _ in range(_REPEATS):
        again = base_row(subject, meter)
        with np.errstate(all="ignore"):
            apart = np.abs(again - base)
            apart[np.isnan(again) & np.isnan(base)] = 0.0
            apart[again == base] = 0.0  # also where both are infinite
            size = np.fmax(np.abs(again), np.abs(base))
            heard = ~(apart <= _ROUNDINGS * subject.epsilon * size)
        widest = np.fmax(widest, np.where(heard, apart, 0.0))
    return widest


def set_unsteady_aside(origin: Origin, outcome: Outcome, meter: Meter) -> bool:
    """Leave outputs undecided that do not repeat themselves, and say so.

    Only where something is left to be explained: cheap differences that agree with the
    gradient to six digits everywhere are no accident.

    Returns
    -------
    bool
        Whether any output is worth another look.
    """
    blocks = outcome.blocks
    if all((block.verdicts == Verdict.AGREES.value).all() for block in blocks):
        return True
    scatter = scatter_of(origin, meter)
    unsteady = scatter > 0
    if not unsteady.any():
        return True
    outcome.unsteady = scatter
    for block in blocks:
        block.distrust(unsteady[:, None])
    return bool(not unsteady.all())
