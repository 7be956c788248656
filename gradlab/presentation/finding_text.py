"""Words for findings, for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradlab.diagnosis.alike import alike
from gradlab.labels import few_of, plural
from gradlab.presentation.words import NAME, kind_in_words, middle, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gradlab.diagnosis.finding import Finding

__all__ = ["findings_lines"]

_MOST = 6  # that are written out
_SEVERITIES = {"error": "✗", "warning": "!", "note": "i"}


def findings_lines(
    findings: Sequence[Finding],
    called: Callable[[str], str],
    holder: str,
    width: int | None,
) -> list[str]:
    """Write the first findings out, those that say the same as one; count the others.

    Parameters
    ----------
    findings
        In the order in which they are told.
    called
        Names a place.
    holder
        What has all of them, in the user's words.
    width
        Columns of the terminal; None for one of the usual size.

    Examples
    --------
    >>> finding = gl.Finding("sign", "error", "W1", 1.0, "a = -n.", "Drop the minus.")
    >>> findings_lines([finding], str, "report", None)[:2]
    ['', '✗ W1: sign (error)']
    """
    groups = alike(findings)
    lines: list[str] = []
    for finding in groups[:_MOST]:
        names = [called(place) for place in finding.places]
        lines += ["", *_finding_lines(finding, names, width)]
    rest = len(groups) - _MOST
    if rest > 0:
        lines += ["", f"... {plural(rest, 'more finding')} in {holder}.findings"]
    return lines


def _finding_lines(
    finding: Finding, places: Sequence[str], width: int | None
) -> list[str]:
    """Write a finding out: what it is and where, the evidence, the advice.

    Examples
    --------
    >>> finding = gl.Finding("sign", "error", "W1", 1.0, "a = -n.", "Drop the minus.")
    >>> _finding_lines(finding, ["W1", "W2"], None)
    ['✗ W1, W2: sign (error)', '    a = -n.', '    -> Drop the minus.']
    """
    names = [middle(name, NAME) for name in places if name]
    place = f"{few_of(names, 4)}: " if names else ""
    glyph = _SEVERITIES[finding.severity]
    kind = kind_in_words(finding.kind, finding.evidence)
    head = f"{place}{kind} ({finding.severity})"
    lines = wrapped(head, "  ", f"{glyph} ", width=width)
    if finding.evidence:
        lines += wrapped(finding.evidence, "    ", width=width)
    if finding.advice:
        lines += wrapped("-> " + finding.advice, "    ", width=width)
    return lines
