"""Extrapolating difference quotients to step zero, with a bar for every choice.

Each run of neighbouring rungs gives one extrapolated slope (Neville's scheme in h^2 for
central, in h for one-sided quotients). Its bar has two parts: truncation, judged by
what the last rung changed, and rounding, judged by how far the function strays from the
extrapolated curve on all smaller rungs. The run with the smallest bar is taken.

Smooth pieces between two jumps of rounding inside f: their slope may not be meant.
Where single precision or a cancellation hides inside, as in ``x * (1 + erf(x))`` far to
the left, the smallest rungs may all lie between two jumps, where f is perfectly smooth
with a slope of its own. Such a ledge ends without notice, on both sides alike, and what
follows is erratic: a smooth function foretells how it goes on, a kink or jump close by
is on one side, and beyond a pair of kinks f is smooth again.

References
----------
C. J. F. Ridders, *Accurate computation of F'(x)*, Adv. Eng. Software 4 (1982).
O. V. Lepskii, *On a problem of adaptive estimation*, Theory Probab. Appl. 35 (1991).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.ladder.runs import Estimate, Pick, Runs
from gradlab.differentiation.ladder.second_thoughts import overrule, roughen
from gradlab.differentiation.ladder.strays import Rungs, foretold_bends, strays
from gradlab.differentiation.ladder.suspicion import FINE
from gradlab.differentiation.ladder.tableau import Tableau, layout
from gradlab.differentiation.noise.noise import rounding_of

if TYPE_CHECKING:
    from gradlab.differentiation.ladder.rungs import Ladder

    Known = tuple[np.ndarray, np.ndarray]  # (m,) or (C, m) each

__all__ = ["extrapolate_central", "extrapolate_side"]

_FIRST = 2  # rung that is heard about the slope: those below it show the noise
_QUIETER = 8.0  # times their noise: what is above that is a slope
_SUDDEN = 30.0  # times what the series foretells, for an end without notice
_LOUD = 20.0  # times the rounding unit
_ALIKE = 30.0  # most that one side may move more than the other
_REGULAR = 1e-3  # of the jump: less than this off a line, f goes on smoothly
_FAR = 100.0  # ratio of steps beyond which nothing is foretold
_PART = 2.0  # of f: a jump much larger than f is no rounding
_FEW = 0.05  # of f: where jumps are as large, all of f may be a few of them
_WIDE = 2.0**-8  # of the scale: a wider ledge is f's own


def extrapolate_central(
    ladder: Ladder,
    floor: float,
    width: int,
    known: Known,
    only: tuple[tuple[int, int], ...] | None = None,
) -> Estimate:
    """Find the best extrapolated central slope of every entry.

    Parameters
    ----------
    ladder
        The values.
    floor
        Relative rounding unit of the arithmetic f is evaluated in.
    width
        Largest number of rungs in one extrapolation.
    known
        Absolute noise of f, and relative rounding inside it, known from elsewhere.
    only
        Smallest and largest rung of the runs to choose from; None for all.

    Returns
    -------
    Estimate
        With infinite error where no run of rungs is finite.
    """
    with np.errstate(all="ignore"):
        rungs = Rungs.of(ladder, floor, *known)
        h = rungs.h
        where = layout(h.shape[0], width, only)
        table = Tableau.of(
            rungs.odd / h, (h / h[:1]) ** 2, rungs.unit / h, 1 / h, where
        )
        bend = foretold_bends(rungs, width)
        best = _choose(_judge(table, bend, rungs), rungs, bend)
        best = roughen(best, table, rungs)
        scales = ladder.steps[0] * np.exp2(ladder.rungs[0])  # nearly: see `Ladder`
        apart = _ledges(rungs, scales=scales, base=ladder.base, top=best.top)
        hidden = np.maximum(best.hidden, apart)
        return dataclasses.replace(best, hidden=hidden, ledge=apart)


def extrapolate_side(
    ladder: Ladder, floor: float, width: int, *, right: bool, noise: np.ndarray
) -> Estimate:
    """Find the best extrapolated one-sided slope of every entry.

    Parameters
    ----------
    ladder, floor, width
        As for `extrapolate_central`.
    right
        The side to look at.
    noise
        Absolute noise of f known from elsewhere, shape (C, m); nan counts as none.

    Returns
    -------
    Estimate
        With infinite error where no run of rungs is finite.
    """
    with np.errstate(all="ignore"):
        values = ladder.right if right else ladder.left
        h = (ladder.ahead if right else ladder.behind)[:, :, None]
        slope = (values - ladder.base) / (h if right else -h)
        size = np.fmax(np.abs(values), np.abs(ladder.base))
        unit = np.fmax(floor * size, rounding_of(ladder.base, floor))
        unit = np.fmax(unit, np.nan_to_num(noise))
        where = layout(h.shape[0], width)
        table = Tableau.of(slope, h / h[:1], 2 * unit / h, 2 / h, where)
        value = table.slopes
        argument = floor * np.abs(ladder.points)[:, None] * np.abs(value)
        return _choose(
            Runs(
                value=value,
                truncation=table.truncation(unit[where.bottom] + argument),
                away=_passed_over(value, where.bottom, slope, h, unit),
                rounding=table.fixed + table.lever * argument,
                noise=argument,
                lever=table.lever,
                known=argument,
                loud=np.zeros(value.shape, bool),
                bottom=where.bottom,
                top=where.top,
            )
        )


def _passed_over(
    value: np.ndarray,
    bottom: np.ndarray,
    slope: np.ndarray,
    h: np.ndarray,
    unit: np.ndarray,
) -> np.ndarray:
    """Say how far runs are from slopes on shorter steps, beyond noise; (runs, C, m).

    Two steps that lead past a valley to the same height have a slope of zero, and so
    have all that are longer. Noise moves f on shorter steps by as much as on longer
    ones, a slope by less.
    """
    away, loudest = np.zeros(value.shape), np.broadcast_to(unit[0], value.shape).copy()
    for k in range(len(h)):
        below = (bottom > k)[:, None, None]
        apart = np.where(below, np.nan_to_num(np.abs(slope[k] - value)), 0.0)
        if k >= _FIRST:
            beyond = apart - _QUIETER * np.fmax(loudest, unit[k]) / h[k]
            np.fmax(away, beyond, out=away)
        np.fmax(loudest, apart * h[k], out=loudest)
    return away


def _judge(table: Tableau, bend: np.ndarray, rungs: Rungs) -> Runs:
    """Give every run its two bars, noise, and whether it is unexplained."""
    where = table.layout
    slope, lever = table.slopes[where.judged], table.lever[where.judged]
    fixed = table.fixed[where.judged]
    argument = rungs.reach * np.abs(slope)  # rounding of the argument: x (1 + eps)
    noise, growth, away, odd_one = strays(table, bend, argument, rungs)
    lowest = where.bottom == 0
    noise[lowest] = np.maximum(noise[lowest], bend[0])
    if rungs.still[0].any():
        # with nothing but a plateau below, the height of its step is all there is
        flat = np.logical_and.accumulate(rungs.still, axis=0)
        early = np.concatenate([np.ones_like(flat[:1]), flat])[where.bottom]
        noise = np.maximum(noise, np.where(early, rungs.quantum, 0.0))
    np.maximum(growth, 1.0, out=growth)
    growth *= fixed
    rounding = lever * argument
    rounding += fixed
    np.maximum(rounding, growth, out=rounding)
    np.maximum(rounding, lever * noise, out=rounding)
    known = argument + rungs.unit[where.bottom]
    np.maximum(known, noise, out=known)
    argument += rungs.unit[where.top]
    return Runs(
        value=slope,
        truncation=table.truncation(known, rungs.blur),
        away=away,
        rounding=rounding,
        noise=noise,
        lever=lever,
        known=argument,
        loud=odd_one,
        bottom=where.bottom,
        top=where.top,
    )


def _choose(
    runs: Runs, rungs: Rungs | None = None, bend: np.ndarray | None = None
) -> Estimate:
    """Take the run with the smallest bar."""
    # runs from the very bottom have nothing below to measure noise by: borrow it
    lowest = runs.bottom == 0
    error = runs.truncation + runs.away
    bars = error + runs.rounding
    bars[~(np.isfinite(runs.value) & np.isfinite(bars))] = np.inf
    proven = bars.copy()
    proven[lowest] = np.inf
    proven[(runs.away > 0) | runs.loud] = np.inf
    lender = Pick(np.argmin(proven, axis=0))
    some = np.isfinite(lender(proven))
    borrowed = np.where(some, lender(runs.noise), -np.inf)
    noise, rounding = runs.noise.copy(), runs.rounding.copy()
    noise[lowest] = np.maximum(noise[lowest], borrowed)
    rounding[lowest] = np.maximum(rounding[lowest], runs.lever[lowest] * noise[lowest])
    runs = dataclasses.replace(runs, noise=noise, rounding=rounding)
    error += rounding
    error[np.isinf(bars)] = np.inf
    # a rung beyond the range of convergence adds nothing but looks harmless: prefer few
    length = (runs.top - runs.bottom)[:, None, None]
    best = np.argmin(error * (1 + 0.05 * length), axis=0)[None]
    split = np.full(best.shape[1:], np.nan)
    if rungs is not None and bend is not None:
        best, split = overrule(runs, rungs, bend, best)
    pick = Pick(best[0])
    overruled = pick(np.isinf(error)) | (pick(error) > 1.5 * error.min(axis=0))
    truncation = np.where(
        overruled, pick(runs.truncation), pick(runs.truncation + runs.away)
    )
    lost = ~np.isfinite(truncation)
    return Estimate(
        value=np.where(lost, np.nan, pick(runs.value)),
        truncation=np.where(lost, np.inf, truncation),
        rounding=np.where(lost, np.inf, pick(runs.rounding)),
        noise=np.where(lost, np.nan, pick(runs.noise)),
        known=np.where(lost, np.nan, pick(runs.known)),
        bottom=runs.bottom[best[0]],
        top=runs.top[best[0]],
        unexplained=pick(runs.loud) & ~lost & ~overruled,
        split=np.where(lost, np.nan, split),
        hidden=np.zeros(lost.shape),
        ledge=np.zeros(lost.shape),
    )


def _ledges(
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
