"""The entries of a matrix that is mostly zeros, row by row."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Entries"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """What may be other than zero, as far as a pattern tells.

    Attributes
    ----------
    columns
        Shape (rows, k); rows with fewer columns repeat one.
    valid
        False where a column is such a repetition, shape (rows, k).
    value
        Of these entries, (rows, k).
    width
        Columns of the whole matrix.

    Examples
    --------
    >>> one = np.array([[1], [0]])
    >>> diagonal = Entries(one, one >= 0, np.array([[2.0], [3.0]]), 3)
    >>> diagonal.matrix()
    array([[0., 2., 0.],
           [3., 0., 0.]])
    >>> diagonal.nonzero()
    (array([0, 1]), array([1, 0]))
    """

    columns: NDArray[np.intp]
    valid: NDArray[np.bool_]
    value: NDArray[np.float64]
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the whole matrix."""
        return len(self.columns), self.width

    def __len__(self) -> int:
        return len(self.columns)

    def matrix(self) -> NDArray[np.float64]:
        """Make the whole matrix, (rows, n)."""
        whole = np.zeros(self.shape)
        whole[np.arange(len(self))[:, None], self.columns] = self.value
        return whole

    def nonzero(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Row and column of every entry that is not zero."""
        i, k = np.divmod(
            np.flatnonzero(self.valid & (self.value != 0)),
            max(self.columns.shape[1], 1),
        )
        return i, self.columns[i, k]

    def laid_out_as(
        self, columns: NDArray[np.intp], valid: NDArray[np.bool_]
    ) -> NDArray[np.float64] | None:
        """Return the values where another pattern has its places; None if it lacks one.

        Examples
        --------
        >>> one = np.array([[1], [0]])
        >>> diagonal = Entries(one, one >= 0, np.array([[2.0], [3.0]]), 3)
        >>> both = np.array([[0, 1], [0, 1]])
        >>> diagonal.laid_out_as(both, both >= 0)
        array([[0., 2.],
               [3., 0.]])
        """
        if np.array_equal(self.columns, columns) and np.array_equal(self.valid, valid):
            return self.value
        i, j = self.nonzero()
        own = i * self.width + j  # rising, as columns do in every row
        asked = np.arange(len(self))[:, None] * self.width + columns
        there = valid & np.isin(asked, own)
        if np.count_nonzero(there) != len(own):
            return None
        values = np.zeros(columns.shape)
        values[there] = self.value[self.valid & (self.value != 0)]
        return np.where(valid, values, values[:, :1])

    def combined(
        self, weights: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Multiply a cotangent into the matrix; return it, and the same of sizes.

        Parameters
        ----------
        weights
            The cotangent, (rows,).

        Returns
        -------
        ndarray, ndarray
            The vector-Jacobian product, (n,), and the sum of the sizes of its terms.
        """
        terms = np.where(self.valid, weights[:, None] * self.value, 0.0).ravel()
        places = self.columns.ravel()
        product = np.bincount(places, terms, self.width)
        size = np.bincount(places, np.abs(terms), self.width)
        return product.astype(np.float64), size.astype(np.float64)
