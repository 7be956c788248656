"""Which output rows are wrong in columns that are: no further evaluation of f.

One difference along a coordinate gives the numeric derivative of every output at once.
The analytic side has to be asked row by row, or, where there are many, by halving: a
cotangent that lives on half of the rows tells whether the error is in that half.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.localisation.searching.bench import ROUNDOFFS
from gradlab.localisation.searching.columns import apart, scale_of
from gradlab.subject.subject import input_columns, unit_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from gradlab.localisation.searching.bench import Bench
    from gradlab.localisation.searching.columns import Column

__all__ = ["Cell", "wrong_cells"]

_ALL = 128  # up to this many rows are simply read out
_NUMBERS = 4_000_000  # gradient entries held at a time


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """One real entry of the Jacobian; `row` is -1 for a combination of all rows."""

    row: int
    analytic: float
    numeric: float
    error: float
    wrong: bool


Place = tuple[int, int]  # input, coordinate


def wrong_cells(
    bench: Bench, columns: Mapping[Place, Column], limit: int
) -> dict[Place, list[Cell]]:
    """Find the wrong rows of every column.

    Parameters
    ----------
    columns
        Wrong columns by (input, coordinate).
    limit
        Most rows to read out one by one.

    Returns
    -------
    dict
        For every column at least one cell; the same rows for the two columns of a
        complex entry, so that they can be joined.
    """
    if len(bench.base) == 1:
        return {
            place: [Cell(0, c.analytic, c.expected, c.bar, c.wrong)]
            for place, c in columns.items()
        }
    rows = np.flatnonzero(bench.cotangent != 0)
    if len(rows) > _ALL:
        rows = _suspicious_rows(bench, columns, rows)[:limit]
    cells = _read(bench, columns, rows)
    bad = {
        (*_entry_of(bench, place), cell.row)
        for place, found in cells.items()
        for cell in found
        if cell.wrong
    }
    result: dict[Place, list[Cell]] = {}
    for place, column in columns.items():
        entry = _entry_of(bench, place)
        result[place] = [c for c in cells[place] if (*entry, c.row) in bad] or [
            # wrong for the cotangent it was found with, and for no single row
            Cell(-1, column.analytic, column.expected, column.bar, wrong=column.wrong)
        ]
    return result


def _entry_of(bench: Bench, place: Place) -> Place:
    """Input and entry that a coordinate belongs to."""
    which, position = place
    return which, bench.subject.inputs[which].entry_of(position)


def _pull(
    bench: Bench, cotangents: NDArray[np.float64], places: Sequence[Place]
) -> tuple[NDArray[np.float64], dict[int, list[float]]]:
    """Analytic values at some places, (cotangents, places), and scales by input."""
    width = input_columns(bench.subject.inputs)
    chunk = max(1, _NUMBERS // max(1, width))
    values = np.empty((len(cotangents), len(places)))
    scales: dict[int, list[float]] = {which: [] for which, _ in places}
    for start in range(0, len(cotangents), chunk):
        part = slice(start, start + chunk)
        pulled = bench.pulled(cotangents[part]).values
        for j, (which, position) in enumerate(places):
            values[part, j] = pulled[which][:, position]
        for which in scales:
            scales[which] += map(scale_of, pulled[which])
    return values, scales


def _suspicious_rows(
    bench: Bench, columns: Mapping[Place, Column], rows: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Halve the rows until those in which any column is wrong stand alone."""
    places = list(columns)
    numeric = np.array([columns[p].numeric for p in places])  # (places, rows)
    errors = np.array([columns[p].error for p in places])
    epsilon = np.array([bench.analytic_epsilon(which) for which, _ in places])
    ranges, found = [rows], []
    while ranges:
        cotangents = np.zeros((len(ranges), len(bench.base)))
        for i, part in enumerate(ranges):
            cotangents[i, part] = bench.cotangent[part]
        values, _ = _pull(bench, cotangents, places)
        following = []
        for i, part in enumerate(ranges):
            weights = bench.cotangent[part]
            with np.errstate(all="ignore"):
                expected = numeric[:, part] @ weights
                bar = errors[:, part] @ np.abs(weights)
                size = np.abs(numeric[:, part]) @ np.abs(weights)
                bound = SAFETY * bar + ROUNDOFFS * epsilon * size
                clean = np.abs(values[i] - expected) <= bound
            if clean.all():
                continue
            if len(part) == 1:
                found.append(int(part[0]))
            else:
                middle = len(part) // 2
                following += [part[:middle], part[middle:]]
        ranges = following
    return np.array(sorted(found), dtype=np.intp)


def _read(
    bench: Bench, columns: Mapping[Place, Column], rows: NDArray[np.intp]
) -> dict[Place, list[Cell]]:
    """Compare the chosen rows one by one."""
    places = list(columns)
    cotangents = unit_vectors(len(bench.base), rows)
    values, scales = _pull(bench, cotangents, places)
    cells: dict[Place, list[Cell]] = {place: [] for place in places}
    for i, row in enumerate(rows.tolist()):
        for j, place in enumerate(places):
            which = place[0]
            analytic = float(values[i, j])
            numeric = float(columns[place].numeric[row])
            error = float(columns[place].error[row])
            allowed = bench.allowed(which, analytic, numeric, scales[which][i])
            wrong = apart(analytic, numeric, SAFETY * error) and apart(
                analytic, numeric, allowed
            )
            cells[place].append(Cell(row, analytic, numeric, error, wrong))
    return cells
