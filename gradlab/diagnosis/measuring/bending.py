"""Wide error bars: whether a function bends within the step, or rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.measuring.moving import slopes_at
from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.subject.subject import unit_vectors

if TYPE_CHECKING:
    from gradlab.diagnosis.evidence import Evidence, Part

__all__ = ["bends"]

_STEPS = 6e-6 * 0.5 ** np.arange(4)  # of the usual length, and three times half of it
_FALLS = 0.4  # times the change before: 1/4 of it where f bends, twice where it rounds


def bends(evidence: Evidence, part: Part) -> bool:
    """Whether differences settle as the step is made smaller.

    The error of a central difference falls with the square of the step where a smooth
    function bends, and grows as the step falls where something in it rounds. Looked at
    where the error bar is widest.
    """
    bars = np.where(np.isfinite(part.error), part.error, -1.0).max(axis=0, initial=-1.0)
    if not bars.size:
        return False
    size = evidence.subject.inputs[part.which].coordinates
    direction = unit_vectors(size, [part.positions[int(np.argmax(bars))]])
    try:
        slopes = [
            float(slopes_at(evidence, {}, part.which, direction, step=step)[0])
            for step in _STEPS / np.sqrt(size)
        ]
    except BudgetExhausted:
        return False
    changes = np.abs(np.diff(slopes))
    moves = (changes > 0).all()  # what rounds coarsely stands still, and then jumps
    return bool(moves and (changes[1:] <= _FALLS * changes[:-1]).all())
