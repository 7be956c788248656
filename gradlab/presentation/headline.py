"""The verdict of a report in one line, and the names that it says it with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradlab.comparison.verdict import Verdict
from gradlab.labels import plural
from gradlab.presentation.words import NAME, middle, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradlab.report import Report

__all__ = ["called", "conclusion", "contaminated", "gradients_in_words", "headline"]


def gradients_in_words(report: Report) -> str:
    """Count the gradients by verdict: "1 of 4 gradients disagrees"."""
    total = len(report.comparisons)
    counts = {
        verdict: sum(c.verdict == verdict for c in report.comparisons)
        for verdict in Verdict
    }
    wrong, open_ = counts[Verdict.DISAGREES], counts[Verdict.UNDECIDED]
    if not total:
        return "nothing was compared"
    if total == 1:
        alone = middle(report.block_name(report.comparisons[0]), NAME)
        return f"the gradient of {alone}"
    if not wrong and not open_:
        so_far = " so far" if report.verdict == Verdict.UNDECIDED else ""
        return f"{'both' if total == 2 else f'all {total:,}'} gradients agree{so_far}"
    parts = []
    if wrong:
        verb = "disagrees" if wrong == 1 else "disagree"
        parts.append(f"{wrong:,} of {total:,} gradients {verb}")
    if open_:
        parts.append(
            f"{open_:,} undecided" if wrong else f"{open_:,} of {total:,} gradients"
        )
    return ", ".join(parts)


def headline(report: Report) -> str:
    """Say the verdict of a report in one line: glyph, word, what is wrong.

    Examples
    --------
    >>> print(headline(gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)))
    ✗ disagrees: x is wrong
    """
    verdict = report.verdict
    words = gradients_in_words(report)
    alone = len(report.comparisons) == 1
    tail = "" if alone else f" ({words})"
    if verdict == Verdict.DISAGREES and not any(
        comparison.verdict == Verdict.DISAGREES for comparison in report.comparisons
    ):
        # a wrong shape, say: "x is wrong (all gradients agree)" would puzzle
        if alone:
            open_ = report.comparisons[0].verdict == Verdict.UNDECIDED
            words = "they are undecided" if open_ else "they agree"
        words = f"not its values: {words}"
        tail = f" ({words})"
    passive = contaminated(report)
    culprits = [called(report, name) for name in report.culprits if name not in passive]
    if verdict == Verdict.DISAGREES and culprits:
        words = f"{_together(culprits)} wrong{tail}"
    looked, total = _looked_at(report)
    some = report.coverage == "sample" and looked < total
    if some and verdict != Verdict.DISAGREES:
        words += f"; {looked:,} of {plural(total, 'coordinate')} looked at"
    elif report.partial:
        words += "; cut short, not everything was looked at"
    elif report.comparisons and not any(c.input.size for c in report.comparisons):
        words += ", which has no entry" if alone else ", which have no entry"
    elif verdict == Verdict.AGREES and _all_zero(report):
        words += ", zero on both sides"  # as of an argmax: true, and tells little
    return f"{verdict.glyph} {verdict.words}: {words}"


def _all_zero(report: Report) -> bool:
    """Whether f did not move at all, and every gradient says so."""
    blocks = report.comparisons
    known = bool(blocks) and all(c.tally is None for c in blocks)
    return known and not any(c.analytic.any() or c.numeric.any() for c in blocks)


def _looked_at(report: Report) -> tuple[int, int]:
    """Count the coordinates that were looked at, and all of the same inputs."""
    looked = total = 0
    for c in {c.input.name: c for c in report.comparisons}.values():
        columns = c.shape[1] if c.tally is None else c.tally.looked
        looked += columns * (2 if c.input.is_complex else 1)
        total += c.input.coordinates
    return looked, total


def _together(names: Sequence[str]) -> str:
    """Name one or two, and count the others: "W1 and b1 are", "W1 and 3 more are"."""
    if len(names) == 1:
        return f"{names[0]} is"
    short = len(names) == 2 and sum(map(len, names)) <= 60
    return f"{names[0]} and {names[1] if short else f'{len(names) - 1} more'} are"


def called(report: Report, name: str) -> str:
    """Name a culprit; a layer that `nn.Sequential` called "5" needs a noun."""
    layers = () if report.layers is None else report.layers.culprits
    plain = middle(name, NAME)
    return f"layer {plain}" if name in layers and plain.isdigit() else plain


def contaminated(report: Report) -> frozenset[str]:
    """Names of gradients that are wrong only because a layer after them is."""
    if report.layers is None or not report.layers.culprits:
        return frozenset()
    return frozenset(report.layers.contaminated)


def conclusion(report: Report) -> str:
    """Name the layer that is wrong, in one sentence; empty where none is."""
    if report.layers is None or not report.layers.culprits:
        return ""
    root = report.layers.culprits[0]
    # the audit's own sentence; that of the report goes on to what the layer shows alone
    own = (f for f in report.layers.findings if f.severity == "error")
    return next((one_line(f.evidence, 2000) for f in own if f.where == root), "")
