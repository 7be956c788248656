"""Large matrices in bands of rows that stay in the processor's cache.

A verdict takes some thirty passes over a block. Over all of a large block at once each
pass fetches it from memory anew; band by band the passes cost a fraction of that, and
nothing changes in the numbers, since every rule looks at one row at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["bands", "cut"]

_ENTRIES = 1 << 14  # of one band: a dozen temporaries of 128 KiB fit a second cache


def bands(shape: tuple[int, int]) -> Iterator[slice]:
    """Rows of a matrix, a band at a time.

    Examples
    --------
    >>> [(band.start, band.stop) for band in bands((5, 1 << 13))]
    [(0, 2), (2, 4), (4, 5)]
    """
    rows, columns = shape
    height = max(1, _ENTRIES // max(columns, 1))
    for start in range(0, rows, height):
        yield slice(start, min(start + height, rows))


def cut(
    values: NDArray[np.float64] | float, band: slice
) -> NDArray[np.float64] | float:
    """Rows of something that has one value per entry, one per row, or one at all.

    Examples
    --------
    >>> cut(np.arange(4.0)[:, None], slice(1, 3)).tolist(), cut(2.0, slice(1, 3))
    ([[1.0], [2.0]], 2.0)
    """
    return values[band] if isinstance(values, np.ndarray) and values.ndim else values
