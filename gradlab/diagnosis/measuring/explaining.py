"""How much of an error a model explains: of its length, and entry by entry.

One entry that is many decades larger than the others is nearly all of the length of an
error. What explains that one alone is no rule of the others, so both are asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.diagnosis.measuring.measures import Case

    Matrix = NDArray[np.float64]

__all__ = ["EVEN", "EXACT", "REST", "accounted", "by_entries", "left_over"]

EXACT = 0.98  # share of the error above which an explanation is called exact
_NOTHING = 1e-9  # relative: what is zero beside the other side
_ROUND = 1e-5  # the same of a zero, of which a model that is no zero leaves noise
REST = 0.1  # of the error of an entry, or of one that is right: left by a model
EVEN = 1e-3  # the same of a factor, which is told as a number


def left_over(analytic: Matrix, model: Matrix, tolerance: Matrix) -> Matrix:
    """Return what a model leaves of the analytic side, beyond its tolerance."""
    with np.errstate(all="ignore"):
        left = analytic - model
        np.abs(left, out=left)
        left -= tolerance
        return np.asarray(np.maximum(left, 0.0, out=left))


def accounted(left: Matrix, total: float) -> float:
    """Return the share of an error of norm `total` that is not `left`; of nan none."""
    share = 1.0 - float(np.linalg.norm(left)) / total
    return max(0.0, share) if np.isfinite(share) else 0.0


def by_entries(
    case: Case, share: float, model: Matrix, where: NDArray[np.bool_], rest: float
) -> float:
    """Lower a share where it is that of a few large entries, and of no others."""
    if not share > EXACT:
        return share
    sides = case.analytic[where], case.numeric[where]
    slack = case.slack(np.maximum(np.abs(case.analytic), np.abs(case.numeric)))[where]
    met = _explained(sides, case.wrong[where], model[where], slack, rest)
    return share if met > EXACT else min(share, met)


def _explained(
    sides: tuple[Matrix, Matrix],
    wrong: NDArray[np.bool_],
    model: Matrix,
    slack: Matrix,
    rest: float = REST,
) -> float:
    """Return the share of entries that a model explains, each by its own size.

    Of those that are wrong, and of those that are right and that the model spoils.

    Parameters
    ----------
    sides
        The analytic and the numeric side.
    slack
        By how much an entry may be off for noise alone.
    rest
        What may be left of an entry besides, as a part of it.

    Examples
    --------
    A half is the factor of the large entry alone:

    >>> a, n = np.array([5e7, 1.0, 2.0, 3.0]), np.array([1e8, 3.0, 1.0, 3.0])
    >>> _explained((a, n), a != n, n / 2, np.zeros(4))
    0.25
    """
    analytic, numeric = sides
    with np.errstate(all="ignore"):
        left = np.abs(analytic - model)
        sizes = np.abs(analytic), np.abs(numeric)
        # a zero explains 97 % of an error of which 3 % is the analytic value
        nothing = np.where((analytic == 0) & (model != 0), _ROUND, _NOTHING)
        least = np.maximum(sizes[0], nothing * sizes[1])
        size = np.minimum(np.abs(analytic - numeric), least)
        noise = np.where(wrong, np.minimum(slack, size / 4), slack)
        size = np.where(wrong, size, np.maximum(*sizes))
        met = left <= noise + rest * size
    counted = wrong | ~met
    return float(met[counted].mean()) if counted.any() else 1.0
