"""How far a function strays from a smooth curve, rung by rung.

What lies below the rungs that an extrapolation rests on measures its noise: there the
curve is known, and the rest is rounding, single precision inside, or a solver's
tolerance. A stray that dies out below is no noise but structure.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.ladder.runs import Pick
from gradlab.differentiation.noise.noise import rounding_of

if TYPE_CHECKING:
    from gradlab.differentiation.ladder.rungs import Ladder
    from gradlab.differentiation.ladder.tableau import Layout, Tableau

__all__ = ["Rungs", "foretold_bends", "strays"]

_STRAY = 20.0  # a stray this many times the rounding unit needs an explanation
_TREND = 5.0  # and is no noise where rungs 16 times smaller are this much quieter
_GENTLE = 1e-3  # relative height of what f32 may do just above a plateau of its own
_EDGE = 6.0  # times the height of a step: more than its edges bend f by
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
    blur: np.ndarray | None  # of the odd part by h, where noise is known from elsewhere

    @classmethod
    def of(
        cls, ladder: Ladder, floor: float, noise: np.ndarray, grain: np.ndarray
    ) -> Rungs:
        """Take a ladder apart, for arithmetic with the given rounding unit.

        No rounding is smaller than the noise of f that is known from elsewhere, (C, m),
        nor than the relative `grain` of f leaves of its largest value.
        """
        h = ladder.steps[:, :, None]
        size = np.fmax(np.abs(ladder.right), np.abs(ladder.left))
        size = np.fmax(size, np.abs(ladder.base))
        ahead, behind = ladder.right - ladder.base, ladder.left - ladder.base
        still = (ahead == 0) & (behind == 0)
        noise = np.fmax(noise, grain * size) if grain.any() else noise
        unit = np.fmax(floor * size, np.fmax(noise, rounding_of(ladder.base, floor)))
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
            # where nothing has moved nothing was rounded
            blur=np.where(still, 0.0, noise / h) if noise.any() else None,
        )


def _quantum(
    ladder: Ladder,
    still: np.ndarray,
    ahead: np.ndarray,
    behind: np.ndarray,
    unit: np.ndarray,
) -> np.ndarray:
    """Find the height of the steps of a fine staircase; 0 where there is none."""
    if not still[0].any():
        return np.zeros(still.shape[1:])
    count = np.minimum.accumulate(still, axis=0).sum(axis=0)  # still rungs from below
    moved = np.where(np.isfinite(ahead) & np.isfinite(behind), 1.0, 0.0)
    moved *= np.fmax(np.abs(ahead), np.abs(behind))
    first = np.minimum(count, still.shape[0] - 1)
    at = Pick(first)
    height = at(moved)
    loud = height > _STRAY * at(unit)
    columns = np.arange(still.shape[1])[:, None]
    narrow = ladder.rungs[np.maximum(count - 1, 0), columns] > _PLATEAU
    # a fine staircase steps on both sides alike; a kink nearby does not. Close to the
    # edge of a step the other side takes its own much later, and bends no more by then
    sides = np.abs(ahead), np.abs(behind)
    alike = np.minimum(*sides) * 30 > np.maximum(*sides)
    level = np.arange(len(still))[:, None, None]
    late = (np.abs(ahead + behind) <= _EDGE * height) & (ahead * behind < 0)
    both = (alike & (level >= first) & (late | (level <= first + 1))).any(axis=0)
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
    squares = rungs.h**2
    curve = rungs.even / squares
    least = np.full(rungs.even.shape, np.inf)
    for q in range(1, min(width, curve.shape[0] - 1) + 1):
        if q > 1:
            ratio = nodes[q - 1 :] / nodes[: nodes.shape[0] - q + 1]
            last, curve = curve, np.subtract(curve[:-1], curve[1:])
            curve /= ratio - 1
            curve += last[:-1]
        runs = curve.shape[0] - 1
        rest = squares[:runs] * curve[1:]
        np.subtract(rungs.even[:runs], rest, out=rest)
        np.abs(rest, out=rest)
        np.fmin(least[:runs], rest, out=least[:runs])
    least[~np.isfinite(least)] = 0.0
    return least


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Strays of f at a rung from what a run above foretells; all arrays (P, C, m)."""

    line: np.ndarray  # of the odd part
    even: np.ndarray  # of the even part
    total: np.ndarray  # the larger of both
    known: np.ndarray  # what rounding explains
    valid: np.ndarray | None  # None where all are


