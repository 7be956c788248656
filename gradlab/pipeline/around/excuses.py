"""All that is asked before an accusation is spoken, whatever way it was found on.

Entries of a whole Jacobian, of a part of one that does not fit into memory, entries
that random directions or a search led to: numbers alone accuse what is right as well.
The reasons for that are listed here and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradlab.pipeline.around.at_an_edge import accept_held_in_place, leave_edges_open
from gradlab.pipeline.around.beside import look_beside
from gradlab.pipeline.around.ill_conditioned import leave_ill_conditioned
from gradlab.pipeline.around.inexact import excuse_inexact
from gradlab.pipeline.around.loose_tolerances import leave_to_tolerances
from gradlab.pipeline.around.lost_in_half import leave_lost_in_half
from gradlab.pipeline.around.on_purpose import excuse_deliberate
from gradlab.pipeline.around.rounded_data import leave_rounded_data
from gradlab.pipeline.around.shared_out import accept_shared_out
from gradlab.pipeline.around.unseen import leave_unseen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gradlab.diagnosis.finding import Finding
    from gradlab.pipeline.outcome import Judged

__all__ = ["taken_back"]


_EXCUSES: tuple[Callable[[Judged], Iterable[Finding]], ...] = (
    accept_shared_out,
    accept_held_in_place,
    leave_edges_open,
    leave_lost_in_half,
    look_beside,
    leave_ill_conditioned,
    leave_rounded_data,
    leave_to_tolerances,
    leave_unseen,
    excuse_inexact,
)


def taken_back(judged: Judged, *, on_purpose: bool = True) -> list[Finding]:
    """Take back accusations that are no mistakes of the gradient, and say why.

    What is taken back must not be judged again, which would accuse it anew: this knows
    by other means than numbers that the slope is not the question. Nor can it come
    before the verdicts, which tell whom to hear.

    Parameters
    ----------
    judged
        Verdicts of its blocks are changed.
    on_purpose
        Whether to take back what torch changes on purpose, too; a search says of that
        itself what it left out.
    """
    found = excuse_deliberate(judged) if on_purpose else []
    for excuse in _EXCUSES:
        found += excuse(judged)
    return found
