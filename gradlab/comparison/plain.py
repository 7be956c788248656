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

from gradlab.comparison.tiling import bands
from gradlab.comparison.tolerance import CARE, SAFETY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.comparison.rule import Side

__all__ = ["agrees_plainly", "close_bars"]

_CLOSE = 2.0  # error bars; beyond five a gradient is wrong
_WIDE = 1e-3  # of an entry: what hides more would hide slips that people make
_WELL_INSIDE = 0.5  # of such a bar: there right gradients are, as good as always


def close_bars(
    value: NDArray[np.float64], error: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Say how many error bars an entry may be off by without a second look.

    Two, or half of one where five would hide a thousandth of it: another look has
    better steps.

    Examples
    --------
    >>> close_bars(np.ones(2), np.array([1e-5, 1e-3]))
    array([2. , 0.5])
    """
    with np.errstate(all="ignore"):
        wide = SAFETY * error > _WIDE * np.abs(value)
    return np.where(wide, _WELL_INSIDE, _CLOSE)


def agrees_plainly(
    analytic: NDArray[np.float64],
    side: Side,
    *,
    relative: float,
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

    Examples
    --------
    >>> from gradlab.comparison.rule import Side
    >>> ones, bars = np.ones((2, 2)), np.full((2, 2), 1e-10)
    >>> agrees_plainly(ones + 1e-8, Side(ones, bars), relative=1e-6)
    True
    >>> agrees_plainly(ones + 1e-5, Side(ones, bars), relative=1e-6)
    False
    """
    return all(
        _agrees(analytic[band], side.of(band), relative)
        for band in bands(analytic.shape)
    )


def _agrees(
    analytic: NDArray[np.float64],
    side: Side,
    relative: float,
) -> bool:
    """Whether some rows agree beyond doubt; what is no number never does."""
    with np.errstate(all="ignore"):
        size = np.abs(side.value)
        # no zeros: they are told by what else moves the output
        if not (SAFETY * side.error < CARE * size).all():
            return False
        gap = np.subtract(analytic, side.value)
        np.abs(gap, out=gap)
        if not (gap <= relative * size).all():
            near = close_bars(side.value, side.error) * side.error
            if not (gap <= np.maximum(relative * size, near)).all():
                return False
        # of two infinities, or of one, the distance is no number
        return bool(gap.max(initial=0.0) < np.inf)
