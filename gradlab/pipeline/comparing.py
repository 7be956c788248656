"""One check from the first evaluation to a verdict for every entry.

The course of it: evaluate once; read out the analytic side; a cheap difference for
every coordinate; whatever looks wrong, or cannot be told, is looked at again with the
adaptive ladder; only then is anything said.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.evaluation import base_row
from gradlab.differentiation.lines.least_scales import (
    choose_least_scales,
    moves_nothing,
)
from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.differentiation.method import Auto
from gradlab.differentiation.origin import Origin, computes_otherwise
from gradlab.differentiation.sparse.entries import Entries
from gradlab.labels import few_of
from gradlab.pipeline.first_pass import Wanted, first_passes
from gradlab.pipeline.looks.all_together import move_together
from gradlab.pipeline.looks.far_steps import distrust_far_steps
from gradlab.pipeline.looks.idle import settle_still
from gradlab.pipeline.looks.rounded_bars import widen_bars
from gradlab.pipeline.looks.steadiness import set_unsteady_aside
from gradlab.pipeline.outcome import Known, Outcome
from gradlab.pipeline.plan import KEPT, Check, Plan
from gradlab.pipeline.sides.analytic_side import AnalyticSide, analytic_side
from gradlab.pipeline.sides.few_digits import (
    bearable_in_half,
    round_off_of,
    scatter_of_rounded,
)
from gradlab.pipeline.sides.trusting import trusted
from gradlab.pipeline.sparse_verdicts import in_doubt, settled_at_once
from gradlab.pipeline.suspects import accept, is_beyond_doubt
from gradlab.pipeline.verdicts import judge_all
from gradlab.subject.subject import DOUBLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.blocks import Block
    from gradlab.subject.subject import Subject

__all__ = [
    "AnalyticColumns",
    "add_analytic",
    "analytic_columns",
    "begun",
    "compare_blocks",
    "compare_columns",
    "run_full",
]

_NAMED = 6  # inputs in a remark
_INSIDE = 4.0  # units of round-off of all inputs that intermediate values may lose


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AnalyticColumns:
    """The analytic side of some columns, and how far it is to be trusted."""

    side: AnalyticSide
    precise: AnalyticSide | None  # in float64, if it is not
    round_off: list[NDArray[np.float64]] | None
    bearable: list[NDArray[np.float64]] | None = None  # what few digits of it cost


def run_full(
    own: Origin,
    plan: Plan,
    meter: Meter,
    columns: list[NDArray[np.intp]],
    *,
    accused: bool = False,
) -> Outcome:
    """Compare the coordinates `columns` (one array per input) of both Jacobians.

    Of inputs that are `accused` as a whole, fewer of them are looked at twice.
    """
    check = begun(own, plan, meter)
    analytic = analytic_columns(check)
    outcome = compare_columns(check, columns, analytic, accused=accused)
    outcome.remarks = list(_remarks(own.subject, outcome, columns))
    return outcome


def begun(own: Origin, plan: Plan, meter: Meter) -> Check:
    """Begin a check of a subject at its point."""
    return Check(own, _reference_of(own, plan, meter), plan, meter)


def analytic_columns(
    check: Check, columns: list[NDArray[np.intp]] | None = None
) -> AnalyticColumns:
    """Read out the analytic side; of the given coordinates only, where there are."""
    subject, twin = check.subject, check.twin
    own = analytic_side(subject, columns, check.meter)
    if twin is None:
        return AnalyticColumns(own, None, None)
    precise = round_off = bearable = None
    if twin.analytic is not None:
        wide = analytic_side(twin, columns, check.meter)
        precise = trusted(wide, own, twin, check.meter)
        if precise is None:
            bearable = scatter_of_rounded(twin, wide, columns, check.meter)
            precise = None if bearable is None else wide
        if precise is not None and not columns:
            round_off = round_off_of((subject, twin), own, precise, check.plan.seed)
    held = bearable_in_half(subject, twin, columns, check.meter)
    if held is not None:  # numbers: nothing else is forgiven
        precise, bearable = own, held
    return AnalyticColumns(own, precise, round_off, bearable)


def compare_columns(
    check: Check,
    columns: list[NDArray[np.intp]],
    analytic: AnalyticColumns,
    *,
    known: Known | None = None,
    accused: bool = False,
) -> Outcome:
    """Compare coordinates of which the analytic side has been read.

    Parameters
    ----------
    columns
        One array of coordinates for each input.
    analytic
        Of all columns, or of exactly these.
    known
        What other columns have shown, where these are not all.
    accused
        Whether these are shown of inputs that are known to be wrong as a whole.
    """
    plan = check.plan
    outcome = Outcome(
        blocks=[],
        base=check.own.base,
        problems=analytic.side.problems,
        reference=check.twin,
        known=known,
        accused=accused,
    )
    try:
        _scale_up(check, analytic)
        with check.meter.keeping(KEPT):
            wanted = list(_wanted(check, columns, analytic))
            passes = first_passes(wanted, check.reference, plan.seed, check.meter)
            for each, (block, stop) in zip(wanted, passes, strict=True):
                chosen = plan.finds_steps(block.name)
                add_analytic(block, analytic, len(each.positions), chosen=chosen)
                outcome.blocks.append(block)
                if stop is not None:
                    raise stop
            distrust_far_steps(check, outcome.blocks)
            if not move_together(check, outcome) and settled_at_once(check, outcome):
                return outcome
            _look_carefully(check, outcome)
    except (BudgetExhausted, KeyboardInterrupt) as stop:
        if not outcome.blocks:
            raise
        outcome.cut_short(stop)
        for block in outcome.blocks:
            block.unfold()
    _conclude(check, outcome)
    return outcome


def _scale_up(check: Check, analytic: AnalyticColumns) -> None:
    """Choose larger steps for inputs whose own size is nothing to f."""
    at, sides = check.reference, (analytic.precise or analytic.side).sides
    faint = [
        which
        for which, side in enumerate(sides)
        if moves_nothing(at, which, functools.partial(_largest, side))
    ]
    if faint:
        found = choose_least_scales(at, faint, check.meter, check.plan.seed)
        for subject in (check.subject, at.subject):
            subject.least_scales.update(found)


def _largest(side: NDArray[np.float64] | Entries) -> float:
    """Size of the largest entry of a gradient; nan if one is none."""
    value = side.value if isinstance(side, Entries) else side
    return float(max(value.max(initial=0.0), -value.min(initial=0.0)))


def compare_blocks(check: Check, outcome: Outcome) -> None:
    """Compare blocks of which cheap differences are known, as `compare_columns` does.

    Parameters
    ----------
    outcome
        With blocks of both sides, which get their verdicts.
    """
    try:
        with check.meter.keeping(KEPT):
            distrust_far_steps(check, outcome.blocks)
            _look_closely(check, outcome)
    except (BudgetExhausted, KeyboardInterrupt) as stop:
        outcome.cut_short(stop)
    _conclude(check, outcome)


def _conclude(check: Check, outcome: Outcome) -> None:
    """Judge what was cut short or is unsteady, and hear a second opinion."""
    if outcome.unsteady is not None:  # whatever the ladder says of them
        for block in outcome.blocks:
            block.distrust((outcome.unsteady > 0)[:, None])
    if outcome.stopped or outcome.unsteady is not None:
        judge_all(check.subject, outcome, check.plan)
    methods = [check.plan.method_of(block.name) for block in outcome.blocks]
    if not all(isinstance(method, Auto) for method in methods):
        from gradlab.pipeline.looks.second_opinion import second_opinion_on

        second_opinion_on(check, outcome)
    if outcome.stopped:
        from gradlab.pipeline.looks.unheard import hear_in_haste

        hear_in_haste(check, outcome)
    for block in outcome.blocks:
        if block.untold is not None and not block.settled:
            block.leave_open(block.untold & ~block.wrong)
    if not outcome.stopped and outcome.unsteady is None:
        try:
            widen_bars(check, [block for block in outcome.blocks if not block.settled])
        except KeyboardInterrupt as stop:
            outcome.cut_short(stop)


def _look_carefully(check: Check, outcome: Outcome) -> None:
    """Give every entry a verdict; where few columns are in doubt, look at those."""
    restless = any(np.any(block.restless) for block in outcome.blocks)
    few = None if restless else in_doubt(check.subject, outcome, check.plan)
    if few is None:
        _look_closely(check, outcome)
        return
    try:
        _look_closely(check, few.part)
    finally:
        few.put_back(check.subject, check.plan)


def _look_closely(check: Check, outcome: Outcome) -> None:
    """Give every entry a verdict, and look again at what deserves it."""
    subject, plan = check.subject, check.plan
    for block in outcome.blocks:
        block.unfold()
    blocks = [block for block in outcome.blocks if block.positions.size]
    if np.isfinite(outcome.base).all() and all(
        is_beyond_doubt(subject, block, plan) for block in blocks
    ):
        for block in blocks:
            accept(subject, block, plan, outcome.known)
        return  # nothing stands still, and nothing deserves a second look
    auto = [b for b in outcome.blocks if isinstance(plan.method_of(b.name), Auto)]
    settle_still(check.reference, auto, check.meter, plan.seed)
    judge_all(subject, outcome, plan)
    if set_unsteady_aside(check.reference, outcome, check.meter):
        from gradlab.pipeline.looks.escalation import look_again

        look_again(check, outcome)


def _wanted(
    check: Check, columns: list[NDArray[np.intp]], analytic: AnalyticColumns
) -> Iterator[Wanted]:
    """Say of each input what is to be measured, and where the zeros may be."""
    plan, sides = check.plan, (analytic.precise or analytic.side).sides
    for which, positions in enumerate(columns):
        name = check.subject.inputs[which].name
        # who asks for a step means his own arithmetic, not float64
        at = check.reference if plan.finds_steps(name) else check.own
        guess = sides[which] if sides[which].shape[1] == len(positions) else None
        yield Wanted(at, which, positions, plan.method_of(name), guess)


def add_analytic(
    block: Block, analytic: AnalyticColumns, wanted: int, *, chosen: bool
) -> None:
    """Put the analytic side beside the numeric one, as far as that has come."""
    which, done = block.which, block.positions

    def cut(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        if matrix.shape[1] == wanted:  # these very columns, or all there are
            return matrix if len(done) == wanted else matrix[:, : len(done)]
        return matrix[:, done]

    entries = analytic.side.entries(which)
    if entries is not None and len(done) == wanted == entries.shape[1]:
        block.entries, side = entries, analytic.side
        block.analytic = lambda: side.value(which)
    else:
        block.analytic = cut(analytic.side.value(which))
    if analytic.precise is not None and chosen:
        block.precise = cut(analytic.precise.value(which))
    if analytic.bearable is not None and chosen:
        block.digits = cut(analytic.bearable[which])
    if analytic.round_off is not None and chosen:
        block.slack = cut(analytic.round_off[which])


def _remarks(
    subject: Subject, outcome: Outcome, columns: list[NDArray[np.intp]]
) -> Iterator[str]:
    """Say what was met, what was looked at again, and what was not looked at."""
    total = sum(len(positions) for positions in columns)
    yield from outcome.met()
    through = [b.name for b in outcome.blocks if b.through]
    if through:
        yield (
            f"differences of the product that each enters, carried on by the chain "
            f"rule: {few_of(through, _NAMED)}"
        )
    if outcome.looked:
        yield (
            f"{outcome.looked:,} of {total:,} coordinates looked at again with the "
            f"adaptive ladder"
        )
    astray = [b.name for b in outcome.blocks if np.any(b.restless)]
    if astray:
        names = few_of(astray, _NAMED)
        yield f"moves f otherwise than its gradient says: all of {names}"
    if outcome.upheld:
        yield (
            f"errors of {few_of(list(dict.fromkeys(outcome.upheld)), _NAMED)} measured "
            f"again all at once, along one direction"
        )
    if outcome.stopped:
        done = sum(len(block.positions) for block in outcome.blocks)
        left = [v.name for v in subject.inputs[len(outcome.blocks) :]]
        missing = f", but none of {', '.join(left)}" if left else ""
        looked = f"{done:,} of {total:,} coordinates were looked at{missing}"
        yield f"{outcome.stopped}: {looked}"


def _reference_of(own: Origin, plan: Plan, meter: Meter) -> Origin:
    """Choose what the numeric side evaluates: float64 copies where that is possible."""
    subject, base = own.subject, own.base
    choosing = any(plan.finds_steps(variable.name) for variable in subject.inputs)
    if subject.epsilon < DOUBLE or not choosing:
        return own
    twin = subject.in_double()
    if twin is None:
        return own
    reference_base = base_row(twin, meter)
    reference = Origin(twin, reference_base)
    far = computes_otherwise(own, reference)
    with np.errstate(all="ignore"):
        apart = np.abs(reference_base - base)
        if far.any() and twin.analytic is not None:
            # sin(20 x) in bfloat16: rounding inside explains it
            far &= ~(apart <= _INSIDE * subject.epsilon * _reach(twin))
            if subject.reset is None and not twin.draws:
                # a loss that is lost beside one, in single precision, is no other
                far &= ~(apart <= _INSIDE * subject.epsilon)
    return own if far.any() else reference


def _reach(twin: Subject) -> NDArray[np.float64]:
    """How far every output moves when every input moves by its own size, (m,)."""
    gradients = analytic_side(twin).values
    total = np.zeros(len(gradients[0]))
    for which, values in enumerate(gradients):
        total += np.abs(values) @ np.abs(twin.point(which))
    return total
