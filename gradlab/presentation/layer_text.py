"""Words for a layer audit, for the terminal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from gradlab.labels import plural
from gradlab.presentation.finding_text import findings_lines
from gradlab.presentation.words import (
    WIDTH,
    across,
    brief,
    distinct,
    duration,
    middle,
    one_line,
    tabulate,
    wrapped,
)
from gradlab.tracebacks import code_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradlab.localisation.layers.audited import LayerAudit, LayerRow

__all__ = [
    "GLYPHS",
    "audit_lines",
    "audit_table",
    "audit_text",
    "cost_of",
    "headline_of",
    "runs",
    "states_shown",
]

GLYPHS = {
    "right": "✓",
    "holds": "↳",
    "wrong": "✗",
    "contaminated": "↑",
    "unchecked": "○",
}
_WORDS = {
    "right": "right",
    "holds": "holds a wrong layer",
    "wrong": "wrong itself",
    "contaminated": "contaminated",
    "unchecked": "not checked",
}
_INDENT = "  "
_TO = " ... "  # between the first and the last of a run
_NAME, _TYPE = 60, 30  # columns of a name, and of a type, where there is room for them
_WIDEST = 100  # columns of names: of a run there are two
_LEAST, _LEAST_TYPE = 28, 12  # as few as still tell one from another
_NARROW = 16  # of a name, where even types are left out
_RUN = 3  # shorter runs of unremarkable layers are written out
_REASONS = 2  # why layers were not checked: in a headline no more than these


def _place(row: LayerRow) -> str:
    if not row.file:
        return row.type
    return f"{row.type}, {code_place(row.file, row.line)}"


def _beside(row: LayerRow) -> tuple[str, str]:
    """Say how deep a layer is, before its name, and which call it is, behind it."""
    return "  " * min(row.depth, 6), f" (call {row.call})" if row.call else ""


def _names(runs_shown: Sequence[tuple[str, list[LayerRow]]], room: int) -> list[str]:
    """Name the layer of each row, or the first and the last one, in so many columns."""
    single = [run[0] for _, run in runs_shown if len(run) == 1]
    beside = max((across("".join(_beside(row))) for row in single), default=0)
    names = distinct([row.name for row in single], min(_NAME, room - beside))
    short = dict(zip(map(id, single), names, strict=True))
    half = min(_NAME, room - across(_TO)) // 2
    told = []
    for _, run in runs_shown:
        before, after = _beside(run[0])
        if len(run) == 1:
            told.append(f"{before}{short[id(run[0])]}{after}")
        else:
            told.append(f"{middle(run[0].name, half)}{_TO}{middle(run[-1].name, half)}")
    return told


def _rows(
    runs_shown: Sequence[tuple[str, list[LayerRow]]], name: int, kind: int
) -> list[list[str]]:
    """Write the cells: the column of names, and that of types, in so many columns."""
    rows = [["", "layer", "type", "verdict", "own error"]]
    for (state, run), called in zip(runs_shown, _names(runs_shown, name), strict=True):
        errors = [row.error for row in run if not np.isnan(row.error)]
        alone = len(run) == 1
        rows.append(
            [
                GLYPHS[state],
                called,
                middle(run[0].type, kind) if alone else "",
                _WORDS[state] if alone else f"{len(run)} layers {_WORDS[state]}",
                brief(max(errors)) if errors else "-",
            ]
        )
    return rows


def _fitting(
    runs_shown: Sequence[tuple[str, list[LayerRow]]], room: int
) -> list[list[str]]:
    """Write the cells so that a row fits into a line: types are shortened, then names.

    Where least of both are too many, types are left out, and names shortened further.
    What is told of a layer stays as it is.
    """
    rows = _rows(runs_shown, _WIDEST, _TYPE)
    for column, least in ((2, _LEAST_TYPE), (1, _LEAST)):
        excess = _across(rows) - room
        if excess <= 0:
            break
        widths = [max(across(row[k]) for row in rows) for k in range(3)]
        widths[column] = max(least, widths[column] - excess)
        rows = _rows(runs_shown, widths[1], widths[2])
    excess = _across(rows) - room
    if excess > 0:
        name, kind = (max(across(row[k]) for row in rows) for k in (1, 2))
        room_left = max(_NARROW, name - max(0, excess - kind - 2))
        rows = [[*row[:2], *row[3:]] for row in _rows(runs_shown, room_left, kind)]
    return rows


def _lines(rows: list[list[str]]) -> list[str]:
    return [f"{_INDENT}{line}" for line in tabulate(rows, right=(len(rows[0]) - 1,))]


def _across(rows: list[list[str]]) -> int:
    return max(map(across, _lines(rows)))


def _unchecked(audit: LayerAudit) -> list[LayerRow]:
    return [row for row in audit.rows if str(row.state) == "unchecked"]


def _why_not(rows: Sequence[LayerRow]) -> str:
    """Say of rows that were not checked for which reasons, the most frequent first."""
    short = (row.reason.partition(":")[0].partition(";")[0] for row in rows)
    counted = Counter(one_line(reason, 48) or "no reason known" for reason in short)
    told = [f"{reason} ({count})" for reason, count in counted.most_common(_REASONS)]
    rest = counted.total() - sum(count for _, count in counted.most_common(_REASONS))
    return "; ".join([*told, *([f"other reasons ({rest})"] if rest else [])])


def headline_of(audit: LayerAudit) -> str:
    """Say which layer is wrong itself, or that none is, and how many nobody saw.

    Examples
    --------
    >>> import torch
    >>> headline_of(gl.blame(torch.nn.Linear(2, 2), torch.ones(2)))
    '✓ every layer that was checked is right by itself'
    """
    if not audit.culprits:
        unchecked = _unchecked(audit)
        words = "every layer that was checked is right by itself"
        if len(unchecked) == len(audit.rows):
            words = "no layer could be checked by itself"
        elif unchecked:
            verb = "were not" if len(unchecked) > 1 else "was not"
            if not all(row.idle for row in unchecked):
                verb = "could not be"
            words += f"; {len(unchecked)} of {len(audit.rows)} {verb} checked"
        if unchecked:
            words += f": {_why_not(unchecked)}"
        # a hook on an input, say: wrong, and in no layer
        wrong = [f.where for f in audit.findings if f.severity == "error"]
        if wrong:
            words = f"{middle(', '.join(wrong), 80)}: wrong, but {words}"
        return f"{audit.verdict.glyph} {words}"
    root = audit.culprits[0]
    found = next((row for row in audit.rows if row.name == root), None)
    place = f" ({_place(found)})" if found else ""
    others = len(audit.culprits) - 1
    more = f", and {others} more" if others else ""
    passive = len(audit.contaminated)
    verb = "are" if passive > 1 else "is"
    counted = f"{plural(passive, 'gradient')} upstream {verb}"
    tail = f"; {counted} only contaminated" if passive else ""
    return f"✗ {_called(root)}{place} is wrong itself{more}{tail}"


def _called(layer: str) -> str:
    """Name a layer; what `nn.Sequential` called "5" needs a noun."""
    return f"layer {layer}" if layer.isdigit() else middle(layer, 80)


def states_shown(audit: LayerAudit) -> list[str]:
    """State of each row as it is shown: a right one may hold a wrong one.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())
    >>> hook = net[1].register_full_backward_hook(lambda _, passed, __: (-passed[0],))
    >>> states_shown(gl.blame(net, torch.ones(2)))
    ['holds', 'contaminated', 'wrong']
    """
    shown: list[str] = []
    around: list[int] = []  # numbers of the rows that hold the one at hand
    for k, row in enumerate(audit.rows):
        del around[row.depth :]
        shown.append(str(row.state))
        if shown[k] == "wrong":
            for outer in (at for at in around if shown[at] == "right"):
                shown[outer] = "holds"
        around.append(k)
    return shown


def runs(audit: LayerAudit) -> list[tuple[str, list[LayerRow]]]:
    """Put long runs of layers that say the same together; all others stand alone.

    Returns
    -------
    list
        What is said of them, and the layers.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(9)))
    >>> [(state, len(run)) for state, run in runs(gl.blame(net, torch.ones(2)))]
    [('right', 10)]
    """
    groups: list[tuple[str, list[LayerRow]]] = []
    for state, row in zip(states_shown(audit), audit.rows, strict=True):
        if groups and groups[-1][0] == state and state not in {"wrong", "holds"}:
            groups[-1][1].append(row)
        else:
            groups.append((state, [row]))
    return [
        part
        for state, run in groups
        for part in (
            [(state, run)] if len(run) > _RUN else [(state, [row]) for row in run]
        )
    ]


def audit_lines(audit: LayerAudit, terminal: int | None = None) -> list[str]:
    """Write a layer audit line by line: what was found, then the layers.

    Examples
    --------
    >>> import torch
    >>> audit_lines(gl.blame(torch.nn.Linear(2, 2), torch.ones(2)))[0]
    '✓ every layer that was checked is right by itself'
    """
    head = [headline_of(audit)]  # in a file it stays one line, to be searched for
    if terminal is not None:
        head = wrapped(head[0], "  ", "", width=min(terminal, WIDTH))
    return [*head, *audit_table(audit, terminal)]


def audit_table(audit: LayerAudit, terminal: int | None = None) -> list[str]:
    """Write the layers of an audit, a line each; runs of right ones stand together.

    Names and types are shortened to what the terminal has room for, else 80 columns.

    Examples
    --------
    >>> import torch
    >>> audit_table(gl.blame(torch.nn.Linear(2, 2), torch.ones(2)))[0].split()
    ['layer', 'type', 'verdict', 'own', 'error']
    """
    shown = runs(audit)
    if not shown:
        return []
    rows = _fitting(shown, terminal or WIDTH + 1)
    lines = _lines(rows)
    width = max(map(across, lines))
    told, room = lines[:1], min(terminal or WIDTH, WIDTH)
    for line, (_, run) in zip(lines[1:], shown, strict=True):
        # a row without a number says why; the findings tell the rest
        alone = len(run) == 1 and np.isnan(run[0].error)
        why = one_line(run[0].reason, 400) if alone else ""
        if not why or across(why) <= room - width - 2:
            told.append(f"{line}{' ' * (width + 2 - across(line))}{why}".rstrip())
        else:
            told += [line, *wrapped(why, " " * 7, width=terminal)]
    return told


def audit_text(audit: LayerAudit, width: int | None = None) -> str:
    """Tell a layer audit in a short text for a terminal.

    Parameters
    ----------
    audit
        What `gradlab.blame` returned.
    width
        Columns of the terminal; default None, one of the usual size.

    Examples
    --------
    >>> import torch
    >>> audit = gl.blame(torch.nn.Linear(2, 2), torch.ones(2))
    >>> print(audit_text(audit).splitlines()[0])
    ✓ every layer that was checked is right by itself
    """
    lines = audit_lines(audit, width)
    lines += findings_lines(audit.findings, _called, "audit", width)
    counted = plural(audit.evaluations, "evaluation")
    lines += ["", *wrapped(f"{counted}, {cost_of(audit)}", "  ", width=width)]
    return "\n".join(lines)


def cost_of(audit: LayerAudit) -> str:
    """Say what an audit took, and how often that is forward and backward of the layers.

    Called one by one, that is: in a small model longer than a training step.

    Examples
    --------
    >>> import torch
    >>> audit = gl.blame(torch.nn.Linear(2, 2), torch.ones(2))
    >>> import dataclasses
    >>> cost_of(dataclasses.replace(audit, steps=3.0, seconds=0.5))
    '500 ms, 3.0 times a forward and backward pass through its layers, one by one'
    """
    if np.isnan(audit.steps):
        return duration(audit.seconds)
    once = "a forward and backward pass through its layers, one by one"
    return f"{duration(audit.seconds)}, {audit.steps:.1f} times {once}"
