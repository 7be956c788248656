"""Results as self-contained HTML: the page, its numbers and its script in one piece.

Inside stands an inert version (text and picture); the script, where it may run,
replaces it. Nothing is fetched: no kernel, no network, no module loader.
"""

from __future__ import annotations

import base64
import functools
import html
import json
import pathlib
import re
import uuid
from typing import TYPE_CHECKING

from gradlab.presentation.figures import png
from gradlab.presentation.layer_text import audit_text, sweep_text
from gradlab.presentation.packing_results import pack_layers, pack_report, pack_sweep
from gradlab.presentation.plots import plot_report
from gradlab.presentation.text import report_text
from gradlab.presentation.words import shows_words_only

if TYPE_CHECKING:
    from os import PathLike

    from gradlab.localisation.layers.audited import LayerAudit
    from gradlab.presentation.packing import Packed
    from gradlab.report import Report
    from gradlab.sweeps import Sweep

__all__ = [
    "document",
    "island",
    "mimebundle",
    "mimebundle_layers",
    "mimebundle_sweep",
    "page",
    "page_layers",
    "page_sweep",
    "script_path",
]

# Of the picture that stands in for the page; it is saved twice, so not finer than this.
_SHARPNESS = 1.2
_STATIC = pathlib.Path(__file__).with_name("static")


def script_path() -> pathlib.Path:
    """Return where the one JavaScript file lies.

    Examples
    --------
    >>> script_path().name
    'gradlab.js'
    """
    return _STATIC / "gradlab.js"


@functools.cache
def _script() -> str:
    """Return the file as a classic script: it must run in every front end, at once.

    Comments and indentation stay at home: each saved cell carries a copy.
    """
    text = script_path().read_text(encoding="utf-8")
    text = re.sub(r"(?m)^\s+|^//.*\n", "", text)
    return text.replace("export default", "const live =").replace("export ", "")


def _literal(value: object) -> str:
    """JSON that an HTML parser cannot misread: no markup can come out of a name."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


_NO_SCRIPT = "Scripts are switched off here; with them this page is interactive."
_UNTRUSTED = "Trust the notebook, or run the cell again, for the interactive page."


def _inert(text: str, png: bytes | None, advice: str) -> str:
    """Show text and picture where no script may run, and say how to get more."""
    style = "margin:0 0 6px;background:none;color:inherit;font-size:12px"
    parts = [
        f'<pre style="{style};overflow-x:auto">{html.escape(text)}</pre>',
    ]
    if png is not None:
        code = base64.b64encode(png).decode("ascii")
        parts.append(
            f'<img alt="{html.escape(text.splitlines()[0] if text else "")}" '
            f'style="max-width:100%" src="data:image/png;base64,{code}">'
        )
    parts.append(f'<p style="{style};opacity:.7">{advice}</p>')
    return "".join(parts)


def island(packed: Packed, inert: str) -> str:
    """Wrap a packed result into HTML that comes alive where scripts run.

    A classic script, no module: it runs at once in every front end. It mounts every
    copy of the output, so that JupyterLab's "Create New View" works too.

    Parameters
    ----------
    packed
        State and numbers.
    inert
        HTML to show until, or unless, the script runs.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> "data-gl=" in island(pack_report(report), "inert")
    True
    """
    uid = f"gl{uuid.uuid4().hex[:12]}"
    blobs = {
        key: {k: base64.b64encode(v).decode("ascii") for k, v in planes.items()}
        for key, planes in packed.blobs.items()
    }
    state = packed.state
    mounting = {"page": state, **{k: state.get(k) for k in _MOUNT_KEYS}}
    return (
        f'<div data-gl="{uid}">{inert}</div><script>(()=>{{{_script()}\n'
        f'for(const node of document.querySelectorAll(\'[data-gl="{uid}"]'
        ":not([data-on])')){node.dataset.on=1;node.replaceChildren();"
        f"mountStatic(node,{_literal(mounting)},{_literal(blobs)});}}}})()</script>"
    )


_MOUNT_KEYS = ("kind", "param", "tol", "metric", "selected", "method", "h")

_DOCUMENT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>{title}</title>
<style>body{{margin:0;padding:20px 24px;background:#fff;color:#1c2128;font:14px/1.5
system-ui,sans-serif}}body>*{{max-width:1180px;margin:0 auto}}
@media(prefers-color-scheme:dark){{body{{background:#111418;color:#e6e9ee}}}}
@media(max-width:760px){{body{{padding:12px}}}}</style></head>
<body><main>{body}</main></body></html>
"""


