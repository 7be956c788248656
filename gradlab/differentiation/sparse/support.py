"""Where a matrix that is mostly zeros may have something else, row by row."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

__all__ = ["Support", "bands", "listed"]

_BAND = 1 << 22  # places of a pattern, a byte each


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Support:
    """Columns that each row may have something in.

    Attributes
    ----------
    columns
        Shape (rows, k); rows with fewer columns repeat one.
    valid
        False where a column is such a repetition, shape (rows, k).
    width
        Columns of the whole matrix.

    Examples
    --------
    >>> one = np.array([[1], [0]])
    >>> support, whole = Support(one, one >= 0, 3), np.zeros((2, 3))
    >>> support.put(np.array([[2.0], [3.0]]), whole)
    >>> whole
    array([[0., 2., 0.],
           [3., 0., 0.]])
    """

    columns: NDArray[np.intp]
    valid: NDArray[np.bool_]
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the whole matrix."""
        return len(self.columns), self.width

    def put(self, values: NDArray[np.float64], whole: NDArray[np.float64]) -> None:
        """Put values of the entries, (rows, k), into their places in a matrix."""
        rows = np.arange(len(whole))[:, None]
        if not self.valid[:, :1].all():
            # of rows that depend on nothing, whatever stands there stays
            values = np.where(self.valid[:, :1], values, whole[rows, self.columns])
        whole[rows, self.columns] = values

    def places(self) -> NDArray[np.intp]:
        """Return the place of each entry in the flattened whole, (rows, k)."""
        return np.arange(len(self.columns))[:, None] * self.width + self.columns


def listed(
    pattern: Callable[[slice], NDArray[np.bool_]], rows: int, width: int
) -> Support:
    """List where a pattern has something.

    Parameters
    ----------
    pattern
        Makes some rows of it, shape (.., width).
    rows, width
        Shape of the whole.

    Examples
    --------
    >>> whole = np.array([[True, True], [False, True]])
    >>> found = listed(whole.__getitem__, 2, 2)
    >>> found.columns.tolist(), found.valid.tolist()
    ([[0, 1], [1, 1]], [[True, True], [True, False]])
    """
    # several times as fast as indices of two axes
    found = [
        np.flatnonzero(pattern(band)) + band.start * width
        for band in bands(rows, width)
    ] or [np.zeros(0, dtype=np.intp)]
    i, j = np.divmod(np.concatenate(found), max(width, 1))
    counts = np.bincount(i, minlength=rows)
    most = max(int(counts.max(initial=0)), min(width, 1))
    if len(i) == most * rows:  # as many in each
        return Support(j.reshape(rows, most), np.ones((rows, most), dtype=bool), width)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    valid = np.arange(most) < counts[:, None]
    columns = np.zeros((rows, most), dtype=np.intp)
    columns[i, np.arange(len(i)) - first[i]] = j
    return Support(np.where(valid, columns, columns[:, :1]), valid, width)


def bands(rows: int, width: int) -> Iterator[slice]:
    """Rows of a pattern, as many at a time as are no burden to memory."""
    height = max(1, _BAND // max(width, 1))
    for start in range(0, rows, height):
        yield slice(start, min(start + height, rows))
