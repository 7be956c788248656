"""All that is asked before an accusation is spoken, whatever way it was found on.

Entries of a whole Jacobian, of a part of one that does not fit into memory, entries
that random directions or a search led to: numbers alone accuse what is right as well.
The reasons for that are listed here and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradlab.pipeline.around.at_an_edge import leave_edges_open
from gradlab.pipeline.around.beside import look_beside
from gradlab.pipeline.around.held_in_place import accept_held_in_place
from gradlab.pipeline.around.ill_conditioned import leave_ill_conditioned
from gradlab.pipeline.around.inexact import excuse_inexact
from gradlab.pipeline.around.loose_tolerances import leave_to_tolerances
from gradlab.pipeline.around.lost_in_half import leave_lost_in_half
from gradlab.pipeline.around.on_purpose import excused
from gradlab.pipeline.around.rounded_data import leave_rounded_data
from gradlab.pipeline.around.shared_out import accept_shared_out
from gradlab.pipeline.around.unseen import leave_unseen

if TYPE_CHECKING:
    from gradlab.diagnosis.finding import Finding
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.outcome import Outcome
    from gradlab.subject.subject import Subject

__all__ = ["taken_back"]


def taken_back(
    subject: Subject,
    outcome: Outcome,
    meter: Meter,
    seed: int,
    *,
    on_purpose: bool = True,
) -> list[Finding]:
    """Take back accusations that are no mistakes of the gradient, and say why.

    What is taken back must not be judged again, which would accuse it anew: this knows
    by other means than numbers that the slope is not the question. Nor can it come
    before the verdicts, which tell whom to hear.

    Parameters
    ----------
    subject
        As the user has it.
    outcome
        Judged; verdicts of its blocks are changed.
    meter
        Charged for what is asked, which is nothing where nobody is accused.
    seed
        Of directions and roundings.
    on_purpose
        Whether to take back what torch changes on purpose, too; a search says of that
        itself what it left out.
    """
    return [
        *(excused(subject, outcome.blocks) if on_purpose else ()),
        *accept_shared_out(subject, outcome),
        *accept_held_in_place(outcome, meter),
        *leave_edges_open(subject, outcome, meter),
        *leave_lost_in_half(subject, outcome),
        *look_beside(subject, outcome, meter, seed),
        *leave_ill_conditioned(subject, outcome, meter, seed),
        *leave_rounded_data(subject, outcome, meter, seed),
        *leave_to_tolerances(subject, outcome, meter),
        *leave_unseen(subject, outcome, meter, seed),
        *excuse_inexact(outcome),
    ]
