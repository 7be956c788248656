"""What an analytic slope is held against at a kink: any slope between both sides."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.rule import Side

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Sides", "nearest_slope", "told_apart"]

_SETTLED = 0.002  # of a gap that is told: outside it, so much settles it
_FINEST = 1e-9  # of the gap: one-sided slopes are known no better
_BARS = 4.0  # of both sides together: an extrapolation to one side is a rough one


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Sides:
    """One-sided slopes of some entries, arrays of one shape."""

    left: NDArray[np.float64]
    right: NDArray[np.float64]


def nearest_slope(
    analytic: NDArray[np.float64],
    measured: Side,
    sides: Sides,
    kink: NDArray[np.bool_],
    *,
    beside: NDArray[np.float64] | float = 0.0,
) -> Side:
    """Return what entries are held against, where some of them stand at a kink.

    Parameters
    ----------
    analytic
        Any shape; the other arrays have the same.
    measured
        Means of both slopes at a kink, and bars that cover both.
    sides
        One-sided slopes.
    kink
        Where there is one.
    beside
        How far from the point the kink may be, as a share of the step: by as much of
        the gap one-sided slopes may be off. Default at the point itself.

    Returns
    -------
    Side
        At a kink the slope between both sides that is nearest to the analytic one. An
        analytic slope between them has no error; one outside is as wrong as it is far
        from them, give or take what the bar holds beyond the gap.

    Examples
    --------
    >>> mean, bar = np.array([0.5, 0.5]), np.array([0.5, 0.5])
    >>> slopes = Sides(np.zeros(2), np.ones(2))
    >>> told = np.array([0.3, 1.5])
    >>> nearest_slope(told, Side(mean, bar), slopes, np.ones(2, bool)).value.tolist()
    [0.3, 1.0]
    """
    with np.errstate(all="ignore"):
        low = np.fmin(sides.left, sides.right)
        high = np.fmax(sides.left, sides.right)
        gap = high - low
        between = np.clip(analytic, low, high)
        beyond = measured.error - gap / 2  # how well each side is known
        known = np.fmax(_BARS * beyond, _FINEST * gap)
        farther = np.where(np.greater(beside, 0), np.fmax(beyond, beside * gap), 0.0)
        known, enough = np.fmax(known, farther), np.fmax(_SETTLED * gap, farther)
        settled = np.where(told_apart(sides, measured.error), enough, np.inf)
        bar = np.fmin(np.minimum(measured.error, settled), known)
        bar = np.where(between == analytic, 0.0, bar)
    inside = kink & np.isfinite(between)
    return Side(
        np.where(inside, between, measured.value),
        np.where(inside, bar, measured.error),
    )


def told_apart(sides: Sides, error: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether one-sided slopes differ by more than what they are known to.

    Where they do not there may be no kink at all: noise makes slopes differ as well.

    Parameters
    ----------
    sides
        One-sided slopes.
    error
        Bars that cover both, of the same shape.

    Examples
    --------
    >>> slopes = Sides(np.array([0.0]), np.array([1.0]))
    >>> told_apart(slopes, np.array([0.6])), told_apart(slopes, np.array([2.0]))
    (array([ True]), array([False]))
    """
    with np.errstate(all="ignore"):  # slopes may be infinite
        gap = np.abs(sides.right - sides.left)
        return np.asarray(error - gap / 2 < gap)
