"""What the smallest error bar does not see: rounding and solvers inside f.

Both are smooth between two of their jumps, with a slope of their own that is not meant.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.ladder.runs import Pick
from gradlab.differentiation.ladder.suspicion import FINE

if TYPE_CHECKING:
    from gradlab.differentiation.ladder.runs import Estimate, Runs
    from gradlab.differentiation.ladder.strays import Rungs
    from gradlab.differentiation.ladder.tableau import Tableau

__all__ = ["overrule", "roughen"]

_SHARP = 1e-8  # bars this small claim that no jump is near
_GROWTH = (-1.0, 1.5)  # of a power of the step, how far it may be off what is foretold
_BEYOND = -2.3  # the same where the polynomial is all that grows, by two powers less
_PLAIN = 1e-4  # of f: what a solver leaves is smaller
_LEFT = 1e-3  # the same where nothing else tells it from kinks: one takes slope away
_LONG = 1e3  # ratio of steps over which only rounding strays as much without shrinking
_INSIDE = 1e-10  # of f: what strays by more is not taken for rounding on this ground
_CLOSE = 4.0  # ratio of neighbouring steps between which no rung is missing
_AUDIBLE = 8.0  # times the noise, before growth means anything


def overrule(
    runs: Runs, rungs: Rungs, bend: np.ndarray, best: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Tell fine structure from rounding that happens to be smooth close by.

    Where single precision, or a solver's stopping rule, hides inside f, f may be
    perfectly smooth between two of its roundings, with a slope of its own. The slope of
    a fine structure announces its end by growing truncation; that of a gap between
    roundings ends without notice, and above it f strays by the same small amount over
    decades of step. Then the slope above is meant. Where such strays are a tiny part of
    f the same goes for what ends too low for any notice to be heard, and for a slope
    that the rung below it does not have.

    Returns
    -------
    tuple of ndarray
        The runs to take; and the index of the rung above which a rung is missing to
        tell (nan where none).
    """
    error = runs.truncation + runs.rounding
    size = _size(rungs)
    plain = (runs.away > 0) & (runs.noise < FINE * size) & np.isfinite(error)
    split = np.full(best.shape[1:], np.nan)
    if not plain.any():
        return best, split
    # what contradicts the rival takes two rungs at least between the two runs
    far = runs.bottom[:, None, None] - runs.bottom[best[0]] >= 3
    if not (plain & far).any():
        return best, split
    rival, some = _rival(runs, error, plain, far)
    # from just above a stair f strays little below: no measure of what it does above
    fine = plain & far & (runs.noise < _INSIDE * size)
    second, also = _rival(runs, error, fine, far)
    rival, some = np.where(some, rival, second), some | also
    if not some.any():
        return best, split
    mine, theirs = best[0][some], rival[some]
    take, missing = _contradicted(runs, rungs, bend, some, (mine, theirs))
    split[some] = np.where(missing, runs.top[mine], np.nan)
    best = best.copy()
    best[0][some] = np.where(take, theirs, mine)
    return best, split


