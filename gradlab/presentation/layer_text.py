"""Words for a layer audit and for a sweep, for the terminal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.labels import code_place, few_of
from gradlab.presentation.alike import alike
from gradlab.presentation.words import (
    NAME,
    WIDTH,
    across,
    brief,
    distinct,
    duration,
    kind_in_words,
    middle,
    one_line,
    plural,
    tabulate,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradlab.diagnosis.finding import Finding
    from gradlab.localisation.layers.audited import LayerAudit, LayerRow
    from gradlab.sweeps import Sweep

__all__ = [
    "GLYPHS",
    "audit_lines",
    "audit_text",
    "audit_verdict",
    "cost_of",
    "finding_lines",
    "headline_of",
    "runs",
    "sweep_headline",
    "sweep_text",
]

GLYPHS = {"right": "✓", "wrong": "✗", "contaminated": "↑", "unchecked": "○"}
_WORDS = {
    "right": "right",
    "wrong": "wrong itself",
    "contaminated": "contaminated",
    "unchecked": "not checked",
}
_RUN = 3  # shorter runs of unremarkable layers are written out
_FINDINGS = 6
_REASONS = 2  # why layers were not checked: in a headline no more than these
_SEVERITIES = {"error": "✗", "warning": "!", "note": "i"}


def _place(row: LayerRow) -> str:
    if not row.file:
        return row.type
    return f"{row.type}, {code_place(row.file, row.line)}"


def _name(row: LayerRow) -> str:
    call = f" (call {row.call})" if row.call else ""
    return f"{'  ' * min(row.depth, 6)}{middle(row.name, 60)}{call}"


def _cells(row: LayerRow) -> list[str]:
    state = str(row.state)
    error = "-" if np.isnan(row.error) else brief(row.error)
    return [
        GLYPHS[state],
        _name(row),
        one_line(row.type, 30),
        _WORDS[state],
        error,
    ]


def finding_lines(
    finding: Finding, places: Sequence[str], width: int = WIDTH
) -> list[str]:
    """Write a finding out: what it is and where, the evidence, the advice.

    Examples
    --------
    >>> finding = gl.Finding("sign", "error", "W1", 1.0, "a = -n.", "Drop the minus.")
    >>> finding_lines(finding, ["W1", "W2"])
    ['✗ W1, W2: sign (error)', '    a = -n.', '    -> Drop the minus.']
    """
    names = [middle(name, NAME) for name in places if name]
    place = f"{few_of(names, 4)}: " if names else ""
    glyph = _SEVERITIES[finding.severity]
    kind = kind_in_words(finding.kind, finding.evidence)
    head = f"{glyph} {place}{kind} ({finding.severity})"
    lines = wrapped(head, "  ", "", width=width)
    if finding.evidence:
        lines += wrapped(finding.evidence, "    ", width=width)
    if finding.advice:
        lines += wrapped("-> " + finding.advice, "    ", width=width)
    return lines


def _unchecked(audit: LayerAudit) -> list[LayerRow]:
    return [row for row in audit.rows if str(row.state) == "unchecked"]


def _why_not(rows: Sequence[LayerRow]) -> str:
    """Say of rows that were not checked for which reasons, the most frequent first."""
    short = (row.reason.partition(":")[0].partition(";")[0] for row in rows)
    counted = Counter(one_line(reason, 48) or "no reason known" for reason in short)
    told = [f"{reason} ({count})" for reason, count in counted.most_common(_REASONS)]
    rest = counted.total() - sum(count for _, count in counted.most_common(_REASONS))
    return "; ".join([*told, *([f"other reasons ({rest})"] if rest else [])])


def audit_verdict(audit: LayerAudit) -> Verdict:
    """Verdict of an audit; undecided where a layer, or each, could not be checked.

    A layer that has nothing to differentiate, or was not called, leaves nothing open.

    Examples
    --------
    >>> import torch
    >>> audit_verdict(gl.blame(torch.nn.Linear(2, 2), torch.ones(2))).words
    'agrees'
    """
    if not audit.ok:
        return Verdict.DISAGREES
    unchecked = _unchecked(audit)
    blind = len(unchecked) == len(audit.rows)
    left_open = blind or not all(row.idle for row in unchecked)
    return Verdict.UNDECIDED if left_open else Verdict.AGREES


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
            verb = "were" if len(unchecked) > 1 else "was"
            words += f"; {len(unchecked)} of {len(audit.rows)} {verb} not"
        if unchecked:
            words += f": {_why_not(unchecked)}"
        # a hook on an input, say: wrong, and in no layer
        wrong = [f.where for f in audit.findings if f.severity == "error"]
        if wrong:
            words = f"{middle(', '.join(wrong), 80)}: wrong, but {words}"
        return f"{audit_verdict(audit).glyph} {words}"
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


def runs(audit: LayerAudit) -> list[list[LayerRow]]:
    """Put long runs of layers that say the same together; all others stand alone.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(9)))
    >>> [len(run) for run in runs(gl.blame(net, torch.ones(2)))]
    [10]
    """
    groups: list[list[LayerRow]] = []
    for row in audit.rows:
        same = groups and groups[-1][0].state == row.state
        if same and str(row.state) != "wrong":
            groups[-1].append(row)
        else:
            groups.append([row])
    long = [group for group in groups if len(group) > _RUN]
    return [
        part
        for group in groups
        for part in ([group] if group in long else [[row] for row in group])
    ]


def _run_cells(run: list[LayerRow]) -> list[str]:
    if len(run) == 1:
        return _cells(run[0])
    state = str(run[0].state)
    span = f"{middle(run[0].name, 40)} ... {middle(run[-1].name, 40)}"
    words = f"{len(run)} layers {_WORDS[state]}"
    errors = [row.error for row in run if not np.isnan(row.error)]
    return [GLYPHS[state], span, "", words, brief(max(errors)) if errors else "-"]


def audit_lines(audit: LayerAudit, terminal: int | None = None) -> list[str]:
    """Write a layer audit line by line; runs of right layers are drawn together.

    Examples
    --------
    >>> import torch
    >>> audit_lines(gl.blame(torch.nn.Linear(2, 2), torch.ones(2)))[0]
    '✓ every layer that was checked is right by itself'
    """
    shown = runs(audit)
    head = ["", "layer", "type", "verdict", "own error"]
    rows = [head, *(_run_cells(run) for run in shown)] if shown else []
    lines = [f"  {line}" for line in tabulate(rows, right=(4,))]
    width = max(map(across, lines), default=0)
    told, room = lines[:1], min(terminal or WIDTH, WIDTH)
    for line, run in zip(lines[1:], shown, strict=True):
        # a row without a number says why; the findings tell the rest
        alone = len(run) == 1 and np.isnan(run[0].error)
        why = one_line(run[0].reason, 400) if alone else ""
        if not why or across(why) <= room - width - 2:
            told.append(f"{line}{' ' * (width + 2 - across(line))}{why}".rstrip())
        else:
            told += [line, *wrapped(why, " " * 7, width=room)]
    head = [headline_of(audit)]  # in a file it stays one line, to be searched for
    if terminal is not None:
        head = wrapped(head[0], "  ", "", width=room)
    return [*head, *told]


def audit_text(audit: LayerAudit, width: int | None = None) -> str:
    """Tell a layer audit in a short text for a terminal.

    Parameters
    ----------
    audit
        What `gradlab.blame` returned.
    width
        Columns of the terminal; default None, as many as the table takes.

    Examples
    --------
    >>> import torch
    >>> audit = gl.blame(torch.nn.Linear(2, 2), torch.ones(2))
    >>> print(audit_text(audit).splitlines()[0])
    ✓ every layer that was checked is right by itself
    """
    room = WIDTH if width is None else width
    lines = audit_lines(audit, width)
    groups = alike(audit.findings)
    for finding, places in groups[:_FINDINGS]:
        lines += ["", *finding_lines(finding, list(map(_called, places)), room)]
    rest = len(groups) - _FINDINGS
    if rest > 0:
        lines += ["", f"... {plural(rest, 'more finding')} in audit.findings"]
    counted = plural(audit.evaluations, "evaluation")
    lines += ["", *wrapped(f"{counted}, {cost_of(audit)}", "  ", width=room)]
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
    '500 ms, 3.0 times forward and backward of its layers one by one'
    """
    times = f"{audit.steps:.1f} times forward and backward of its layers one by one"
    return f"{duration(audit.seconds)}, {times}"


