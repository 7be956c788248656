"""Verdicts of Jacobians that are mostly zeros, from the entries that are not.

Where a pattern is known (`differentiation.sparse`) and the analytic side has nothing
outside of it, all that can be wrong stands in a few columns of every row. Those are
laid side by side and judged by the same rules as the whole matrix would be; of the
zeros, which agree, only the bar has to be narrow enough. If nothing calls for a second
look the matrix is done with; else all of it goes the long way.

Few columns of a sparse Jacobian are in doubt: those alone go the long way. Of all
others each entry has agreed already (`sparse_verdicts`), and what they show of every
row is handed on, so that no verdict depends on who else is looked at.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.rule import Tops, tops_of, zeros_told
from gradlab.comparison.tiling import bands
from gradlab.differentiation.method import Auto
from gradlab.late import is_made, unmade
from gradlab.pipeline.looks.rounded_bars import widen_bars
from gradlab.pipeline.looks.second_steps import few_enough, take_second_steps
from gradlab.pipeline.outcome import Known, Outcome
from gradlab.pipeline.suspects import accept, is_beyond_doubt, suspicious
from gradlab.pipeline.verdicts import judge_block, matters_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.differentiation.sparse.support import Support
    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Outcome
    from gradlab.pipeline.plan import Check, Plan
    from gradlab.subject.subject import Subject

__all__ = [
    "InDoubt",
    "doubtful_columns",
    "in_doubt",
    "packed_entries",
    "settled_at_once",
    "some_columns",
]

_LARGE = 1 << 16  # entries of all blocks: looking at fewer takes no time
_SHARE = 0.25  # of the columns: where more are in doubt, all go the long way


def settled_at_once(check: Check, outcome: Outcome) -> bool:
    """Judge all blocks if they agree beyond doubt, and some are known to be sparse.

    A few entries that leave a doubt get a second step, as they do on the long way.

    Returns
    -------
    bool
        Whether every entry of every block agrees and none deserves a second look; the
        blocks have their verdicts then. Else nothing is decided.
    """
    subject, plan = check.subject, check.plan
    blocks = [block for block in outcome.blocks if block.positions.size]
    auto = all(isinstance(plan.method_of(v.name), Auto) for v in subject.inputs)
    if not auto or outcome.known is not None:
        return False
    looked: list[Block] = []
    for last in (False, True):
        packed = [packed_entries(block) for block in blocks]
        if not any(packed):
            return False
        looked = [small or block for small, block in zip(packed, blocks, strict=True)]
        doubts = _doubts(subject, outcome, plan, looked)
        if doubts is None or (last and any(mask.any() for mask in doubts)):
            return False
        if not any(mask.any() for mask in doubts):
            break
        pairs = zip(doubts, looked, blocks, strict=True)
        if not all(_stepped(check.reference, *each, check.meter) for each in pairs):
            return False
    widen_bars(check, blocks, looked)
    for small, block in zip(looked, blocks, strict=True):
        if small is not block:
            _hand_tolerances_on(subject, small, block, plan)
        block.settled = True
    return True


def doubtful_columns(
    subject: Subject, outcome: Outcome, plan: Plan
) -> list[NDArray[np.intp]] | None:
    """Name the columns of each block in which entries deserve a second look.

    None where the zeros do as well, or a block has more than its entries.
    """
    packed = [packed_entries(block) for block in outcome.blocks]
    small = [block for block in packed if block is not None]
    if len(small) < len(packed) or any(is_made(b, "value") for b in outcome.blocks):
        return None
    doubts = _doubts(subject, outcome, plan, small)
    if doubts is None:
        return None
    return [
        np.unique(block.pattern.support.columns[mask])
        for mask, block in zip(doubts, outcome.blocks, strict=True)
        if block.pattern is not None
    ]


def _doubts(
    subject: Subject, outcome: Outcome, plan: Plan, looked: list[Block]
) -> list[NDArray[np.bool_]] | None:
    """Entries that deserve a second look; None where the zeros do as well."""
    effects = [small.typical_effect for small in looked]
    matters = matters_of(looked, effects=effects)
    doubts: list[NDArray[np.bool_]] = []
    finite = bool(np.isfinite(outcome.base).all())
    for small, own in zip(looked, effects, strict=True):
        if finite and is_beyond_doubt(subject, small, plan, own):
            accept(subject, small, plan, outcome.known)
            doubts.append(np.broadcast_to(np.False_, small.value.shape))
        else:
            judge_block(subject, small, plan, matters, outcome)
            doubts.append(suspicious(small, own))
        if small.pattern is not None and small.scales.ndim > 1:  # laid side by side
            bars = small.pattern.outside[:, None]
            least = [small.noticed(effect) for effect in (matters.typical, own)]
            if not zeros_told(bars, least, small.still):
                return None
    return doubts


def packed_entries(block: Block) -> Block | None:
    """Lay the entries of a pattern side by side; None if there is more to be judged."""
    pattern = block.pattern
    if pattern is None or block.precise is not None or block.slack.any():
        return None
    support, precise = pattern.support, None
    if block.precise_entries is not None:
        precise = block.precise_entries.laid_out_as(support)
        if precise is None:
            return None
    if block.entries is not None:
        analytic = block.entries.laid_out_as(support)
    else:
        # twice as fast as an index for each axis
        analytic = np.asarray(block.analytic.take(support.places()), dtype=np.float64)
        inside = int(np.count_nonzero(analytic[support.valid]))
        if np.count_nonzero(block.analytic != 0) != inside:  # a fourth of the time
            return None
    if analytic is None:
        return None
    shape, scales = support.columns.shape, block.scales[support.columns]
    alike = block.sizes is block.scales
    blank = np.broadcast_to(np.nan, shape)
    return dataclasses.replace(
        block,
        positions=np.arange(shape[1]),
        scales=scales,
        sizes=scales if alike else block.sizes[support.columns],
        analytic=analytic,
        precise=precise,
        value=pattern.value,
        error=pattern.error,
        step=block.step[:1, :1],  # not asked for here
        bend=pattern.bend,
        kinds=np.full(shape, -1, dtype=np.int8),
        left=blank,
        right=blank,
        allowed=blank,  # nor is that of the whole block made
        looked=np.zeros(shape[1], dtype=bool),
    )


def _stepped(
    reference: Origin,
    mask: NDArray[np.bool_],
    small: Block,
    block: Block,
    meter: Meter,
) -> bool:
    """Take second steps where entries are in doubt; False if that tells no more."""
    if not mask.any():
        return True
    if small is not block:
        return _stepped_inside(reference, mask, small, block, meter)
    columns = np.flatnonzero(mask.any(axis=0))
    block.unfold()
    return few_enough(block, columns) and take_second_steps(
        reference, block, columns, meter
    )


def _stepped_inside(
    reference: Origin,
    mask: NDArray[np.bool_],
    small: Block,
    block: Block,
    meter: Meter,
) -> bool:
    """Take second steps where some entries of a pattern are in doubt.

    Returns
    -------
    bool
        Whether the pattern still holds all there is; it has the new numbers then, else
        the matrices of the block have.
    """
    pattern = block.pattern
    if pattern is None:
        return False
    support = pattern.support
    columns = np.unique(support.columns[mask])
    if not few_enough(block, columns):
        return False
    i, k, inside = _places(support, columns)
    part = some_columns(small, block, columns)
    effect = small.typical_effect
    every = np.arange(len(columns))
    take_second_steps(reference, part, every, meter, effect=effect)
    outside = np.ones(part.value.shape, dtype=bool)
    outside[inside] = False
    if not part.value[outside].any():
        for kept, new in (
            (pattern.value, part.value),
            (pattern.error, part.error),
            (pattern.bend, part.bend),
        ):
            kept[i, k] = new[inside]
        return True
    block.unfold()  # a second step saw something that the first did not
    for name in ("value", "error", "bend"):
        getattr(block, name)[:, columns] = getattr(part, name)
    return False


def _places(
    support: Support, columns: NDArray[np.intp]
) -> tuple[
    NDArray[np.intp], NDArray[np.intp], tuple[NDArray[np.intp], NDArray[np.intp]]
]:
    """Find entries in some columns: where they are listed, and among these columns."""
    place = np.full(support.width, -1)
    place[columns] = np.arange(len(columns))
    there = place[support.columns]
    i, k = np.nonzero((there >= 0) & support.valid[:, :1])
    return i, k, (i, there[i, k])


def some_columns(small: Block, block: Block, columns: NDArray[np.intp]) -> Block:
    """Make the matrices of some columns of a block of which the entries are known.

    Parameters
    ----------
    small
        Its entries, as `packed_entries` lays them side by side.
    block
        In which there is a pattern.
    columns
        Of the block.
    """
    pattern = block.pattern
    if pattern is None:
        msg = "the block has no pattern"
        raise ValueError(msg)
    shape, scales = (len(small.value), len(columns)), block.scales[columns]
    i, k, inside = _places(pattern.support, columns)

    def cut(
        values: NDArray[np.float64], outside: NDArray[np.float64] | float = 0.0
    ) -> NDArray[np.float64]:
        whole = np.array(np.broadcast_to(outside, shape))
        whole[inside] = values[i, k]
        return whole

    blank = np.broadcast_to(np.nan, shape)
    return dataclasses.replace(
        block,
        positions=block.positions[columns],
        scales=scales,
        sizes=scales if block.sizes is block.scales else block.sizes[columns],
        analytic=cut(small.analytic),
        precise=None if small.precise is None else cut(small.precise),
        value=cut(pattern.value),
        error=cut(pattern.error, np.multiply.outer(pattern.outside, 1 / scales)),
        step=block.step[:, columns],
        bend=cut(pattern.bend),
        kinds=np.full(shape, -1, dtype=np.int8),
        left=blank,
        right=blank,
        verdicts=np.zeros(shape, dtype=np.int8),
        allowed=cut(small.allowed),
        accepted=np.zeros(shape, dtype=bool),
        looked=np.zeros(len(columns), dtype=bool),
        walk=None,
        pattern=None,
        entries=None,
        precise_entries=None,
        settled=False,
    )


def _hand_tolerances_on(
    subject: Subject, small: Block, block: Block, plan: Plan
) -> None:
    """Give a block the tolerances of its entries, to be laid out when asked for."""
    if block.pattern is None:
        return
    tolerance = plan.tolerance.of(block.name)
    # no more than this is kept for a report: no subject, no user's function
    support, scales = block.pattern.support, block.scales
    epsilon = subject.epsilon
    inside, values, sizes = unmade(small, "allowed"), small.value, small.sizes

    def allowed() -> NDArray[np.float64]:
        tops = tops_of(values, sizes)
        whole = np.empty(support.shape)
        for band in bands(support.shape):
            largest = Tops(tops.size[band], tops.effect[band]).in_units_of(scales)
            whole[band] = tolerance.absolute(largest, epsilon)
        support.put(inside() if callable(inside) else inside, whole)
        return whole

    block.allowed = allowed


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
            _hand_tolerances_on(subject, small, block, plan)
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
