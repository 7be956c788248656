"""Few columns of a sparse Jacobian are in doubt: those alone go the long way.

Of all others each entry has agreed already (`sparse_verdicts`), and what they show of
every row is handed on, so that no verdict depends on who else is looked at.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from gradlab.comparison.rule import tops_of
from gradlab.pipeline.outcome import Known, Outcome
from gradlab.pipeline.sparse_verdicts import (
    doubtful_columns,
    hand_tolerances_on,
    packed_entries,
    some_columns,
)
from gradlab.pipeline.verdicts import matters_of

if TYPE_CHECKING:
    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.plan import Plan
    from gradlab.subject.subject import Subject

__all__ = ["InDoubt", "in_doubt"]

_LARGE = 1 << 16  # entries of all blocks: looking at fewer takes no time
_SHARE = 0.25  # of the columns: where more are in doubt, all go the long way


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class InDoubt:
    """The matrices of some columns, and where they come from.

    Attributes
    ----------
    whole
        All columns; entries of these that are not in `part` agree.
    part
        Blocks of the columns in doubt, to be looked at.
    packed
        Of each block of the whole, its entries side by side.
    """

    whole: Outcome
    part: Outcome
    packed: tuple[Block, ...]

    def put_back(self, subject: Subject, plan: Plan) -> None:
        """Write what was found out about the part into the whole."""
        parts = {block.which: block for block in self.part.blocks}
        for small, block in zip(self.packed, self.whole.blocks, strict=True):
            hand_tolerances_on(subject, small, block, plan)
            part = parts.get(block.which)
            if part is None:
                block.settled = True
            else:
                block.take_over(part)
        self.whole.take_over(self.part)


def in_doubt(subject: Subject, outcome: Outcome, plan: Plan) -> InDoubt | None:
    """Make the matrices of the columns in doubt; None where those are no few.

    Parameters
    ----------
    outcome
        After the first pass, and not settled by it.
    """
    blocks = outcome.blocks
    columns = sum(len(block.positions) for block in blocks)
    if outcome.known is not None or columns * len(outcome.base) < _LARGE:
        return None
    doubtful = doubtful_columns(subject, outcome, plan)
    if doubtful is None or not 0 < sum(map(len, doubtful)) <= _SHARE * columns:
        return None
    packed = [small for block in blocks if (small := packed_entries(block))]
    tops = {small.which: tops_of(small.value, small.sizes) for small in packed}
    known = Known(matters_of(packed), tops, others_agree=True)
    part = dataclasses.replace(
        outcome,
        known=known,
        blocks=[
            some_columns(small, block, some)
            for small, block, some in zip(packed, blocks, doubtful, strict=True)
            if some.size
        ],
    )
    return InDoubt(outcome, part, tuple(packed))
