"""Evaluations that raised: next to the point, or far from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import NOTHING_TO_DO, BugKind, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.diagnosis.evidence import Evidence
    from gradlab.differentiation.failures import Failure

__all__ = ["raised"]

_EDGE = 1e-2  # of the size of a coordinate: nearer than that no step is a long one


def raised(evidence: Evidence) -> Iterator[Finding]:
    """Tell that evaluations raised, how far from the point, and whether it matters."""
    times, nearest = evidence.met.raised, evidence.met.nearest
    if not times:
        return
    # shorter steps than those did where both sides agree; and where both were told
    # apart, too, if none that raised was short
    far = nearest is not None and nearest.away > _EDGE
    quiet = all(c.verdict == Verdict.AGREES for c in evidence.comparisons)
    quiet = quiet or (far and not _undecided(evidence))
    yield Finding(
        BugKind.NONFINITE,
        "note" if quiet else "warning",
        "",
        0.7,
        f"Evaluations {'away from' if far else 'next to'} the point raised {times} "
        f"time{'s' if times > 1 else ''}, first with {evidence.met.first_exception}"
        f"{_how_near(evidence, nearest)}.",
        NOTHING_TO_DO if quiet else _advice(far=far),
    )


def _undecided(evidence: Evidence) -> bool:
    open_ = Verdict.UNDECIDED
    return any((part.verdicts == open_.value).any() for part in evidence.parts) or any(
        comparison.verdict == open_ for comparison in evidence.comparisons
    )


def _how_near(evidence: Evidence, nearest: Failure | None) -> str:
    """Say by how much had been moved what was moved least."""
    if nearest is None:
        return ""
    if nearest.entry is None:
        return f"; the nearest by {nearest.away:.2g} of the size of the inputs"
    which, position = nearest.entry
    variable = evidence.subject.inputs[which]
    label = variable.label(variable.entry_of(position))
    return f"; the nearest where {label} was moved by {nearest.step:.2g}"


def _advice(*, far: bool) -> str:
    if far:
        return (
            "The function is not defined as far from the point as that, where longer "
            "steps were needed: check a point further inside."
        )
    return (
        "The point lies at the edge of where the function is defined: check a point "
        "further inside."
    )
