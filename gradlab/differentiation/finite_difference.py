"""Difference quotients with one or two evaluations per coordinate, and error bars.

Central, forward and backward differences, each divided by the step really taken. The
error bar has two parts: round-off, from the size of f and the step, and truncation,
from how much the slopes to the left and right differ (Nocedal and Wright, *Numerical
Optimization*, 2nd ed. 2006, section 8.1; Gill, Murray, Saunders and Wright, SIAM J.
Sci. Stat. Comput. 4, 1983).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.evaluation import displaced_rows
from gradlab.differentiation.noise.noise import ULPS, rounding_of
from gradlab.differentiation.quotients import Quotients
from gradlab.differentiation.sizes.scales import scales_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin

__all__ = [
    "central",
    "from_pairs",
    "one_sided",
    "seen_truncation",
    "stairs",
    "two_sided",
]

_FAR = 0.01  # of the scale: here something moves, if anything but a constant does
_NEAR = 1e-5  # of the scale: here a staircase stands still


def _round_off(
    values: NDArray[np.float64], base: NDArray[np.float64], epsilon: float
) -> NDArray[np.float64]:
    """Error of one difference of values of f, shape (rows, n)."""
    own, there = rounding_of(base, epsilon), epsilon * np.abs(values)
    return np.asarray(ULPS * np.maximum(there.T, own[:, None]))


def central(
    origin: Origin,
    which: int,
    positions: NDArray[np.intp],
    steps: NDArray[np.float64],
    meter: Meter,
) -> Quotients:
    """Two-sided differences of the coordinates `positions`.

    Parameters
    ----------
    steps
        One step for each position, shape (n,).
    """
    pairs, displacements = two_sided(positions, steps)
    values, taken = displaced_rows(origin.subject, which, pairs, displacements, meter)
    return from_pairs(values, taken, origin.base, origin.subject.epsilon)


def two_sided(
    positions: NDArray[np.intp], steps: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Displace every coordinate forward and then back: positions, displacements."""
    displacements = np.repeat(steps, 2)
    displacements[1::2] *= -1
    return np.repeat(positions, 2), displacements


def from_pairs(
    values: NDArray[np.float64],
    taken: NDArray[np.float64],
    base: NDArray[np.float64],
    epsilon: float,
) -> Quotients:
    """Make quotients of what was evaluated `two_sided`.

    Parameters
    ----------
    values
        Shape (2 n, rows).
    taken
        The displacements really made, shape (2 n,).
    base
        f at the point, shape (rows,).
    epsilon
        Unit round-off of f.
    """
    up, down = values[0::2], values[1::2]
    right, left = taken[0::2], taken[1::2]
    with np.errstate(all="ignore"):
        width = right - left
        value = ((up - down) / width[:, None]).T
        bend = ((up - base) / right[:, None] - (down - base) / left[:, None]).T
        # f'' h is seen; the truncation h^2 f'''/6 is guessed to be smaller by the
        # ratio of the step to the scale on which f bends, at worst the step's own root
        noise = _round_off(np.maximum(np.abs(up), np.abs(down)), base, epsilon)
        error = noise / np.abs(width) * 2 + np.abs(bend) * np.sqrt(epsilon)
        step = np.full_like(value, width / 2)  # in the same order
    return Quotients(value=value, error=error, step=step, bend=bend)


def seen_truncation(
    found: Quotients, scales: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Judge the truncation of central differences by how much f bends within a step.

    The difference of the one-sided slopes is ``f'' h``; the error ``f''' h^2 / 6`` is
    that much smaller again as the step is smaller than the length over which the slope
    changes: the scale of the coordinate, or less where f bends much. A check looks
    again at such entries; a bar that stands alone has to say so itself.
    """
    with np.errstate(all="ignore"):
        bend, slope = np.abs(found.bend), np.abs(found.value)
        shorter = np.where(slope > 0, bend / slope, 1.0)
        shorter = np.maximum(shorter, np.abs(found.step) / scales)
        return np.asarray(bend * np.minimum(shorter, 1.0) / 2)


def one_sided(
    origin: Origin,
    which: int,
    positions: NDArray[np.intp],
    steps: NDArray[np.float64],
    meter: Meter,
) -> Quotients:
    """One-sided differences; the sign of `steps` chooses the side.

    The truncation error ``h f'' / 2`` cannot be seen from one side and one step: the
    bar assumes that f bends on the scale of the coordinate, ``|f'| h / scale``.
    """
    subject, base = origin.subject, origin.base
    values, taken = displaced_rows(subject, which, positions, steps, meter)
    scales = scales_of(subject, which)[positions]
    with np.errstate(all="ignore"):
        value = ((values - base) / taken[:, None]).T
        noise = _round_off(values, base, subject.epsilon) / np.abs(taken)
        # where f did not move, less than its last digit is hidden
        noise = np.where(value == 0, noise / (2 * ULPS), noise)
        error = noise + np.abs(value) * np.abs(taken) / scales
        step = np.full(value.shape, np.abs(taken))
    return Quotients(
        value=value, error=error, step=step, bend=np.full_like(value, np.nan)
    )


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
