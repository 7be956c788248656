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

from gradlab.differentiation.ledges import ledges
from gradlab.differentiation.runs import Estimate, Runs
from gradlab.differentiation.second_thoughts import overrule, roughen
from gradlab.differentiation.strays import Rungs, foretold_bends, strays
from gradlab.differentiation.tableau import Table, foresee

if TYPE_CHECKING:
    from gradlab.differentiation.ladder import Ladder

__all__ = ["extrapolate_central", "extrapolate_side"]


def extrapolate_central(ladder: Ladder, floor: float, width: int) -> Estimate:
    """Find the best extrapolated central slope of every entry.

    Parameters
    ----------
    ladder
        The values.
    floor
        Relative rounding unit of the arithmetic f is evaluated in.
    width
        Largest number of rungs in one extrapolation.

    Returns
    -------
    Estimate
        With infinite error where no run of rungs is finite.
    """
    with np.errstate(all="ignore"):
        rungs = Rungs.of(ladder, floor)
        h = rungs.h
        nodes = (h / h[:1]) ** 2
        gains = np.stack([rungs.unit / h, np.broadcast_to(1 / h, rungs.unit.shape)])
        table = Table.of(rungs.odd / h, nodes, gains)
        bend = foretold_bends(rungs, width)
        # what every run foretells of the slope at every rung, (rung, run, C, m)
        forecast = np.repeat(table.slopes[0][None], h.shape[0], axis=0)
        basis = np.ones((h.shape[0], *nodes.shape))
        found = []
        for q in range(1, min(width, h.shape[0]) + 1):
            if q > 1:
                table.grow()
                basis, forecast = foresee(table, basis[:, :-1], forecast[:, :-1])
            found.append(_judge(table, forecast, bend, rungs))
        best = _choose(found, rungs, bend)
        best = roughen(best, table, rungs)
        scales = ladder.steps[0] * np.exp2(ladder.rungs[0])  # nearly: see `Ladder`
        apart = ledges(rungs, scales=scales, base=ladder.base, top=best.top)
        return dataclasses.replace(best, hidden=np.maximum(best.hidden, apart))


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
        unit = np.fmax(floor * size, np.nan_to_num(noise))
        gains = np.stack([2 * unit / h, np.broadcast_to(2 / h, unit.shape)])
        table = Table.of(slope, h / h[:1], gains)
        reach = floor * np.abs(ladder.points)[:, None]
        found = []
        for q in range(1, min(width, h.shape[0]) + 1):
            if q > 1:
                table.grow()
            now = table.slopes[-1]
            argument = reach * np.abs(now)
            rounding = table.gains[-1][0] + table.gains[-1][1] * argument
            truncation = table.truncation(unit[: now.shape[0]] + argument)
            runs = now.shape[0]
            found.append(
                Runs(
                    value=now,
                    truncation=truncation,
                    away=np.zeros(now.shape),
                    rounding=rounding,
                    noise=argument,
                    lever=table.gains[-1][1],
                    known=argument,
                    loud=np.zeros(now.shape, bool),
                    bottom=np.arange(runs),
                    top=np.arange(runs) + q - 1,
                )
            )
        return _choose(found)


def _judge(table: Table, forecast: np.ndarray, bend: np.ndarray, rungs: Rungs) -> Runs:
    """Give every run of q rungs its two bars, noise, and whether it is unexplained."""
    slope, q = table.slopes[-1], len(table.slopes)
    fixed, lever = table.gains[-1]
    runs = slope.shape[0]
    argument = rungs.reach * np.abs(slope)  # rounding of the argument: x (1 + eps)
    # with nothing but a plateau below, the height of its step is all there is to judge
    flat = np.logical_and.accumulate(rungs.still, axis=0)
    early = np.concatenate([np.ones_like(flat[:1]), flat])[:runs]
    noise = np.where(early, rungs.quantum, 0.0)
    noise[0] = np.maximum(noise[0], bend[0])
    odd_one = np.zeros(slope.shape, bool)
    away = np.zeros(slope.shape)
    growth = np.ones(slope.shape)
    if runs > 1:
        stray, growth, away, odd_one = strays(forecast, bend, argument, rungs)
        noise = np.maximum(noise, stray)
    known = np.maximum(noise, argument + rungs.unit[:runs])
    rounding = np.maximum(lever * noise, fixed * np.maximum(growth, 1.0))
    rounding = np.maximum(rounding, fixed + lever * argument)
    return Runs(
        value=slope,
        truncation=table.truncation(known),
        away=away,
        rounding=rounding,
        noise=noise,
        lever=lever,
        known=argument + rungs.unit[q - 1 :],
        loud=odd_one,
        bottom=np.arange(runs),
        top=np.arange(runs) + q - 1,
    )


def _choose(
    found: list[Runs], rungs: Rungs | None = None, bend: np.ndarray | None = None
) -> Estimate:
    """Take the run with the smallest bar."""
    runs = Runs.join(found)
    # runs from the very bottom have nothing below to measure noise by: borrow it
    lowest = (runs.bottom == 0)[:, None, None]
    error = runs.truncation + runs.away + runs.rounding
    error = np.where(np.isfinite(runs.value) & np.isfinite(error), error, np.inf)
    proven = np.where(lowest | (runs.away > 0) | runs.loud, np.inf, error)
    lender = np.argmin(proven, axis=0)[None]
    borrowed = np.take_along_axis(runs.noise, lender, axis=0)
    some = np.isfinite(np.take_along_axis(proven, lender, axis=0))
    noise = np.where(lowest & some, np.maximum(runs.noise, borrowed), runs.noise)
    rounding = np.maximum(runs.rounding, runs.lever * noise)
    runs = dataclasses.replace(runs, noise=noise, rounding=rounding)
    error = np.where(np.isfinite(error), runs.truncation + runs.away + rounding, np.inf)
    # a rung beyond the range of convergence adds nothing but looks harmless: prefer few
    length = (runs.top - runs.bottom)[:, None, None]
    best = np.argmin(error * (1 + 0.05 * length), axis=0)[None]
    split = np.full(best.shape[1:], np.nan)
    if rungs is not None and bend is not None:
        best, split = overrule(runs, rungs, bend, best)

    def pick(array: np.ndarray) -> np.ndarray:
        return np.asarray(np.take_along_axis(array, best, axis=0)[0])

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
    )
