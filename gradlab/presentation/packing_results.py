"""Reports, sweeps and layer audits as the page wants them; blocks are in `packing`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.tolerance import default_rtol
from gradlab.diagnosis.alike import alike
from gradlab.diagnosis.finding import asks_nothing
from gradlab.labels import plural
from gradlab.presentation.headline import headline
from gradlab.presentation.layer_text import (
    cost_of,
    headline_of,
    states_shown,
)
from gradlab.presentation.packing import Packed, number, pack_block, pack_slices
from gradlab.presentation.sweep_text import sweep_headline
from gradlab.presentation.views import by_severity, moved_together, worst_curves
from gradlab.presentation.words import duration, kind_in_words
from gradlab.subject.subject import EPSILON
from gradlab.tracebacks import code_place

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gradlab.diagnosis.finding import Finding
    from gradlab.localisation.layers.audited import LayerAudit
    from gradlab.report import Report
    from gradlab.sweeps import Sweep

__all__ = [
    "EMBED_BYTES",
    "LIVE_BYTES",
    "layers_state",
    "pack_findings",
    "pack_inner",
    "pack_layers",
    "pack_report",
    "pack_sweep",
    "report_state",
]

# Raw bytes that one saved cell may carry; base64 makes a third more of it, and the
# whole page stays below 2 MB.
EMBED_BYTES = 1_050_000
_RELATIVE = ["relative error", "|analytic - numeric| / (|analytic| + |numeric|)"]
LIVE_BYTES = 16_000_000  # in a live view nothing is saved: more may be sent
_BYTES_PER_ENTRY = 17  # four float32 planes and a verdict
_BYTES_PER_TILE = 25  # and the true row and column


def _begun(names: Collection[str], begin: str) -> bool:
    return any(name.startswith(begin) for name in names)


def _sentence(headline: str, names: Collection[str] = ()) -> str:
    """Begin with a capital, unless that changed a name; the page draws the glyph."""
    words = headline[2:]
    begin, _, short = words.partition("…")  # a long name is shortened in its middle
    if words.startswith(tuple(names)) or (short and begin and _begun(names, begin)):
        return words
    return words[:1].upper() + words[1:]


# ------------------------------------------------------------------ reports
def pack_findings(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Turn findings into JSON: one for each thing that is said, with all its places.

    Examples
    --------
    >>> finding = gl.Finding("sign", "error", "W1", 1.0, "a = -n.", "Drop the minus.")
    >>> pack_findings([finding])[0]["places"]
    ['W1']
    """
    return [_pack_finding(told) for told in alike(findings)]


def _pack_finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": kind_in_words(finding.kind, finding.evidence).replace("_", " "),
        "severity": finding.severity,
        "places": list(finding.places),
        "confidence": finding.confidence,
        "evidence": finding.evidence,
        "advice": finding.advice,
        "quiet": asks_nothing(finding),
    }


def _cost(evaluations: int, seconds: float) -> str:
    """Say what something cost, as in ``1,200 evaluations, 13 ms``.

    Examples
    --------
    >>> _cost(1, 2.5)
    '1 evaluation, 2.5 s'
    """
    return f"{plural(evaluations, 'evaluation')}, {duration(seconds)}"


def _shares(sizes: list[int], budget: int) -> int:
    """Find how many entries each block may show so that all fit the budget."""
    left, rest = budget, sorted(sizes)
    for position, size in enumerate(rest):
        share = left // (len(rest) - position)
        if size * _BYTES_PER_ENTRY > share:
            return share // _BYTES_PER_TILE
        left -= size * _BYTES_PER_ENTRY
    return max(sizes, default=0)


def report_state(report: Report) -> dict[str, Any]:
    """Everything that the page says besides the blocks."""
    return {
        "kind": "jacobian",
        "subject": report.subject,
        "headline": _sentence(headline(report)),
        "verdict": int(report.verdict),
        "partial": report.partial,
        "culprits": list(report.culprits),
        "facts": [
            ["subject", report.subject],
            ["analytic side", report.analytic],
            ["numeric side", report.method],
            ["coverage", report.coverage],
            ["cost", _cost(report.evaluations, report.seconds)],
            ["seed", str(report.seed)],
            _RELATIVE,
        ],
        "findings": pack_findings(report.findings),
        "remarks": list(report.remarks),
        "together": moved_together(report),
        "layers": None if report.layers is None else layers_state(report.layers),
        "tol": None,
        "metric": "rel",
        "selected": [],
    }


def pack_report(report: Report, budget: int = EMBED_BYTES) -> Packed:
    """Pack a report for a page that lives without a kernel.

    Parameters
    ----------
    report
        What to show.
    budget
        Bytes of numbers at most, before base64; default `EMBED_BYTES`, so that a saved
        notebook stays small. Larger blocks are reduced to the worst entry per tile.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> pack_report(report).state["headline"]
    'Disagrees: x is wrong'
    """
    sizes = [c.analytic.size for c in report.comparisons]
    share = max(64, _shares(sizes, budget))
    blocks, blobs = [], {}
    for comparison in by_severity(report.comparisons):
        name = report.block_name(comparison)
        meta, blobs[name] = pack_block(comparison, name, share, report.epsilon)
        blocks.append(meta)
    state = report_state(report)
    state["blocks"] = blocks
    state["param"] = blocks[0]["key"] if blocks else ""
    return Packed(state, blobs)


