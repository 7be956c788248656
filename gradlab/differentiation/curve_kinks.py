"""Where a curve of error against step leaps: a kink at a distance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["kink_distance"]

_WINDOW = 6  # steps after a leap, of which one may come back


def kink_distance(
    steps: NDArray[np.float64], errors: NDArray[np.float64], order: int = 2
) -> tuple[int, float]:
    """Find the step at which the error leaps and does not come back.

    A kink at distance d is invisible to steps below d; beyond, the quotient is off by
    ``A (1 - d/h)``, from which d is found to a few percent.

    Parameters
    ----------
    steps, errors
        The curve, finite, ascending in step.
    order
        Order of the method: a faster rise than ``h**(order + 2)`` is a leap.

    Returns
    -------
    int
        Number of the last step before the leap; the last of all if there is none.
    float
        The distance, nan if there is none.

    Examples
    --------
    >>> h = 10.0 ** np.arange(-10, 0, 0.25)
    >>> error = 1e-12 / h + np.where(h > 3e-4, 0.5 * (1 - 3e-4 / h), 0)
    >>> f"{kink_distance(h, error)[1]:.1e}"
    '3.0e-04'
    """
    last = steps.size - 1
    for s in range(1, last - 1):
        before = max(float(errors[s - 1]), float(errors[s]))
        ratio = float(steps[s + 1] / steps[s])
        threshold = 3 * ratio ** (order + 2) * max(before, 1e-15)
        after = errors[s + 1 :]
        # one crossing far out is no way back
        least = np.partition(after, 1)[1] if after.size > _WINDOW else after.min()
        if after[0] < threshold or least < max(10 * before, 0.2 * after[0]):
            continue
        if after[0] < 1e-7:  # a step that small a rounding error makes as well
            continue
        return s, _distance(steps[s:], errors[s:])
    return last, float("nan")


def _distance(steps: NDArray[np.float64], errors: NDArray[np.float64]) -> float:
    """Solve ``e(h) = A (1 - d/h)`` for d, from the steps after the first.

    A symmetric relative error e belongs to a quotient that is off by ``2e/(1-e)`` if
    the kink made it larger, by ``2e/(1+e)`` if smaller: the law that fits the third
    point best is taken.
    """
    low, h1, h2 = (float(h) for h in steps[:3])
    middle = float(np.sqrt(low * h1))
    best, misfit = middle, np.inf
    with np.errstate(all="ignore"):
        for law in (2 * errors / (1 - errors), 2 * errors / (1 + errors)):
            e1, e2 = float(law[1]), float(law[2])
            bottom = e1 / h2 - e2 / h1
            distance = (e1 - e2) / bottom if bottom != 0 else 0.0
            if not 0.8 * low <= distance <= 1.2 * h1:
                continue
            height = e2 / (1 - distance / h2)
            apart = 0.0
            if steps.size > 3:
                expected = height * (1 - distance / float(steps[3]))
                apart = abs(float(law[3]) / expected - 1)
            if apart < misfit:
                best, misfit = float(distance), apart
    return best
