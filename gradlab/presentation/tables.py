"""Tables of what was compared, as pandas DataFrames, worst first."""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from gradlab.comparison.verdict import Verdict
from gradlab.presentation.views import by_severity, worst_entry, worst_relative

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gradlab.comparison.comparison import Comparison
    from gradlab.localisation.layers.audited import LayerAudit
    from gradlab.localisation.located import Located
    from gradlab.properties.remainders import TaylorTest
    from gradlab.report import Report
    from gradlab.sweeps import Sweep

__all__ = [
    "blocks_table",
    "entries_table",
    "fields_table",
    "layers_table",
    "located_table",
    "sweep_table",
    "taylor_table",
]

_BLOCKS = [
    *("output", "input", "shape", "verdict", "max_abs_error", "max_rel_error"),
    *("worst_index", "analytic", "numeric", "numeric_error"),
    *("step", "method", "coverage"),
]
_ENTRIES = [
    *("label", "output_index", "input_index", "analytic", "numeric"),
    *("numeric_error", "error", "relative_error", "verdict"),
]
_LOCATED = ["input", "index", "analytic", "numeric", "numeric_error"]
_WHERE = ["output", "output_index"]
_LAYERS = [
    *("name", "type", "call", "state", "error", "bar", "piece", "reason"),
    *("file", "line"),
]


def fields_table(records: Iterable[object], columns: Sequence[str]) -> pd.DataFrame:
    """Make a table of attributes of some objects; enumerations by their words.

    The columns are there even if there is no row.

    Examples
    --------
    >>> fields_table([], ["a", "b"]).shape
    (0, 2)
    """
    rows = ({name: _told(getattr(each, name)) for name in columns} for each in records)
    return _rows_table(rows, columns)


def _told(value: Any) -> Any:
    if isinstance(value, Verdict):
        return value.name
    return str(value) if isinstance(value, enum.Enum) else value


def _rows_table(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str]
) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(columns))


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
    # of what nobody looked at there is no error, not one of zero
    known = place is not None or not comparison.input.size
    return {
        "output": comparison.output.name,
        "input": comparison.input.name,
        "shape": comparison.input.shape,
        "verdict": comparison.verdict.name,
        "max_abs_error": comparison.max_abs_error if known else math.nan,
        "max_rel_error": worst_relative(comparison) if known else math.nan,
        "worst_index": index,
        **values,
        "method": comparison.method,
        "coverage": comparison.coverage,
    }


def blocks_table(report: Report) -> pd.DataFrame:
    """Tabulate the blocks of a report; see `gradlab.Report.table`.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> blocks_table(report)[["input", "verdict", "worst_index"]].values.tolist()
    [['x', 'DISAGREES', (0,)]]
    """
    rows = [_block_row(comparison) for comparison in by_severity(report.comparisons)]
    return _rows_table(rows, _BLOCKS)


def entries_table(comparison: Comparison, k: int) -> pd.DataFrame:
    """Tabulate the worst entries of one block; see `gradlab.Comparison.worst`.

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
    return _rows_table(rows, _ENTRIES)


def layers_table(audit: LayerAudit) -> pd.DataFrame:
    """Tabulate an audit; see `LayerAudit.table`.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> layers_table(SimpleNamespace(rows=())).columns[0]
    'name'
    """
    return fields_table(audit.rows, _LAYERS)


def sweep_table(sweep: Sweep) -> pd.DataFrame:
    """Tabulate a sweep in long form; see `gradlab.Sweep.table`.

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


def located_table(located: Located) -> pd.DataFrame:
    """Tabulate the wrong entries that were located; see `Located.table`.

    Examples
    --------
    >>> found = gl.locate(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: 2 * x)
    >>> located_table(found).shape
    (0, 5)
    """
    columns = _LOCATED if located.rows == 1 else _WHERE + _LOCATED
    return fields_table(located.entries, columns)


def taylor_table(test: TaylorTest) -> pd.DataFrame:
    """One row per order and step of a Taylor test.

    Examples
    --------
    >>> test = gl.taylor_test(np.sum, np.ones(3), grad=np.ones_like)
    >>> list(taylor_table(test).columns)
    ['order', 'step', 'residual', 'rate', 'floor']
    """
    rates = test.rates
    rows = [
        {
            "order": order,
            "step": float(step),
            "residual": float(residuals[i]),
            "rate": float(rates[order][i - 1]) if i else float("nan"),
            "floor": float(test.floors[i]),
        }
        for order, residuals in test.residuals.items()
        for i, step in enumerate(test.steps)
    ]
    return _rows_table(rows, ["order", "step", "residual", "rate", "floor"])
