"""A report carried further: into the layers of a module, to the second derivative."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind, Finding, rank, spared
from gradlab.diagnosis.left_open import left_open
from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.errors import InputError
from gradlab.pipeline.around.on_purpose import purposeful
from gradlab.pipeline.cut_short import cut_short
from gradlab.pipeline.examining import compare
from gradlab.subject.subject import is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradlab.comparison.comparison import Comparison
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.localisation.layers.audited import LayerAudit
    from gradlab.pipeline.layers import Layers
    from gradlab.pipeline.plan import Call, Plan
    from gradlab.report import Report
    from gradlab.subject.analytic_sides import Problem
    from gradlab.subject.subject import Subject

__all__ = ["deepened"]

_SAVED = (
    "Write the backward with differentiable operations on saved inputs and outputs; "
    "what else forward has computed is a constant to it, saved or not: compute it "
    "again there, or return it as a further output."
)
_TWICE = (
    "Replace the operation that it names by one that torch can differentiate twice "
    "(of attention: torch.nn.attention.sdpa_kernel(SDPBackend.MATH))."
)
_WITH_GRAPH = (
    "Write the backward with differentiable torch operations on the incoming gradient "
    "and on saved tensors (no once_differentiable, detach, no_grad or NumPy), or leave "
    "out order=2 if nobody differentiates twice."
)


def deepened(report: Report, subject: Subject, call: Call, *, order: int) -> Report:
    """Carry a report further where that is asked for, as far as the budget goes.

    Parameters
    ----------
    report
        Of `subject`; what the end of a budget leaves out is said in it.
    call
        Its layers, if there are any, are audited if something is wrong.
    order
        2 looks into the second derivative as well.
    """
    plan, layers = call.plan, call.layers
    missing = "the second derivative was not checked"
    try:
        if order == 2 and not report.partial:
            report = _with_second_order(report, subject, plan, call.meter)
        missing = "the layers were not audited; gl.blame does that"
        if report.ok:
            return report
        if layers is None:
            from gradlab.pipeline.called import told_by_calls

            return told_by_calls(report, subject, call)
        if not layers.affordable:
            return cut_short(report, None, missing)
        return _with_layers(report, layers, plan)
    except (BudgetExhausted, KeyboardInterrupt) as stop:
        return cut_short(report, stop, missing)


def _with_layers(report: Report, layers: Layers, plan: Plan) -> Report:
    """Audit the layers of a module that disagreed, and put the root cause first.

    A layer that is wrong itself explains every parameter that its wrong gradient
    contaminates; those are named after it.
    """
    from gradlab.pipeline.layer_errors import errors_of, mistakes_of, was_interrupted

    audit = layers.audited()
    if audit is None:
        return dataclasses.replace(report, remarks=(*report.remarks, layers.refusal))
    if was_interrupted(audit):
        report = cut_short(report, KeyboardInterrupt(), "not all layers were audited")
    if not audit.culprits:
        return dataclasses.replace(report, layers=audit)
    parameters = {name for row in audit.rows for name in row.parameters}
    entering = sorted(layers.spoiled() - parameters)
    if entering:  # by the names that a check has for them
        audit = _with_inputs(audit, parameters, entering)
    own = {
        name
        for row in audit.rows
        if row.name in audit.culprits
        for name in row.parameters
        if name not in audit.contaminated  # by a Function that its module calls
    }
    named = [c for c in report.culprits if c in own]
    spoiled = [c for c in report.culprits if c not in own and c in parameters]
    rest = [c for c in report.culprits if c not in own and c not in parameters]
    culprits = tuple(dict.fromkeys((*audit.culprits, *named, *spoiled, *rest)))
    wrong = errors_of(audit, layers.looks, plan, report)
    others = [f for f in audit.findings if f.severity != "error"]
    # a layer that is wrong explains the parameters it spoils: those need no cause
    hooked = {mistake.where for mistake in mistakes_of(audit) if mistake.hook}
    done = {n for row in audit.rows if row.name in hooked for n in row.parameters}
    kept = spared(report.findings, {*spoiled, *entering, *(done & own)})
    # what its layer says in the same words is told
    kept = [f for f in kept if not any(f.evidence in w.evidence for w in wrong)]
    return dataclasses.replace(
        report,
        layers=audit,
        culprits=culprits,
        findings=rank([*wrong, *kept, *others]),
    )


def _with_inputs(
    audit: LayerAudit, parameters: set[str], names: list[str]
) -> LayerAudit:
    """Call the inputs of a model that a wrong layer spoils by their own names."""
    spoiled = (name for name in audit.contaminated if name in parameters)
    return dataclasses.replace(audit, contaminated=(*spoiled, *names))


def _with_second_order(
    report: Report, subject: Subject, plan: Plan, meter: Meter
) -> Report:
    """Check the backward of the backward as well.

    The function compared is the first gradient itself, contracted with a random
    cotangent, which is one of its inputs; its analytic side is autograd through the
    backward pass.

    Raises
    ------
    InputError
        For subjects whose backward cannot be differentiated.
    """
    if not is_torch_subject(subject):
        msg = (
            f"order=2 needs a torch function whose backward can be differentiated, got "
            f"a {subject.kind}; check the gradient function itself with jac="
        )
        raise InputError(msg)
    from gradlab.differentiation.analytic.second_order import COTANGENT, second_order

    twin = second_order(subject, plan.seed, varied=True)
    result = compare(twin, plan, meter)
    # what is no derivative on purpose (max_norm, spectral norm) has no second one
    apart = {subject.inputs[which].name for which in purposeful(subject)}
    compared = [c for c in result.comparisons if c.input.name not in apart]
    findings = list(report.findings)
    sure = min((f.confidence for f in findings if f.severity == "error"), default=0.9)
    wrong = [(c, _place(c, subject)) for c in compared if _wrong(c)]
    # what is wrong in an input is hardly right in what multiplies it
    told = [pair for pair in wrong if pair[0].input.name != COTANGENT] or wrong
    if told:
        findings.append(_second_finding(told, 0.99 * sure, result.problems))
    if not result.partial:
        findings += left_open(compared, findings)
    remark = "second derivative checked as well"
    if apart:
        remark += f", but not with respect to {', '.join(sorted(apart))}"
    if result.partial:
        remark += ", but not all of it"
    return dataclasses.replace(
        report,
        comparisons=(*report.comparisons, *compared),
        findings=rank(findings),
        culprits=tuple(dict.fromkeys((*report.culprits, *(p for _, p in wrong)))),
        evaluations=meter.evaluations,
        remarks=(*report.remarks, remark, *result.remarks),
        partial=report.partial or result.partial,
    )


def _wrong(comparison: Comparison) -> bool:
    return comparison.verdict == Verdict.DISAGREES


def _place(comparison: Comparison, subject: Subject) -> str:
    """Name the input a second derivative of which is wrong.

    Along the incoming gradient that is the one whose gradient it is of.
    """
    from gradlab.differentiation.analytic.second_order import COTANGENT

    if comparison.input.name != COTANGENT:
        return comparison.input.name
    name = comparison.output.name.removeprefix("grad.")
    known = any(variable.name == name for variable in subject.inputs)
    return name if known else name.rpartition(".")[0]  # its real or imaginary part


def _second_finding(
    wrong: list[tuple[Comparison, str]],
    confidence: float,
    problems: Sequence[Problem],
) -> Finding:
    """Say that second derivatives are wrong, by the worst of them.

    What is wrong of the first comes first.

    Parameters
    ----------
    wrong
        With the input that each is told of.
    confidence
        In what it says.
    problems
        What came in place of gradients: where nothing did, or something was raised,
        there is no backward of the backward, and no number of it is wrong.
    """
    worst, place = max(wrong, key=lambda pair: pair[0].max_rel_error)
    also = tuple(name for name in dict.fromkeys(n for _, n in wrong) if name != place)
    told, advice = _second_words(worst, problems)
    return Finding(
        BugKind.SECOND_ORDER, "error", place, confidence, told, advice, also=also
    )


def _second_words(worst: Comparison, problems: Sequence[Problem]) -> tuple[str, str]:
    """Say what is wrong with a second derivative, and what to do."""
    from gradlab.differentiation.analytic.second_order import COTANGENT

    raised = next((p.detail for p in problems if p.kind == "raised"), "")
    if raised:
        return f"The backward cannot be differentiated: {raised}", _TWICE
    row, column = worst.ranking(1)[0]
    label, numeric = worst.label(row, column), worst.numeric[row, column]
    none = {p.where for p in problems if p.kind == "none"}
    if worst.input.name in none:
        where = worst.input.name
        if COTANGENT in none:  # in which every gradient is linear
            where = f"any input, nor to {COTANGENT}"
        told = (
            f"The backward cannot be differentiated: no graph leads through it to "
            f"{where}, so that second derivatives are missing. Differences of the "
            f"backward give {numeric:.6g} at {label}."
        )
        return told, _WITH_GRAPH
    told = (
        f"The derivative of the gradient {worst.output.name} with respect to "
        f"{worst.input.name} is wrong: at {label} autograd through the backward gives "
        f"{worst.analytic[row, column]:.6g}, differences of the backward give "
        f"{numeric:.6g}."
    )
    return told, _SAVED
