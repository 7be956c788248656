"""The entries of a matrix that is mostly zeros, row by row."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.sparse.support import Support

__all__ = ["Entries"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """What may be other than zero, as far as a pattern tells.

    Attributes
    ----------
    support
        Where they stand.
    value
        Of these entries, (rows, k).

    Examples
    --------
    >>> from gradlab.differentiation.sparse.support import Support
    >>> one = np.array([[1], [0]])
    >>> diagonal = Entries(Support(one, one >= 0, 3), np.array([[2.0], [3.0]]))
    >>> diagonal.matrix()
    array([[0., 2., 0.],
           [3., 0., 0.]])
    >>> diagonal.nonzero()
    (array([0, 1]), array([1, 0]))
    """

    support: Support
    value: NDArray[np.float64]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the whole matrix."""
        return self.support.shape

    def __len__(self) -> int:
        return len(self.value)

    def matrix(self) -> NDArray[np.float64]:
        """Make the whole matrix, (rows, n)."""
        whole = np.zeros(self.shape)
        self.support.put(self.value, whole)
        return whole

    def nonzero(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Row and column of every entry that is not zero."""
        columns = self.support.columns
        i, k = np.divmod(np.flatnonzero(self._there), max(columns.shape[1], 1))
        return i, columns[i, k]

    @property
    def count(self) -> int:
        """How many entries are not zero."""
        return int(np.count_nonzero(self._there))

    @property
    def _there(self) -> NDArray[np.bool_]:
        return np.asarray(self.support.valid & (self.value != 0))

    def laid_out_as(self, other: Support) -> NDArray[np.float64] | None:
        """Return the values where another support has its places; None if it lacks one.

        Examples
        --------
        >>> from gradlab.differentiation.sparse.support import Support
        >>> one = np.array([[1], [0]])
        >>> diagonal = Entries(Support(one, one >= 0, 3), np.array([[2.0], [3.0]]))
        >>> both = np.array([[0, 1], [0, 1]])
        >>> diagonal.laid_out_as(Support(both, both >= 0, 3))
        array([[0., 2.],
               [3., 0.]])
        """
        columns, valid = self.support.columns, self.support.valid
        if np.array_equal(columns, other.columns) and np.array_equal(
            valid, other.valid
        ):
            return self.value
        i, j = self.nonzero()
        own = i * self.support.width + j  # rising, as columns do in every row
        there = other.valid & np.isin(other.places(), own)
        if np.count_nonzero(there) != len(own):
            return None
        values = np.zeros(other.columns.shape)
        values[there] = self.value[self._there]
        return np.where(other.valid, values, values[:, :1])

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
        support = self.support
        terms = np.where(support.valid, weights[:, None] * self.value, 0.0).ravel()
        columns = support.columns.ravel()
        product = np.bincount(columns, terms, support.width)
        size = np.bincount(columns, np.abs(terms), support.width)
        return product.astype(np.float64), size.astype(np.float64)
