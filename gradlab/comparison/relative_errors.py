"""The relative error of an entry, and where it tells something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["RELATIVE_FLOOR", "relative_error", "stands_out"]

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


def stands_out(
    analytic: NDArray[Any],
    numeric: NDArray[Any],
    bars: NDArray[np.float64],
    allowed: NDArray[np.float64],
    verdicts: NDArray[np.int8],
) -> NDArray[np.bool_]:
    """Entries whose relative error tells something, of arrays of one shape.

    Left out are entries within their error bar of zero, and of those that agree the
    ones that the tolerance is larger than, and the ones that it was too small for
    because either side is no better: rounded in single precision, a gradient of zero is
    off by all of itself.
    """
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(analytic), np.abs(numeric))
        # of those that agree; without a number too, where there can be none
        passed = ~((np.abs(analytic - numeric) <= allowed) & (size > allowed))
        passed &= verdicts == Verdict.AGREES
        # `not <=` keeps entries that are not finite
        told = ~(size <= SAFETY * bars) & ~passed
    return np.asarray(told | (verdicts == Verdict.DISAGREES))
