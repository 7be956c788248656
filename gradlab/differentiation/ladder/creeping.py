"""Slopes that settle slowly or never: of ``x log|x|`` at 0, of ``relu(x)**1.5``.

The slope of ``x log|x|`` changes by as much from one step to the next as it did ten
steps before, and that of ``relu(x)**1.5`` like the root of the step. Extrapolation in
whole powers takes such a row for one that is nearly at its end. What is left of it is
told by how fast its changes die out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.noise.noise import rounding_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradlab.differentiation.ladder.rungs import Ladder

__all__ = ["creeping", "spread"]

_APART = 2.5  # octaves, at least, between rungs that are compared
_CHANGES = 4  # that must go on alike
_HEARD = 8.0  # times what rounding does to a change of the slope
_FAINT = 0.25  # times what is foretold of the next change
_FREE = 8.0  # roundings of f, in every slope
_POWERS = 0.6  # from octave to octave: whole powers of the step die out faster
_SLOW = 0.87  # what dies out no faster is not at its end when rounding begins
_EVEN = 0.96  # and this is no dying out: it grows without end
_NOISE = 1.5  # rounding inside f grows by 2


def creeping(
    ladder: Ladder, slopes: np.ndarray, steps: np.ndarray, floor: float
) -> tuple[np.ndarray, np.ndarray]:
    """Find the slopes at the end of rows that die out slowly, or do not.

    Parameters
    ----------
    ladder
        K entries, each as a coordinate with one output.
    slopes
        Central or one-sided, on every rung, (L, K).
    steps
        Over which they were taken, (L, K).
    floor
        Relative rounding unit of the arithmetic.

    Returns
    -------
    tuple of ndarray
        The slope and its bar, (K,); both infinite where it grows without end, the bar
        where it cannot be told. nan for all other entries.
    """
    size = np.fmax(np.abs(ladder.right), np.abs(ladder.left))[:, :, 0]
    size = np.where(np.isfinite(size), size, 0.0)
    unit = np.fmax(floor * size, rounding_of(ladder.base[:, 0], floor))
    unit *= _FREE / steps
    slope, rate, noise, octaves = _changes(ladder.rungs, slopes, steps, unit)
    value, bar = np.full((2, slopes.shape[1]), np.nan)
    waiting = np.ones(slopes.shape[1], bool)
    for low in range(len(rate) - _CHANGES + 1):
        some = slice(low, low + _CHANGES)
        size = np.abs(rate[some])
        # the shortest steps at which what longer ones show is heard, or would have been
        least = np.fmin(size[1], size[1] ** 2 / size[2]) * _FAINT
        first = waiting & (_HEARD * noise[low] < np.fmax(size[0], least))
        waiting &= ~first
        alike = first & (np.abs(rate[some].sum(axis=0)) >= size.sum(axis=0))
        alike &= (size > _HEARD * noise[some]).all(axis=0)
        own = np.flatnonzero(alike)  # few: and powers take long
        if own.size:
            rows = [array[some, own] for array in (slope, rate, noise, octaves)]
            value[own], bar[own] = _ends(rows, (value[own], bar[own]))
    return value, bar


def _ends(
    changes: list[np.ndarray], otherwise: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Give slope and bar at the end of changes that die out alike, else what there was.

    Parameters
    ----------
    changes
        As from `_changes`, so many as must go on alike, (4, K) each.
    otherwise
        What there was, (K,) each.
    """
    slope, rate, noise, octaves = changes
    size = np.abs(rate)
    middle = np.cumsum(octaves, axis=0) - octaves / 2
    dying = (size[:-1] / size[1:]) ** (1 / (middle[1:] - middle[:-1]))
    usual = (size[0] / size[-1]) ** (1 / (middle[-1] - middle[0]))
    alike = (dying > _POWERS).all(axis=0) & (dying < _NOISE).all(axis=0)
    rest = rate[0] * usual ** (octaves[0] / 2) / -np.log(usual)
    told = np.abs(rest) + noise[0] * octaves[0]
    ends = np.where(usual < _SLOW, slope[0] + rest, slope[0])
    ends = np.where(usual < _EVEN, ends, np.inf * rate[0])
    bar = np.where(usual < _SLOW, told, np.inf)
    value, error = otherwise
    return np.where(alike, ends, value), np.where(alike, bar, error)


def spread(rungs: np.ndarray, usable: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Choose rungs that are some octaves apart, from the shortest step on.

    Parameters
    ----------
    rungs, usable
        Exponents of steps, and which may be chosen, (L, K).

    Returns
    -------
    callable
        Sorts what was chosen of an array (L, K) to its beginning; nan for the rest.
    """
    keep = np.zeros(rungs.shape, bool)
    last = np.full(rungs.shape[1], np.inf)
    for level, rung in enumerate(rungs):
        keep[level] = usable[level] & (last - rung >= _APART)
        last = np.where(keep[level], rung, last)
    order = np.argsort(~keep, axis=0, kind="stable")

    def kept(array: np.ndarray) -> np.ndarray:
        chosen = np.where(keep, array, np.nan)
        return np.asarray(np.take_along_axis(chosen, order, axis=0))

    return kept


def _changes(
    rungs: np.ndarray, slopes: np.ndarray, steps: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Give slopes, their change per octave, its noise, and octaves, (L - 1, K).

    From the shortest step on; nan where there are no more.
    """
    kept = spread(rungs, np.isfinite(slopes))
    slope, bar, log = kept(slopes), kept(noise), np.log2(kept(steps))
    octaves = log[1:] - log[:-1]
    change = (slope[:-1] - slope[1:]) / octaves
    return slope[:-1], change, (bar[:-1] + bar[1:]) / octaves, octaves
