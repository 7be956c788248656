"""Columns that no row sees together get one colour.

The pattern is a product: row i may depend on coordinate j if it may depend on every
index of j, axis by axis. Then colours can be found axis by axis as well: index c gets
c modulo p, with the smallest p that tells apart all indices seen by any one row. Two
different coordinates of one colour differ along some axis, there by a multiple of p,
and no row sees both. For the three-point stencils of a convolution this is three per
axis, which is optimal, and for an elementwise function one in all.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.sparse.support import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.sparse.entries import Entries
    from gradlab.differentiation.sparse.support import Support

__all__ = [
    "Colouring",
    "colouring_of",
    "smallest_period",
]


@dataclasses.dataclass(frozen=True, eq=False)
class Colouring:
    """A product pattern and colours for its columns.

    Attributes
    ----------
    touched
        Per axis: whether a row may depend on an index, shape (size, rows).
    axes
        Per axis: index of every column, shape (n,).
    colours
        Of each column, shape (n,); from 0 to `count` - 1, all of them used.
    count
        Number of colours.
    known
        Where the pattern has something, if that has been listed.
    """

    touched: Sequence[NDArray[np.bool_]]
    axes: Sequence[NDArray[np.intp]]
    colours: NDArray[np.intp]
    count: int
    known: Support | None = None

    def rows(self, some: slice | NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether entries of some rows may be other than zero, shape (.., n)."""
        pairs = zip(self.touched, self.axes, strict=True)
        # whole rows of what is turned: twice as fast as single columns
        each = (may[:, some][axis] for may, axis in pairs)
        return np.ascontiguousarray(functools.reduce(np.logical_and, each).T)

    @functools.cached_property
    def support(self) -> Support:
        """The same pattern, as the columns of each row."""
        if self.known is not None:
            return self.known
        return listed(self.rows, self.touched[0].shape[1], len(self.colours))


def colouring_of(
    touched: Sequence[NDArray[np.bool_]],
    axes: Sequence[NDArray[np.intp]],
    known: Entries | None = None,
) -> Colouring:
    """Colour the columns of a product pattern.

    Parameters
    ----------
    touched
        Per axis: whether a row may depend on an index, shape (size, rows).
    axes
        Per axis: index of every column, shape (n,).
    known
        Entries inside the pattern; they may be all there are.

    Examples
    --------
    >>> found = colouring_of([np.eye(3, dtype=bool)], [np.arange(3)])
    >>> found.count, found.colours.tolist()
    (1, [0, 0, 0])
    """
    colours = np.zeros(len(axes[0]), dtype=np.intp)
    for may, axis in zip(touched, axes, strict=True):
        period = smallest_period(may)
        colours = colours * period + axis % period
    used = np.bincount(colours) > 0
    numbers = np.cumsum(used) - 1  # without those that are not used
    if known is not None:
        places = np.prod([may.sum(axis=0) for may in touched], axis=0).sum()
        if not known.support.valid.sum() == places == known.count:
            known = None
    support = None if known is None else known.support
    return Colouring(touched, axes, numbers[colours], int(numbers[-1]) + 1, support)


def smallest_period(may: NDArray[np.bool_]) -> int:
    """Smallest p such that no row sees two indices that are equal modulo p.

    Parameters
    ----------
    may
        Whether a row may depend on an index, shape (size, rows).

    Examples
    --------
    >>> stencil = np.abs(np.subtract.outer(np.arange(8), np.arange(8))) <= 1
    >>> smallest_period(stencil)
    3
    """
    size = len(may)
    most = int(may.sum(axis=0).max(initial=0))
    if most <= 1:
        return min(1, size)
    for period in range(most, size):
        folded = np.zeros((-(-size // period) * period, may.shape[1]), dtype=np.int16)
        folded[:size] = may
        counts = folded.reshape(-1, period, may.shape[1]).sum(axis=0)
        if counts.max(initial=0) <= 1:
            return period
    return size
