"""Tables of the small results, as pandas DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gradlab.properties.remainders import TaylorTest

__all__ = ["rows_table", "taylor_table"]


def rows_table(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str]
) -> pd.DataFrame:
    """Make a table of rows; the columns are there even if there is no row.

    Examples
    --------
    >>> rows_table([], ["a", "b"]).shape
    (0, 2)
    """
    return pd.DataFrame(list(rows), columns=list(columns))


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
    return rows_table(rows, ["order", "step", "residual", "rate", "floor"])
