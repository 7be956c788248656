"""What a function of torch calls, audited where the function is wrong.

Seen from outside, a wrong backward inside a function is blurred by all that comes
before and after it: no factor, mask or order shows. Looked at by itself it has a name,
a line and a kind. Models have their layers audited (`pipeline.layers`); a function has
the custom Functions that it applies, and the modules that it reaches.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from gradlab.diagnosis.finding import BugKind, rank, spared
from gradlab.pipeline.cut_short import cut_short
from gradlab.pipeline.layer_errors import errors_of, mistakes_of, was_interrupted
from gradlab.pipeline.layers import Layers, blames_layers_alone
from gradlab.subject.subject import is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gradlab.diagnosis.finding import Finding
    from gradlab.localisation.layers.audited import LayerAudit, LayerMistake
    from gradlab.pipeline.plan import Call
    from gradlab.report import Report
    from gradlab.subject.subject import Subject

__all__ = ["told_by_calls"]

_WEAK = 0.8  # confidence: less than that is a guess at how the whole is wrong
# a value that a backward reads has been overwritten, or the gradient it is given is
_OVERWRITTEN = {BugKind.STALE_CACHE, BugKind.MUTATES_INPUT}
# how values look that a backward reads after another call has overwritten them
_BY_NUMBERS = {
    BugKind.SCALE,
    BugKind.SIGN,
    BugKind.MISSING_TERM,
    BugKind.EXTRA_TERM,
    BugKind.WRONG_DERIVATIVE,
    BugKind.WRONG_INDEX,
}
_PLACE = "input "  # before the number of an input of the audited function


def told_by_calls(report: Report, subject: Subject, call: Call) -> Report:
    """Name the call inside a function that is wrong.

    Where the error of an input has no sure cause, with the cause that the call shows.

    Parameters
    ----------
    report
        Of a function that is wrong. Verdicts and culprits stay what they are.
    subject
        The function.
    call
        With the plan and the meter; an audit is made where a budget has room for it.
    """
    layers = _calls_of(subject, call) if call.explain else None
    if layers is None or not layers.affordable:
        return report
    audit = layers.audited()
    if audit is None or not audit.culprits:
        return report
    if was_interrupted(audit):
        return cut_short(report, KeyboardInterrupt(), "not all calls were audited")
    root = audit.rows[0].name  # the function itself: what is wrong there has no name
    inner = [mistake for mistake in mistakes_of(audit) if mistake.layer != root]
    spoiled = _spoiled(audit, layers.names)
    if not (inner and spoiled):
        return report
    findings = report.findings
    proven = {f.kind for f in audit.findings if f.kind in _OVERWRITTEN}
    guesses = [
        finding
        for finding in findings
        if not spoiled.isdisjoint(finding.places) and _is_guess(finding, proven)
    ]
    told: list[Finding] = []
    if guesses:
        errors = errors_of(audit, layers.looks, call.plan, report)
        where, *also = dict.fromkeys(
            place for guess in guesses for place in guess.places if place in spoiled
        )
        told = [
            dataclasses.replace(error, where=where, also=tuple(also))
            for error, mistake in zip(errors, mistakes_of(audit), strict=False)
            if mistake in inner
        ]
    kept = list(findings)
    if len(inner) == 1 and blames_layers_alone(audit) and _no_wiser(told, inner[0]):
        # what the whole shows is more, and true of the call as well
        guesses = [f for f in guesses if f.kind != BugKind.UNKNOWN]
        kept = [
            dataclasses.replace(f, advice=told[0].advice)
            if f.kind == BugKind.UNKNOWN and _is_guess(f, proven)
            else f
            for f in kept
        ]
        told = []
    if blames_layers_alone(audit):
        kept = [f for f in kept if f not in guesses]
        kept += [left for f in guesses for left in _left_of(f, told, spoiled)]
        if len(inner) == 1:
            kept = [_placed(finding, inner[0], spoiled) for finding in kept]
    return dataclasses.replace(report, findings=rank([*told, *kept]))


def _no_wiser(told: Sequence[Finding], mistake: LayerMistake) -> bool:
    """Whether all that is known of a call is that its slopes are wrong."""
    unnamed = all(finding.kind == BugKind.UNKNOWN for finding in told)
    return bool(told) and unnamed and mistake.only_slopes


def _is_guess(finding: Finding, proven: Collection[BugKind]) -> bool:
    """Whether an error is told by how numbers look, and no surer than what is proven.

    A gradient that was written to may look like anything.
    """
    if BugKind.MUTATES_INPUT in proven:
        return finding.severity == "error"
    return _is_weak(finding) or (bool(proven) and finding.kind in _BY_NUMBERS)


def _is_weak(finding: Finding) -> bool:
    unsure = finding.kind == BugKind.UNKNOWN or finding.confidence < _WEAK
    return finding.severity == "error" and unsure


def _left_of(
    guess: Finding, told: list[Finding], spoiled: Collection[str]
) -> list[Finding]:
    """Leave of a guess at the whole what is not known of a part, or for surer."""
    surest = max(finding.confidence for finding in told)
    kinds = {finding.kind for finding in told}
    if not _OVERWRITTEN.isdisjoint(kinds) or guess.kind in {BugKind.UNKNOWN, *kinds}:
        return spared([guess], spoiled)
    if guess.confidence < surest:
        return spared([guess], spoiled)
    return [guess]


def _placed(
    finding: Finding, mistake: LayerMistake, spoiled: frozenset[str]
) -> Finding:
    """Say of an error which call it comes from, if all of it does."""
    if finding.severity != "error" or not spoiled >= {*finding.places}:
        return finding
    told = f"{finding.evidence} {mistake.statement}."
    return dataclasses.replace(finding, evidence=told)


def _calls_of(subject: Subject, call: Call) -> Layers | None:
    """Take a function for a model of what it calls; None where that is not to be had.

    A module has layers, and a custom Function by itself is nothing but one call.
    """
    if not is_torch_subject(subject):
        return None
    from gradlab.localisation.layers.of_function import as_module, calls_others
    from gradlab.subject.tensors.gradients.analytic import ReverseMode

    program = subject.program
    fn = getattr(program, "fn", None)
    if fn is None or type(subject.analytic) is not ReverseMode or not calls_others(fn):
        return None
    leaves = subject.with_leaves(range(len(subject.inputs)))[1]
    module = as_module(fn, lambda *tensors: program.call(tensors))
    names = tuple(variable.name for variable in subject.inputs)
    rewind = None if call.guard is None else call.guard.random_freeze().restore
    return Layers(module, tuple(leaves), subject.loss, call.meter, names, rewind)


def _spoiled(audit: LayerAudit, names: Sequence[str]) -> frozenset[str]:
    """Name the inputs that are wrong because a call behind them is."""
    places = (label.partition(_PLACE)[2] for label in audit.contaminated)
    return frozenset(names[int(place)] for place in places if place.isdigit())
