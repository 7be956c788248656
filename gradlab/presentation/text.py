"""Words for the terminal: the verdict first, then where, then why.

A verdict is said in words and with a glyph; colour, if asked for, comes third. All
texts are plain strings without a trailing newline.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.alike import alike
from gradlab.diagnosis.finding import BugKind, asks_nothing
from gradlab.labels import few_of, plural
from gradlab.presentation.finding_text import findings_lines
from gradlab.presentation.headline import (
    called,
    conclusion,
    contaminated,
    gradients_in_words,
    headline,
)
from gradlab.presentation.layer_text import audit_table
from gradlab.presentation.views import (
    by_severity,
    moved_together,
    untold,
    worst_entry,
    worst_relative,
)
from gradlab.presentation.words import (
    NAME,
    WIDTH,
    across,
    brief,
    distinct,
    duration,
    middle,
    number,
    often,
    one_line,
    painted,
    pair,
    shape_in_words,
    tabulate,
    wrapped,
)

if TYPE_CHECKING:
    from gradlab.comparison.comparison import Comparison
    from gradlab.report import Report

__all__ = ["failure_text", "report_text"]

_NAMES, _LEAST = 40, 16  # letters of a name: at most, and where the table is narrow
_NUMBERS = (4, 6, 7)  # columns that stand right
_BESIDE = 5  # columns that stay beside each other where the terminal is narrow
_ROWS = 12  # as many as fit beside the rest of the text on a small terminal
_PASSIVE_ROWS = 4  # of gradients that are wrong only because a layer is
_ANSI = {"✓": "32", "!": "33", "✗": "31;1"}


# ------------------------------------------------------------------ the table
def _unsaid(report: Report, comparison: Comparison) -> bool:
    """Whether no gradient came that could be compared: its numbers are nan then.

    It raised, or had another shape, and a finding tells so: of this input, or of a
    layer behind it. Where the numbers are nan that was returned, another finding does.
    """
    told = {f.kind for f in report.findings if comparison.input.name in f.places}
    kinds = {BugKind.WRONG_SHAPE, BugKind.DTYPE, BugKind.UNKNOWN, BugKind.STALE_CACHE}
    kinds.add(BugKind.BROADCAST_REDUCTION)  # of a shape that it was not summed to
    short = not told.isdisjoint(kinds)
    silent = not told and all(f.kind != BugKind.NONFINITE for f in report.findings)
    return (short or silent) and bool(np.isnan(comparison.analytic).all())


def _place_in_words(
    comparison: Comparison, place: tuple[int, int], *, short: bool
) -> str:
    """Name an entry; the input's name stands in the same row, and may be left out."""
    label = comparison.label(*place)
    if short:
        before, name, index = label.rpartition(f"{comparison.input.name}[")
        label = f"{before}…[{index}" if name else label
    return middle(label, _NAMES)


def _table_row(
    name: str, comparison: Comparison, *, unsaid: bool, others: int, short: bool
) -> list[str]:
    place = worst_entry(comparison)
    head = [comparison.verdict.glyph, name, shape_in_words(comparison.input.shape)]
    if place is None:
        why = "not decided" if comparison.coverage == "probe" else "not looked at"
        why = why if comparison.input.size else "empty"
        return [*head, comparison.verdict.words, "-", why, "-", "-", "-"]
    values = pair(comparison.analytic[place], comparison.numeric[place])
    relative = worst_relative(comparison)
    return [
        *head,
        comparison.verdict.words,
        "-" if unsaid or untold(comparison, place) else brief(relative),
        f"probe {place[1]}, with {plural(others, 'other')}"
        if others
        else _place_in_words(comparison, place, short=short),
        *(("none", values[1]) if unsaid else values),
        "± " + brief(float(comparison.numeric_error[place])),
    ]


def _table(report: Report, width: int | None) -> list[str]:
    """Write a row for each gradient, worst first, and count those that have none."""
    shown, rest = _shown(report)
    if not shown:
        return []
    lines = _fitted(report, shown, width)
    if rest:
        words = ("agree", "undecided", "disagree")
        counts = [
            f"{sum(c.verdict == v for c in rest):,} more {words[v]}"
            for v in reversed(Verdict)
            if any(c.verdict == v for c in rest)
        ]
        lines.append("   ... " + ", ".join(counts))
    return lines


def _shown(report: Report) -> tuple[list[Comparison], list[Comparison]]:
    """Split gradients into those that get a row, worst first, and all others.

    Of many that are contaminated by one layer a few rows tell enough.
    """
    order = by_severity(report.comparisons)
    passive = contaminated(report)
    most = _ROWS
    if sum(c.input.name in passive for c in order) > _PASSIVE_ROWS:
        own = [c for c in order if c.input.name not in passive]
        told = [c for c in own if c.verdict > Verdict.AGREES]
        others = [c for c in order if c not in told]
        order, most = [*told, *others], min(len(told) + _PASSIVE_ROWS, _ROWS)
    most = most if len(order) > most + 1 else len(order)
    return order[:most], order[most:]