def sweep_headline(sweep: Sweep) -> str:
    """Say which inputs have the worst verdict of a sweep.

    Examples
    --------
    >>> sweep = gl.sweep(lambda x: (x**2).sum(), np.ones(2), grad=lambda x: 2 * x)
    >>> sweep_headline(sweep)
    '✓ x agrees at its best step'
    """
    return f"{sweep.verdict.glyph} {_worst_inputs(sweep.verdicts)}"


def _worst_inputs(verdicts: Mapping[str, Verdict]) -> str:
    if not verdicts:
        return "nothing was swept"
    worst = max(verdicts.values())
    guilty = [name for name, verdict in verdicts.items() if verdict == worst]
    if worst == Verdict.AGREES:
        if len(guilty) == 1:
            return f"{middle(guilty[0], 60)} agrees at its best step"
        every = "both" if len(guilty) == 2 else f"all {len(guilty)}"
        return f"{every} inputs agree, each at its best step"
    names = ", ".join(distinct(guilty[:4], 40))
    if len(guilty) > 4:
        names += f" and {len(guilty) - 4} more"
    one = len(guilty) == 1
    if worst == Verdict.UNDECIDED:
        return f"{names} {'is' if one else 'are'} undecided"
    return f"{names} {'disagrees' if one else 'disagree'} at every step"


