"""Slight mistakes of one layer, looked at by a whole check before they are told.

A slope along a random direction is one number, and an iteration that ends at 1e-3 gives
a steady one, which is not that of the solution: a right implicit gradient is off by a
few parts in a thousand, at every step. Whether f jumps a little farther on, and what a
smaller tolerance does, is a question for a check of the layer by itself.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from gradlab.localisation.layers.audited import LayerState

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradlab.localisation.layers.checking.call_outcome import CallOutcome
    from gradlab.localisation.layers.recording.frames import Frame

    Alone = Callable[[Frame], tuple[str, int]]

__all__ = ["as_far_as_alone"]

_SLIGHT = 0.02  # of both slopes together: more is no matter of a tolerance


def as_far_as_alone(
    frame: Frame, outcome: CallOutcome, alone: Alone
) -> tuple[CallOutcome, int]:
    """Leave a slight mistake open that a check of the layer does not confirm.

    Parameters
    ----------
    frame, outcome
        A wrong call, and what was found of it.
    alone
        Checks a call by itself. Says why it stays open, "" where it does not, and how
        many evaluations that took.

    Returns
    -------
    outcome, evaluations
        The same outcome, or that it could not be checked.
    """
    measure = outcome.measure
    if measure is None or measure.error > _SLIGHT or outcome.hook or frame.children:
        return outcome, 0
    why, evaluations = alone(frame)
    if not why:
        return outcome, evaluations
    left_open = dataclasses.replace(
        outcome,
        state=LayerState.UNCHECKED,
        wrong=[],
        character=None,
        reason=f"slightly off, which a check of it alone leaves open: {why}",
    )
    return left_open, evaluations
