"""Accusations of a check that was cut short: heard in haste, or left open.

A cheap difference also accuses what is right: beside 4e6 an entry of 2e-3 is moved by
steps that mean nothing to it, what cancels is round-off, and an f has kinks. A check
that comes to its end hears all that before it speaks. One that does not speaks of what
a ladder has confirmed, and by so much that no noise and no jump explains it; the worst
accusations get one from what was kept back of the budget. All others are left open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.rule import tops_of
from gradlab.comparison.tolerance import CLEAR
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.differentiation.method import Adaptive
from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.looks.closer import take_closer
from gradlab.pipeline.looks.early_stops import SLIGHT
from gradlab.pipeline.looks.last_digits import may_be_last_digits
from gradlab.pipeline.looks.upholding import upheld_together
from gradlab.pipeline.looks.wide_slopes import wide_slopes
from gradlab.pipeline.plan import BESIDE
from gradlab.pipeline.verdicts import judge_in_place_of
from gradlab.subject.subject import DOUBLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Outcome
    from gradlab.pipeline.plan import Check
    from gradlab.subject.subject import Subject

__all__ = [
    "far_apart",
    "hear_in_haste",
    "is_missing",
    "no_tie",
]

# of the ladder, or a cheap difference: along a stair any slope may be meant
_KINDS = (-1, Smoothness.SMOOTH, Smoothness.KINK)
_COARSEST = 2.0**-7  # relative: the largest step of bfloat16, on both sides
_SHORTEST = 0.1  # relative: more than stairs of bfloat16 make of a wide slope
_TRIED = 3  # columns that may climb, until one is wrong for certain


def hear_in_haste(check: Check, outcome: Outcome) -> None:
    """Leave open what a check that was cut short accuses and has not confirmed.

    Parameters
    ----------
    check
        Charged for what the budget still has: a ladder or two.
    outcome
        Judged, and stopped. Verdicts of its blocks are changed.
    """
    subject, plan = check.subject, check.plan
    wrong = [
        block
        for block in outcome.blocks
        if block.accused and not is_missing(block, outcome)
    ]
    for block in wrong:
        block.unfold()
    sure = {block.which: _confirmed(check, block) for block in wrong}
    if not outcome.interrupted and not any(map(np.any, sure.values())):
        tied = not all(no_tie(subject, block).all() for block in wrong)
        try:
            with check.meter.keeping(BESIDE if tied else 0):
                _try(check, outcome, wrong, sure)
        except BudgetExhausted:
            pass
    for block in wrong:
        if sure[block.which].any() and not _holds_far_out(check, block, outcome, sure):
            sure[block.which][:] = False
        hasty = block.wrong & ~sure[block.which]
        outcome.leave_unheard(block, hasty, plan.first_method(block.name))


def _holds_far_out(
    check: Check, block: Block, outcome: Outcome, sure: dict[int, NDArray[np.bool_]]
) -> bool:
    """Whether the worst of what is sure is wrong over a good part of its scale as well.

    Where f does not run in float64 nobody has looked for stairs of shorter arithmetic,
    beside which a ladder agrees with itself by luck.
    """
    at = check.reference if check.plan.finds_steps(block.name) else check.own
    if at.subject.epsilon <= DOUBLE:
        return True
    if outcome.interrupted:
        return False
    found = np.where(sure[block.which], block.gap, -1.0)
    row, column = divmod(int(found.argmax()), found.shape[1])
    try:
        wide = wide_slopes(at.subject, block, np.array([column]), check.meter)
    except BudgetExhausted:
        return False
    value, error = float(wide.value[row, 0]), float(wide.error[row, 0])
    gap = abs(float(block.formula[row, column]) - value)
    return gap > CLEAR * error and gap > _SHORTEST * abs(value)


def _confirmed(check: Check, block: Block) -> NDArray[np.bool_]:
    """Accused entries that stand without another look, (rows, n)."""
    plan = check.plan
    heard = np.zeros(len(block.positions), dtype=bool)
    if isinstance(plan.method_of(block.name), Adaptive):
        heard[:] = True
    elif plan.finds_steps(block.name):
        heard |= block.looked
    if block.upheld is not None:
        heard |= block.upheld
    return _beyond_doubt(check, block) & heard


def far_apart(
    gap: NDArray[np.float64],
    error: NDArray[np.float64],
    scales: NDArray[np.float64] | float,
    top: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Whether sides differ by so much that another ladder would find the same.

    Parameters
    ----------
    gap, error
        Between the sides, and the bar of a ladder.
    scales
        Of the coordinates.
    top
        Largest effect of any entry on the same output.
    """
    with np.errstate(all="ignore"):
        return np.asarray((gap > CLEAR * error) & (gap * scales > SLIGHT * top))


