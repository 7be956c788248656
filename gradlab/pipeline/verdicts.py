"""Verdicts of all entries of blocks, by the numbers as they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.effects import sensitivity
from gradlab.comparison.rule import Judgement, Leniency, Units, judge, tops_of
from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.outcome import Matters
from gradlab.pipeline.untold import untold
from gradlab.subject.subject import EPSILON

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Known, Outcome
    from gradlab.pipeline.plan import Plan
    from gradlab.subject.subject import Subject

__all__ = ["judge_all", "judge_block", "judge_in_place_of", "matters_of"]

# Roundings of float32, of the largest entry of a row, that a formula in float64 may be
# off by: what it holds in float32 (a product of two arrays, a tenth of one, the
# transform of a filter) was rounded before it met float64, and otherwise than in f.
# Twice what `rtol` forgives the largest entry itself. Of 104 right checks of 13 such
# programs 21 were accused without, 4 with two roundings, 1 with eight, none so.
_HELD = 16.0
_SINGLE = float(np.finfo(np.float32).eps)

_NEARER = 0.5  # times as far from f: a slip is on both sides, up to a rounding of one

# Standard deviations of a rounding, the largest of which is 1.7 of them. Measured on
# 160 right checks of eight functions that round to float32, of 5 and 20 coordinates: 1
# leaves 15 of them undecided, 4 leaves 7, and so does 16; of 80 mistakes of half a
# percent all but one are told by each of them.
_GRAINS = 4.0


def matters_of(
    blocks: list[Block],
    known: Known | None = None,
    *,
    effects: list[NDArray[np.float64]] | None = None,
) -> Matters:
    """Measure what matters to each output row, here and in what is known of others.

    `effects` is the `typical_effect` of each block, where that is known already.
    """
    typical = [b.typical_effect for b in blocks] if effects is None else effects
    own = typical
    if any(block.sizes is not block.scales for block in blocks):
        own = [sensitivity(block.side, block.sizes) for block in blocks]
    if known is not None:
        typical, own = [*typical, known.matters.typical], [*own, known.matters.own]
    return Matters(
        np.asarray(np.max(typical, axis=0), dtype=np.float64),
        np.asarray(np.max(own, axis=0), dtype=np.float64),
    )


def judge_all(subject: Subject, outcome: Outcome, plan: Plan) -> None:
    """Give every entry of every block its verdict, by the numbers as they stand."""
    blocks = [block for block in outcome.blocks if block.positions.size]
    if not blocks:
        return
    matters = matters_of(blocks, outcome.known)
    for block in blocks:
        judge_block(subject, block, plan, matters, outcome)


def judge_block(
    subject: Subject,
    block: Block,
    plan: Plan,
    matters: Matters,
    outcome: Outcome,
) -> None:
    """Give the entries of one block their verdicts; see `gradlab.comparison.rule`."""
    side, known = block.side, outcome.known

    tolerance = plan.tolerance.of(block.name)

    def judged(
        analytic: NDArray[np.float64],
        epsilon: float,
        slack: NDArray[np.float64] | float,
    ) -> Judgement:
        return judge(
            analytic,
            side,
            units,
            Leniency(tolerance, epsilon, block.still, slack),
            own=block.latest_scales,
            tops=tops,
        )

    scales = block.latest_scales if block.faint else block.scales
    noticed = block.noticed(matters.typical)
    units = Units(scales, block.sizes, noticed, matters.own)
    tops = None if known is None else known.tops.get(block.which)
    digits = block.digits + block.unnoticed
    found = judged(block.analytic, subject.epsilon, _rounding(block) + digits)
    block.verdicts, block.allowed = found.verdicts, found.allowed
    if block.precise is not None:
        # the same formula in float64: small slips show there, round-off does not
        top = tops_of(side.value, block.sizes, tops)
        held = _HELD * _SINGLE * top.in_units_of(block.latest_scales)
        formula = judged(block.precise, EPSILON, digits + held)
        copy_only = (formula.verdicts == Verdict.DISAGREES.value) & _error_of_copy(
            block
        )
        formula.verdicts[copy_only] = Verdict.AGREES
        block.verdicts = np.maximum(block.verdicts, formula.verdicts)
    if block.grain is not None:
        block.verdicts[_below_the_grain(block, side.error, block.grain)] = (
            Verdict.AGREES
        )
        block.blur = _blur(block, block.grain, matters.own, outcome.base)
        with np.errstate(all="ignore"):
            slight = np.abs(block.formula - block.value) <= block.blur
        slight &= block.wrong
        block.leave_open(slight)
    if not (np.isfinite(block.value).all() and np.isfinite(outcome.base).all()):
        block.leave_open(_without_ground(block, outcome.base))
    if known is None:  # else others of its columns may have been seen
        exact = subject.epsilon if block.precise is None else EPSILON
        block.untold = untold(block, matters.own, exact)
    kink = block.kinds == Smoothness.KINK.value
    if not kink.any():
        block.accepted = np.zeros(kink.shape, dtype=bool)
        return
    apart = np.abs(block.analytic - block.value) > np.maximum(
        block.allowed, SAFETY * side.error
    )
    block.accepted = kink & apart & (block.verdicts != Verdict.DISAGREES.value)


def judge_in_place_of(
    subject: Subject, block: Block, twin: Block, outcome: Outcome, plan: Plan
) -> None:
    """Give the entries of a copy of a block verdicts beside all other blocks."""
    others = [twin if other is block else other for other in outcome.blocks]
    judge_block(subject, twin, plan, matters_of(others, outcome.known), outcome)


def _error_of_copy(block: Block) -> NDArray[np.bool_]:
    """Entries of which the formula in float64 is farther off than the user's own side.

    A slip is in both of them. What the user's side has not is an error of the copy: of
    a 1e-10 that guards a division, say, and is nothing beside a sum in float32.
    """
    with np.errstate(all="ignore"):
        own = np.abs(block.analytic - block.value)
        return np.asarray(own <= _NEARER * np.abs(block.precise - block.value))


def _below_the_grain(
    block: Block, error: NDArray[np.float64], grain: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Undecided entries that are zero on both sides, of an f that cannot say more.

    Where f did not move at all, and its bar is less than it can move by, no
    arithmetic of that kind could tell the entry from zero.
    """
    zero = (block.verdicts == Verdict.UNDECIDED.value) & (block.analytic == 0)
    zero &= (block.value == 0) & block.looked
    with np.errstate(all="ignore"):
        moved = SAFETY * error * block.latest_scales
        return np.asarray(zero & (moved <= _GRAINS * grain))