def sweep_text(sweep: Sweep, width: int | None = None) -> str:
    """Tell a sweep in a short text for a terminal: one sentence of reading per input.

    Parameters
    ----------
    sweep
        What `gradlab.sweep` returned.
    width
        Columns of the terminal; default None, one of the usual size.

    Examples
    --------
    >>> sweep = gl.sweep(lambda x: (x**2).sum(), np.ones(2), grad=lambda x: 2 * x)
    >>> print(sweep_text(sweep).splitlines()[0])
    ✓ x agrees at its best step
    """
    # each of these reads all curves again: once is enough
    verdicts, reading = sweep.verdicts, sweep.reading
    order = sorted(sweep.inputs, key=lambda name: -int(verdicts[name]))
    shown = order[:20]
    room = WIDTH if width is None else width
    lines = [sweep_headline(sweep)]
    if width is not None:
        lines = wrapped(lines[0], "  ", "", width=room)
    called = zip(shown, distinct(shown, min(40, max(16, room - 40))), strict=True)
    heads = tabulate([[verdicts[name].glyph, short] for name, short in called])
    most = max(map(across, heads), default=0)
    for head, name in zip(heads, shown, strict=True):
        indent, space = " " * (most + 4), " " * (most - across(head))
        lines += wrapped(reading[name], indent, f"  {head}{space}  ", width=room)
    if len(order) > len(shown):
        lines.append(f"  ... {len(order) - len(shown)} more")
    ends = sorted({brief(float(end)) for end in sweep.steps}, key=float)
    span = f"from {ends[0]} to {ends[-1]}" if len(ends) > 1 else f"of {ends[0]}"
    done = f"{', '.join(sweep.methods)}; {plural(len(sweep.steps), 'step')} {span}"
    counted = plural(sweep.evaluations, "evaluation")
    lines += [
        "",
        *wrapped(f"{done}; {counted}, {duration(sweep.seconds)}", "  ", width=room),
    ]
    for remark in sweep.remarks:
        lines += wrapped("· " + remark, "  ", width=room)
    return "\n".join(lines)