def pack_inner(
    report: Report, *, head: bool = True
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Pack a report that a live view shows inside of another one.

    Parameters
    ----------
    report
        What to show.
    head
        Whether with verdict and findings, or only the panels.

    Returns
    -------
    state, planes
        As of a page; planes are called "0/a": plane a of block 0.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> state, planes = pack_inner(report)
    >>> state["param"], sorted(planes)
    ('x', ['0/a', '0/d', '0/e', '0/n', '0/v'])
    """
    packed = pack_report(report, LIVE_BYTES)
    state = packed.state
    if not head:
        del state["headline"]
    keys = [meta["key"] for meta in state["blocks"]]
    planes = {
        f"{number_}/{name}": plane
        for number_, key in enumerate(keys)
        for name, plane in packed.blobs[key].items()
    }
    return state, planes


# ------------------------------------------------------------------ sweeps


def _listed(values: Any) -> list[float | str]:
    return [number(value) for value in np.asarray(values, float).ravel()]


def pack_sweep(sweep: Sweep, budget: int = EMBED_BYTES) -> Packed:
    """Pack a sweep: curves as JSON, and error matrices by step where they are kept.

    Parameters
    ----------
    sweep
        What to show.
    budget
        Bytes of matrices at most; those that do not fit are left out.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: 2 * x)
    >>> pack_sweep(report.sweep()).state["inputs"][0]["name"]
    'x'
    """
    # each of these reads all curves again: once is enough
    verdicts = sweep.verdicts
    read = {
        method: [sweep.curve(method, name) for name in sweep.inputs]
        for method in sweep.methods
    }
    inputs = [
        {
            "name": name,
            "shape": list(sweep.shapes[name]),
            "verdict": int(verdicts[name]),
            "reading": {method: sweep.read(method, name) for method in sweep.methods},
        }
        for name in sweep.inputs
    ]
    errors = sweep.errors
    curves = {
        method: [_listed(errors[method, name]) for name in sweep.inputs]
        for method in sweep.methods
    }
    theory = {
        method: [[label, number(p), number(c)] for label, p, c in lines]
        for method, lines in sweep.theory.items()
    }
    loud = {
        method: [sweep.inputs.index(name) for name in worst_curves(sweep, method)]
        for method in sweep.methods
    }
    matrices, blobs = _slices(sweep, budget)
    state = {
        "kind": "sweep",
        "headline": _sentence(sweep_headline(sweep), sweep.inputs),
        "verdict": int(sweep.verdict),
        "subject": plural(len(sweep.steps), "step"),
        "facts": [
            ["numeric side", ", ".join(sweep.methods)],
            ["cost", _cost(sweep.evaluations, sweep.seconds)],
            _RELATIVE,
        ],
        "remarks": list(sweep.remarks),
        "steps": _listed(sweep.steps),
        "methods": list(sweep.methods),
        "inputs": inputs,
        "curves": curves,
        "theory": theory,
        "loud": loud,
        # as a check would have it; the colours of the matrices change there
        "tolerance": default_rtol(
            max((b.epsilon for b in sweep.blocks), default=EPSILON)
        ),
        "best": {m: [number(c.best_step) for c in found] for m, found in read.items()},
        "floor": {m: [number(c.floor) for c in found] for m, found in read.items()},
        "matrices": matrices,
        "h": 0.0,
        "method": sweep.methods[0] if sweep.methods else "",
    }
    return Packed(state, blobs)


def _slices(
    sweep: Sweep, budget: int
) -> tuple[list[dict[str, Any]], dict[str, dict[str, bytes]]]:
    """Cut the logarithm of the relative error of every entry at every step."""
    matrices: list[dict[str, Any]] = []
    blobs: dict[str, dict[str, bytes]] = {}
    analytic_sides, shapes = sweep.analytic, sweep.shapes
    sampled = {
        block.variable.name: block.columns.tolist()
        for block in sweep.blocks
        if len(block.columns) < block.variable.coordinates
        and not block.variable.is_complex
    }
    for (method, name), values in sweep.matrices.items():
        numeric = np.asarray(values)
        if numeric.size * 4 > budget:
            continue
        key = f"m{len(matrices)}"
        place, blobs[key] = pack_slices(
            np.asarray(analytic_sides[name]), numeric, shapes[name]
        )
        budget -= numeric.size * 4
        some = {"at": sampled[name]} if name in sampled else {}
        of = {"key": key, "method": method, "input": sweep.inputs.index(name)}
        matrices.append(of | place | some)
    return matrices, blobs


def layers_state(audit: LayerAudit) -> dict[str, Any]:
    """Turn a layer audit into JSON.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh()).double()
    >>> audit = gl.blame(net, torch.ones(4, 3, dtype=torch.float64))
    >>> layers_state(audit)["culprits"]
    []
    """
    return {
        "kind": "layers",
        "headline": _sentence(headline_of(audit), [row.name for row in audit.rows]),
        "verdict": int(audit.verdict),
        "subject": plural(len(audit.rows), "layer"),
        "facts": [
            ["cost", cost_of(audit)],
        ],
        "culprits": list(audit.culprits),
        "findings": pack_findings(audit.findings),
        "rows": [
            {
                "name": row.name or row.type,
                "type": row.type,
                "call": row.call,
                "state": state,
                "error": number(row.error),
                "bar": number(row.bar),
                "piece": row.piece,
                "reason": row.reason,
                # such a row has nothing to open, and no place in the flow
                "called": "not called" not in row.reason,
                "place": code_place(row.file, row.line, folder=True),
                "parameters": list(row.parameters),
                "depth": row.depth,
                "parents": list(row.parents),
            }
            for state, row in zip(states_shown(audit), audit.rows, strict=True)
        ],
    }


def pack_layers(audit: LayerAudit) -> Packed:
    """Pack a layer audit for a page; it has no matrices.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Linear(3, 2).double()
    >>> pack_layers(gl.blame(net, torch.ones(4, 3).double())).state["kind"]
    'layers'
    """
    return Packed(layers_state(audit), {})
