"""Wrong entries as a pandas DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from gradlab.localisation.located import Located

__all__ = ["located_table"]

_COLUMNS = ["input", "index", "analytic", "numeric", "numeric_error"]
_WHERE = ["output", "output_index"]


def located_table(located: Located) -> pd.DataFrame:
    """Tabulate the wrong entries that were located, largest effect first.

    Parameters
    ----------
    located
        What `gradlab.locate` returned.

    Returns
    -------
    pandas.DataFrame
        Columns ``input, index, analytic, numeric, numeric_error``, preceded by
        ``output, output_index`` where the function has several output rows; empty,
        with the same columns, if nothing is wrong. Indices are tuples.

    Examples
    --------
    >>> found = gl.locate(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: 2 * x)
    >>> located_table(found).shape
    (0, 5)
    """
    columns = _COLUMNS if located.rows == 1 else _WHERE + _COLUMNS
    rows: list[dict[str, Any]] = [
        {name: getattr(entry, name) for name in columns} for entry in located.entries
    ]
    return pd.DataFrame(rows, columns=columns)
