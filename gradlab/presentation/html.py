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

from gradlab.localisation.layers.audited import LayerAudit
from gradlab.presentation.figures import png
from gradlab.presentation.layer_text import audit_text
from gradlab.presentation.packing_results import pack_layers, pack_report, pack_sweep
from gradlab.presentation.plots import plot_report
from gradlab.presentation.screens import shows_words_only
from gradlab.presentation.sweep_text import sweep_text
from gradlab.presentation.text import report_text
from gradlab.sweeps import Sweep

if TYPE_CHECKING:
    from os import PathLike

    from matplotlib.figure import Figure

    from gradlab.presentation.packing import Packed
    from gradlab.report import Report

__all__ = [
    "document",
    "island",
    "mimebundle",
    "page",
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
    return "\n".join(parts)


def island(packed: Packed, inert: str) -> str:
    """Wrap a packed result into HTML that comes alive where scripts run.

    A classic script, no module: it runs at once in every front end. It mounts every
    copy of the output, so that JupyterLab's "Create New View" works too.

    In Markdown, which nbconvert writes, a block of HTML ends at an empty line, unless
    it begins with `<pre` or `<script`: these begin lines of their own, after one.

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
        f'<div data-gl="{uid}">\n\n{inert}</div>\n\n<script>(()=>{{{_script()}\n'
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
@media screen and (prefers-color-scheme:dark){{body{{background:#111418;
color:#e6e9ee}}}}
@media print{{body{{padding:0}}}}
@media(max-width:760px){{body{{padding:12px}}}}</style></head>
<body><main data-gradlab>{body}</main></body></html>
"""


def document(body: str, title: str) -> str:
    """Wrap HTML into a page that follows the reader's light or dark preference.

    Examples
    --------
    >>> "<title>a &amp; b</title>" in document("<p>text</p>", "a & b")
    True
    """
    return _DOCUMENT.format(title=html.escape(title), body=body)


def _parts(result: Report | Sweep | LayerAudit) -> tuple[Packed, str, bytes | None]:
    """Return the numbers, the text and the picture of a result.

    A report without a block that could be drawn has no picture.
    """
    figure: Figure | None = None
    if isinstance(result, LayerAudit):
        packed, text = pack_layers(result), audit_text(result)
        figure = result.plot().figure_
    elif isinstance(result, Sweep):
        packed, text = pack_sweep(result), sweep_text(result)
        figure = result.plot().figure_
    else:
        packed, text = pack_report(result), report_text(result)
        if any(comparison.analytic.size for comparison in result.comparisons):
            figure = plot_report(result).figure_
    return packed, text, None if figure is None else png(figure, _SHARPNESS)


def mimebundle(result: Report | Sweep | LayerAudit) -> dict[str, str]:
    """Give a notebook a page, a picture for where scripts are dropped, and a text.

    Each front end takes the best that it can show. Plain HTML, not a widget: it works
    after re-opening, in a notebook that somebody else sent, in exported HTML, while the
    kernel is busy, and without one.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> sorted(mimebundle(report))
    ['image/png', 'text/html', 'text/plain']
    """
    if shows_words_only():
        return {}  # then IPython asks for the repr
    packed, text, image = _parts(result)
    inert = _inert(text, image, _UNTRUSTED)
    bundle = {"text/plain": text, "text/html": island(packed, inert)}
    if image is not None:
        bundle["image/png"] = base64.b64encode(image).decode("ascii")
    return bundle


def page(
    result: Report | Sweep | LayerAudit, path: str | PathLike[str] | None = None
) -> str:
    """Return a result as one self-contained page, written to `path` if given.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> page(report).startswith("<!doctype html>")
    True
    """
    packed, text, image = _parts(result)
    # of many tabs in a browser the answer tells which is which
    title, _, _ = text.partition("\n")
    whole = document(island(packed, _inert(text, image, _NO_SCRIPT)), title)
    if path is not None:
        pathlib.Path(path).write_text(whole, encoding="utf-8")
    return whole
