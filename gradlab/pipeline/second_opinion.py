"""Methods that were asked for keep their numbers, but do not accuse on their own."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.pipeline.blocks import Block, Outcome, Plan, judge_block, matters_of
from gradlab.pipeline.closer import CLOSE_LOOKS, spread, take_closer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.evaluation import Meter
    from gradlab.subject.subject import Subject

__all__ = ["second_opinion_on"]


def second_opinion_on(
    subject: Subject,
    base: NDArray[np.float64],
    outcome: Outcome,
    plan: Plan,
    meter: Meter,
) -> None:
    """Let an explicit method keep its numbers, but not accuse on its own.

    Where it disagrees and the adaptive ladder does not, the step was at fault: the
    entry is undecided by this method, and a finding says so. Where it cannot tell, the
    ladder can, and the numbers of both are one within their bars, its word is taken: a
    forward difference of exactly 0 tells little, and need not.
    """
    overruled = 0
    names: dict[str, None] = {}
    for block in outcome.blocks:
        name = subject.inputs[block.which].name
        if plan.finds_steps(name):
            continue
        wrong = np.flatnonzero((block.verdicts == Verdict.DISAGREES).any(axis=0))
        doubtful = np.flatnonzero((block.verdicts != Verdict.AGREES).any(axis=0))
        doubtful = np.setdiff1d(doubtful, wrong)
        chosen = spread(np.concatenate([wrong, doubtful]), CLOSE_LOOKS)
        if not chosen.size:
            continue
        copies: dict[str, Any] = {
            field.name: value.copy()
            for field in dataclasses.fields(block)
            if isinstance(value := getattr(block, field.name), np.ndarray)
        }
        twin = dataclasses.replace(block, **copies)
        silent = np.zeros(len(base))
        take_closer(subject, base, twin, chosen, silent, meter)
        others = [twin if other is block else other for other in outcome.blocks]
        judge_block(subject, twin, plan, matters_of(others, outcome.known), outcome)
        cleared = (block.verdicts == Verdict.DISAGREES) & (
            twin.verdicts != Verdict.DISAGREES
        )
        seen = np.isin(np.arange(cleared.shape[1]), chosen)
        cleared &= seen
        overruled += int(cleared.sum())
        if cleared.any():
            names[plan.method_of(name).name] = None
        block.verdicts[cleared] = Verdict.UNDECIDED
        block.verdicts[_vouched_for(block, twin) & seen & ~cleared] = Verdict.AGREES
        block.kinds[:, chosen] = twin.kinds[:, chosen]
        block.own_slopes()
        block.left[:, chosen] = twin.left[:, chosen]
        block.right[:, chosen] = twin.right[:, chosen]
    if overruled:
        outcome.second_opinion = " and ".join(names)
        outcome.remarks.append(
            f"{overruled} entries disagree with {outcome.second_opinion} differences "
            f"at this step but not with the adaptive ladder: undecided"
        )


def _vouched_for(block: Block, twin: Block) -> NDArray[np.bool_]:
    """Undecided entries that the ladder settles, and whose numbers it confirms."""
    open_ = (block.verdicts == Verdict.UNDECIDED) & (twin.verdicts == Verdict.AGREES)
    with np.errstate(all="ignore"):
        apart = np.abs(block.value - twin.value)
        one = apart <= SAFETY * (block.error + twin.error)
    return np.asarray(open_ & one & np.isfinite(block.error))
