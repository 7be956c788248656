"""The relative error of an entry, and where it tells something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["RELATIVE_FLOOR", "relative_error", "told_error"]

# Below this fraction of the block's largest entry, a relative error says nothing.
RELATIVE_FLOOR = 1e-8


def relative_error(
    analytic: NDArray[Any], numeric: NDArray[Any], floor: float = 0.0
) -> NDArray[np.float64]:
    """Symmetric relative error ``|a - n| / (|a| + |n|)``, between 0 and 1.

    The measure of CS231n (notes on neural networks, part 3, "gradient checks"):
    a doubled gradient gives 1/3, a flipped sign 1, equal values 0.

    Parameters
    ----------
    analytic, numeric
        Arrays of the same shape.
    floor
        Smallest denominator, in the units of the derivative; 0 means none.

    Examples
    --------
    >>> float(relative_error(np.array(2.0), np.array(1.0)).round(3))
    0.333
    """
    with np.errstate(all="ignore"):
        difference = np.abs(analytic - numeric)
        size = np.maximum(np.abs(analytic) + np.abs(numeric), floor)
        return np.where(difference == 0, 0.0, difference / np.where(size == 0, 1, size))


def told_error(
    analytic: NDArray[Any],
    numeric: NDArray[Any],
    bars: NDArray[np.float64],
    allowed: NDArray[np.float64],
    verdicts: NDArray[np.int8],
    scale: float,
) -> NDArray[np.float64]:
    """Relative error of entries of one shape where it tells something, 0 elsewhere.

    It tells nothing of entries within their error bar of zero, and of those that agree
    beyond the tolerance, which was too small for them because either side is no better:
    rounded in single precision, a gradient of zero is off by all of itself.

    Entries that agree because the tolerance is larger than they are count by their
    error beside the block's largest entry: next to none for round-off, and what it is
    for a gradient that an `atol` of the user's covers as a whole.

    Parameters
    ----------
    analytic, numeric, bars, allowed, verdicts
        As in a `Comparison`.
    scale
        Largest numeric entry of the block, by size.

    Examples
    --------
    >>> a, n = np.array([-2.0, 0.0]), np.array([2.0, 1e-9])
    >>> bars, verdicts = np.full(2, 1e-12), np.zeros(2, np.int8)
    >>> told_error(a, n, bars, np.full(2, 5.0), verdicts, 2.0).tolist()
    [1.0, 5e-10]
    """
    relative = relative_error(analytic, numeric, RELATIVE_FLOOR * scale)
    beside = relative_error(analytic, numeric, scale)
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(analytic), np.abs(numeric))
        within = np.abs(analytic - numeric) <= allowed
        agrees = verdicts == Verdict.AGREES
        # `<=` is false of what is not finite, which is told
        zero = (size <= SAFETY * bars) & (verdicts != Verdict.DISAGREES)
    told = np.where(agrees & within & (size <= allowed), beside, relative)
    return np.where(zero | (agrees & ~within), 0.0, told)
