"""Extrapolating difference quotients to step zero, with a bar for every choice.

Each run of neighbouring rungs gives one extrapolated slope (Neville's scheme in h^2 for
central, in h for one-sided quotients). Its bar has two parts: truncation, judged by
what the last rung changed, and rounding, judged by how far the function strays from the
extrapolated curve on all smaller rungs. The run with the smallest bar is taken.

References
----------
C. J. F. Ridders, *Accurate computation of F'(x)*, Adv. Eng. Software 4 (1982).
O. V. Lepskii, *On a problem of adaptive estimation*, Theory Probab. Appl. 35 (1991).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.ladder.ledges import ledges
from gradlab.differentiation.ladder.runs import Estimate, Pick, Runs
from gradlab.differentiation.ladder.second_thoughts import overrule, roughen
from gradlab.differentiation.ladder.strays import Rungs, foretold_bends, strays
from gradlab.differentiation.ladder.tableau import Tableau, layout
from gradlab.differentiation.noise.noise import rounding_of

if TYPE_CHECKING:
    from gradlab.differentiation.ladder.rungs import Ladder

    Known = tuple[np.ndarray, np.ndarray]  # (m,) or (C, m) each

__all__ = ["extrapolate_central", "extrapolate_side"]

_FIRST = 2  # rung that is heard about the slope: those below it show the noise
_QUIETER = 8.0  # times their noise: what is above that is a slope


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
        apart = ledges(rungs, scales=scales, base=ladder.base, top=best.top)
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
