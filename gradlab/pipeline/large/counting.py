"""The entries of a block laid side by side, as they are counted: complex ones whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.tally import Packed
from gradlab.comparison.tolerance import SAFETY

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Zeros = Callable[[NDArray[np.intp], NDArray[np.intp]], NDArray[np.float64]]

__all__ = ["caught_anywhere", "in_pairs"]


def caught_anywhere(
    bars: Zeros, forgiven: Zeros, scales: NDArray[np.float64], rows: int
) -> NDArray[np.float64]:
    """Error of a zero of each row that would have been caught in any column, (rows,).

    Parameters
    ----------
    bars, forgiven
        As of `Packed`; both fall as the scale of the column grows.
    scales
        Of the columns, (n,).
    """
    every, narrowest = np.arange(rows), np.full(rows, np.argmin(scales))
    return np.maximum(2 * forgiven(every, narrowest), SAFETY * bars(every, narrowest))


def in_pairs(halves: Packed) -> Packed:
    """Join the real and the imaginary parts of entries that stand next to each other.

    Parameters
    ----------
    halves
        Of real coordinates, the columns of each row rising; of `left_out`, both
        halves of every entry.

    Examples
    --------
    >>> four = np.array([[0, 1, 5]])
    >>> def nothing(i, j):
    ...     return np.zeros(np.broadcast(i, j).shape)
    >>> halves = Packed(
    ...     columns=four,
    ...     valid=four >= 0,
    ...     analytic=np.array([[3.0, 4.0, 2.0]]),
    ...     numeric=np.array([[3.0, 4.0, 2.0]]),
    ...     numeric_error=np.zeros((1, 3)),
    ...     allowed=np.zeros((1, 3)),
    ...     verdicts=np.zeros((1, 3), dtype=np.int8),
    ...     bars=nothing,
    ...     forgiven=nothing,
    ...     caught=np.zeros(1),
    ...     left_out=np.array([], dtype=int),
    ... )
    >>> whole = in_pairs(halves)
    >>> whole.columns.tolist(), whole.analytic.tolist()
    ([[0, 2]], [[(3+4j), 2j]])
    """
    entry, half = np.divmod(halves.columns, 2)
    rows, k = entry.shape
    number = np.zeros((rows, k), dtype=np.intp)
    np.cumsum(entry[:, 1:] != entry[:, :-1], axis=1, out=number[:, 1:])
    most = int(number.max(initial=-1)) + 1
    i = np.arange(rows)[:, None]
    columns, valid = np.repeat(entry[:, :1], most, axis=1), np.zeros((rows, most), bool)
    columns[i, number] = entry
    np.logical_or.at(valid, (i, number), halves.valid)

    def spread(values: NDArray[Any], zeros: Zeros | None) -> NDArray[Any]:
        whole = np.zeros((rows, most, 2), dtype=values.dtype)
        if zeros is not None:
            for part in (0, 1):
                whole[:, :, part] = zeros(i, 2 * columns + part)
        whole[i, number, half] = values
        # what is no entry repeats another
        return np.where(valid[:, :, None], whole, whole[:, :1])

    def number_of(values: NDArray[np.float64]) -> NDArray[np.complex128]:
        return spread(values, None).view(np.complex128)[:, :, 0]

    def size_of(zeros: Zeros) -> Zeros:
        return lambda i, j: np.hypot(zeros(i, 2 * j), zeros(i, 2 * j + 1))

    def hypot(values: NDArray[np.float64], zeros: Zeros) -> NDArray[np.float64]:
        both = spread(values, zeros)
        return np.asarray(np.hypot(both[:, :, 0], both[:, :, 1]))

    return Packed(
        columns=columns,
        valid=valid,
        analytic=number_of(halves.analytic),
        numeric=number_of(halves.numeric),
        numeric_error=hypot(halves.numeric_error, halves.bars),
        allowed=hypot(halves.allowed, halves.forgiven),
        verdicts=spread(halves.verdicts, None).max(axis=2, initial=0),
        bars=size_of(halves.bars),
        forgiven=size_of(halves.forgiven),
        caught=np.sqrt(2) * halves.caught,
        left_out=halves.left_out[::2] // 2,
    )