def _fitted(report: Report, shown: list[Comparison], width: int | None) -> list[str]:
    """Write rows so that they fit: with shorter names, or their numbers below them.

    Without a terminal each row stays one line, however long.
    """
    room = _NAMES if width is None else min(_NAMES, max(_LEAST, width - 40))
    rows = _rows(report, shown, room)
    lines = tabulate(rows, right=_NUMBERS)
    most = WIDTH + 1 if width is None else width
    if max(map(across, lines)) <= most:
        return lines
    fitting = _fitting(report, shown, most)
    if fitting or width is None:
        return fitting or lines
    head = tabulate([row[:_BESIDE] for row in rows])
    excess = max(0, max(map(across, head)) - width)
    # entries that lost the middle of long names would all read the same
    long = any(across(report.block_name(c)) > _NAMES for c in shown)
    rows = _rows(report, shown, max(_LEAST, room - excess), short=long)
    return _folded(rows, width)


def _rows(
    report: Report, shown: list[Comparison], room: int, *, short: bool = False
) -> list[list[str]]:
    """Write the cells, names in `room` letters; `short` leaves repeated names out."""
    head = ["", "input", "shape", "verdict", "max rel", "worst entry"]
    names = distinct([report.block_name(c) for c in shown], room)
    moved = moved_together(report)
    rows = [
        _table_row(
            name,
            each,
            unsaid=_unsaid(report, each),
            others=moved.get(each.input.name, 0),
            short=short,
        )
        for name, each in zip(names, shown, strict=True)
    ]
    return [[*head, "analytic", "numeric", "± bar"], *rows]


def _fitting(report: Report, shown: list[Comparison], width: int) -> list[str]:
    """Shorten names until each row fits into a line; empty if that is not enough.

    Numbers are what the table is for: they are not shortened.
    """
    rows = _rows(report, shown, _NAMES, short=True)
    lines = tabulate(rows, right=_NUMBERS)
    excess = max(map(across, lines)) - width
    room = max(across(row[1]) for row in rows) - excess
    if excess > 0 and room >= _LEAST:
        rows = _rows(report, shown, room, short=True)
        lines = tabulate(rows, right=_NUMBERS)
    return lines if max(map(across, lines)) <= width else []


def _folded(rows: list[list[str]], width: int) -> list[str]:
    """Put the numbers of each row below it, for a terminal that is too narrow.

    Rows that agree do without beside others: what is wrong would drown in them.
    """
    agreed = [row[0] == Verdict.AGREES.glyph for row in rows[1:]]
    lines = tabulate([row[:_BESIDE] for row in rows], right=(4,))
    folded = lines[:1]
    for line, (*_, entry, analytic, numeric, bar), right in zip(
        lines[1:], rows[1:], agreed, strict=True
    ):
        values = f": analytic {analytic}, numeric {numeric} {bar}"
        told = entry if analytic == "-" else entry + values
        folded.append(line)
        if not right or (all(agreed) and len(folded) == 2):
            folded += wrapped(told, "     ", width=width)
    return folded


def _findings(report: Report, width: int | None) -> list[str]:
    """Write the findings out; those on gradients merely contaminated are counted."""
    passive = contaminated(report)
    told = [f for f in report.findings if not asks_nothing(f)]
    active = [f for f in told if f.where not in passive]
    name = functools.partial(called, report)
    lines = findings_lines(active, name, "report", width)
    hidden = len(told) - len(active)
    if hidden:
        words = plural(hidden, "finding")
        lines += ["", f"... {words} on contaminated gradients in report.findings"]
    return lines


def _layer_lines(report: Report, width: int | None) -> list[str]:
    if report.layers is None or not report.layers.culprits:
        return []
    return ["", *audit_table(report.layers, width)]