def _blur(
    block: Block,
    grain: NDArray[np.float64],
    own: NDArray[np.float64],
    base: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Say what an f that rounds inside can hide of each entry, (rows, n).

    Rounded by u, f tells no slope better than to sqrt(u) of what moves its output most
    (the best step of a forward difference has that error; Nocedal and Wright, section
    8.1). Where a coordinate is a factor of a rounded number its line is straight, and
    nothing on it shows how far that number is off.
    """
    with np.errstate(all="ignore"):
        unit = np.nanmax(grain[:, 0] / np.abs(base), initial=0.0)
        return np.asarray(np.sqrt(unit) * own / block.latest_scales)


def _without_ground(block: Block, base: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Entries of which the numeric side says nothing that could be held against anyone.

    Where f is finite and its quotient is not, the numeric side failed; where f itself
    is nan or infinite, there is no derivative to fail. In a column with an infinite
    slope the nan of other outputs is that slope times a cotangent of zero, which is how
    rows of a Jacobian are read out, and no statement of the gradient.
    """
    finite, here = np.isfinite(block.value), np.isfinite(base)[:, None]
    known = np.isfinite(block.analytic)
    lost = (~finite & known) | ~here
    steep = np.isinf(block.value) | (~here & ~known)
    return np.asarray(lost | (finite & np.isnan(block.analytic) & steep.any(axis=0)))


def _rounding(block: Block) -> NDArray[np.float64]:
    """Round-off of a low-precision analytic side, measured against float64.

    Never more than five percent of the largest entry: beyond that it is no round-off
    any more, unless measured to be so (`Block.slack`). The largest of the block, not of
    the row: the gradient of an output that has saturated in short arithmetic is
    round-off.
    (Slips of the formula itself show in float64, where nothing is forgiven.)
    """
    if block.precise is None:
        return block.slack
    with np.errstate(all="ignore"):
        size = np.abs(block.precise)
        top = np.where(np.isfinite(size), size, 0).max(initial=0.0)
        apart = np.abs(block.analytic - block.precise)
        most = np.maximum(0.05 * np.maximum(size, top), block.slack)
        return np.asarray(np.minimum(apart, most))