def document(body: str, title: str) -> str:
    """Wrap HTML into a page that follows the reader's light or dark preference.

    Examples
    --------
    >>> "<title>a &amp; b</title>" in document("<p>text</p>", "a & b")
    True
    """
    return _DOCUMENT.format(title=html.escape(title), body=body)


def _save(text: str, path: str | PathLike[str] | None) -> str:
    if path is not None:
        pathlib.Path(path).write_text(text, encoding="utf-8")
    return text


def _bundle(packed: Packed, text: str, image: bytes | None) -> dict[str, str]:
    """Page, picture and text: each front end takes the best that it can show."""
    inert = _inert(text, image, _UNTRUSTED)
    bundle = {"text/plain": text, "text/html": island(packed, inert)}
    if image is not None:
        bundle["image/png"] = base64.b64encode(image).decode("ascii")
    return bundle


def _document(packed: Packed, text: str, image: bytes | None, title: str) -> str:
    return document(island(packed, _inert(text, image, _NO_SCRIPT)), title)


# ------------------------------------------------------------------ reports
def _report_png(report: Report) -> bytes | None:
    """Draw the worst block; None if the report has no block to draw."""
    if not any(comparison.analytic.size for comparison in report.comparisons):
        return None
    figure = plot_report(report, None, None).figure_
    return None if figure is None else png(figure, _SHARPNESS)


def mimebundle(report: Report) -> dict[str, str]:
    """Give a notebook a page, a picture for where scripts are dropped, and a text.

    Plain HTML, not a widget: it works after re-opening, in a notebook that somebody
    else sent, in exported HTML, while the kernel is busy, and without one.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> sorted(mimebundle(report))
    ['image/png', 'text/html', 'text/plain']
    """
    if shows_words_only():
        return {}  # then IPython asks for the repr
    return _bundle(pack_report(report), report_text(report), _report_png(report))


def page(report: Report, path: str | PathLike[str] | None = None) -> str:
    """Return a report as one self-contained page, written to `path` if given.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> page(report).startswith("<!doctype html>")
    True
    """
    image, text = _report_png(report), report_text(report)
    return _save(_document(pack_report(report), text, image, report.subject), path)


# ------------------------------------------------------------------ sweeps
def _sweep_png(sweep: Sweep) -> bytes | None:
    figure = sweep.plot().figure_
    return None if figure is None else png(figure, _SHARPNESS)


def mimebundle_sweep(sweep: Sweep) -> dict[str, str]:
    """Give a notebook the page of a sweep, a picture and a text.

    Examples
    --------
    >>> sweep = gl.sweep(lambda x: (x**2).sum(), np.ones(2), grad=lambda x: 2 * x)
    >>> sorted(mimebundle_sweep(sweep))
    ['image/png', 'text/html', 'text/plain']
    """
    if shows_words_only():
        return {}  # then IPython asks for the repr
    return _bundle(pack_sweep(sweep), sweep_text(sweep), _sweep_png(sweep))


def page_sweep(sweep: Sweep, path: str | PathLike[str] | None = None) -> str:
    """Return a sweep as one self-contained page, written to `path` if given.

    Examples
    --------
    >>> sweep = gl.sweep(lambda x: (x**2).sum(), np.ones(2), grad=lambda x: 2 * x)
    >>> page_sweep(sweep).startswith("<!doctype html>")
    True
    """
    packed, text = pack_sweep(sweep), sweep_text(sweep)
    return _save(_document(packed, text, _sweep_png(sweep), "Step sizes"), path)


# ------------------------------------------------------------------ layers
def _layers_png(audit: LayerAudit) -> bytes | None:
    figure = audit.plot().figure_
    return None if figure is None else png(figure, _SHARPNESS)


def mimebundle_layers(audit: LayerAudit) -> dict[str, str]:
    """Give a notebook the page of a layer audit, a picture and a text.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Linear(3, 2).double()
    >>> audit = gl.blame(net, torch.ones(4, 3).double())
    >>> sorted(mimebundle_layers(audit))
    ['image/png', 'text/html', 'text/plain']
    """
    if shows_words_only():
        return {}  # then IPython asks for the repr
    return _bundle(pack_layers(audit), audit_text(audit), _layers_png(audit))


def page_layers(audit: LayerAudit, path: str | PathLike[str] | None = None) -> str:
    """Return a layer audit as one self-contained page, written to `path` if given.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Linear(3, 2).double()
    >>> audit = gl.blame(net, torch.ones(4, 3).double())
    >>> page_layers(audit).startswith("<!doctype html>")
    True
    """
    packed, text = pack_layers(audit), audit_text(audit)
    return _save(_document(packed, text, _layers_png(audit), "Layers"), path)