def _rival(
    runs: Runs, error: np.ndarray, plain: np.ndarray, far: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Find the best of the plain runs, (C, m), and say where it is one that is far."""
    noise = np.where(plain, runs.noise, np.inf)
    # more is no noise: a wrong slope
    plain = plain & (runs.noise <= 10 * noise.min(axis=0))
    rival = np.argmin(np.where(plain, error, np.inf), axis=0)
    return rival, Pick(rival)(plain & far)


def _contradicted(
    runs: Runs,
    rungs: Rungs,
    bend: np.ndarray,
    some: np.ndarray,
    chosen: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Say for which entries a rival is meant, and which lack a rung to tell.

    Parameters
    ----------
    some
        The entries, (C, m); K of them.
    chosen
        The run with the smallest bar and its rival above, (K,) each.
    """
    best, rival = chosen
    columns, size = np.nonzero(some)[0], _size(rungs)
    h, odd, bend = rungs.h[:, columns, 0], rungs.odd[:, some], bend[:, some]

    def of(array: np.ndarray, index: np.ndarray) -> np.ndarray:
        wide = np.broadcast_to(array, (array.shape[0], *some.shape))
        return np.asarray(wide[(index, *np.nonzero(some))])

    mine, theirs = of(runs.value, best), of(runs.value, rival)
    top, floor = runs.top[best], runs.bottom[rival]
    last = h.shape[0] - 1
    level = np.arange(last + 1)[:, None]
    # what contradicts the rival must have established a slope of its own
    doubtful = of(runs.truncation, best) + of(runs.away, best) + of(runs.rounding, best)
    error = of(runs.truncation, rival) + of(runs.rounding, rival)
    vague = (np.abs(mine - theirs) <= 3 * doubtful) & (error < doubtful)
    start = np.where(vague, runs.bottom[best], top)
    place = np.arange(best.size)
    between = (level > start) & (level < floor)
    between &= h <= h[floor, place] / 15
    stray = np.maximum(np.abs(odd - h * theirs), bend)
    high = np.where(between, np.nan_to_num(stray), 0.0).max(axis=0)
    # flat: over a factor 50 in step the stray does not shrink with it
    near = between & (stray > high / 10)
    long = np.where(near, h, 0.0).max(axis=0)
    short = np.where(near, h, np.inf).min(axis=0)
    flat = (long >= 50 * short) & (between.sum(axis=0) >= 2)
    end = np.minimum(top + 1, last)
    own = np.abs(odd - h * mine)
    shrink = (h[top, place] / h[end, place]) ** 3
    known = of(runs.known, best)
    notice = 0.1 * own[end, place] * shrink
    audible = notice > 4 * known
    silent = own[top, place] < notice
    suspicious = flat & (top < last)
    take = (suspicious & audible & silent) | (flat & vague)
    # the rung below has yet another slope: one between the jumps of a staircase
    under = np.maximum(runs.bottom[best] - 1, 0)
    apart = 0.5 * h[under, place] * np.abs(mine - theirs)
    unproven = own[under, place] > np.maximum(apart, 4 * known)
    unproven &= runs.bottom[best] > 0
    # or it ends at once, too low for its end to be heard
    unheard = ~audible & silent & (h[end, place] < _CLOSE * h[top, place])
    sudden = (own[end, place] > high / 10) & (high < _INSIDE * size[some])
    take |= suspicious & sudden & (long >= _LONG * short) & (unproven | unheard)
    return take, suspicious & ~audible & ~take


def _size(rungs: Rungs) -> np.ndarray:
    """Largest value of f that was seen, (C, m)."""
    return np.asarray(np.fmax.reduce(rungs.unit, axis=0) / rungs.floor)


def roughen(best: Estimate, table: Tableau, rungs: Rungs) -> Estimate:
    """Widen the bar where the larger steps betray jumps too small to see directly.

    A solver that stops at a tolerance is smooth between two of its jumps, and slightly
    wrong there. On five neighbouring rungs its jumps show in the highest divided
    difference: the terms of the series stop shrinking far above rounding.
    """
    columns = table.layout.columns
    if len(columns) < 5:
        return best
    small = best.error < _SHARP * np.abs(best.value)
    if not small.any():
        return best
    levels, u, h = rungs.h.shape[0], table.nodes, rungs.h
    reach = h[best.top, np.arange(h.shape[1])[:, None], 0]
    near = (h[4:] <= 40 * reach) & (h[4:] >= reach / 2)
    near &= h[4:] <= 12 * h[2 : levels - 2]
    known = rungs.unit[4:] + rungs.reach * np.abs(best.value)
    known = 8 * np.fmax(known, best.noise)
    highest, spread = np.abs(table.divided[columns[4]]), table.spread[columns[4]]
    rough = (highest > spread * known) & small & near
    rough[rough] = _stay(table, rough)
    if not rough.any():
        return best
    # a slope that changes much up there is a kink or curvature, no hidden jump
    off = np.abs(table.slopes[:levels] - best.value)
    off = np.where(h > reach, off, 0.0)
    most = np.fmax.reduce([off[k : levels - 4 + k] for k in range(5)], axis=0)
    rough &= most < 0.1 * np.abs(best.value)
    suspects = rough.any(axis=0)
    if suspects.any():
        rough[:, suspects] &= ~_goes_on(best, rungs, suspects)
    if not rough.any():
        return best
    jump = np.zeros(rough.shape)
    for n in (2, 3, 4):  # had this rung jumped and no other: by how much
        others = [k for k in range(5) if k != n]
        node = u[n : levels - 4 + n]
        span = np.prod([np.abs(node - u[k : levels - 4 + k]) for k in others], axis=0)
        jump = np.maximum(jump, highest * span * h[n : levels - 4 + n])
    # and no more than all that these rungs are off the line of the slope
    off = np.abs(rungs.odd - h * best.value)
    five = [off[k : levels - 4 + k] for k in range(5)]
    jump = np.minimum(jump, np.fmax.reduce(five, axis=0))
    rough &= (jump > known) & (jump < _LEFT * _size(rungs))
    widen = np.where(rough, jump / h[2 : levels - 2], 0.0)
    widen = np.where(np.isfinite(widen), widen, 0.0).max(axis=0)
    return dataclasses.replace(best, hidden=widen)


def _stay(table: Tableau, some: np.ndarray) -> np.ndarray:
    """Say of which runs of five rungs the terms of the series stop shrinking, (K,).

    Parameters
    ----------
    some
        Those that are asked of, (runs, C, m); K of them.
    """
    columns, u = table.layout.columns, table.nodes
    levels = u.shape[0]
    nodes = np.broadcast_to(u[4:], some.shape)[some]
    terms = [
        np.abs(table.divided[columns[k]][4 - k : levels - k][some]) * nodes**k
        for k in range(5)
    ]
    rate = np.maximum(terms[1] / terms[0], terms[2] / terms[1])
    smooth = np.maximum(3 * terms[3] * rate, 10 * terms[2] * rate**2)
    smooth = np.maximum(smooth, 10 * terms[1] * rate**3)
    return np.asarray(terms[4] > smooth)


def _goes_on(best: Estimate, rungs: Rungs, some: np.ndarray) -> np.ndarray:
    """Say where f goes on above a run as its series does, (K,) for K entries.

    What an extrapolation over n rungs leaves out grows like ``h**(2 n + 1)``. Beyond
    the reach of the series its terms stop shrinking, and that is no jump; what jumps
    does not grow by that very power. Far beyond, the polynomial alone grows, and has
    been plainly off before.
    """
    columns = np.nonzero(some)[0]
    h, odd = rungs.h[:, columns, 0], rungs.odd[:, some]
    bottom, top, last = best.bottom[some], best.top[some], len(h) - 1
    place = np.arange(top.size)
    above = [np.minimum(top + 1, last), np.minimum(top + 2, last)]
    squares = [h[level, place] ** 2 for level in above]
    foretold = np.zeros((2, top.size))
    width = int((top - bottom).max()) + 1
    for i in range(width):  # Lagrange's form; runs are of different widths
        mine = np.minimum(bottom + i, top)
        weight = np.where(bottom + i <= top, 1.0, 0.0) * np.ones((2, 1))
        for j in range(width):
            other = np.minimum(bottom + j, top)
            apart = h[mine, place] ** 2 - h[other, place] ** 2
            counts = (j != i) & (bottom + j <= top) & (apart != 0)
            for k in (0, 1):
                share = (squares[k] - h[other, place] ** 2) / np.where(counts, apart, 1)
                weight[k] *= np.where(counts, share, 1.0)
        foretold += weight * odd[mine, place] / h[mine, place]
    near, far = (
        np.abs(odd[level, place] - h[level, place] * slope)
        for level, slope in zip(above, foretold, strict=True)
    )
    power = np.log(far / near) / np.log(h[above[1], place] / h[above[0], place])
    off = power - (2 * (top - bottom + 1) + 1)
    known = np.fmax(best.noise[some], best.known[some])
    size = [np.abs(odd[level, place]) for level in above]
    far_beyond = (near > _PLAIN * size[0]) & (far > size[1]) & (off > _BEYOND)
    alike = (off > _GROWTH[0]) | far_beyond
    alike &= (off < _GROWTH[1]) & (near > _AUDIBLE * known)
    return np.asarray(alike & (top + 2 <= last))
