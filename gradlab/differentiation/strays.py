"""How far a function strays from a smooth curve, rung by rung.

What lies below the rungs that an extrapolation rests on measures its noise: there the
curve is known, and the rest is rounding, single precision inside, or a solver's
tolerance. A stray that dies out below is no noise but structure.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.tableau import Table

if TYPE_CHECKING:
    from gradlab.differentiation.ladder import Ladder

__all__ = ["Rungs", "foretold_bends", "strays"]

_STRAY = 20.0  # a stray this many times the rounding unit needs an explanation
_TREND = 5.0  # and is no noise where rungs 16 times smaller are this much quieter
_GENTLE = 1e-3  # relative height of what f32 may do just above a plateau of its own
_SINGLE = 2.0**-23  # relative spacing of single precision
_PLATEAU = 12.0  # plateaus narrower than 2^-12 of the scale are rounding inside f


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Rungs:
    """Odd and even parts of f about the point, and what rounding does to them."""

    h: np.ndarray  # (L, C, 1)
    odd: np.ndarray  # (L, C, m)
    even: np.ndarray
    unit: np.ndarray  # rounding of f itself
    reach: np.ndarray  # (C, 1): rounding of the argument, times the slope
    still: np.ndarray  # f did not move at all
    quantum: np.ndarray  # (C, m): size of its first move above a narrow plateau
    floor: float

    @classmethod
    def of(cls, ladder: Ladder, floor: float) -> Rungs:
        """Take a ladder apart, for arithmetic with the given rounding unit."""
        h = ladder.steps[:, :, None]
        size = np.fmax(np.abs(ladder.right), np.abs(ladder.left))
        size = np.fmax(size, np.abs(ladder.base))
        ahead, behind = ladder.right - ladder.base, ladder.left - ladder.base
        still = (ahead == 0) & (behind == 0)
        unit = floor * size
        odd, even = (ladder.right - ladder.left) / 2, (ahead + behind) / 2
        # x + h and x - h round differently, so the two displacements do as well
        skew = ((ladder.ahead - ladder.behind) / 2)[:, :, None] / h
        odd, even = odd - even * 2 * skew, even - odd * skew
        return cls(
            h=h,
            odd=odd,
            even=even,
            unit=unit,
            reach=floor * np.abs(ladder.points)[:, None],
            still=still,
            quantum=_quantum(ladder, still, ahead, behind, unit),
            floor=floor,
        )


def _quantum(
    ladder: Ladder,
    still: np.ndarray,
    ahead: np.ndarray,
    behind: np.ndarray,
    unit: np.ndarray,
) -> np.ndarray:
    """Find the height of the steps of a fine staircase; 0 where there is none."""
    count = np.minimum.accumulate(still, axis=0).sum(axis=0)  # still rungs from below
    moved = np.where(np.isfinite(ahead) & np.isfinite(behind), 1.0, 0.0)
    moved *= np.fmax(np.abs(ahead), np.abs(behind))
    first = np.minimum(count, still.shape[0] - 1)[None]
    height = np.take_along_axis(moved, first, axis=0)[0]
    loud = height > _STRAY * np.take_along_axis(unit, first, axis=0)[0]
    columns = np.arange(still.shape[1])[:, None]
    narrow = ladder.rungs[np.maximum(count - 1, 0), columns] > _PLATEAU
    # a fine staircase steps on both sides alike; a kink nearby does not
    both = np.zeros(loud.shape, bool)
    for above in (0, 1):
        index = np.minimum(first + above, still.shape[0] - 1)
        moves = [
            np.abs(np.take_along_axis(side, index, axis=0)[0])
            for side in (ahead, behind)
        ]
        both |= np.minimum(*moves) * 30 > np.maximum(*moves)
    # a wide one may still be rounding to single precision, at the top of a hill
    size = np.abs(ladder.base)
    rounded = np.where(height < _GENTLE * size, np.minimum(height, _SINGLE * size), 0.0)
    quantum = np.where(narrow, height, rounded)
    return np.where((count > 0) & loud & both, quantum, 0.0)


def foretold_bends(rungs: Rungs, width: int) -> np.ndarray:
    """Say how far the even part of each rung is from what the rungs above foretell.

    Where f is smooth that is truncation, and the best of several extrapolations has
    little of it; noise is the same in all of them.
    """
    nodes = (rungs.h / rungs.h[:1]) ** 2
    curve = rungs.even / rungs.h**2
    table = Table.of(curve, nodes, np.stack([curve, curve]))
    least = np.full(rungs.even.shape, np.inf)
    for q in range(1, min(width, curve.shape[0] - 1) + 1):
        if q > 1:
            table.grow()
        ahead = table.slopes[-1][1:]
        rest = np.abs(
            rungs.even[: ahead.shape[0]] - rungs.h[: ahead.shape[0]] ** 2 * ahead
        )
        least[: ahead.shape[0]] = np.fmin(least[: ahead.shape[0]], rest)
    return np.where(np.isfinite(least), least, 0.0)


def strays(
    forecast: np.ndarray, bend: np.ndarray, argument: np.ndarray, rungs: Rungs
) -> tuple[np.ndarray, ...]:
    """Compare every run with all rungs below it.

    Returns the largest stray of f from the extrapolated line, absolute and in units of
    rounding; how far the slope is from
    that of a rung whose stray cannot be noise, because rungs below it are much quieter;
    and whether a stray has no rungs below it that could tell.
    """
    runs, shape = forecast.shape[1], forecast.shape[1:]
    peak, away = np.zeros(shape), np.zeros(shape)
    unexplained = np.zeros(shape, bool)
    plateau = rungs.still[0] & (rungs.quantum > 0)
    totals: list[np.ndarray] = []
    loudest: list[np.ndarray] = []  # of all rungs up to each, in the runs above it
    for j in range(runs - 1):
        above = slice(j + 1, None)  # runs that rest on larger rungs only
        line = np.abs(rungs.odd[j] - rungs.h[j] * forecast[j, above])
        known = rungs.unit[j] + argument[above]
        valid = np.isfinite(line)
        line = np.where(valid, line, 0.0)
        even = np.where(valid, bend[j], 0.0)
        total = np.maximum(line, even)
        heard = np.where(valid & ~rungs.still[j], np.fmax(total, known), 0.0)
        totals.append(total)
        loudest.append(np.maximum(loudest[-1][1:], heard) if j else heard)
        np.maximum(peak[above], total, out=peak[above])
        loud = line > _STRAY * known
        kinked = (even > _STRAY * known) & (even > 1e-3 * np.abs(rungs.odd[j]))
        if not (loud.any() or kinked.any()):
            continue
        quiet = _up_to(loudest, (rungs.h[:runs] <= rungs.h[j] / 15).sum(axis=0))
        deaf = quiet == 0
        # an even part that shrinks like h, not h^2, is a kink: no noise either
        fault = (loud & (line > _TREND * quiet)) | (kinked & (even > _TREND * quiet))
        fault &= ~deaf
        away[above] = np.maximum(away[above], np.where(fault, total / rungs.h[j], 0.0))
        kinked &= even > _TREND * quiet
        unexplained[above] |= (loud | kinked) & deaf & ~plateau
    # noise is measured low on the ladder; where f is larger it may be larger as well
    typical = np.full(shape, np.inf)
    for j, total in enumerate(totals):
        top = peak[j + 1 :]
        share = np.where(total >= top / 3, top / rungs.unit[j], np.inf)
        np.minimum(typical[j + 1 :], share, out=typical[j + 1 :])
    growth = np.where((peak > 0) & np.isfinite(typical), typical, 1.0)
    return peak, growth, away, unexplained


def _up_to(loudest: list[np.ndarray], count: np.ndarray) -> np.ndarray:
    """Pick of running maxima those of the first `count` (C, 1) rungs; 0 for none.

    In the runs above the last of `loudest`, which are fewer than those above others.
    """
    runs = loudest[-1].shape[0]
    least, most = int(count.min()), int(count.max())
    if least == most and most:
        return loudest[most - 1][-runs:]
    quiet = np.zeros(loudest[-1].shape)
    for number in range(max(least, 1), most + 1):
        quiet = np.where(count == number, loudest[number - 1][-runs:], quiet)
    return quiet
