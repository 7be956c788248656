"""One check from the first evaluation to a verdict for every entry.

The course of it: evaluate once; read out the analytic side; a cheap difference for
every coordinate; whatever looks wrong, or cannot be told, is looked at again with the
adaptive ladder; only then is anything said.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.judge import stillness
from gradlab.differentiation.analytic_noise import analytic_noise
from gradlab.differentiation.evaluation import BudgetExhausted, base_row
from gradlab.differentiation.finite_difference import scales_of
from gradlab.differentiation.magnitudes import is_short
from gradlab.differentiation.metering import why_stopped
from gradlab.differentiation.method import Auto
from gradlab.differentiation.sparsity import compressed
from gradlab.late import is_made, unmade
from gradlab.pipeline.blocks import Block, Known, Outcome, Plan, judge_all
from gradlab.pipeline.escalation import look_again, settle_still
from gradlab.pipeline.measuring import (
    AnalyticSide,
    analytic_side,
    numeric_side,
)
from gradlab.pipeline.second_opinion import second_opinion_on
from gradlab.pipeline.sparse_verdicts import settled_at_once, unfold_bend
from gradlab.pipeline.steadiness import set_unsteady_aside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.differentiation.evaluation import Meter
    from gradlab.differentiation.method import Method
    from gradlab.differentiation.quotients import Quotients
    from gradlab.subject.subject import Subject

__all__ = [
    "AnalyticColumns",
    "Reference",
    "analytic_columns",
    "compare_columns",
    "reference_of",
    "run_full",
]

_FIRST_SLICE = 64  # coordinates; where they go in batches, that many times four
_PATIENCE = 0.25  # seconds of work that an interruption may cost
_SLICE = 4096  # coordinates between two looks at the budget and the Stop button
_EPS_DOUBLE = 1e-15  # anything coarser is "lower precision"
_INSIDE = 4.0  # units of round-off of all inputs that intermediate values may lose
_SCATTER = 4.0  # times the scatter seen in four repetitions
_MOST_ROWS = 256  # outputs for which gradients are asked for five times


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """What the numeric side evaluates: the subject, or the same in float64."""

    subject: Subject
    base: NDArray[np.float64]  # (rows,)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AnalyticColumns:
    """The analytic side of some columns, and how far it is to be trusted."""

    side: AnalyticSide
    precise: tuple[NDArray[np.float64], ...] | None  # in float64, if it is not
    round_off: list[NDArray[np.float64]] | None


def run_full(
    subject: Subject,
    plan: Plan,
    meter: Meter,
    base: NDArray[np.float64],
    columns: list[NDArray[np.intp]],
) -> Outcome:
    """Compare the coordinates `columns` (one array per input) of both Jacobians."""
    reference = reference_of(subject, plan, meter, base)
    analytic = analytic_columns(subject, plan, reference, meter)
    outcome = compare_columns(subject, plan, meter, base, columns, reference, analytic)
    outcome.remarks = list(_remarks(subject, outcome, columns))
    return outcome


def analytic_columns(
    subject: Subject,
    plan: Plan,
    reference: Reference,
    meter: Meter,
    columns: list[NDArray[np.intp]] | None = None,
) -> AnalyticColumns:
    """Read out the analytic side; of the given coordinates only, where there are."""
    own = analytic_side(subject, columns, meter)
    precise = None
    twin = reference.subject
    if twin is not subject and twin.analytic is not None:
        precise = _trusted(analytic_side(twin, columns, meter), own)
    round_off = _round_off(subject, own, precise, plan.seed) if not columns else None
    return AnalyticColumns(own, precise, round_off)


def compare_columns(
    subject: Subject,
    plan: Plan,
    meter: Meter,
    base: NDArray[np.float64],
    columns: list[NDArray[np.intp]],
    reference: Reference,
    analytic: AnalyticColumns,
    *,
    known: Known | None = None,
) -> Outcome:
    """Compare coordinates of which the analytic side has been read.

    Parameters
    ----------
    analytic
        Of all columns, or of exactly these.
    known
        What other columns have shown, where these are not all.
    """
    methods = [plan.method_of(variable.name) for variable in subject.inputs]
    at, row = reference.subject, reference.base
    twin = None if at is subject else at
    outcome = Outcome([], base, analytic.side.problems, twin, known=known)
    try:
        for which, positions in enumerate(columns):
            chosen = plan.finds_steps(subject.inputs[which].name)
            # who asks for a step means his own arithmetic, not float64
            there, here = (at, row) if chosen else (subject, base)
            sides = analytic.precise or analytic.side.values
            guess = sides[which] if sides[which].shape[1] == len(positions) else None
            wanted = _Wanted(there, which, positions, here, methods[which], guess)
            block, stop = _first_pass(wanted, plan.seed, meter)
            _add_analytic(block, analytic, len(positions), chosen=chosen)
            outcome.blocks.append(block)
            if stop is not None:
                raise stop
        if settled_at_once(subject, (at, row), outcome, plan, meter):
            return outcome
        for block in outcome.blocks:
            block.own_steps()
            unfold_bend(block)
        auto = [b for b in outcome.blocks if isinstance(methods[b.which], Auto)]
        settle_still(at, row, auto, meter, plan.seed)
        judge_all(subject, outcome, plan)
        if set_unsteady_aside(at, row, outcome, meter):
            look_again((subject, base), (at, row), outcome, plan, meter)
    except (BudgetExhausted, KeyboardInterrupt) as stop:
        if not outcome.blocks:
            raise
        outcome.stopped = why_stopped(stop)
    if outcome.unsteady is not None:  # whatever the ladder says of them
        for block in outcome.blocks:
            block.error[outcome.unsteady > 0] = np.inf
    if outcome.stopped or outcome.unsteady is not None:
        judge_all(subject, outcome, plan)
    second_opinion_on(subject, base, outcome, plan, meter)
    return outcome


def _add_analytic(
    block: Block, analytic: AnalyticColumns, wanted: int, *, chosen: bool
) -> None:
    """Put the analytic side beside the numeric one, as far as that has come."""
    which, done = block.which, block.positions

    def cut(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        if matrix.shape[1] == wanted:  # these very columns, or all there are
            return matrix if len(done) == wanted else matrix[:, : len(done)]
        return matrix[:, done]

    block.analytic = cut(analytic.side.values[which])
    if analytic.precise is not None and chosen:
        block.precise = cut(analytic.precise[which])
    if analytic.round_off is not None and chosen:
        block.slack = cut(analytic.round_off[which])


def _trusted(
    precise: AnalyticSide, analytic: AnalyticSide
) -> tuple[NDArray[np.float64], ...] | None:
    """Gradients in float64, unless they fail where those of the user do not.

    A checkpoint that recomputes its forward inside the backward sees the user's own
    tensors again, not the copies.
    """
    if precise.problems and not analytic.problems:
        return None
    for wide, own in zip(precise.values, analytic.values, strict=True):
        if (np.isfinite(own) & ~np.isfinite(wide)).any():
            return None
    pairs = list(zip(precise.values, analytic.values, strict=True))
    same = [np.array_equal(own, wide, equal_nan=True) for wide, own in pairs]
    if not all(same) and all(is_short(wide, beside=own) for wide, own in pairs):
        return None  # a backward that is single precision whatever comes in
    return precise.values


def _remarks(
    subject: Subject, outcome: Outcome, columns: list[NDArray[np.intp]]
) -> Iterator[str]:
    """Say what was met, what was looked at again, and what was not looked at."""
    total = sum(len(positions) for positions in columns)
    yield from outcome.met()
    if outcome.looked:
        yield (
            f"{outcome.looked} of {total} coordinates looked at again with the "
            f"adaptive ladder"
        )
    if outcome.stopped:
        done = sum(len(block.positions) for block in outcome.blocks)
        left = [v.name for v in subject.inputs[len(outcome.blocks) :]]
        missing = f"; not looked at: {', '.join(left)}" if left else ""
        yield f"{outcome.stopped}: {done} of {total} coordinates{missing}"


def reference_of(
    subject: Subject, plan: Plan, meter: Meter, base: NDArray[np.float64]
) -> Reference:
    """Choose what the numeric side evaluates: float64 copies where that is possible."""
    choosing = any(plan.finds_steps(variable.name) for variable in subject.inputs)
    own = Reference(subject, base)
    if subject.epsilon < _EPS_DOUBLE or not choosing:
        return own
    twin = subject.in_double()
    if twin is None:
        return own
    reference_base = base_row(twin, meter)
    # a twin that computes something else (another branch, another draw) is no reference
    size = np.abs(base).max(initial=0.0)
    with np.errstate(all="ignore"):
        apart = np.abs(reference_base - base)
        far = (apart > 0.1 * np.abs(base) + 1e-2 * size) & np.isfinite(base)
        if far.any() and twin.analytic is not None:
            # sin(20 x) in bfloat16: rounding inside explains it
            far &= ~(apart <= _INSIDE * subject.epsilon * _reach(twin))
    return own if far.any() else Reference(twin, reference_base)


def _reach(twin: Subject) -> NDArray[np.float64]:
    """How far every output moves when every input moves by its own size, (m,)."""
    gradients = analytic_side(twin).values
    total = np.zeros(len(gradients[0]))
    for which, values in enumerate(gradients):
        total += np.abs(values) @ np.abs(twin.point(which))
    return total


def _round_off(
    subject: Subject,
    analytic: AnalyticSide,
    precise: tuple[NDArray[np.float64], ...] | None,
    seed: int,
) -> list[NDArray[np.float64]] | None:
    """Measure how exact gradients in short arithmetic are, where that is in doubt."""
    if precise is None:
        return None
    doubt = False
    with np.errstate(all="ignore"):
        for own, wide in zip(analytic.values, precise, strict=True):
            size = np.abs(wide)
            top = np.where(np.isfinite(size), size, 0).max(initial=0.0)
            doubt |= bool((np.abs(own - wide) > 0.05 * np.maximum(size, top)).any())
    rows = len(analytic.values[0])
    if not doubt or rows > _MOST_ROWS:
        return None
    noise = analytic_noise(subject, np.eye(rows), seed=seed)
    return [_SCATTER * part for part in noise]


def _first_slice(wanted: _Wanted, meter: Meter, cost: int) -> int:
    """Choose how many coordinates to begin with: no more than one is patient for."""
    breadth = 1 if meter.crew is None else meter.crew.breadth
    most = min(4 * _FIRST_SLICE, len(wanted.positions))
    if not wanted.subject.batches(wanted.which, cost * most):
        most = _FIRST_SLICE
    if meter.each <= 0:
        return most
    return max(1, min(most, int(_PATIENCE / (meter.each * cost) * breadth)))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Wanted:
    """Coordinates of one input that are to be measured, and by which method."""

    subject: Subject
    which: int
    positions: NDArray[np.intp]
    base: NDArray[np.float64]
    method: Method
    guess: NDArray[np.float64] | None  # zero where the Jacobian may be

    @property
    def complete(self) -> bool:
        return len(self.positions) == self.subject.inputs[self.which].coordinates


def _slices(
    wanted: _Wanted, seed: int, meter: Meter
) -> tuple[list[Quotients], BaseException | None]:
    """Measure slice by slice; what was done before an interruption is kept."""
    parts: list[Quotients] = []
    done, method, positions = 0, wanted.method, wanted.positions
    stop: BaseException | None = None
    try:
        if isinstance(method, Auto) and wanted.complete:
            found = compressed(
                wanted.subject,
                wanted.which,
                wanted.base,
                meter,
                seed=seed,
                guess=wanted.guess,
            )
            if found is not None:
                return [found], None
        each: float = method.cost
        slice_size = _first_slice(wanted, meter, method.cost)
        while done < len(positions):
            # what a budget leaves, or the whole slice would be lost with it
            slice_size = max(1, min(slice_size, meter.left() // method.cost))
            part = positions[done : done + slice_size]
            began, before = meter.seconds, meter.evaluations
            at = wanted.subject, wanted.which
            parts.append(numeric_side(*at, part, wanted.base, method, meter))
            done += len(part)
            # a ladder takes as many steps as it needs: the bar learns how many
            spent = meter.evaluations - before
            ahead, now = len(positions) - done, spent / len(part)
            meter.expect(spent - each * len(part) + (now - each) * ahead)
            each = now
            if meter.seconds - began < _PATIENCE:
                slice_size = min(2 * slice_size, _SLICE)
    except (BudgetExhausted, KeyboardInterrupt) as why:
        if not parts:
            raise
        stop = why
    return parts, stop


def _scales(wanted: _Wanted, parts: list[Quotients]) -> NDArray[np.float64]:
    """Give the size of every coordinate, (n,); a pattern knows it already."""
    if len(parts) == 1 and parts[0].pattern is not None:
        return parts[0].pattern.scales
    return scales_of(wanted.subject, wanted.which)


def _first_pass(
    wanted: _Wanted, seed: int, meter: Meter
) -> tuple[Block, BaseException | None]:
    """Make a block of cheap differences, as far as they came."""
    parts, stop = _slices(wanted, seed, meter)
    done = sum(part.step.shape[1] for part in parts)
    rows = len(wanted.base)

    def joined(name: str) -> Any:
        if not parts:
            return np.zeros((rows, 0))
        if len(parts) == 1:
            if name in ("value", "error") and not is_made(parts[0], name):
                return unmade(parts[0], name)
            only: NDArray[np.float64] = getattr(parts[0], name)
            return only if only.strides[:1] == (0,) else np.ascontiguousarray(only)
        whole = np.empty((rows, done))  # row-major, as the analytic side is
        pieces = [getattr(part, name) for part in parts]
        return np.concatenate(pieces, axis=1, out=whole)

    blank = np.broadcast_to(np.nan, (rows, done))  # no memory before it is needed
    block = Block(
        which=wanted.which,
        positions=wanted.positions[:done],
        scales=_scales(wanted, parts)[wanted.positions[:done]],
        analytic=blank,
        slack=np.zeros((rows, 1)),
        value=joined("value"),
        error=joined("error"),
        step=joined("step"),
        kinds=np.full((rows, done), -1, dtype=np.int8),
        left=blank,
        right=blank,
        verdicts=np.zeros((rows, done), dtype=np.int8),
        allowed=np.zeros((rows, done)),
        accepted=np.zeros((rows, done), dtype=bool),
        looked=np.zeros(done, dtype=bool),
        still=stillness(wanted.base),
        bend=joined("bend"),
        pattern=parts[0].pattern if len(parts) == 1 else None,
    )
    return block, stop
