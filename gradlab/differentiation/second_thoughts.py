"""What the smallest error bar does not see: rounding and solvers inside f.

Both are smooth between two of their jumps, with a slope of their own that is not meant.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gradlab.differentiation.runs import Estimate, Runs
    from gradlab.differentiation.strays import Rungs
    from gradlab.differentiation.tableau import Table

__all__ = ["overrule", "roughen"]

_FINE = 1e-5  # largest relative stray that may be rounding inside f
_SHARP = 1e-8  # bars this small claim that no jump is near


def overrule(
    runs: Runs, rungs: Rungs, bend: np.ndarray, best: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Tell fine structure from rounding that happens to be smooth close by.

    Where single precision, or a solver's stopping rule, hides inside f, f may be
    perfectly smooth between two of its roundings, with a slope of its own. The slope of
    a fine structure announces its end by growing truncation; that of a gap between
    roundings ends without notice, and above it f strays by the same small amount over
    decades of step. Then the slope above is meant.

    Returns
    -------
    tuple of ndarray
        The runs to take; and the index of the rung above which a rung is missing to
        tell (nan where none).
    """
    error = runs.truncation + runs.rounding
    size = rungs.unit.max(axis=0) / rungs.floor
    plain = (runs.away > 0) & (runs.noise < _FINE * size) & np.isfinite(error)
    least = np.where(plain, runs.noise, np.inf).min(axis=0)
    plain &= runs.noise <= 10 * least  # more is no noise but a wrong slope
    rival = np.argmin(np.where(plain, error, np.inf), axis=0)[None]
    exists = np.take_along_axis(plain, rival, axis=0)[0]

    def at(array: np.ndarray, index: np.ndarray) -> np.ndarray:
        return np.asarray(np.take_along_axis(array, index, axis=0)[0])

    mine, theirs = at(runs.value, best), at(runs.value, rival)
    top, floor = runs.top[best[0]], runs.bottom[rival[0]]
    last = rungs.h.shape[0] - 1
    level = np.arange(last + 1)[:, None, None]
    # what contradicts the rival must have established a slope of its own
    doubtful = at(runs.truncation + runs.away + runs.rounding, best)
    vague = (np.abs(mine - theirs) <= 3 * doubtful) & (at(error, rival) < doubtful)
    start = np.where(vague, runs.bottom[best[0]], top)
    between = (level > start) & (level < floor)
    between &= rungs.h <= at(np.broadcast_to(rungs.h, bend.shape), floor[None]) / 15
    stray = np.maximum(np.abs(rungs.odd - rungs.h * theirs), bend)
    high = np.where(between, np.nan_to_num(stray), 0.0).max(axis=0)
    # flat: over a factor 50 in step the stray does not shrink with it
    steps = np.broadcast_to(rungs.h, stray.shape)
    long = np.where(between & (stray > high / 10), steps, 0.0).max(axis=0)
    short = np.where(between & (stray > high / 10), steps, np.inf).min(axis=0)
    flat = (long >= 50 * short) & (between.sum(axis=0) >= 2)
    end = np.minimum(top + 1, last)[None]
    own = np.abs(rungs.odd - rungs.h * mine)
    shrink = (at(steps, top[None]) / at(steps, end)) ** 3
    notice = 0.1 * at(own, end) * shrink
    audible = notice > 4 * at(runs.known, best)
    silent = at(own, top[None]) < notice
    suspicious = exists & flat & (top < last)
    take = suspicious & audible & silent
    split = np.where(suspicious & ~audible, top, np.nan)
    take |= exists & flat & vague
    return np.where(take[None], rival, best), split


def roughen(best: Estimate, table: Table, rungs: Rungs) -> Estimate:
    """Widen the bar where the larger steps betray jumps too small to see directly.

    A solver that stops at a tolerance is smooth between two of its jumps, and slightly
    wrong there. On five neighbouring rungs its jumps show in the highest divided
    difference: the terms of the series stop shrinking far above rounding.
    """
    if len(table.divided) < 5:
        return best
    levels, u, h = rungs.h.shape[0], table.nodes, rungs.h
    terms = [
        np.abs(table.divided[k][4 - k : levels - k]) * u[4:] ** k for k in range(5)
    ]
    rate = np.maximum(terms[1] / terms[0], terms[2] / terms[1])
    smooth = np.maximum(3 * terms[3] * rate, 10 * terms[2] * rate**2)
    smooth = np.maximum(smooth, 10 * terms[1] * rate**3)
    jump = np.zeros(terms[4].shape)
    for n in (2, 3, 4):  # had this rung jumped and no other: by how much
        others = [k for k in range(5) if k != n]
        node = u[n : levels - 4 + n]
        span = np.prod([np.abs(node - u[k : levels - 4 + k]) for k in others], axis=0)
        jump = np.maximum(jump, np.abs(table.divided[4]) * span * h[n : levels - 4 + n])
    known = rungs.unit[4:] + rungs.reach * np.abs(best.value)
    known = 8 * np.fmax(known, best.noise)
    rough = (terms[4] > smooth) & (jump > known)
    rough &= np.abs(table.divided[4]) > table.spread[4] * known
    reach = np.take_along_axis(np.broadcast_to(h, rungs.odd.shape), best.top[None], 0)
    near = (h[4:] <= 40 * reach) & (h[4:] >= reach / 2)
    near &= h[4:] <= 12 * h[2 : levels - 2]
    rough &= best.error < _SHARP * np.abs(best.value)
    # a slope that changes much up there is a kink or curvature, no hidden jump
    rough &= np.abs(table.slopes[0][4:] - best.value) < 0.1 * np.abs(best.value)
    widen = np.where(rough & near, jump / h[2 : levels - 2], 0.0)
    widen = np.where(np.isfinite(widen), widen, 0.0).max(axis=0)
    return dataclasses.replace(best, hidden=widen)
