"""All detectors, asked in turn; their findings, ranked."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis import (
    circumstances,
    leftovers,
    returned,
    shared_memory,
    units,
    upstream,
)
from gradlab.diagnosis.causes import Causes
from gradlab.diagnosis.finding import BugKind, Finding, rank
from gradlab.diagnosis.measuring.measures import Case, Clue, cases_of
from gradlab.diagnosis.measuring.places import place_words
from gradlab.diagnosis.measuring.responses import Response
from gradlab.differentiation.metering.meter import BudgetExhausted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gradlab.comparison.comparison import Comparison
    from gradlab.diagnosis.evidence import Evidence

__all__ = ["diagnose", "unexplained"]

_SURE = 0.8  # above it, other readings of the same numbers are no doubt
_DOUBT = 0.15  # how much less likely a reading is that the first leaves open
_VAGUE = {
    BugKind.MISSING_TERM,
    BugKind.EXTRA_TERM,
    BugKind.WRONG_DERIVATIVE,
    BugKind.UNKNOWN,
}
_GUESS = 0.65  # and below it, no more than structure suggests
_SMALL = 1e-3  # of the largest relative error: one that explains nothing of that
_BEHIND = 1e-3  # of confidence: enough to be told after another
_TOLD = 0.55  # confidence below which an explanation is a doubt and no finding
_FAINT = 0.25  # and below which it is not worth telling

# Whether a detector that fails ends the check. The tests of gradlab set it, so that
# none fails unseen; a user's report gets a note instead.
STRICT = False


def diagnose(evidence: Evidence, spoiled: Collection[str] = ()) -> tuple[Finding, ...]:
    """Say what is wrong with a gradient, most convincing explanation first.

    Every input that disagrees is a place of at least one finding of severity "error";
    an input that agrees is of none, unless its backward is right for one incoming
    gradient only.

    Parameters
    ----------
    evidence
        Both sides as measured; further probes are charged to its meter.
    spoiled
        Names of inputs whose cause is known to be elsewhere: nothing is evaluated to
        find one of their own.

    Returns
    -------
    tuple of Finding
        Errors first, then by confidence.
    """
    with np.errstate(all="ignore"):
        findings = list(circumstances.circumstances(evidence))
        findings += shared_memory.shared_memory(evidence)
        slips = returned.returned(evidence)
        findings += slips
        unit = units.unit_of(evidence)
        counted = units.in_units(evidence, unit)
        cases = cases_of(counted)
        response = Response(counted)
        findings += upstream.hidden_upstream(counted, response)
        causes = Causes()
        for case in reversed(cases):  # errors travel from the output to the input
            clues = upstream.ignored(case, response)
            costly = causes.root is None and case.name not in spoiled
            clues += _ask(case, findings, costly=costly)
            certain = any(f.where == case.name and f.confidence > _SURE for f in slips)
            told = _told(case, clues, certain=certain)
            guessed = not certain and _only_guessed(clues)
            causes.add(case, told, clues, guessed=guessed)
        findings += [units.with_unit(each, unit) for each in causes.findings()]
    told = _in_order(evidence, unexplained(evidence, findings))
    return rank(_large_ones_first(told, cases))


def _only_guessed(clues: list[Clue]) -> bool:
    """Whether an input has no explanation but those that structure alone suggests."""
    best = max(clues, key=lambda clue: clue.confidence, default=None)
    if best is None or best.confidence < _TOLD:
        return True
    return best.confidence < _SURE and best.kind in _VAGUE


def _ask(case: Case, broken: list[Finding], *, costly: bool) -> list[Clue]:
    """Ask every detector; one that finds the budget spent says nothing.

    Parameters
    ----------
    broken
        Gets a note for every detector that fails.
    costly
        Whether to ask those that evaluate as well.
    """
    from gradlab.diagnosis import detectors  # nobody waits for them if all is right

    clues = _each(case, detectors.DETECTORS, broken)
    if not costly and _only_guessed(clues):
        return clues
    for detect, enough in ((detectors.COSTLY, _SURE), (detectors.LAST, _GUESS)):
        if max((clue.confidence for clue in clues), default=0.0) < enough:
            clues += _each(case, detect, broken)
    best = max(clues, key=lambda clue: clue.confidence, default=None)
    if best is None or best.kind in _VAGUE:
        clues += _each(case, detectors.BY_PARTS, broken)
    return clues


def _each(
    case: Case,
    detectors: tuple[Callable[[Case], list[Clue]], ...],
    broken: list[Finding],
) -> list[Clue]:
    clues: list[Clue] = []
    for detect in detectors:
        try:
            clues += detect(case)
        except BudgetExhausted:
            continue
        except Exception as error:
            if STRICT:
                raise
            broken.append(_broken(case, detect, error))
    return clues


def _broken(
    case: Case, detect: Callable[[Case], list[Clue]], error: Exception
) -> Finding:
    """Say that a detector failed: no opinion of its must not cost the report."""
    name = f"{detect.__module__.rpartition('.')[2]}.{detect.__name__}"
    return Finding(
        BugKind.UNKNOWN,
        "note",
        case.name,
        0.1,
        f"The detector {name} failed ({type(error).__name__}: {error}) and was left "
        f"out; verdicts do not depend on it.",
        "Nothing to do; please report it as a bug of gradlab, with this sentence.",
    )


def _told(case: Case, clues: list[Clue], *, certain: bool) -> list[Finding]:
    """Tell the best reading of an error, and only that.

    All clues of an input read the same numbers. Beside a clear cause the others are
    other words for it, or explain less; where none is clear they are no findings
    either, but doubts about the first, which it names itself. `certain` says that a
    cause is known already.
    """
    best: dict[BugKind, Clue] = {}
    for clue in clues:
        if clue.kind not in best or best[clue.kind].confidence < clue.confidence:
            best[clue.kind] = clue
    kept = sorted(best.values(), key=lambda clue: -clue.confidence)
    top = kept[0].confidence if kept else 0.0
    if certain and top < _SURE:
        return []
    if top < _TOLD:
        kept = [clue for clue in kept if clue.confidence > _FAINT]
        return [_in_doubt(leftovers.unnamed(case), kept)]
    near = [c for c in kept[1:] if top < _SURE and c.confidence > top - _DOUBT]
    return [_in_doubt(kept[0].finding(case.name), near, kept[0].doubts)]


def _in_doubt(
    finding: Finding, doubts: list[Clue], own: tuple[BugKind, ...] = ()
) -> Finding:
    """Name what else the same numbers may be, as text and as data."""
    kinds = tuple(dict.fromkeys([*own, *(clue.kind for clue in doubts)]))
    kinds = tuple(kind for kind in kinds if kind != BugKind.UNKNOWN)
    named = ", ".join(kind.replace("_", " ") for kind in kinds)
    told = f" It could also be: {named}." if kinds else ""
    return dataclasses.replace(finding, evidence=finding.evidence + told, doubts=kinds)


def _in_order(evidence: Evidence, findings: list[Finding]) -> list[Finding]:
    """Put the root cause first: of equally good explanations, that nearest the output.

    Errors travel from the output towards the input: of two wrong inputs the later one,
    by the order of arguments, is rather the cause and the earlier one contaminated.
    """
    names = [variable.name for variable in evidence.subject.inputs]
    place = {name: i / max(len(names) - 1, 1) for i, name in enumerate(names)}
    return [
        dataclasses.replace(
            finding,
            confidence=min(
                1.0, finding.confidence * (0.97 + 0.03 * place.get(finding.where, 1.0))
            ),
        )
        if finding.severity == "error"
        else finding
        for finding in findings
    ]


def _large_ones_first(findings: list[Finding], cases: list[Case]) -> list[Finding]:
    """Let no finding about a very small error lead those about large ones.

    It may be as sure, of what a solver that stopped early leaves, say.
    """
    sizes = {case.name: min(case.relative_total, 1.0) for case in cases}
    large = _SMALL * max(sizes.values(), default=0.0)
    small = [
        finding.severity == "error"
        and all(sizes.get(place, np.inf) < large for place in finding.places)
        for finding in findings
    ]
    pairs = list(zip(findings, small, strict=True))
    errors = [f.confidence for f, less in pairs if f.severity == "error" and not less]
    most = max(errors, default=1.0) - _BEHIND
    return [
        dataclasses.replace(f, confidence=max(min(f.confidence, most), 0.0))
        if less
        else f
        for f, less in pairs
    ]


def _not_finite(comparison: Comparison, row: int, column: int) -> Finding:
    """Blame a point at which one side is no number."""
    name = comparison.input.name
    here = np.isfinite(comparison.analytic[row, column])
    side = "The function" if here else "The analytic gradient"
    return Finding(
        BugKind.NONFINITE,
        "error",
        name,
        0.9,
        f"{side} has no finite slope at {comparison.label(row, column)}: analytic "
        f"{comparison.analytic[row, column]:.6g}, numeric "
        f"{comparison.numeric[row, column]:.6g}.",
        f"Look for log, sqrt or a division outside of where they are defined; check at "
        f"a value of {name} at which the function itself is finite."
        if here
        else "Look for 0/0, 0*inf or an overflow in the backward.",
    )


def unexplained(evidence: Evidence, findings: list[Finding]) -> list[Finding]:
    """Add an honest "unknown" for every wrong input that nothing explains."""
    told = {place for f in findings if f.severity == "error" for place in f.places}
    result, rest = list(findings), list[Finding]()
    cases = {case.name: case for case in cases_of(evidence)}
    for comparison in evidence.comparisons:
        name = comparison.input.name
        if comparison.verdict < Verdict.DISAGREES or name in told:
            continue
        told.add(name)
        row, column = comparison.ranking(1)[0]
        pair = comparison.analytic[row, column], comparison.numeric[row, column]
        if not np.isfinite(pair).all():
            result.append(_not_finite(comparison, row, column))
            continue
        place = f" {place_words(cases[name])}" if name in cases else ""
        rest.append(
            Finding(
                BugKind.UNKNOWN,
                "error",
                name,
                0.1,
                f"Analytic and numeric disagree{place}, the worst at "
                f"{comparison.label(row, column)}: analytic "
                f"{comparison.analytic[row, column]:.6g}, numeric "
                f"{comparison.numeric[row, column]:.6g}.",
                f"Look at the error matrix: report.plot({name!r}).",
            )
        )
    also = tuple(finding.where for finding in rest[-2::-1])
    last = rest[-1:]  # nearest to the output
    return result + [leftovers.told_together(one, also) for one in last]
