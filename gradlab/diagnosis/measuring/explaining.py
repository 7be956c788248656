"""How much of an error a model explains: of its length, and entry by entry.

One entry that is many decades larger than the others is nearly all of the length of an
error. What explains that one alone is no rule of the others, so both are asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

__all__ = ["accounted", "entries_explained", "left_over"]

_NOTHING = 1e-9  # relative: what is zero beside the other side
_REST = 0.1  # of the error of an entry, or of one that is right: what may be left of it


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


def entries_explained(
    sides: tuple[Matrix, Matrix],
    wrong: NDArray[np.bool_],
    model: Matrix,
    slack: Matrix,
) -> float:
    """Return the share of entries that a model explains, each by its own size.

    Of those that are wrong, and of those that are right and that the model spoils.

    Parameters
    ----------
    sides
        The analytic and the numeric side.
    slack
        By how much an entry may be off for noise alone.

    Examples
    --------
    A half is the factor of the large entry alone:

    >>> a, n = np.array([5e7, 1.0, 2.0, 3.0]), np.array([1e8, 3.0, 1.0, 3.0])
    >>> entries_explained((a, n), a != n, n / 2, np.zeros(4))
    0.25
    """
    analytic, numeric = sides
    with np.errstate(all="ignore"):
        left = np.abs(analytic - model)
        sizes = np.abs(analytic), np.abs(numeric)
        # a zero explains 97 % of an error of which 3 % is the analytic value
        least = np.maximum(sizes[0], _NOTHING * sizes[1])
        size = np.minimum(np.abs(analytic - numeric), least)
        noise = np.where(wrong, np.minimum(slack, size / 4), slack)
        size = np.where(wrong, size, np.maximum(*sizes))
        met = left <= noise + _REST * size
    counted = wrong | ~met
    return float(met[counted].mean()) if counted.any() else 1.0
