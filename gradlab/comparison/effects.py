"""How far outputs move when coordinates do: what matters to each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tiling import bands
from gradlab.comparison.tolerance import SAFETY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.comparison.rule import Side

__all__ = ["scales_in", "sensitivity", "typical_effect"]


def sensitivity(side: Side, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much each output can change when one coordinate moves by its own size.

    Only entries that stand out of their error bar count.

    Parameters
    ----------
    side
        Values and bars, shape (m, n).
    sizes
        Of each coordinate, (n,), or of that behind each entry, (m, n); see `Units`.

    Returns
    -------
    ndarray
        Shape (m, 1).
    """
    largest = np.zeros((len(side.value), 1))
    with np.errstate(all="ignore"):
        for band in bands(side.value.shape):
            size = np.abs(side.value[band])
            told = (size < np.inf) & (size > SAFETY * side.error[band])
            size *= scales_in(sizes, band)
            # several times as fast as a maximum that is told where to look
            largest[band, 0] = np.where(told, size, 0.0).max(axis=1, initial=0.0)
    # an effect beyond all numbers would excuse every difference: the largest there is
    return np.minimum(largest, np.finfo(np.float64).max)


def typical_effect(
    side: Side,
    scales: NDArray[np.float64],
    sizes: NDArray[np.float64],
    height: NDArray[np.float64],
) -> NDArray[np.float64]:
    """How much each output can change when one coordinate moves as its input does.

    An entry that is tiny by accident moves with the others, by its scale. Where that
    would move f by more than f is, another unit may be meant: then it counts with f,
    or with its own size where that moves f by more. What each tells is the middle one
    of the three.

    Parameters
    ----------
    side, scales, sizes
        As of `Units`.
    height
        Size of f, (m, 1).
    """
    far = sensitivity(side, scales)
    if sizes is scales:
        return far
    with np.errstate(all="ignore"):
        reach = np.fmax(sensitivity(side, sizes), np.abs(height))
    # the same as of each coordinate by itself: height is one number for all of them
    return np.asarray(np.fmin(far, reach))


def scales_in(scales: NDArray[np.float64], band: slice) -> NDArray[np.float64]:
    """Scales of some rows: the same for all, unless every entry has its own."""
    return scales if scales.ndim == 1 else scales[band]
