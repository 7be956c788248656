"""Second looks: what seems wrong, or cannot be told, is measured again with care."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.judge import NEGLIGIBLE
from gradlab.comparison.kinks import Sides, told_apart
from gradlab.comparison.tolerance import SAFETY, stillness_in_noise
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.adaptive_columns import adaptive_columns
from gradlab.differentiation.hidden_noise import (
    LAST_DIGITS,
    hidden_rounding,
    noise_level,
)
from gradlab.differentiation.method import Auto
from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.judging import judge_all, matters_of
from gradlab.pipeline.looks.closer import CLOSE_LOOKS, first_looks, spread, take_closer
from gradlab.pipeline.looks.hidden_steps import see_through_steps
from gradlab.pipeline.looks.idle import settle_idle
from gradlab.pipeline.looks.last_digits import hear_last_digits
from gradlab.pipeline.looks.noisy_steps import allow_for_noise
from gradlab.pipeline.looks.second_steps import few_enough, take_second_steps
from gradlab.pipeline.looks.upholding import upheld_together
from gradlab.pipeline.suspects import suspect_columns, suspects_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.evaluation import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.blocks import Block, Check, Outcome
    from gradlab.subject.subject import Subject

__all__ = ["CLEAR", "look_again"]

_SLIGHT = 1e-2  # relative: a smaller slip is measured twice
CLEAR = 40.0  # error bars: an accusation that rests on more needs no confirmation
_ROUNDINGS = 64.0  # of the largest output: as much may have cancelled in any other
_CONFIRMED = 0.5  # of the columns looked at, if no value moved: the rest is believed
_OTHER_STEPS = 0.29  # between powers of two, so that no step is taken twice


def look_again(check: Check, outcome: Outcome) -> None:
    """Look again at what is suspicious; then hear what rests on last digits of f."""
    _escalate(check, outcome)
    hear_last_digits(check, outcome)


def _escalate(check: Check, outcome: Outcome) -> None:
    """Look again at what is suspicious, until what is left cannot be otherwise.

    Suspects that move nothing are settled together, and a few others get a second
    step. Then the noise of f is measured; where it is more than rounding, the cheap
    differences are taken again with longer steps. Then, of many suspects in one input,
    the worst and a spread of the others climb the adaptive ladder. Where all of those
    are confirmed, the clear cases among the rest stand; the others are looked at, twice
    as many each time, until none is left. An accusation that rests on a few error bars
    is heard a second time.
    """
    subject, reference = check.subject, check.reference
    plan, meter = check.plan, check.meter
    auto = [isinstance(plan.method_of(v.name), Auto) for v in subject.inputs]
    blocks = [b for b in outcome.blocks if b.positions.size and auto[b.which]]
    blocks = [b for b in blocks if not _is_missing(subject, b, outcome)]
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
    noise = noise_level(reference, meter, plan.seed)
    grain = hidden_rounding(reference, noise, meter)
    heard = np.where(noise == LAST_DIGITS, 0.0, noise)
    slight = NEGLIGIBLE * matters_of(blocks, outcome.known).typical
    epsilon = reference.subject.epsilon
    still = stillness_in_noise(reference.base, heard, epsilon, slight)
    for block in blocks:
        block.grain = None if grain is None else grain[:, None]
        block.still = still
    allowed = [allow_for_noise(reference, block, noise, meter) for block in blocks]
    if any(allowed):
        judge_all(subject, outcome, plan)
    _climb_ladders(check, blocks, noise, outcome)
    changed = False
    for block in blocks:
        if block.accused:
            changed |= _hear_again(reference, block, noise, meter, _looks(outcome))
            if see_through_steps(reference.subject, block, meter):
                outcome.rough += (subject.inputs[block.which].name,)
                changed = True
    if changed:
        judge_all(subject, outcome, plan)


def _looks(outcome: Outcome) -> int:
    """How many columns of an input are looked at before the rest is believed."""
    return CLOSE_LOOKS if outcome.known is None else outcome.known.looks


def _is_missing(subject: Subject, block: Block, outcome: Outcome) -> bool:
    """Whether a backward that raised left nothing that numbers could confirm."""
    name = subject.inputs[block.which].name
    blank = any(p.where == name and p.kind == "raised" for p in outcome.problems)
    return blank and not np.isfinite(block.analytic).any()


def _uphold(
    check: Check, blocks: list[Block], noise: NDArray[np.float64], outcome: Outcome
) -> list[NDArray[np.bool_]]:
    """Find the columns of each block that are clear, and upheld together."""
    reference, seed = check.reference, check.plan.seed
    upheld = upheld_together(reference, blocks, noise, check.meter, seed)
    settled = []
    for block, columns in zip(blocks, upheld, strict=True):
        clear = columns & _clear(block, slice(None)) if columns.any() else columns
        settled.append(clear)
        if clear.any():
            outcome.upheld += (check.subject.inputs[block.which].name,)
    return settled


def _first_quota(subject: Subject, block: Block, outcome: Outcome) -> int:
    """How many suspects of an input climb first."""
    others = _columns_elsewhere(subject, block, outcome)
    quota = first_looks(block, accused=outcome.accused, others=others)
    return min(quota, _looks(outcome))


def _columns_elsewhere(subject: Subject, block: Block, outcome: Outcome) -> int:
    """How many columns of an input are not in its block because they agree."""
    if outcome.known is None or not outcome.known.others_agree:
        return 0
    return subject.inputs[block.which].coordinates - len(block.positions)


def _climb_ladders(
    check: Check, blocks: list[Block], noise: NDArray[np.float64], outcome: Outcome
) -> None:
    """Measure suspects with the adaptive ladder until what is left is clear."""
    settled = _uphold(check, blocks, noise, outcome)
    quota = [_first_quota(check.subject, block, outcome) for block in blocks]
    while True:  # a value that is put right in one input can expose another
        rounds = []
        for k, block in enumerate(blocks):
            found = suspects_of(block, settled[k])
            if not found.size:
                continue
            chosen = spread(found, quota[k])
            rounds.append((k, found, chosen, block.value[:, chosen].copy()))
            take_closer(check.reference, block, chosen, noise, check.meter)
            quota[k] *= 2
        if not rounds:
            return
        judge_all(check.subject, outcome, check.plan)
        for k, found, chosen, before in rounds:
            if _upheld(blocks[k], chosen, before):
                settled[k][found] = _clear(blocks[k], found)


def _may_be_rounding(
    reference: Origin, block: Block, suspects: NDArray[np.intp]
) -> bool:
    """Whether a few roundings of the largest output would explain all accusations.

    An entry of an inverse matrix that is small by cancellation has the rounding errors
    of what cancelled, and another step has them as well: only their size tells.
    """
    right = block.verdicts[:, suspects] == Verdict.AGREES
    base = reference.base
    top = np.abs(base).max(initial=0.0, where=np.isfinite(base))
    with np.errstate(all="ignore"):
        gap = np.abs(block.analytic[:, suspects] - block.value[:, suspects])
        moved = gap * np.abs(block.step[:, suspects])
        slight = moved <= _ROUNDINGS * reference.subject.epsilon * top
    return bool((slight | right).all() and not right.all(axis=0).any())


def _upheld(
    block: Block, chosen: NDArray[np.intp], before: NDArray[np.float64]
) -> bool:
    """Whether the second look confirmed the accusations of the first.

    It may leave some of them open, where kinks are so dense that larger steps tell
    nothing, as long as it confirms most and moves none.
    """
    verdicts = block.verdicts[:, chosen]
    wrong = (verdicts == Verdict.DISAGREES).any(axis=0)
    still = wrong | (verdicts == Verdict.UNDECIDED).any(axis=0)
    with np.errstate(all="ignore"):
        gap = np.abs(block.analytic[:, chosen] - block.value[:, chosen])
        moved = np.abs(before - block.value[:, chosen])
        steady = (moved <= 0.1 * gap + block.allowed[:, chosen]).all(axis=0)
    return bool((still & steady).all() and np.mean(wrong) >= _CONFIRMED)


def _distance(
    block: Block, rows: NDArray[np.intp], columns: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Distance between the sides; in short arithmetic, of the nearer analytic one.

    Of some entries, by row and column.
    """
    value = block.value[rows, columns]
    far = np.abs(block.analytic[rows, columns] - value)
    if block.precise is None:
        return np.asarray(far)
    return np.asarray(np.fmin(far, np.abs(block.precise[rows, columns] - value)))