def strays(
    table: Tableau, bend: np.ndarray, argument: np.ndarray, rungs: Rungs
) -> tuple[np.ndarray, ...]:
    """Compare every run with all rungs below it.

    Returns the largest stray of f from the extrapolated line, absolute and in units of
    rounding; how far the slope is from that of a rung whose stray cannot be noise,
    because rungs below it are much quieter; and whether a stray has no rungs below it
    that could tell.
    """
    where = table.layout
    away = np.zeros(argument.shape)
    unexplained = np.zeros(away.shape, bool)
    pairs = _pairs(table, bend, argument, rungs)
    limit = _STRAY * pairs.known
    loud = pairs.line > limit
    kinked = pairs.even > limit
    kinked &= pairs.even > 1e-3 * np.abs(rungs.odd)[where.rung]
    hot = np.flatnonzero((loud | kinked).any(axis=(1, 2)))
    if hot.size:
        quiet = _quiet(table.layout, hot, pairs, rungs)
        deaf = quiet == 0
        quiet *= _TREND
        line, even, total = pairs.line[hot], pairs.even[hot], pairs.total[hot]
        loud, kinked = loud[hot], kinked[hot]
        # an even part that shrinks like h, not h^2, is a kink: no noise either
        kinked_loudly = kinked & (even > quiet)
        fault = ((loud & (line > quiet)) | kinked_loudly) & ~deaf
        plateau = rungs.still[0] & (rungs.quantum > 0)
        lost = (loud | kinked_loudly) & deaf & ~plateau
        total /= rungs.h[where.rung[hot]]
        total[~fault] = 0.0
        ends = np.searchsorted(hot, [level.stop for level in where.levels])
        for start, stop in zip([0, *ends], ends, strict=False):
            some = where.run[hot[start:stop]]
            away[some] = np.maximum(away[some], total[start:stop])
            unexplained[some] |= lost[start:stop]
    peak, growth = _growth(where, pairs.total, rungs.unit)
    return peak, growth, away, unexplained


def _pairs(
    table: Tableau, bend: np.ndarray, argument: np.ndarray, rungs: Rungs
) -> _Pairs:
    """Measure how far f is from every run at every rung below it."""
    rung, run = table.layout.rung, table.layout.run
    line = table.foretold()
    line *= rungs.h[rung]
    np.subtract(rungs.odd[rung], line, out=line)
    np.abs(line, out=line)
    known = rungs.unit[rung]
    known += argument[run]
    even = bend[rung]
    valid = np.isfinite(line)
    if valid.all():
        return _Pairs(line, even, np.maximum(line, even), known, None)
    line[~valid] = 0.0
    even[~valid] = 0.0
    return _Pairs(line, even, np.maximum(line, even), known, valid)


def _quiet(where: Layout, hot: np.ndarray, pairs: _Pairs, rungs: Rungs) -> np.ndarray:
    """Loudest stray of some pairs' runs on rungs 16 times smaller; 0 where none is."""
    heard = np.fmax(pairs.total, pairs.known)
    if pairs.valid is not None:
        heard[~pairs.valid] = 0.0
    if rungs.still[0].any():
        heard[rungs.still[where.rung]] = 0.0
    for j in range(1, len(where.levels)):
        last, now = heard[where.levels[j - 1]], heard[where.levels[j]]
        np.maximum(now, last[last.shape[0] - now.shape[0] :], out=now)
    small = (rungs.h[:, None] <= rungs.h[None] / 15).sum(axis=0)[where.rung[hot]]
    quiet = np.zeros((hot.size, *heard.shape[1:]))
    for number in range(1, int(small.max()) + 1):
        own = small == number
        some = np.flatnonzero(own.any(axis=(1, 2)))
        if some.size:
            found = heard[where.place[number - 1, where.run[hot[some]]]]
            if own[some].all():
                quiet[some] = found
            else:
                quiet[some] = np.where(own[some], found, quiet[some])
    return quiet


def _growth(
    where: Layout, total: np.ndarray, unit: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Largest stray of every run, absolute and in units of rounding where it was made.

    Noise is measured low on the ladder; where f is larger it may be larger as well.
    """
    shape = (where.bottom.size, *unit.shape[1:])
    peak, most = np.zeros(shape), np.zeros(shape)
    for level, tail in zip(where.levels, where.tails, strict=True):
        np.maximum(peak[tail:], total[level], out=peak[tail:])
    third = peak / 3
    for j, (level, tail) in enumerate(zip(where.levels, where.tails, strict=True)):
        high = np.where(total[level] >= third[tail:], unit[j], 0.0)
        np.maximum(most[tail:], high, out=most[tail:])
    growth = peak / most
    growth[~((peak > 0) & np.isfinite(growth))] = 1.0
    return peak[where.back], growth[where.back]
