"""Mistakes of calls that got no gradient: whether the loss depends on them at all."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from gradlab.localisation.layers.audited import LayerState
from gradlab.localisation.layers.checking.outcome import Outcome
from gradlab.localisation.layers.recording.record import loss_depends_on

if TYPE_CHECKING:
    from gradlab.localisation.layers.recording.frames import Frame
    from gradlab.localisation.layers.recording.recorder import Program

__all__ = ["as_far_as_it_matters"]


def as_far_as_it_matters(program: Program, frame: Frame, outcome: Outcome) -> Outcome:
    """Tell of a mistake without calling it wrong if no loss depends on it.

    Parameters
    ----------
    program
        Is run twice.
    frame, outcome
        A wrong call that got no gradient, and what was found of it.
    """
    try:
        matters = loss_depends_on(program, frame)
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        return Outcome(
            LayerState.UNCHECKED,
            "got no gradient, and could not be changed to see whether the loss "
            f"depends on it: {error}",
        )
    if matters:
        return outcome
    return dataclasses.replace(
        outcome,
        state=LayerState.UNCHECKED,
        wrong=[],
        reason=f"the loss does not depend on it, luckily: {outcome.reason}",
    )
