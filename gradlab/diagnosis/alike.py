"""Findings that are told once: that say the same of several places, or spoil others."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from gradlab.diagnosis.finding import LOOKED_AT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gradlab.diagnosis.finding import Finding

__all__ = ["alike"]

_EACH = "each"  # instead of the name of a place
_BEFORE = (
    r"\b(of|to|from|for|and|on) "  # words after which a name is no letter of a formula
)
_EVERY = "in all entries"
_PART = rf"(?: {LOOKED_AT})?"
_ALL = re.compile(
    rf"in (?:its only entry|the one entry looked at|(?:both|all [\d,]+) entries{_PART})"
)
_AT_BOUND = re.compile(r"[\d,]+ (entries stand at the bound)")
_MOST = re.compile(r" \(largest derivative [^ ()]+\)")
_ALIVE = re.compile(rf"(wherever it is not zero) \([\d,]+ of [\d,]+ entries{_PART}\)")


def alike(findings: Iterable[Finding]) -> list[Finding]:
    """Put findings together that say the same of several places.

    The same are two sentences that differ in the name of the place, in how many entries
    all of its entries are, or in how large its derivative is.

    Parameters
    ----------
    findings
        Ranked.

    Returns
    -------
    list of Finding
        With words that are true of all places. In the order of the first of each.

    Examples
    --------
    >>> said = "analytic = 2 x numeric in all {} entries."
    >>> advice = "Search the line that computes the gradient of {}."
    >>> places = {"W1": 12, "W2": 8}
    >>> [told] = alike(
    ...     [
    ...         gl.Finding("scale", "error", w, 1.0, said.format(n), advice.format(w))
    ...         for w, n in places.items()
    ...     ]
    ... )
    >>> told.places, told.evidence
    (('W1', 'W2'), 'analytic = 2 x numeric in all entries.')
    >>> told.advice
    'Search the line that computes the gradient of each.'
    """
    groups: dict[tuple[str, ...], list[Finding]] = {}
    known: dict[tuple[str, ...], tuple[str, ...]] = {}  # what names several places
    for finding in findings:
        told = finding.evidence, finding.advice
        texts = (_of_any(finding, text) for text in told)
        word_for_word = (finding.severity, str(finding.kind), *told)
        key = (finding.severity, str(finding.kind), *texts)
        key = known.setdefault(word_for_word, key)
        groups.setdefault(key, []).append(finding)
    return [_shared(group) for group in groups.values()]


def _shared(group: list[Finding]) -> Finding:
    """Say what all of them say: with the words of one as far as these are the same."""
    evidence = _common([(f, f.evidence) for f in group])
    advice = _common([(f, f.advice) for f in group])
    where, *also = dict.fromkeys(place for f in group for place in (f.where, *f.also))
    return dataclasses.replace(
        group[0], where=where, evidence=evidence, advice=advice, also=tuple(also)
    )


def _common(texts: list[tuple[Finding, str]]) -> str:
    """Give the most telling form of a text that all of them have in common."""
    for form in (lambda _, text: text, _of_each):
        told = {form(finding, text) for finding, text in texts}
        if len(told) == 1:
            return told.pop()
    if any(" looked at" in text for _, text in texts):
        return _of_any(*texts[0], f"{_EVERY} {LOOKED_AT}")
    return _of_any(*texts[0])


def _of_each(finding: Finding, text: str) -> str:
    """Leave the name of the place out, where a sentence goes on without it."""
    if not finding.where:
        return text
    name = re.escape(finding.where)
    return re.sub(rf"{_BEFORE}{name}(?![\w\[(])(?!\.\w)", rf"\1 {_EACH}", text)


def _of_any(finding: Finding, text: str, every: str = _EVERY) -> str:
    """Leave out how many entries there are as well, where it is all of them."""
    text = _ALL.sub(every, _of_each(finding, text))
    text = _MOST.sub("", _AT_BOUND.sub(r"\1", text))
    return _ALIVE.sub(r"\1", text)
