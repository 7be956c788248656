"""What stands still over a short step, and moves over a long one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.evaluation import displaced_rows
from gradlab.differentiation.finite_difference import scales_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.evaluation import Meter
    from gradlab.differentiation.origin import Origin

__all__ = ["stairs"]

_FAR = 0.01  # of the scale: here something moves, if anything but a constant does
_NEAR = 1e-5  # of the scale: here a staircase stands still


def stairs(
    origin: Origin, which: int, columns: NDArray[np.intp], meter: Meter
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Look farther along coordinates that moved nothing.

    Rounding to a few digits inside f stands still over short steps, and so does a
    constant. What moves on both sides, and not close by, is a staircase: its slope may
    be meant, or zero.

    Returns
    -------
    slope, moved
        Of the staircase, 0 where there is none; and what moved at all, (rows, K).
    """
    subject, base = origin.subject, origin.base
    shape = (len(base), len(columns))
    if columns.size == 0:
        return np.zeros(shape), np.zeros(shape, bool)
    scales = scales_of(subject, which)[columns]
    moves = []
    for reach in (_FAR, -_FAR, _NEAR, -_NEAR):
        values, _ = displaced_rows(subject, which, columns, reach * scales, meter)
        moves.append((values - base).T)
    ahead, behind, *near = moves
    still = (near[0] == 0) & (near[1] == 0)
    both = still & (np.sign(ahead) * np.sign(behind) < 0)
    slope = np.where(both, np.abs(ahead - behind) / (2 * _FAR * scales), 0.0)
    return slope, (ahead != 0) | (behind != 0)
