"""Tables of what was compared, as pandas DataFrames, worst first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from gradlab.comparison.verdict import Verdict
from gradlab.presentation.views import by_severity, worst_entry, worst_relative

if TYPE_CHECKING:
    from gradlab.comparison.comparison import Comparison
    from gradlab.localisation.layers.audited import LayerAudit
    from gradlab.report import Report
    from gradlab.sweeps import Sweep

__all__ = ["blocks_table", "entries_table", "layers_table", "sweep_table"]

_BLOCKS = [
    *("output", "input", "shape", "verdict", "max_abs_error", "max_rel_error"),
    *("worst_index", "analytic", "numeric", "numeric_error"),
    *("step", "method", "coverage"),
]
_ENTRIES = [
    *("label", "output_index", "input_index", "analytic", "numeric"),
    *("numeric_error", "error", "relative_error", "verdict"),
]
_LAYERS = [
    *("name", "type", "call", "state", "error", "bar", "piece", "reason"),
    *("file", "line"),
]


def _scalar(value: Any) -> float | complex:
    """Plain Python number, without the imaginary part where there is none."""
    number = complex(value)
    return number.real if number.imag == 0 else number


def _block_row(comparison: Comparison) -> dict[str, Any]:
    place = worst_entry(comparison)
    index: tuple[int, ...] = ()
    values: dict[str, Any] = dict.fromkeys(
        ("analytic", "numeric", "numeric_error", "step"), math.nan
    )
    if place is not None:
        outer, inner = comparison.indices(*place)
        index = inner if comparison.shape[0] == 1 else (*outer, *inner)
        values = {
            "analytic": _scalar(comparison.analytic[place]),
            "numeric": _scalar(comparison.numeric[place]),
            "numeric_error": float(comparison.numeric_error[place]),
            "step": float(comparison.step[place]),
        }
    return {
        "output": comparison.output.name,
        "input": comparison.input.name,
        "shape": comparison.input.shape,
        "verdict": comparison.verdict.name,
        "max_abs_error": comparison.max_abs_error,
        "max_rel_error": worst_relative(comparison),
        "worst_index": index,
        **values,
        "method": comparison.method,
        "coverage": comparison.coverage,
    }


def blocks_table(report: Report) -> pd.DataFrame:
    """Tabulate the blocks of a report, worst first.

    Parameters
    ----------
    report
        What `gradlab.check` returned.

    Returns
    -------
    pandas.DataFrame
        One row per (output, input) block. ``shape`` is that of the input.
        ``worst_index`` is a tuple into the input; where the output has more than one
        entry, the output's index precedes it, so that the tuple indexes the Jacobian
        of shape outputs + inputs. ``analytic``, ``numeric``, ``numeric_error`` and
        ``step`` are the values at that entry (nan for an empty block), ``verdict``
        the name of the `Verdict`.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> blocks_table(report)[["input", "verdict", "worst_index"]].values.tolist()
    [['x', 'DISAGREES', (0,)]]
    """
    rows = [_block_row(comparison) for comparison in by_severity(report.comparisons)]
    return pd.DataFrame(rows, columns=_BLOCKS)


def entries_table(comparison: Comparison, k: int = 5) -> pd.DataFrame:
    """Tabulate the `k` worst entries of one block, worst first.

    Parameters
    ----------
    comparison
        The block.
    k
        Number of rows at most; default 5, as many as one reads.

    Returns
    -------
    pandas.DataFrame
        Columns ``label, output_index, input_index, analytic, numeric,
        numeric_error, error, relative_error, verdict``; indices are tuples.

    Raises
    ------
    InputError
        If `k` is negative.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> entries_table(report["x"], 2).input_index.tolist()
    [(0,), (1,)]
    """
    error, relative = comparison.error, comparison.relative_error
    rows = []
    for place in comparison.ranking(k):
        outer, inner = comparison.indices(*place)
        rows.append(
            {
                "label": comparison.label(*place),
                "output_index": outer,
                "input_index": inner,
                "analytic": _scalar(comparison.analytic[place]),
                "numeric": _scalar(comparison.numeric[place]),
                "numeric_error": float(comparison.numeric_error[place]),
                "error": float(error[place]),
                "relative_error": float(relative[place]),
                "verdict": Verdict(int(comparison.verdicts[place])).name,
            }
        )
    return pd.DataFrame(rows, columns=_ENTRIES)


def layers_table(audit: LayerAudit) -> pd.DataFrame:
    """Tabulate a layer audit in the order of execution.

    Parameters
    ----------
    audit
        What `gradlab.blame` returned.

    Returns
    -------
    pandas.DataFrame
        Columns ``name, type, call, state, error, bar, piece, reason, file, line``;
        ``error`` is the worst relative error of the layer's own vector-Jacobian
        product, nan where it was not checked.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> layers_table(SimpleNamespace(rows=())).columns[0]
    'name'
    """
    rows = [
        {name: getattr(row, name) for name in _LAYERS} | {"state": str(row.state)}
        for row in audit.rows
    ]
    return pd.DataFrame(rows, columns=_LAYERS)


def sweep_table(sweep: Sweep) -> pd.DataFrame:
    """Tabulate a sweep in long form: one row per input, method and step.

    Parameters
    ----------
    sweep
        What `gradlab.sweep` returned.

    Returns
    -------
    pandas.DataFrame
        Columns ``input, method, step, error, error_bar``: the worst relative error
        of the block at that step, and the error bar belonging to it, both relative.

    Examples
    --------
    >>> sweep = gl.sweep(lambda x: (x**2).sum(), np.ones(2), grad=lambda x: 2 * x)
    >>> sweep_table(sweep).columns.tolist()
    ['input', 'method', 'step', 'error', 'error_bar']
    """
    parts = [
        pd.DataFrame(
            {
                "input": name,
                "method": method,
                "step": sweep.steps,
                "error": sweep.errors[method, name],
                "error_bar": sweep.bars[method, name],
            }
        )
        for name in sweep.inputs
        for method in sweep.methods
    ]
    if not parts:
        return pd.DataFrame(columns=["input", "method", "step", "error", "error_bar"])
    return pd.concat(parts, ignore_index=True)
