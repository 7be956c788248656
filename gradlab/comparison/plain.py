"""Blocks that agree by so much that no rule needs to be asked.

Of a right gradient of a smooth function nearly every entry is within a millionth of
itself or two of its error bars, and those bars are a small part of it. That takes a
dozen passes over a block to see, where a verdict and the question who deserves a second
look take sixty. Nothing is decided here that `judge` would decide otherwise: what is
asked is more than it asks, of every entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.rule import CARE
from gradlab.comparison.tiling import bands
from gradlab.comparison.tolerance import SAFETY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.comparison.rule import Side

__all__ = ["agrees_plainly"]


def agrees_plainly(
    analytic: NDArray[np.float64],
    side: Side,
    *,
    relative: float,
    close: float,
) -> bool:
    """Whether every entry agrees beyond doubt, and is known well enough to tell.

    Parameters
    ----------
    analytic
        Shape (m, n).
    side
        Numeric values and error bars.
    relative
        By how much of itself an entry may be off in any case.
    close
        Error bars that it may be off by without a second look.

    Examples
    --------
    >>> from gradlab.comparison.rule import Side
    >>> ones, bars = np.ones((2, 2)), np.full((2, 2), 1e-10)
    >>> agrees_plainly(ones + 1e-8, Side(ones, bars), relative=1e-6, close=2)
    True
    >>> agrees_plainly(ones + 1e-5, Side(ones, bars), relative=1e-6, close=2)
    False
    """
    return all(
        _agrees(analytic[band], side.of(band), relative, close)
        for band in bands(analytic.shape)
    )


def _agrees(
    analytic: NDArray[np.float64],
    side: Side,
    relative: float,
    close: float,
) -> bool:
    """Whether some rows agree beyond doubt; what is no number never does."""
    with np.errstate(all="ignore"):
        size = np.abs(side.value)
        # no zeros: they are told by what else moves the output
        if not (SAFETY * side.error < CARE * size).all():
            return False
        gap = np.subtract(analytic, side.value)
        np.abs(gap, out=gap)
        if not (gap <= np.maximum(relative * size, close * side.error)).all():
            return False
        # of two infinities, or of one, the distance is no number
        return bool(gap.max(initial=0.0) < np.inf)
