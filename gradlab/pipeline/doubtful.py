"""Few columns of a sparse Jacobian are in doubt: those alone go the long way.

Of all others each entry has agreed already (`sparse_verdicts`), and what they show of
every row is handed on, so that no verdict depends on who else is looked at.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.judge import tops_of
from gradlab.comparison.verdict import Verdict
from gradlab.pipeline.judging import matters_of
from gradlab.pipeline.outcome import Known, Outcome
from gradlab.pipeline.sparse_verdicts import (
    doubtful_columns,
    hand_tolerances_on,
    packed_entries,
    some_columns,
)

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
                _write(part, block)
        for name in ("unsteady", "upheld", "rough", "overruled", "unheard"):
            setattr(self.whole, name, getattr(self.part, name))


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


def _write(part: Block, block: Block) -> None:
    """Write the columns of a part into their block."""
    columns, shape = part.positions, (len(part.value), len(block.positions))
    block.unfold()
    block.own_slopes()
    block.verdicts = np.full(shape, Verdict.AGREES, dtype=np.int8)
    block.accepted = np.zeros(shape, dtype=bool)
    for name in (
        "value",
        "error",
        "step",
        "bend",
        "kinds",
        "left",
        "right",
        "verdicts",
        "allowed",
        "accepted",
    ):
        getattr(block, name)[:, columns] = getattr(part, name)
    block.looked[columns] = part.looked
    if part.upheld is not None:
        block.upheld = np.zeros(shape[1], dtype=bool)
        block.upheld[columns] = part.upheld
        block.walked = np.zeros(shape[1])
        block.walked[columns] = part.walked
    if isinstance(part.digits, np.ndarray):
        block.digits = np.zeros(shape)
        block.digits[:, columns] = part.digits
    block.grain = part.grain
    if part.blur is not None:
        block.blur = np.zeros(shape)
        block.blur[:, columns] = part.blur
    if part.own_scales is not None:
        block.own_scales = block.scales.copy()
        block.own_scales[columns] = part.own_scales
    if part.jump is not None:
        height, away, column = part.jump
        block.jump = height, away, int(columns[column])
