"""Second looks: what seems wrong, or cannot be told, is measured again with care."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.rule import NEGLIGIBLE
from gradlab.comparison.tolerance import CLEAR, SAFETY, stillness_in_noise
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.finite_difference import seen_truncation
from gradlab.differentiation.metering.bar import foreseen
from gradlab.differentiation.method import Adaptive, Auto
from gradlab.differentiation.noise.hidden_noise import (
    LAST_DIGITS,
    coarse_noise,
    hidden_rounding,
)
from gradlab.differentiation.quotients import Quotients
from gradlab.pipeline.looks.closer import CLOSE_LOOKS, first_looks, spread, take_closer
from gradlab.pipeline.looks.coarse_arithmetic import hear_over_stairs
from gradlab.pipeline.looks.hidden_steps import see_through_steps
from gradlab.pipeline.looks.idle import settle_idle, settle_zeros
from gradlab.pipeline.looks.last_digits import hear_last_digits, noise_once
from gradlab.pipeline.looks.noisy_steps import allow_for_noise
from gradlab.pipeline.looks.other_steps import distance, hear_again
from gradlab.pipeline.looks.second_steps import few_enough, take_second_steps
from gradlab.pipeline.looks.unheard import is_missing
from gradlab.pipeline.looks.upholding import upheld_together
from gradlab.pipeline.suspects import close_calls, suspect_columns, suspects_of
from gradlab.pipeline.verdicts import judge_all, matters_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Outcome
    from gradlab.pipeline.plan import Check
    from gradlab.subject.subject import Subject

__all__ = ["look_again"]

_ROUNDINGS = 64.0  # of the largest output: as much may have cancelled in any other
_AFTER = 150  # evaluations from here on: noise, ladders, excuses and causes, about
_CONFIRMED = 0.5  # of the columns looked at, if no value moved: the rest is believed


def look_again(check: Check, outcome: Outcome) -> None:
    """Look again at what is suspicious; then hear what rests on last digits of f."""
    noise = noise_once(check.reference, check.meter, check.plan.seed)
    _escalate(check, outcome, noise)
    blocks = _looked_at(check, outcome)
    settled = [settle_zeros(check.reference, block, check.meter) for block in blocks]
    if any(settled):
        judge_all(check.subject, outcome, check.plan)
    hear_last_digits(check, outcome, noise)
    _doubt_coarse(check, outcome, blocks)


def _doubt_coarse(check: Check, outcome: Outcome, blocks: list[Block]) -> None:
    """Hear what is left of the accusations again, if f is made of stairs."""
    accused = [block for block in blocks if block.accused]
    if not accused:
        return
    stairs = coarse_noise(check.reference, check.meter, check.plan.seed)
    if stairs is None:
        return
    for block in accused:
        if hear_over_stairs(check.reference, block, stairs, check.meter):
            outcome.rough += (block.name,)
    judge_all(check.subject, outcome, check.plan)


def _looked_at(check: Check, outcome: Outcome) -> list[Block]:
    """Blocks of which gradlab chooses the steps."""
    return [
        block
        for block in outcome.blocks
        if block.positions.size
        and isinstance(check.plan.method_of(block.name), Auto)
        and not is_missing(block, outcome)
    ]


def _escalate(
    check: Check, outcome: Outcome, level: Callable[[], NDArray[np.float64]]
) -> None:
    """Look again at what is suspicious, until what is left cannot be otherwise.

    Suspects that move nothing are settled together, and a few others get a second
    step. Then the noise of f is measured; where it is more than rounding, the cheap
    differences are taken again with longer steps. Then, of many suspects in one input,
    the worst and a spread of the others climb the adaptive ladder. Where all of those
    are confirmed, the clear cases among the rest stand; the others are looked at, twice
    as many each time, until none is left. An accusation that rests on a few error bars
    is heard a second time. `level` measures the noise when it is first called.
    """
    subject, reference = check.subject, check.reference
    plan, meter = check.plan, check.meter
    blocks = _looked_at(check, outcome)
    suspects = [suspect_columns(block) for block in blocks]
    pairs = [pair for pair in zip(blocks, suspects, strict=True) if pair[1].size]
    if not pairs:
        return
    idle = [settle_idle(reference, *pair, meter, plan.seed) for pair in pairs]
    if any(idle):
        judge_all(subject, outcome, plan)
        left = [(block, suspect_columns(block)) for block, _ in pairs]
        pairs = [pair for pair in left if pair[1].size]
        if not pairs:
            return
    told = [
        take_second_steps(reference, *pair, meter)
        for pair in pairs
        if few_enough(*pair) and not _may_be_rounding(reference, *pair)
    ]
    if any(told):
        judge_all(subject, outcome, plan)
        if not any(suspect_columns(block).size for block in blocks):
            return
    meter.bar.expect_at_least(_AFTER)
    noise = level()
    grain = hidden_rounding(reference, noise, meter)
    heard = np.where(noise == LAST_DIGITS, 0.0, noise)
    slight = NEGLIGIBLE * matters_of(blocks, outcome.known).typical
    epsilon = reference.subject.epsilon
    still = stillness_in_noise(reference.base, heard, epsilon, slight)
    for block in blocks:
        block.grain = None if grain is None else grain[:, None]
        block.still = still * block.still.any()  # nothing counts as still there
    allowed = [allow_for_noise(reference, block, noise, meter) for block in blocks]
    if any(allowed):
        judge_all(subject, outcome, plan)
    _climb_ladders(check, blocks, noise, outcome)
    changed = False
    for block in blocks:
        if block.accused:
            changed |= hear_again(reference, block, noise, meter, _looks(outcome))
            if see_through_steps(reference.subject, block, meter):
                outcome.rough += (block.name,)
                changed = True
    if changed:
        judge_all(subject, outcome, plan)


def _looks(outcome: Outcome) -> int:
    """How many columns of an input are looked at before the rest is believed."""
    return CLOSE_LOOKS if outcome.known is None else outcome.known.looks


def _uphold(
    check: Check, blocks: list[Block], noise: NDArray[np.float64], outcome: Outcome
) -> None:
    """Mark the columns of each block that are clear, and upheld together."""
    reference, seed = check.reference, check.plan.seed
    walked = upheld_together(reference, blocks, noise, check.meter, seed)
    for block, moved in zip(blocks, walked, strict=True):
        clear = moved > 0
        if clear.any():
            clear &= _clear(block, slice(None))
        block.upheld, block.walked = clear, np.where(clear, moved, 0.0)
        if clear.any():
            outcome.upheld += (block.name,)


def _first_quota(subject: Subject, block: Block, outcome: Outcome) -> int:
    """How many suspects of an input climb first."""
    others = _columns_that_agree(subject, block, outcome)
    quota = first_looks(block, accused=outcome.accused, others=others)
    return min(quota, _looks(outcome))


def _columns_that_agree(subject: Subject, block: Block, outcome: Outcome) -> int:
    """How many columns of an input are not in its block because they agree."""
    if outcome.known is None or not outcome.known.others_agree:
        return 0
    return subject.inputs[block.which].coordinates - len(block.positions)


def _climb_ladders(
    check: Check, blocks: list[Block], noise: NDArray[np.float64], outcome: Outcome
) -> None:
    """Measure suspects with the adaptive ladder until what is left is clear."""
    _uphold(check, blocks, noise, outcome)
    quota = [_first_quota(check.subject, block, outcome) for block in blocks]
    ahead = sum(quota)
    while True:  # a value that is put right in one input can expose another
        suspects = [suspects_of(block) for block in blocks]
        left = sum(found.size for found in suspects)
        rounds = []
        with foreseen(check.meter, Adaptive.cost, min(ahead, left)):
            for k, (block, found) in enumerate(zip(blocks, suspects, strict=True)):
                if not found.size:
                    continue
                chosen = spread(found, quota[k])
                before = block.value[:, chosen].copy()
                bars = block.error[:, chosen].copy()
                rounds.append((k, found, chosen, before, bars))
                take_closer(check.reference, block, chosen, noise, check.meter)
                quota[k] *= 2
        ahead = left  # the first were not believed: likely as many more are not
        if not rounds:
            return
        judge_all(check.subject, outcome, check.plan)
        for k, found, chosen, before, bars in rounds:
            mask = blocks[k].upheld
            if _told_too_much(blocks[k], chosen, before, bars):
                _allow_for_truncation(blocks[k], found)
            if mask is not None and _upheld(blocks[k], chosen, before):
                mask[found] = _clear(blocks[k], found)


def _may_be_rounding(
    reference: Origin, block: Block, suspects: NDArray[np.intp]
) -> bool:
    """Whether a few roundings of the largest output would explain all that is off.

    Accusations, and entries that agree for their bar alone; every suspect has one. An
    entry of an inverse matrix that is small by cancellation has the rounding errors
    of what cancelled, and another step has them as well: only their size tells.
    """
    off = block.verdicts[:, suspects] != Verdict.AGREES.value
    off |= close_calls(block, suspects)
    base = reference.base
    top = np.abs(base).max(initial=0.0, where=np.isfinite(base))
    with np.errstate(all="ignore"):
        gap = np.abs(block.analytic[:, suspects] - block.value[:, suspects])
        moved = gap * np.abs(block.step[:, suspects])
        slight = moved <= _ROUNDINGS * reference.subject.epsilon * top
    return bool((slight | ~off).all() and off.any(axis=0).all())


def _told_too_much(
    block: Block,
    chosen: NDArray[np.intp],
    before: NDArray[np.float64],
    bars: NDArray[np.float64],
) -> bool:
    """Whether ladders show that the cheap bars of some columns did not cover errors."""
    with np.errstate(all="ignore"):
        moved = np.abs(block.value[:, chosen] - before)
        return bool((moved > SAFETY * (bars + block.error[:, chosen])).any())


def _allow_for_truncation(block: Block, found: NDArray[np.intp]) -> None:
    """Widen cheap bars of suspects by what f bends within the step.

    A coordinate of 3 beside one of 1e5 is moved by a good part of itself; where that
    was seen to show another slope for one, it may for the others.
    """
    left = found[~block.looked[found]]
    if left.size:
        parts = (m[:, left] for m in (block.value, block.error, block.step, block.bend))
        value, error, step, bend = parts
        cheap = Quotients(value=value, error=error, step=step, bend=bend)
        bars = seen_truncation(cheap, block.scales[left])
        block.widen(np.nan_to_num(bars), columns=left)


def _upheld(
    block: Block, chosen: NDArray[np.intp], before: NDArray[np.float64]
) -> bool:
    """Whether the second look confirmed the accusations of the first.

    It may leave some of them open, where kinks are so dense that larger steps tell
    nothing, as long as it confirms most and moves none.
    """
    verdicts = block.verdicts[:, chosen]
    wrong = (verdicts == Verdict.DISAGREES.value).any(axis=0)
    still = wrong | (verdicts == Verdict.UNDECIDED.value).any(axis=0)
    with np.errstate(all="ignore"):
        gap = np.abs(block.analytic[:, chosen] - block.value[:, chosen])
        moved = np.abs(before - block.value[:, chosen])
        steady = (moved <= 0.1 * gap + block.allowed[:, chosen]).all(axis=0)
    return bool((still & steady).all() and np.mean(wrong) >= _CONFIRMED)


def _clear(block: Block, columns: NDArray[np.intp] | slice) -> NDArray[np.bool_]:
    """Columns whose entries are wrong by many error bars, or not in doubt at all."""
    verdicts = block.verdicts[:, columns]
    doubtful = (verdicts == Verdict.UNDECIDED.value).any(axis=0)
    rows, wrong = np.nonzero(verdicts == Verdict.DISAGREES.value)
    whole = wrong if isinstance(columns, slice) else columns[wrong]
    with np.errstate(all="ignore"):
        far = distance(block, rows, whole)
        doubtful[wrong[~(far > CLEAR * block.error[rows, whole])]] = True
    return np.asarray(~doubtful)