def no_tie(subject: Subject, block: Block) -> NDArray[np.bool_]:
    """Tell coordinates of a block that are neither zero nor equal to another, (n,)."""
    own = np.abs(subject.point(block.which)[block.positions])
    sizes = [np.abs(subject.point(which)) for which in range(len(subject.inputs))]
    found = [every[np.isin(every, own)] for every in sizes]
    values, counts = np.unique(np.concatenate(found), return_counts=True)
    return np.asarray(np.isin(own, values[counts == 1]) & (own > 0))


def _beyond_doubt(check: Check, block: Block) -> NDArray[np.bool_]:
    at = check.reference if check.plan.finds_steps(block.name) else check.own
    side, top = block.side, tops_of(block.value, block.sizes).effect
    with np.errstate(all="ignore"):
        gap = np.fmin(
            np.abs(block.formula - side.value), np.abs(block.analytic - side.value)
        )
    far = far_apart(gap, side.error, block.latest_scales, top)
    far &= ~may_be_last_digits(at.subject, block)
    far &= np.isin(block.kinds, _KINDS)
    with np.errstate(all="ignore"):  # stood still: on a step of a lower precision?
        moved = gap * np.abs(block.step) > _COARSEST * np.fmax(block.height, top)
    far &= moved | (block.value != 0)
    lost = ~np.isfinite(block.analytic) & np.isfinite(block.value)
    return np.asarray((far | lost) & block.wrong)


def is_missing(block: Block, outcome: Outcome) -> bool:
    """Whether a backward that raised left nothing that numbers could confirm."""
    blank = any(p.where == block.name and p.kind == "raised" for p in outcome.problems)
    return blank and not np.isfinite(block.analytic).any()


def _try(
    check: Check,
    outcome: Outcome,
    wrong: list[Block],
    sure: dict[int, NDArray[np.bool_]],
) -> None:
    """Have inputs that are wrong as a whole heard at once, or else the worst columns.

    Parameters
    ----------
    sure
        Of each block, entries that are wrong for certain; gets more.
    """
    reference, plan, meter = check.reference, check.plan, check.meter
    noise = np.zeros(len(reference.base))
    auto = [b for b in wrong if plan.finds_steps(b.name)]
    walked = upheld_together(reference, auto, noise, meter, plan.seed)
    for block, moved in zip(auto, walked, strict=True):
        sure[block.which] |= _beyond_doubt(check, block) & (moved > 0)
    if any(map(np.any, sure.values())):
        return
    ranked = sorted(
        (-excess, k, column)
        for k, block in enumerate(wrong)
        for column, excess in enumerate(block.excess().tolist())
        if not block.looked[column]
        and (block.verdicts[:, column] == Verdict.DISAGREES).any()
    )
    for _, k, column in ranked[:_TRIED]:
        block = wrong[k]
        own = block in auto
        twin = block if own else block.copy()
        at, cheap = reference if own else check.own, block.value[:, column].copy()
        take_closer(at, twin, np.array([column]), noise, meter)
        judge_in_place_of(check.subject, block, twin, outcome, plan)
        # nobody has measured the noise of f: both differences have to say the same
        with np.errstate(all="ignore"):
            apart = np.abs(twin.value[:, column] - cheap)
            same = CLEAR * apart <= twin.gap[:, column]
        sure[block.which][:, column] = same & _beyond_doubt(check, twin)[:, column]
        if sure[block.which][:, column].any():
            return
