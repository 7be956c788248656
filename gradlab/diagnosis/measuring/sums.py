"""Sums over an axis that stand still: what softmax and normalisations leave behind."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["balanced_but_for", "steady_sums", "vanishing_blocks", "vanishing_sums"]

_LINES = 3  # whose sums are not all one multiple by chance
_NOTHING = 1e-6  # of all sizes: a sum that vanishes


def vanishing_sums(grid: NDArray[np.float64]) -> set[int]:
    """Axes of an input along which a gradient sums to zero.

    Parameters
    ----------
    grid
        From `Case.grid`, shape (rows, *shape of the input).
    """
    size = np.abs(grid).sum()
    return {
        axis
        for axis, length in enumerate(grid.shape[1:])
        if length > 1 and np.abs(grid.sum(axis=axis + 1)).sum() < _NOTHING * size
    }


def vanishing_blocks(grid: NDArray[np.float64]) -> list[tuple[int, ...]]:
    """Find groups of two axes or more over which a gradient sums to zero.

    As of channels that are normalised over their places, or over samples as well; the
    smallest groups come first.
    """
    size, axes = np.abs(grid).sum(), range(grid.ndim - 1)
    lengths = grid.shape[1:]
    return [
        group
        for count in range(2, grid.ndim)
        for group in itertools.combinations(axes, count)
        if min(lengths[axis] for axis in group) > 1
        if np.abs(grid.sum(axis=tuple(k + 1 for k in group))).sum() < _NOTHING * size
    ]


def balanced_but_for(
    gradient: NDArray[np.float64], point: NDArray[np.float64]
) -> tuple[int, float] | None:
    """Find an axis along which a gradient sums to zero but for a multiple of its input.

    The multiple is that of a penalty on it, which no loss of scores balances.

    Returns
    -------
    tuple or None
        The axis, and the multiple.
    """
    size = np.abs(gradient).sum()
    for axis in range(gradient.ndim):
        left, own = gradient.sum(axis=axis).ravel(), point.sum(axis=axis).ravel()
        below = float(own @ own)
        if left.size < _LINES or not below > 0:
            continue
        k = float(left @ own) / below
        if k and np.abs(left - k * own).sum() < _NOTHING * size:
            return axis, k
    return None


def steady_sums(grid: NDArray[np.float64]) -> set[int]:
    """Axes along which the gradient of all outputs together sums to one number.

    Weights that sum to one do so along one axis, whatever they multiply: those of a
    softmax in the gradient of logsumexp, of an average, of attention.
    """
    whole = grid.sum(axis=0)
    size = float(np.abs(whole).max(initial=0.0))
    if np.ptp(whole) < 1e-3 * size:
        return set()  # all alike: along every axis
    sums = {axis: whole.sum(axis=axis) for axis, n in enumerate(whole.shape) if n > 1}
    return {axis for axis, line in sums.items() if np.ptp(line) < 1e-6 * size}
