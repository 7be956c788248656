"""Sides that have one slope and each a curvature of its own, as of ``relu(x)**2`` at 0.

There is a derivative at such a point, and the quotients of both sides lead to it, each
by whole powers of the step. Central ones do not get rid of the difference between the
curvatures: it is left over in proportion to the step, where an extrapolation counts on
its square. The shortest step that rounding bears is then all there is, and that is off
by the root of rounding. That it is so shows in how they settle: half the step, half of
what is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.ladder.creeping import spread
from gradlab.differentiation.noise.noise import rounding_of

if TYPE_CHECKING:
    from gradlab.differentiation.ladder.rungs import Ladder

__all__ = ["bent_sides", "settles_like_the_step"]

_RUNGS = 4  # that must go on alike
_HEARD = 16.0  # times what rounding does to a slope, before its change means anything
_POWER = (0.8, 1.25)  # of the step, by which changes die out
_BETTER = 0.25  # of the bar that there was
_COUNTS = (3, 4, 5)  # rungs of extrapolations that are compared
_LONGEST = max(_COUNTS)
_SAFETY = 2.0  # times the bars of both sides: what these may be apart


def bent_sides(
    ladder: Ladder, floor: float, error: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find slopes on which both sides agree, where central ones settle like the step.

    Parameters
    ----------
    ladder
        K entries, each as a coordinate with one output.
    floor
        Relative rounding unit of the arithmetic.
    error
        Bars that there were, (K,).

    Returns
    -------
    tuple of ndarray
        The slope and its bar, (K,), where that is far less than it was, else nan; and
        the index of the largest rung that it rests on.
    """
    value, bar = np.full((2, error.size), np.nan)
    top = np.zeros(error.size, int)
    some = np.flatnonzero(settles_like_the_step(ladder, floor))
    if not some.size:
        return value, bar, top
    own = ladder.entries(some, np.zeros_like(some))
    right, left = (_one_side(own, floor, right=side) for side in (True, False))
    apart = np.abs(right[0] - left[0])
    sure = _SAFETY * (right[1] + left[1])
    better = (apart <= sure) & (sure < _BETTER * error[some])
    value[some] = np.where(better, (right[0] + left[0]) / 2, np.nan)
    bar[some] = np.where(better, sure, np.nan)
    top[some] = np.minimum(right[2], left[2])
    return value, bar, top


def _one_side(
    ladder: Ladder, floor: float, *, right: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Extrapolate the slopes of one side over five neighbouring rungs, (K,) each.

    The bar is all that the two longest of them have changed: of an even function every
    second change is next to nothing, and says nothing of the error. The five with the
    smallest bar are taken.

    Returns
    -------
    tuple of ndarray
        The slope, its bar, and the index of the largest rung.
    """
    values = (ladder.right if right else ladder.left)[:, :, 0]
    base = ladder.base[:, 0]
    taken = ladder.ahead if right else -ladder.behind
    slope, h = (values - base) / taken, np.abs(taken)
    size = np.fmax(np.abs(values), np.abs(base))
    unit = 2 * np.fmax(floor * size, rounding_of(base, floor)) / h
    best = np.full((2, base.size), np.inf)
    top = np.zeros(base.size, int)
    for low in range(len(h) - _LONGEST + 1):
        some = slice(low, low + _LONGEST)
        weights = [_weights(h[some][:count]) for count in _COUNTS]
        told = [(w * slope[some][: len(w)]).sum(axis=0) for w in weights]
        bar = np.abs(told[-1] - told[0]) + np.abs(told[-1] - told[1])
        bar += (np.abs(weights[-1]) * unit[some]).sum(axis=0)
        better = np.isfinite(bar) & (bar < best[1])
        best = np.where(better, (told[-1], bar), best)
        top = np.where(better, low + _LONGEST - 1, top)
    return best[0], best[1], top


def _weights(steps: np.ndarray) -> np.ndarray:
    """Give the weights of a polynomial's values in its value at 0, (n, K)."""
    weights = np.ones(steps.shape)
    for i in range(len(steps)):
        for j in range(len(steps)):
            if i != j:
                weights[i] *= steps[j] / (steps[j] - steps[i])
    return weights


def settles_like_the_step(ladder: Ladder, floor: float) -> np.ndarray:
    """Say where central slopes change as the step does, from the shortest heard on.

    Parameters
    ----------
    ladder
        K entries, each as a coordinate with one output.
    floor
        Relative rounding unit of the arithmetic.

    Returns
    -------
    ndarray
        Boolean, (K,).
    """
    steps = ladder.steps
    slopes = ladder.slopes
    size = np.fmax(np.abs(ladder.right), np.abs(ladder.left))[:, :, 0]
    unit = np.fmax(floor * size, rounding_of(ladder.base[:, 0], floor)) / steps
    kept = spread(ladder.rungs, np.isfinite(slopes))
    h, slope, noise = kept(steps), kept(slopes), kept(unit)
    if len(h) < _RUNGS:
        return np.zeros(steps.shape[1], bool)
    change, way = np.diff(slope, axis=0), np.diff(h, axis=0)
    heard = np.abs(change) > _HEARD * noise[:-1]
    first = np.minimum(np.argmax(heard, axis=0), len(change) - _RUNGS + 1)
    level = first + np.arange(_RUNGS - 1)[:, None]
    change, way, heard = (
        np.take_along_axis(array, level, axis=0) for array in (change, way, heard)
    )
    alike = heard.all(axis=0) & (np.abs(np.sign(change).sum(axis=0)) == _RUNGS - 1)
    own = np.flatnonzero(alike)  # few: and logarithms take long
    change, way = np.log(np.abs(change[:, own])), np.log(way[:, own])
    growth = np.diff(change, axis=0) / np.diff(way, axis=0)
    alike[own] = ((growth > _POWER[0]) & (growth < _POWER[1])).all(axis=0)
    return np.asarray(alike)