def _clear(block: Block, columns: NDArray[np.intp] | slice) -> NDArray[np.bool_]:
    """Columns whose entries are wrong by many error bars, or not in doubt at all."""
    verdicts = block.verdicts[:, columns]
    doubtful = (verdicts == Verdict.UNDECIDED).any(axis=0)
    rows, wrong = np.nonzero(verdicts == Verdict.DISAGREES)
    whole = wrong if isinstance(columns, slice) else columns[wrong]
    with np.errstate(all="ignore"):
        far = _distance(block, rows, whole)
        doubtful[wrong[~(far > CLEAR * block.error[rows, whole])]] = True
    return np.asarray(~doubtful)


def _hear_again(
    reference: Origin,
    block: Block,
    noise: NDArray[np.float64],
    meter: Meter,
    at_once: int,
) -> bool:
    """Repeat, on other steps, what is accused by a few error bars or of a small slip.

    `at_once` columns at most between two looks at the result.

    Error bars are estimates, and among thousands of entries some are too small; where
    the second derivative jumps, extrapolation is off by a millionth. Two ladders that
    share no step are both wrong in the same way only if the gradient is.

    Returns
    -------
    bool
        Whether any was repeated.
    """
    close = block.verdicts == Verdict.DISAGREES
    rows, places = np.nonzero(close)
    with np.errstate(all="ignore"):
        apart = _distance(block, rows, places)
        near = apart < CLEAR * block.error[rows, places]
        near |= apart < _SLIGHT * np.abs(block.value[rows, places])
    kinds, error = block.kinds[rows, places], block.error[rows, places]
    sides = Sides(block.left[rows, places], block.right[rows, places])
    near &= ~((kinds == Smoothness.KINK) & told_apart(sides, error))
    near &= kinds != Smoothness.EDGE
    close[rows, places] = near
    far = np.zeros(close.shape)
    far[rows, places] = apart
    waiting = np.flatnonzero(close.any(axis=0))
    heard = 0
    while heard < len(waiting):
        columns = waiting[heard : heard + min(first_looks(block), at_once)]
        heard += len(columns)
        found = adaptive_columns(
            reference,
            block.which,
            block.positions[columns],
            meter,
            noise=noise,
            stretch=_OTHER_STEPS,
        )
        ours = close[:, columns]
        with np.errstate(all="ignore"):
            apart = np.abs(found.value - block.value[:, columns])
            error = block.error[:, columns]
            # bars that reach each other contradict nothing; half as much does where the
            # gradient is nearer to what is found now
            nearer = np.abs(block.formula[:, columns] - found.value) < apart
            reach = np.where(nearer, 1, 2) * (error + found.error)
            apart = np.where(apart > reach, apart, 0.0)
        wider = np.where(ours, np.fmax(error, apart), 0.0)
        block.error[:, columns] = np.fmax(error, wider)
        if not (ours & (far[:, columns] <= SAFETY * wider)).any():
            break  # all upheld: so are the rest
    return bool(waiting.size)
