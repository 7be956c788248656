"""A subject examined: conditions, comparison, diagnosis, all in one report."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.alike import alike
from gradlab.diagnosis.diagnose import diagnose, unexplained
from gradlab.diagnosis.evidence import Evidence
from gradlab.diagnosis.finding import BugKind, rank, spared
from gradlab.diagnosis.left_open import left_open
from gradlab.diagnosis.measuring.responses import Response
from gradlab.diagnosis.returned import returned
from gradlab.diagnosis.upstream import hidden_upstream
from gradlab.differentiation.evaluation import base_row
from gradlab.differentiation.metering.meter import BudgetExhausted, why_stopped
from gradlab.differentiation.origin import Origin
from gradlab.labels import plural
from gradlab.localisation.conditions import Conditions, first_evaluation
from gradlab.pipeline.around.lost_in_half import lost_to_underflow
from gradlab.pipeline.around.noticing import excuse_cancellation, noticed
from gradlab.pipeline.around.on_purpose import purposeful
from gradlab.pipeline.assembling import (
    Seen,
    as_parts,
    comparisons_of,
    left_out,
    met_on_the_way,
    unseen_by_optimisers,
)
from gradlab.pipeline.comparing import run_full
from gradlab.pipeline.coverage import (
    Coverage,
    Estimate,
    Price,
    choose_columns,
    estimate,
    needs_streaming,
)
from gradlab.pipeline.outcome import Judged
from gradlab.pipeline.taking_back import behind_solvers, joint_kinks, take_back
from gradlab.report import Report
from gradlab.subject.subject import (
    analytic_of,
    input_columns,
    output_rows,
    unit_vectors,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from gradlab.comparison.comparison import Comparison
    from gradlab.diagnosis.finding import Finding
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.outcome import Outcome
    from gradlab.pipeline.plan import Call, Plan
    from gradlab.subject.analytic_sides import Problem
    from gradlab.subject.subject import Subject

__all__ = ["compare", "examine", "examine_from", "start"]

_ROWS = 16  # of the analytic side that are timed
_LEAST = 4  # evaluations' time that these take at least, and all of them
_WAIT = 5.0  # seconds that are worth an estimate in the report
_EVERY = 2_000_000  # evaluations that nobody waits for, however fast they are
_COLD = 5.0  # seconds; a check that seems to take longer is worth a second timing


def examine(subject: Subject, call: Call) -> Report:
    """Compare both sides of a subject and say what the comparison means.

    Parameters
    ----------
    subject
        Built, not yet evaluated.
    call
        How to check, at what cost, and what may be reached.
    """
    return examine_from(*start(subject, call), call)


def examine_from(own: Origin, conditions: Conditions, call: Call) -> Report:
    """Compare both sides of a subject that has been evaluated at its point."""
    subject, plan, meter = own.subject, call.plan, call.meter
    coverage, expected = _planned(subject, plan, meter)
    seen, excuses = _compared(own, call, coverage, conditions)
    findings, missing = _findings(seen, call)
    beside, unasked = _beside(own, seen, plan, meter)
    missing += unasked
    told = [*_once_told(findings, excuses), *excuses, *beside]
    told += lost_to_underflow(subject)
    if not seen.partial:  # else remarks say what was not looked at
        told += left_open(seen.comparisons, told, plan.steps_asked_for(subject.inputs))
    findings = tuple(alike(rank(told)))
    return Report(
        subject=subject.kind,
        analytic=analytic_of(subject).description,
        comparisons=seen.comparisons,
        findings=findings,
        culprits=_culprits(seen.comparisons, findings),
        method=_method_words(plan, seen),
        coverage=_covered(coverage, seen),
        evaluations=meter.evaluations,
        seconds=meter.seconds,
        seed=plan.seed,
        remarks=(
            *left_out(subject),
            *unseen_by_optimisers(subject, meter),
            *coverage.remarks,
            *_told_before(meter, expected),
            *seen.remarks,
            *_given_up(meter),
            *missing,
        ),
        partial=seen.partial or bool(missing),
        epsilon=subject.epsilon,
    )


def _covered(coverage: Coverage, seen: Seen) -> str:
    """Name what was looked at: what was cut short may have come to a part of it."""
    if coverage.name != "full" or not seen.partial:
        return coverage.name
    subject, found = seen.evidence.subject, seen.comparisons
    every = len(found) == len(subject.inputs) * len(subject.outputs)
    return "full" if every and all(c.coverage == "full" for c in found) else "sample"


def _compared(
    own: Origin, call: Call, coverage: Coverage, conditions: Conditions
) -> tuple[Seen, list[Finding]]:
    """Compare both sides: along directions, column by column, or whole.

    Returns
    -------
    seen
        Comparisons, and the evidence for diagnosis.
    excuses
        What was accused by its numbers, and is none of the gradient's mistakes.
    """
    subject, plan, meter, layers = own.subject, call.plan, call.meter, call.layers
    if coverage.name == "probe":
        from gradlab.pipeline.large.probing import compare_by_probes

        known = purposeful(subject)
        spoiled = frozenset if layers is None else layers.spoiled
        seen, excuses = compare_by_probes(own, plan, meter, conditions, known, spoiled)
        return seen, [*known.values(), *excuses]
    if needs_streaming(subject, coverage.columns, plan.memory):
        from gradlab.pipeline.large.streaming import run_streamed

        found = run_streamed(own, plan, meter, coverage.columns)
        seen = _seen(subject, plan, meter, found.outcome, conditions, coverage)
        tallied = found.with_tallies(seen.comparisons)
        return dataclasses.replace(seen, comparisons=tallied), found.excuses
    outcome = run_full(own, plan, meter, coverage.columns)
    judged = Judged(subject, outcome, meter, plan.seed)
    excuses = take_back(judged) + behind_solvers(judged) + joint_kinks(judged)
    return _seen(subject, plan, meter, outcome, conditions, coverage), excuses


def _beside(
    own: Origin, seen: Seen, plan: Plan, meter: Meter
) -> tuple[list[Finding], tuple[str, ...]]:
    """Look around the comparison, as far as that is not cut short."""
    found: list[Finding] = []
    try:
        for finding in noticed(own, seen.comparisons, meter, plan.seed, _moving(seen)):
            found.append(finding)  # noqa: PERF402 - what was found by then is kept
    except (BudgetExhausted, KeyboardInterrupt) as stop:
        what = "what the numbers do not show (state, modes, memory)"
        return found, (f"{why_stopped(stop)}: {what} was not looked for to the end",)
    return found, ()


def _moving(seen: Seen) -> set[int]:
    """Name inputs of which a pattern shows, without a matrix, that a slope is not 0."""
    patterns = {part.which: part.pattern for part in seen.evidence.parts}
    return {which for which, known in patterns.items() if known and known.value.any()}


def start(subject: Subject, call: Call) -> tuple[Origin, Conditions]:
    """Evaluate at the point, time it, and tell the workers, if there are any."""
    meter = call.meter
    began = time.perf_counter()
    base, conditions = first_evaluation(subject, call.roots, meter, call.guard)
    each = (time.perf_counter() - began) / max(meter.evaluations, 1)
    if meter.crew is not None:
        meter.crew.enlist(subject, meter)
    total = input_columns(subject.inputs)
    # a first call compiles and imports: time a warm one, where that may matter
    if 2 * total * each > _COLD and 2 * total <= _EVERY:
        began = time.perf_counter()
        base_row(subject, meter)
        each = time.perf_counter() - began
    meter.each = each
    return Origin(subject, base), conditions


def _planned(subject: Subject, plan: Plan, meter: Meter) -> tuple[Coverage, Estimate]:
    """Decide what to look at, and say what it will cost, before the work."""
    each = meter.each / (1 if meter.crew is None else meter.crew.breadth)
    price = Price(
        evaluations=[plan.method_of(v.name).cost for v in subject.inputs],
        each=each,
        analytic=_analytic_seconds(subject, meter),
    )
    coverage = choose_columns(subject, plan.coverage, meter.budget, plan.seed, price)
    expected = estimate(coverage, price, input_columns(subject.inputs))
    words = f"{coverage.name}, about {expected.seconds:.2g} s"
    meter.bar.begin(expected.evaluations, words)
    return coverage, expected


def _findings(seen: Seen, call: Call) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Look for causes; what was compared stands, whatever happens meanwhile.

    With ``diagnose=False`` a backward that is wrong, its gradient right, is told
    as well: that is no cause, but a verdict.
    """
    evidence, layers = seen.evidence, call.layers
    wrong = any(map(_is_wrong, seen.comparisons))
    missing: tuple[str, ...] = ()
    try:
        if call.explain:
            spoiled = layers.spoiled() if layers is not None and wrong else ()
            return diagnose(evidence, spoiled), missing
        hidden = [] if wrong else hidden_upstream(evidence, Response(evidence))
    except (BudgetExhausted, KeyboardInterrupt) as stop:
        hidden = []
        missing = (f"{why_stopped(stop)}: the cause was not looked for",)
    told = [*returned(evidence), *hidden]  # what needs no looking, or next to none
    return rank(unexplained(evidence, told)), missing


