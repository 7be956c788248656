"""Smooth pieces between two jumps of rounding inside f: their slope may not be meant.

Where single precision or a cancellation hides inside, as in ``x * (1 + erf(x))`` far to
the left, the smallest rungs may all lie between two jumps, where f is perfectly smooth
with a slope of its own. Such a ledge ends without notice, on both sides alike, and what
follows is erratic: a smooth function foretells how it goes on, a kink or jump close by
is on one side, and beyond a pair of kinks f is smooth again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.ladder.suspicion import FINE

if TYPE_CHECKING:
    from gradlab.differentiation.ladder.strays import Rungs

__all__ = ["ledges"]

_SUDDEN = 30.0  # times what the series foretells, for an end without notice
_LOUD = 20.0  # times the rounding unit
_ALIKE = 30.0  # most that one side may move more than the other
_REGULAR = 1e-3  # of the jump: less than this off a line, f goes on smoothly
_FAR = 100.0  # ratio of steps beyond which nothing is foretold
_PART = 2.0  # of f: a jump much larger than f is no rounding
_FEW = 0.05  # of f: where jumps are as large, all of f may be a few of them
_WIDE = 2.0**-8  # of the scale: a wider ledge is f's own


def ledges(
    rungs: Rungs, *, scales: np.ndarray, base: np.ndarray, top: np.ndarray
) -> np.ndarray:
    """Say how far slopes beyond a ledge differ from the one on it, (C, m); else 0.

    Parameters
    ----------
    rungs
        The ladder, taken apart.
    scales
        Typical size of each coordinate, (C,).
    base
        f at the point, (m,).
    top
        The largest rung that the slope in question rests on, (C, m): a ledge matters
        if that is on it.
    """
    h, odd, even = rungs.h, rungs.odd, rungs.even
    slope = odd / h
    known = rungs.unit + rungs.reach * np.abs(slope)
    apart = np.zeros(top.shape)
    size = np.fmax.reduce(rungs.unit, axis=0) / rungs.floor  # largest f that was seen
    for b in range(1, h.shape[0] - 1):  # two rungs on the ledge at least
        on = (top <= b) & (h[b] < _WIDE * scales[:, None])
        if not on.any():
            continue
        above = slice(b + 1, b + 5)
        ratio = h[above] / h[b]
        shake = known[b - 1] / h[b - 1] + known[b] / h[b]
        bend = np.abs(slope[b] - slope[b - 1]) + 2 * shake
        foretold = (bend * h[b + 1] + np.abs(even[b])) * ratio[0] ** 2
        jump, lift = odd[above] - ratio * odd[b], even[above] - ratio**2 * even[b]
        right, left = np.abs(lift + jump), np.abs(lift - jump)
        tall = np.maximum(right[0], left[0])
        ledge = tall > np.maximum(_SUDDEN * foretold, _LOUD * known[b + 1])
        ledge &= (tall < _PART * np.abs(base)) & (ratio[0] < _FAR) & on
        # a kink takes part of the slope away, and rounding takes digits
        ledge &= (tall > _FEW * size) | (tall < FINE * np.fmax(size, 1.0))
        ledge &= ~rungs.still[b]  # a flat one is a stair, and told as such
        alike = np.minimum(right, left) * _ALIKE > np.maximum(right, left)
        ledge &= alike.any(axis=0)
        ledge &= _erratic(h[above], odd[above], _REGULAR * tall + 4 * known[b + 1])
        # what is not there, above the rungs of a shorter ladder, says nothing
        differ = np.fmax.reduce(np.abs(slope[above] - slope[b]), axis=0)
        apart = np.where(ledge, np.fmax(apart, differ), apart)
    return apart


def _erratic(h: np.ndarray, odd: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Say where no three neighbouring rungs are on a line, as beyond a pair of kinks.

    Asked of the odd part, which has no curvature.
    """
    if h.shape[0] < 3:
        return np.zeros(noise.shape, bool)
    erratic = np.isfinite(odd[2])
    for i in range(h.shape[0] - 2):
        share = (h[i + 1] - h[i]) / (h[i + 2] - h[i])
        bent = odd[i + 1] - odd[i] - share * (odd[i + 2] - odd[i])
        erratic &= ~(np.abs(bent) <= noise)
    return np.asarray(erratic)
