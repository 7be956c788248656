"""The errors that an audit of layers found, with what a closer look at each shows."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.errors import GradlabError

if TYPE_CHECKING:
    from gradlab.localisation.layers.audited import LayerAudit, LayerMistake
    from gradlab.pipeline.local_reports import LooksAlone
    from gradlab.pipeline.plan import Plan
    from gradlab.report import Report

__all__ = ["errors_of", "mistakes_of", "was_interrupted"]

_LOOKS = 3  # layers of unknown mistakes that are looked at by themselves
_SURE = 0.88  # confidence in the cause of a parameter that is as good as a look


def mistakes_of(audit: LayerAudit) -> tuple[LayerMistake, ...]:
    """List the mistakes of a live audit, in the order of its findings."""
    return () if audit.live is None else audit.live.mistakes


def was_interrupted(audit: LayerAudit) -> bool:
    """Whether the user stopped it before every call was looked at."""
    from gradlab.localisation.layers.audited import INTERRUPTED

    return any(row.reason == INTERRUPTED for row in audit.rows)


def errors_of(
    audit: LayerAudit, looks: LooksAlone | None, plan: Plan, report: Report
) -> list[Finding]:
    """List the errors of an audit, the first unknown ones with what their layer shows.

    Or with what is known for sure of their own parameters: that costs nothing more.

    A layer that cannot be looked at by itself keeps the finding it has.
    """
    from gradlab.diagnosis.detecting.graphs.severed import names_cut
    from gradlab.pipeline.local_reports import explained, local_report

    found: list[Finding] = []
    looked = 0
    mistakes = mistakes_of(audit)
    errors = [finding for finding in audit.findings if finding.severity == "error"]
    cut = next((f for f in report.findings if names_cut(f)), None)
    for finding, mistake in zip(errors, mistakes, strict=False):  # then hooks outside
        known = _known(mistake, audit, report)
        if cut is not None and len(errors) == 1 and not _has_formula(mistake, audit):
            found.append(_told_by(finding, mistake, cut))
            continue
        if finding.kind == BugKind.UNKNOWN and known is not None:
            finding = _told_by(finding, mistake, known)  # noqa: PLW2901
        elif finding.kind == BugKind.UNKNOWN and looked < _LOOKS:
            looked += 1
            with contextlib.suppress(GradlabError):
                local = local_report(audit, mistake.layer, plan=plan, looks=looks)
                finding = explained(finding, mistake, local)  # noqa: PLW2901
        found.append(finding)
    return found + errors[len(mistakes) :]


def _known(mistake: LayerMistake, audit: LayerAudit, report: Report) -> Finding | None:
    """Find the cause of an error of the only wrong parameter of a layer."""
    own = {n for row in audit.rows if row.name == mistake.where for n in row.parameters}
    wrong = [c.input.name for c in report.comparisons if c.verdict == Verdict.DISAGREES]
    if len(wrong) != 1 or wrong[0] not in own or report.coverage != "probe":
        return None
    for cause in report.findings:
        sure = cause.severity == "error" and cause.confidence > _SURE
        if cause.where == wrong[0] and sure and cause.kind != BugKind.UNKNOWN:
            return cause
    return None


def _has_formula(mistake: LayerMistake, audit: LayerAudit) -> bool:
    """Whether what is wrong is a Function, or a hook: no graph is cut there."""
    from gradlab.localisation.layers.audited import LayerState

    rows = [row for row in audit.rows if row.state is LayerState.WRONG]
    return any(":" in row.name for row in rows) or bool(mistake.hook)


def _told_by(finding: Finding, mistake: LayerMistake, cause: Finding) -> Finding:
    """Give a layer the kind of the error that its one wrong parameter has."""
    if cause.kind in {BugKind.DETACHED, BugKind.STALE_CACHE}:
        # what cuts the graph is said once, by the finding that knows what it costs
        mistake = dataclasses.replace(mistake, cuts=())
    return dataclasses.replace(
        finding,
        kind=cause.kind,
        confidence=max(finding.confidence, 0.98 * cause.confidence),
        evidence=f"{mistake.sentence()} {cause.evidence}",
        advice=cause.advice,
        doubts=cause.doubts,
    )
