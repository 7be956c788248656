"""Which entries are the worst: what every view begins with, and every message shows.

By the excess alone the worst entry would not be the reddest of the picture where a
tolerance has an absolute part, since the excess then grows with the size of an entry;
by the relative error alone it would be one that is hardly beyond what is allowed. Of
entries that are equally wrong to two digits, as many as are shown, the largest is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.comparison.comparison import Comparison

__all__ = ["candidates", "scores"]

_CLEAR = 10  # an excess within this factor of the largest is as clear as that


def scores(comparison: Comparison) -> NDArray[np.float64]:
    """Score by which entries of one verdict are ranked, shape (m, n), no unit.

    The relative error of the clear ones, where it is told at all, above the excess of
    all others.

    Examples
    --------
    >>> wrong = np.array([2.0, 2.5, 1.0])
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: wrong)
    >>> scores(report["x"]).argsort()
    array([[0, 1, 2]])
    """
    excess = comparison.excess
    top = np.zeros(3)
    for verdict in Verdict:
        those = excess[comparison.verdicts == verdict]
        top[verdict] = those[np.isfinite(those)].max(initial=0.0)
    most = top[comparison.verdicts]
    relative = np.nan_to_num(comparison.told_error, nan=np.inf, posinf=np.inf)
    with np.errstate(invalid="ignore"):  # of 0 / 0, where no excess is above zero
        return np.where(excess >= most / _CLEAR, 1.0 + _short(relative), excess / most)


def _short(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round to two significant digits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = 10.0 ** (np.floor(np.log10(x)) - 1)
        return np.where((x > 0) & np.isfinite(x), np.round(x / unit) * unit, x)


def candidates(
    verdicts: NDArray[np.int8], score: NDArray[np.float64], k: int
) -> NDArray[np.intp]:
    """Positions among which the `k` worst are: sorting millions would take seconds.

    Examples
    --------
    >>> candidates(np.array([0, 2, 0], np.int8), np.array([1.0, 1.0, 3.0]), 2)
    array([1, 2])
    """
    count = verdicts.size
    if not 0 < k < count:
        return np.arange(count)
    last = np.partition(verdicts, count - k)[count - k]
    worse, edge = verdicts > last, verdicts == last
    rivals, wanted = score[edge], k - int(worse.sum())
    least = np.partition(rivals, rivals.size - wanted)[rivals.size - wanted]
    return np.flatnonzero(worse | (edge & (score >= least)))
