"""Methods that were asked for keep their numbers, but do not accuse on their own."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.differentiation.method import Adaptive, Auto
from gradlab.differentiation.noise.hidden_noise import coarse_noise
from gradlab.pipeline.looks.closer import CLOSE_LOOKS, spread, take_closer
from gradlab.pipeline.looks.coarse_arithmetic import hear_over_stairs
from gradlab.pipeline.looks.hidden_steps import see_through_steps
from gradlab.pipeline.looks.last_digits import noise_once, widen_bars
from gradlab.pipeline.looks.other_steps import hear_again
from gradlab.pipeline.verdicts import judge_block, judge_in_place_of, matters_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Outcome
    from gradlab.pipeline.plan import Check

__all__ = ["second_opinion_on"]


def second_opinion_on(check: Check, outcome: Outcome) -> None:
    """Let an explicit method keep its numbers, but not accuse on its own.

    Where it disagrees and the adaptive ladder does not, the step was at fault: the
    entry is undecided by this method, and a finding says so. Where it cannot tell, the
    ladder can, and the numbers of both are one within their bars, its word is taken: a
    forward difference of exactly 0 tells little, and need not. What it upholds is
    marked.
    """
    plan = check.plan
    stairs = functools.cache(lambda at: coarse_noise(at, check.meter, plan.seed))
    for block in outcome.blocks:
        method = plan.method_of(block.name)
        if isinstance(method, Auto):
            continue
        if isinstance(method, Adaptive) and not outcome.stopped:
            _see_through(check, block, outcome)
        if not plan.finds_steps(block.name):
            block.upheld = np.zeros(len(block.positions), dtype=bool)
        if outcome.stopped:
            continue
        try:
            if block.upheld is not None:
                _hear(check, block, outcome, block.upheld)
            if block.accused:
                _doubt_coarse(check, block, outcome, stairs)
        except (BudgetExhausted, KeyboardInterrupt) as stop:
            outcome.cut_short(stop)


def _see_through(check: Check, block: Block, outcome: Outcome) -> None:
    """Look over the steps that f is made of, where the ladder alone was asked for."""
    subject, at = check.subject, check.reference.subject
    try:
        if not see_through_steps(at, block, check.meter, nearer=True):
            return
    except (BudgetExhausted, KeyboardInterrupt) as stop:
        outcome.cut_short(stop)
        return
    outcome.rough += (block.name,)
    matters = matters_of(outcome.blocks, outcome.known)
    judge_block(subject, block, check.plan, matters, outcome)


def _doubt_coarse(
    check: Check,
    block: Block,
    outcome: Outcome,
    stairs: Callable[[Origin], NDArray[np.float64] | None],
) -> None:
    """Leave open what is right over many stairs, if f is made of them."""
    at = check.reference if check.plan.finds_steps(block.name) else check.own
    heights, twin = stairs(at), block.copy()
    if heights is None:
        return
    if hear_over_stairs(at, twin, heights, check.meter):
        judge_in_place_of(check.subject, block, twin, outcome, check.plan)
        block.leave_open(block.wrong & ~twin.wrong)
        outcome.rough += (block.name,)


def _hear(
    check: Check, block: Block, outcome: Outcome, heard: NDArray[np.bool_]
) -> None:
    """Ask the ladder about one block, and mark the columns that were `heard`.

    Of many the worst and a spread of the others, and more as long as it takes any back.
    """
    own, subject = check.own, check.subject
    plan, meter = check.plan, check.meter
    doubt = block.verdicts != Verdict.AGREES
    if outcome.unsteady is not None:
        doubt[outcome.unsteady > 0] = False  # no look tells anything there
    wrong = np.flatnonzero(block.wrong.any(axis=0))
    wrong = wrong[np.argsort(-block.excess(wrong), kind="stable")]
    doubtful = np.setdiff1d(np.flatnonzero(doubt.any(axis=0)), wrong)
    chosen = spread(np.concatenate([wrong, doubtful]), CLOSE_LOOKS)
    if not chosen.size:
        return
    name = plan.method_of(block.name).name
    twin, looks = block.copy(), CLOSE_LOOKS
    judge = functools.partial(judge_in_place_of, subject, block, twin, outcome, plan)
    noise = noise_once(own, meter, plan.seed)
    while chosen.size:
        take_closer(own, twin, chosen, np.zeros(len(own.base)), meter)
        judge()
        if hear_again(own, twin, np.zeros(len(own.base)), meter, looks):
            judge()
        if widen_bars(own, twin, meter, noise):
            judge()
        if see_through_steps(subject, twin, meter, nearer=True):
            judge()
        taken_back = _settle(block, twin, chosen)
        heard[chosen] = True
        if not taken_back:
            break  # all upheld: so are the rest
        outcome.overruled[name] += taken_back
        looks *= 2
        chosen = spread(wrong[~heard[wrong]], looks)


def _settle(block: Block, twin: Block, chosen: NDArray[np.intp]) -> int:
    """Let what the ladder saw in some columns decide; return what it took back."""
    seen = np.isin(np.arange(len(block.positions)), chosen)
    accused = block.wrong
    cleared = accused & (twin.verdicts != Verdict.DISAGREES) & seen
    block.leave_open(cleared)
    block.verdicts[_vouched_for(block, twin) & seen & ~cleared] = Verdict.AGREES
    block.kinds[:, chosen] = twin.kinds[:, chosen]
    block.own_slopes()
    block.left[:, chosen] = twin.left[:, chosen]
    block.right[:, chosen] = twin.right[:, chosen]
    return int(cleared.sum())


def _vouched_for(block: Block, twin: Block) -> NDArray[np.bool_]:
    """Undecided entries that the ladder settles, and whose numbers it confirms."""
    open_ = (block.verdicts == Verdict.UNDECIDED) & (twin.verdicts == Verdict.AGREES)
    with np.errstate(all="ignore"):
        apart = np.abs(block.value - twin.value)
        one = apart <= SAFETY * (block.error + twin.error)
    return np.asarray(open_ & one & np.isfinite(block.error))