def report_text(
    report: Report, *, colour: bool = False, width: int | None = None
) -> str:
    """Tell a whole report in a short text for a terminal.

    Parameters
    ----------
    report
        What `gradlab.check` returned.
    colour
        Whether to colour glyphs with ANSI codes; default False, because the text
        also ends in files and logs.
    width
        Columns of the terminal, where a row may take two lines; default None, one line
        for a row, whose names are shortened where that brings it down to 80 columns.

    Returns
    -------
    str
        The verdict, a table of gradients with the worst first, findings with evidence
        and advice, and what was done to find out.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: 2 * x)
    >>> print(report_text(report).splitlines()[0])
    ✓ agrees: the gradient of x
    """
    done = [
        f"{report.method}, {report.coverage} coverage",
        plural(report.evaluations, "evaluation"),
        duration(report.seconds),
        f"seed {report.seed}",
    ]
    subject = f"{report.subject}; analytic side: {report.analytic}"
    head = [headline(report)]
    if width is not None:
        head = wrapped(head[0], "  ", "", width=width)
    lines = [
        *head,
        *wrapped(subject, "  ", width=width),
        "",
        *_table(report, width),
        *_layer_lines(report, width),
    ]
    lines += _findings(report, width)
    lines += ["", *wrapped(", ".join(done), "  ", width=width)]
    notes = [f.evidence.rstrip(".") for f in report.findings if asks_nothing(f)]
    for remark in (*notes, *report.remarks):
        lines += wrapped("· " + remark, "  ", width=width)
    return "\n".join(painted(lines, len(head), _ANSI) if colour else lines)


# ------------------------------------------------------------------ the exception
def _ratio(analytic: complex, numeric: complex) -> str:
    if numeric == 0 or not np.isfinite(analytic) or not np.isfinite(numeric):
        return ""
    return f"analytic = {number(analytic / numeric, 4)} x numeric"


def _how_far(comparison: Comparison, place: tuple[int, int]) -> str:
    error = float(comparison.error[place])
    allowed = float(comparison.allowed[place])
    if not math.isfinite(error):
        known = np.isfinite([comparison.analytic[place], comparison.numeric[place]])
        odd = "numeric" if known[0] else "analytic"
        sides = f"the {odd} side is not" if known.any() else "neither side is"
        return f"{number(error)}: {sides} a finite number"
    times = f", {often(error / allowed)} times that" if allowed > 0 else ""
    return f"{number(error, 3)}; allowed {number(allowed, 2)}{times}"


def _entry_lines(comparison: Comparison, place: tuple[int, int]) -> list[list[str]]:
    analytic = complex(comparison.analytic[place])
    numeric = complex(comparison.numeric[place])
    bar = brief(float(comparison.numeric_error[place]))
    step = brief(float(comparison.step[place]))
    left, right = pair(analytic, numeric)
    rows = [
        ["worst entry", middle(comparison.label(*place), 120)],
        ["analytic", left],
        ["numeric", f"{right} ± {bar} ({comparison.method}, step {step})"],
        ["difference", _how_far(comparison, place)],
    ]
    if ratio := _ratio(analytic, numeric):
        rows[3][1] += f"; {ratio}"
    return rows


def failure_text(report: Report) -> str:
    """Tell why a gradient is wrong, in at most ten sentences, for an exception.

    Parameters
    ----------
    report
        A report whose verdict is `Verdict.DISAGREES`.

    Returns
    -------
    str
        How much is wrong, the worst entry with both values, the error bar and what
        was allowed, the likely cause and the next step.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> print(failure_text(report).splitlines()[1])
      worst entry   x[0]
    """
    rows: list[list[str]] = []
    order = by_severity(report.comparisons)
    if order and order[0].verdict == Verdict.DISAGREES:
        worst = order[0]
        wrong = worst.counts[Verdict.DISAGREES]
        name = middle(report.block_name(worst), NAME)
        count = f"{wrong:,} of {plural(sum(worst.counts), 'entry')} of {name}"
        if len(report.comparisons) > 1:
            count += f"; {gradients_in_words(report)}"
        rows.append(["how much", count])
        place = worst_entry(worst)
        if place is not None and not _unsaid(report, worst):
            rows = [*_entry_lines(worst, place), *rows]
    last = conclusion(report)
    told = alike(report.findings)
    errors = (each for each in told if each.severity == "error")
    cause = next(errors, told[0] if told else None)
    if cause is not None:
        named = [called(report, place) for place in cause.places]
        where = f" in {few_of(named, 1)}" if named else ""
        rows.append(["likely cause", f"{cause.kind}{where}"])
        if cause.evidence and not last:
            rows.append(["evidence", one_line(cause.evidence)])
        if cause.advice:
            rows.append(["next step", one_line(cause.advice)])
    if report.partial and report.remarks:
        rows.append(["remark", one_line("; ".join(report.remarks), 300)])
    rows = rows[: 8 if last else 9]
    most = max((len(head) for head, _ in rows), default=0) + 2
    lines = [headline(report)]
    for head, words in rows:
        begin = f"  {head:<{most}}"  # numbers stay on their line
        prose = head in {"evidence", "next step", "remark"}
        lines += wrapped(words, " " * len(begin), begin) if prose else [begin + words]
    return "\n".join([*lines, last] if last else lines)