def _once_told(findings: Iterable[Finding], excuses: list[Finding]) -> list[Finding]:
    """Leave out that an input is written to, where an excuse says what that means.

    And guesses at a formula, where all that is wrong is that it has too few digits; and
    that f is not defined beside a symmetric matrix, where only such are compared.
    """
    told = {excuse.where for excuse in excuses if excuse.kind == BugKind.SURROGATE}
    inexact = {
        excuse.where
        for excuse in excuses
        if excuse.kind == BugKind.LOW_PRECISION and excuse.severity == "error"
    }
    symmetric = any(each.kind == BugKind.DEPENDENT_INPUTS for each in excuses)
    return [
        finding
        for each in findings
        for finding in (spared([each], inexact) if each.severity == "error" else [each])
        if (finding.kind != BugKind.MUTATES_INPUT or finding.where not in told)
        and (finding.kind != BugKind.NONFINITE or finding.where or not symmetric)
    ]


def _seen(
    subject: Subject,
    plan: Plan,
    meter: Meter,
    outcome: Outcome,
    conditions: Conditions,
    coverage: Coverage,
) -> Seen:
    comparisons = comparisons_of(
        subject,
        outcome.blocks,
        method=plan.first_method,
        coverage="sample" if outcome.stopped else coverage.name,
    )
    evidence = Evidence(
        subject=subject,
        base=outcome.base,
        parts=as_parts(subject, outcome.blocks),
        comparisons=comparisons,
        problems=outcome.problems,
        meter=meter.closed() if outcome.interrupted else meter,
        seed=plan.seed,
        conditions=conditions,
        met=met_on_the_way(subject, plan, meter, outcome),
        reference=outcome.reference,
    )
    return Seen(comparisons, evidence, tuple(outcome.remarks), bool(outcome.stopped))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Comparisons alone, without their causes."""

    comparisons: tuple[Comparison, ...]
    remarks: tuple[str, ...]
    partial: bool
    problems: tuple[Problem, ...]


def compare(subject: Subject, plan: Plan, meter: Meter) -> Compared:
    """Compare both sides of a subject that needs no watching; no diagnosis."""
    own = Origin(subject, base_row(subject, meter))
    price = Price.of_differences(subject)
    coverage = choose_columns(subject, "full", meter.budget, plan.seed, price)
    outcome = run_full(own, plan, meter, coverage.columns)
    excuse_cancellation(subject, outcome.blocks, meter, plan.seed)
    take_back(Judged(subject, outcome, meter, plan.seed))
    comparisons = comparisons_of(
        subject, outcome.blocks, method=plan.first_method, coverage=coverage.name
    )
    remarks = (*coverage.remarks, *outcome.remarks)
    return Compared(
        comparisons, remarks, bool(outcome.stopped), tuple(outcome.problems)
    )


def _analytic_seconds(subject: Subject, meter: Meter) -> float:
    """Extrapolate from a few rows how long the analytic side takes; 0 if it is short.

    Only where it matters: with a budget in seconds. Of one that has no room for those
    few rows, they would take what is left for the comparison.
    """
    budget = meter.budget
    rows, analytic = output_rows(subject.outputs), analytic_of(subject)
    if budget.seconds is None or rows <= _ROWS or not analytic.takes_cotangents:
        return 0.0
    least = _LEAST * meter.each
    if meter.seconds + least > budget.seconds:
        return least
    some = unit_vectors(rows, np.linspace(0, rows - 1, _ROWS).astype(int))
    began = time.perf_counter()
    with np.errstate(all="ignore"):
        analytic.pull(some)
    return (time.perf_counter() - began) / _ROWS * rows


def _told_before(meter: Meter, expected: Estimate) -> tuple[str, ...]:
    """Show the estimate where somebody has to wait, or has asked for a bound."""
    bounded = meter.budget.evaluations is not None or meter.budget.seconds is not None
    return (expected.words,) if bounded or expected.seconds > _WAIT else ()


def _given_up(meter: Meter) -> tuple[str, ...]:
    """Tell of evaluations that did not return."""
    ended, usual = meter.timeouts.ended, meter.timeouts.usual
    if not ended:
        return ()
    words = (
        f"{plural(len(ended), 'evaluation')} away from the point had not returned "
        f"after {ended[0]:.2g} s, where one at the point takes {usual:.1g} s; given up"
    )
    return (words,)


def _method_words(plan: Plan, seen: Seen) -> str:
    names = [comparison.input.name for comparison in seen.comparisons]
    words = ", ".join(dict.fromkeys(map(plan.first_method, names)))
    words = words or plan.method.name
    if seen.evidence.reference is not None:
        words += ", evaluated in float64"
    return words


def _culprits(
    comparisons: tuple[Comparison, ...], findings: tuple[Finding, ...]
) -> tuple[str, ...]:
    """Names of wrong inputs: those the findings put first, then the worst first."""
    wrong = [c for c in comparisons if _is_wrong(c)]
    wrong.sort(key=lambda c: -_share(c))
    named = [place for f in findings if f.severity == "error" for place in f.places]
    known = {c.input.name for c in comparisons}
    ordered = [n for n in named if n in known] + [c.input.name for c in wrong]
    return tuple(dict.fromkeys(ordered))


def _is_wrong(comparison: Comparison) -> bool:
    return comparison.verdict == Verdict.DISAGREES


def _share(comparison: Comparison) -> float:
    """Size of the error relative to the gradient, over the whole block."""
    with np.errstate(all="ignore"):
        error: NDArray[Any] = np.nan_to_num(comparison.error, nan=np.inf, posinf=np.inf)
        size = np.nan_to_num(np.abs(comparison.numeric), nan=0.0, posinf=0.0)
        # squares of 1e200 overflow
        top = float(max(size.max(initial=0.0), error.max(initial=0.0)))
        if top == 0 or not np.isfinite(top):
            return top
        share = np.linalg.norm(error / top) / np.linalg.norm(size / top)
        return float(share) if np.isfinite(share) else np.inf
