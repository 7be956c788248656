"""What the check of one call found.

Mistakes of calls that got no gradient: whether the loss depends on them at all.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from gradlab.localisation.layers.audited import LayerState
from gradlab.localisation.layers.recording.record import loss_depends_on

if TYPE_CHECKING:
    from gradlab.localisation.layers.checking.kind import Character
    from gradlab.localisation.layers.checking.probe import Measure
    from gradlab.localisation.layers.recording.frames import Frame
    from gradlab.localisation.layers.recording.recorder import Program
    from gradlab.localisation.layers.variables import Variable

__all__ = ["CallOutcome", "as_far_as_it_matters"]


@dataclasses.dataclass(slots=True, eq=False)
class CallOutcome:
    """What the check of one call found.

    Parameters
    ----------
    state, reason
        Answer and sentence.
    measure
        The worst measure, or None.
    wrong
        The tensors whose gradient is wrong.
    character
        What kind of mistake it is.
    hook
        The hook that makes it wrong, in words; "" if it is the layer itself.
    doubtful
        The base point could not be reproduced.
    failed
        The piece could not be run by itself.
    empty
        There is nothing in it to check, which is no reason to warn.
    together
        What was checked is the call with all that is inside, not its own code alone.
    wide
        It was found with casts to less than float64 left out.
    """

    state: LayerState
    reason: str
    measure: Measure | None = None
    wrong: list[Variable] = dataclasses.field(default_factory=list)
    character: Character | None = None
    hook: str = ""
    doubtful: bool = False
    failed: bool = False
    empty: bool = False
    together: bool = False
    wide: bool = False

    @property
    def raised(self) -> bool:
        """Whether it is wrong because its backward raises."""
        return self.character is not None and self.character.words.startswith("raised ")


def as_far_as_it_matters(
    program: Program, frame: Frame, outcome: CallOutcome
) -> CallOutcome:
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
        return CallOutcome(
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
        reason="the loss does not depend on it; by itself it is wrong: "
        f"{outcome.reason}",
    )
