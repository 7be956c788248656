"""Words for a layer audit and for a sweep, for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.labels import code_place
from gradlab.presentation.words import brief, middle, one_line, tabulate

if TYPE_CHECKING:
    from gradlab.localisation.layers import LayerAudit, LayerRow
    from gradlab.sweeps import Sweep

__all__ = ["GLYPHS", "audit_lines", "audit_text", "headline_of", "sweep_text"]

GLYPHS = {"right": "✓", "wrong": "✗", "contaminated": "↑", "unchecked": "·"}
_WORDS = {
    "right": "right",
    "wrong": "wrong itself",
    "contaminated": "contaminated",
    "unchecked": "not checked",
}
_RUN = 3  # shorter runs of unremarkable layers are written out


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
        one_line(row.reason, 64),
    ]


def headline_of(audit: LayerAudit) -> str:
    """Say which layer is wrong itself, or that none is.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> headline_of(SimpleNamespace(rows=(), culprits=(), contaminated=()))
    '! no layer could be checked by itself'
    """
    if not audit.culprits:
        unchecked = sum(str(row.state) == "unchecked" for row in audit.rows)
        if unchecked == len(audit.rows):
            return "! no layer could be checked by itself"
        note = f" ({unchecked} could not be checked)" if unchecked else ""
        return f"✓ every layer that was checked is right by itself{note}"
    root = audit.culprits[0]
    found = next((row for row in audit.rows if row.name == root), None)
    place = f" ({_place(found)})" if found else ""
    others = len(audit.culprits) - 1
    more = f", and {others} more" if others else ""
    passive = len(audit.contaminated)
    counted = f"{passive} gradient{'s' if passive > 1 else ''} upstream"
    verb = "are" if passive > 1 else "is"
    tail = f"; {counted} {verb} only contaminated" if passive else ""
    return f"✗ {middle(root, 80)}{place} is wrong itself{more}{tail}"


def audit_lines(audit: LayerAudit) -> list[str]:
    """Write a layer audit line by line; runs of right layers are drawn together.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> audit_lines(SimpleNamespace(rows=(), culprits=(), contaminated=()))
    ['! no layer could be checked by itself']
    """
    groups: list[list[LayerRow]] = []
    for row in audit.rows:
        same = groups and groups[-1][0].state == row.state
        if same and str(row.state) != "wrong":
            groups[-1].append(row)
        else:
            groups.append([row])
    cells: list[list[str]] = []
    for group in groups:
        if len(group) <= _RUN:
            cells += [_cells(row) for row in group]
            continue
        state = str(group[0].state)
        span = f"{middle(group[0].name, 40)} ... {middle(group[-1].name, 40)}"
        words = f"{len(group)} layers {_WORDS[state]}"
        errors = [row.error for row in group if not np.isnan(row.error)]
        error = brief(max(errors)) if errors else "-"
        cells.append([GLYPHS[state], span, "", words, error, ""])
    return [headline_of(audit), *(f"  {line}" for line in tabulate(cells, right=(4,)))]


def audit_text(audit: LayerAudit) -> str:
    """Tell a layer audit in a short text for a terminal.

    Parameters
    ----------
    audit
        What `gradlab.blame` returned.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> audit = SimpleNamespace(
    ...     rows=(),
    ...     culprits=(),
    ...     contaminated=(),
    ...     findings=(),
    ...     evaluations=0,
    ...     seconds=0.0,
    ...     steps=0.0,
    ... )
    >>> print(audit_text(audit).splitlines()[0])
    ! no layer could be checked by itself
    """
    lines = audit_lines(audit)
    for finding in audit.findings[:6]:
        lines += ["", one_line(finding, 500)]
    cost = f"{audit.evaluations:,} evaluations, {audit.steps:.1f} training steps"
    lines += ["", f"  {cost}, {audit.seconds:.2g} s"]
    return "\n".join(lines)


def _sweep_headline(sweep: Sweep, order: list[str]) -> str:
    """Say which inputs have the worst verdict of a sweep."""
    worst = sweep.verdict
    guilty = [name for name in order if sweep.verdicts[name] == worst]
    if not order:
        return "nothing was swept"
    if worst == 0:
        if len(order) == 1:
            return f"{middle(order[0], 60)} agrees at its best step"
        every = "both" if len(order) == 2 else f"all {len(order)}"
        return f"{every} inputs agree, each at its best step"
    names = ", ".join(middle(name, 40) for name in guilty[:4])
    if len(guilty) > 4:
        names += f" and {len(guilty) - 4} more"
    one = len(guilty) == 1
    if worst == 1:
        return f"{names} {'is' if one else 'are'} undecided"
    return f"{names} {'disagrees' if one else 'disagree'} at every step"


def sweep_text(sweep: Sweep) -> str:
    """Tell a sweep in a short text for a terminal: one sentence of reading per input.

    Parameters
    ----------
    sweep
        What `gradlab.sweep` returned.

    Examples
    --------
    >>> sweep = gl.sweep(lambda x: (x**2).sum(), np.ones(2), grad=lambda x: 2 * x)
    >>> print(sweep_text(sweep).splitlines()[0])
    ✓ x agrees at its best step
    """
    order = sorted(sweep.inputs, key=lambda name: -int(sweep.verdicts[name]))
    lines = [f"{sweep.verdict.glyph} {_sweep_headline(sweep, order)}"]
    shown = order[:20]
    rows = [
        [sweep.verdicts[name].glyph, middle(name, 40), one_line(sweep.reading[name])]
        for name in shown
    ]
    lines += [f"  {line}" for line in tabulate(rows)]
    if len(order) > len(shown):
        lines.append(f"  ... {len(order) - len(shown)} more")
    low, high = (brief(float(end)) for end in (sweep.steps.min(), sweep.steps.max()))
    done = f"{', '.join(sweep.methods)}; {len(sweep.steps)} steps from {low} to {high}"
    lines += [
        "",
        f"  {done}; {sweep.evaluations:,} evaluations, {sweep.seconds:.2g} s",
        *(f"  · {one_line(remark)}" for remark in sweep.remarks),
    ]
    return "\n".join(lines)
