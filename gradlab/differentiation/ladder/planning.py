"""Which step to try next, decided by the error bar found so far.

While rounding dominates the bar, larger steps or rungs between large ones help; while
truncation does, smaller ones. Doubt about the kind of point goes first, a look for
hidden jumps comes last.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gradlab.differentiation.ladder.derivatives import AdaptiveSettings
    from gradlab.differentiation.ladder.rungs import Ladder
    from gradlab.differentiation.ladder.runs import Estimate
    from gradlab.differentiation.ladder.suspicion import Suspicion

__all__ = ["STILL", "Situation", "next_rungs", "unsettled"]

_SHAKY = 1e-5  # relative noise above which climbing beyond the scale averages signals
_SEVERAL = 8  # outputs, before anything can be called usual
_SIMILAR = 10.0  # times what is usual beside the rounding of f, for a bar to be so, too
_FINE = 1e-8  # relative bar that will do where the slope is small beside the rounding
# exponents over the stride, of steps long enough for an extrapolation to one side
_LONG = (1.5, 2 / 3, 4 / 3, 5 / 3)
_TOLD = 0.01  # relative bar: five of a wider one are hardly told from no slope
_PATIENCE = 0.7  # a bar not better than this after four rounds will not get better
STILL = 6  # powers of two beyond the scale of a coordinate, where no climb goes on


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Situation:
    """All that the next step depends on, for C coordinates.

    Attributes
    ----------
    ladder, estimate, doubt
        What has been evaluated and what it says.
    limit
        Largest useful exponent: below it steps drown in the spacing of x, (C,).
    stride
        Exponents between the first rungs; 6 in float64, fewer in shorter arithmetic.
    record
        Worst bars of the last four rounds, inf where they do not count, (4, C).
    size
        Largest output at the point.
    """

    ladder: Ladder
    estimate: Estimate
    doubt: Suspicion
    limit: np.ndarray
    stride: float
    record: np.ndarray
    size: float


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Needy:
    """The output of each coordinate that most needs work; all arrays (C,)."""

    relative: np.ndarray  # its relative error bar
    moving: np.ndarray  # the largest of those of outputs that move
    bottom: np.ndarray  # indices of the run it rests on
    top: np.ndarray
    low: np.ndarray  # their exponents
    high: np.ndarray
    below: np.ndarray  # exponents of the neighbours of the run, nan where none
    above: np.ndarray
    last: np.ndarray  # index of the largest rung
    frozen: np.ndarray  # f does not move
    truncated: np.ndarray  # truncation dominates, not rounding
    balanced: np.ndarray  # but rounding is not far behind
    shaky: np.ndarray  # large noise


def next_rungs(
    now: Situation, settings: AdaptiveSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Say which rungs each coordinate needs next.

    Returns
    -------
    exponents
        Shape (2, C), nan where nothing is needed.
    bar
        Worst relative bar of each coordinate, for the record; inf where it is not
        comparable with earlier ones.
    """
    with np.errstate(all="ignore"):
        bent = now.doubt.bent
        missing = _missing(now, bent)
        needy = _needy(now, settings, bent & np.isnan(missing[0])[:, None])
        bar = needy.relative
        stuck = np.isfinite(now.record).all(axis=0) & (bar > _PATIENCE * now.record[0])
        stuck &= ~_half_told(needy)
        wish = np.full(bar.size, np.nan)
        unfinished = ~((bar <= settings.tolerance) | stuck)
        down, up = unfinished & needy.truncated, unfinished & ~needy.truncated
        if down.any():
            wish = np.where(down, _down(now, needy), wish)
        if up.any():
            wish = np.where(up, _up(now, needy, settings), wish)
    smallest = now.ladder.rungs[0]
    # finished, but the smallest rung is part of it: look below once, to measure noise
    probe = np.minimum(smallest + np.ceil(now.stride / 2), now.limit)
    unproven = np.isnan(wish) & (needy.bottom == 0) & (probe > smallest)
    wish, bar = np.where(unproven, probe, wish), np.where(unproven, np.inf, bar)
    urgent = _urgent(now, needy)
    wish = np.where(np.isnan(urgent), wish, urgent)
    wish = np.where((now.ladder.rungs == wish).any(axis=0), np.nan, wish)
    bar = np.where(np.isnan(urgent), bar, np.inf)
    finished = np.isnan(wish) & (bar <= settings.tolerance)
    wishes = np.stack([wish, np.full(wish.size, np.nan)])
    if finished.any():
        wishes = np.where(finished, _neighbours(now, needy), wishes)
    wanting = np.isfinite(missing[0])
    return np.where(wanting, missing, wishes), np.where(wanting, np.inf, bar)


def _half_told(needy: _Needy) -> np.ndarray:
    """Say which slopes are seen, hardly told, and lack a rung beside their run, (C,).

    A climb far beyond the scale on which f lives (of an exponential at 30) takes four
    rounds that tell nothing, and back.
    """
    vague = (needy.relative > _TOLD) & (needy.relative < 1)
    beside = np.fmax(needy.low - needy.above, needy.below - needy.low)
    return np.asarray(vague & (beside >= 2))


def _missing(now: Situation, bent: np.ndarray) -> np.ndarray:
    """Give rungs that extrapolations to one side still lack, (2, C); else nan."""
    wish = np.full((2, bent.shape[0]), np.nan)
    rungs, columns = now.ladder.rungs, np.flatnonzero(bent.any(axis=1))
    for column in columns:
        long = [np.round(share * now.stride) for share in _LONG]
        lacking = [rung for rung in long if rung not in rungs[:, column]][:2]
        wish[: len(lacking), column] = lacking
    return wish


def _relative_bars(estimate: Estimate, base: np.ndarray) -> np.ndarray:
    """Return the bar of every entry as a share of its slope, (C, m).

    inf where there is no slope, 0 where it is exact or f has no value to start from.
    """
    relative = estimate.error / np.abs(estimate.value)
    relative = np.where(np.isnan(relative), np.inf, relative)
    exact = (estimate.error == 0) & np.isfinite(estimate.value)
    return np.where(exact | ~np.isfinite(base), 0.0, relative)


def _excused(
    estimate: Estimate, relative: np.ndarray, settings: AdaptiveSettings
) -> np.ndarray:
    """Say which outputs are as good as they get, however small their slope, (C, m).

    Where most outputs of a coordinate are finished, no ladder helps those whose bar is
    as usual beside the rounding of f: it is large only beside a slope that is small.
    """
    if relative.shape[1] < _SEVERAL:
        return np.zeros(relative.shape, bool)
    done = np.median(relative, axis=1, keepdims=True) <= settings.tolerance
    if not done.any():
        return np.zeros(relative.shape, bool)
    share = estimate.error / estimate.known
    usual = np.median(share, axis=1, keepdims=True)
    return np.asarray(done & (share <= _SIMILAR * usual) & (relative <= _FINE))


def _still(estimate: Estimate) -> np.ndarray:
    """Say which outputs no step has moved, beside some that move, (C, m)."""
    still = estimate.value == 0
    return np.asarray(still & ~still.all(axis=1, keepdims=True))


def _settled_still(estimate: Estimate, rungs: np.ndarray) -> np.ndarray:
    """Say which of these no longer step will move, (C, m).

    Their bar is no share of their slope, of zero, so that they would ask for rungs that
    are not to be had, in place of those that the others need.
    """
    high = rungs[estimate.top, np.arange(rungs.shape[1])[:, None]]
    return np.asarray(_still(estimate) & (high <= -STILL))


def _needy(now: Situation, settings: AdaptiveSettings, done: np.ndarray) -> _Needy:
    """Pick the output of each coordinate with the worst bar that is not done."""
    estimate, ladder = now.estimate, now.ladder
    rungs, last = ladder.rungs, ladder.count - 1
    columns = np.arange(last.size)
    relative = _relative_bars(estimate, ladder.base)
    relative = np.where(_excused(estimate, relative, settings), 0.0, relative)
    relative = np.where(done | _settled_still(estimate, rungs), 0.0, relative)
    which = relative.argmax(axis=1)

    def at(array: np.ndarray) -> np.ndarray:
        return np.asarray(array[columns, which])

    bottom, top = at(estimate.bottom), at(estimate.top)
    above = rungs[np.minimum(top + 1, last), columns]
    below = rungs[np.maximum(bottom - 1, 0), columns]
    truncated = at(estimate.truncation) > at(estimate.rounding)
    # a single rung is compared with the one below, whose own noise is no truncation
    lower = ladder.steps[np.maximum(bottom - 1, 0), columns]
    shaken = at(estimate.truncation) <= 3 * at(estimate.noise) / lower
    truncated &= ~((bottom == top) & (bottom > 0) & shaken)
    return _Needy(
        relative=relative.max(axis=1),
        moving=np.where(_still(estimate), 0.0, relative).max(axis=1),
        bottom=bottom,
        top=top,
        low=rungs[bottom, columns],
        high=rungs[top, columns],
        below=np.where(bottom > 0, below, np.nan),
        above=np.where(top < last, above, np.nan),
        last=last,
        frozen=at(estimate.value == 0),
        truncated=truncated,
        balanced=at(estimate.truncation) < 4 * at(estimate.rounding),
        shaky=at(estimate.noise) > _SHAKY * now.size,
    )


def _up(now: Situation, needy: _Needy, settings: AdaptiveSettings) -> np.ndarray:
    """Fight rounding: fill in among the larger rungs of the run, then climb."""
    high = needy.high
    gain = np.nan_to_num(np.log2(needy.relative / settings.tolerance), posinf=12)
    climb = high - np.clip(np.ceil(gain), 3, 2 * now.stride)
    climb = np.where(needy.shaky, np.maximum(climb, -3), climb)
    # where f does not move at all: to the scale of the coordinate, and a little beyond
    still = np.where(high > 0, np.maximum(high - 6, 0), high - 6)
    climb = np.where(needy.frozen, np.where(high > -STILL, still, np.nan), climb)
    climb = np.maximum(climb, -settings.farthest)
    climb = np.where(climb < high, climb, np.nan)
    stop = np.minimum(needy.top + 1, needy.last)
    fill = _widest(now.ladder.rungs, needy.bottom, stop, 2)
    # at the top: a rung more within the run shows whether it is of one series at all
    inner = _widest(now.ladder.rungs, needy.bottom, needy.top, 2)
    climb = np.where(np.isnan(climb) & ~needy.frozen, inner, climb)
    return np.where(np.isnan(needy.above), climb, fill)


def _down(now: Situation, needy: _Needy) -> np.ndarray:
    """Fight truncation: fill the widest gap of the run, else go below it."""
    inner = _widest(now.ladder.rungs, needy.bottom, needy.top, 4)
    # below, rounding would soon be larger: one order more on the same rungs instead
    stop = np.minimum(needy.top + 1, needy.last)
    order = _widest(now.ladder.rungs, needy.bottom, stop, 2)
    inner = np.where(needy.balanced & np.isnan(inner), order, inner)
    gap = needy.below - needy.low
    between = np.where(gap >= 2, np.floor((needy.low + needy.below) / 2), np.nan)
    under = np.where(np.isnan(needy.below), needy.low + 3, between)
    return np.where(np.isnan(inner), under, inner)


def _urgent(now: Situation, needy: _Needy) -> np.ndarray:
    """Return the rung that settles a doubt, nan where there is none."""
    rungs, estimate = now.ladder.rungs, now.estimate
    smallest = rungs[0]
    doubt = _doubts(now, needy.moving[:, None])
    dive = np.minimum(smallest + now.stride, now.limit)
    urgent = np.where(doubt.any(axis=1) & (dive > smallest), dive, np.nan)
    # a rung is missing between a fine slope and the strays above it
    cut = np.fmax(estimate.split, -1.0).max(axis=1).astype(int)
    columns = np.arange(cut.size)
    below, above = rungs[cut, columns], rungs[np.minimum(cut + 1, needy.last), columns]
    split = (cut >= 0) & (below - above >= 2)
    return np.where(split, np.floor((below + above) / 2), urgent)


def _doubts(now: Situation, relative: np.ndarray) -> np.ndarray:
    """Say which outputs ask for a look at smaller steps, (C, m)."""
    lost = ~np.isfinite(now.estimate.error) & np.isfinite(now.ladder.base)
    useful = (now.ladder.rungs[0] < 5 * now.stride)[:, None] | (relative > 1)
    return np.asarray(now.doubt.descend | lost | (now.estimate.unexplained & useful))


def unsettled(now: Situation, settings: AdaptiveSettings) -> np.ndarray:
    """Say which outputs a ladder does not serve that was built for others, (C, m).

    Parameters
    ----------
    now
        All outputs, read after the ladder was finished for some.
    settings
        The bar at which an output is finished.
    """
    with np.errstate(all="ignore"):
        estimate = now.estimate
        relative = _relative_bars(estimate, now.ladder.base)
        found = relative > settings.tolerance
        found &= ~_excused(estimate, relative, settings)
        found |= _doubts(now, relative)
        cut = np.fmax(estimate.split, -1.0).astype(int)
        columns = np.arange(len(cut))[:, None]
        above = np.minimum(cut + 1, now.ladder.count[:, None] - 1)
        gap = now.ladder.rungs[cut, columns] - now.ladder.rungs[above, columns]
        found |= (cut >= 0) & (gap >= 2)
    return found


def _neighbours(now: Situation, needy: _Needy) -> np.ndarray:
    """Return two rungs beside the top of a finished run, nan where not needed.

    Close neighbours show the jumps of a solver, which wide gaps hide.
    """
    rungs, high = now.ladder.rungs, needy.high
    step = np.where(high <= now.stride / 2, 1, -1)
    close = np.stack([high + step, high + 2 * step])
    known = (rungs[None] == close[:, None]).any(axis=1)
    crowded = (np.abs(rungs - high) <= 3).sum(axis=0) >= 4
    return np.where(known | crowded | needy.frozen, np.nan, close)


def _widest(
    rungs: np.ndarray, start: np.ndarray, stop: np.ndarray, least: int
) -> np.ndarray:
    """Return the middle of the widest gap between rungs start..stop, nan if narrow."""
    gaps = rungs[:-1] - rungs[1:]
    index = np.arange(len(gaps))[:, None]
    wide = (index >= start) & (index < stop) & (gaps >= least - 0.5)
    gaps = np.where(wide, gaps, -np.inf)
    # of equally wide ones that of the larger steps
    last = len(gaps) - 1 - gaps[::-1].argmax(axis=0)
    columns = np.arange(start.size)
    middle = np.floor((rungs[last, columns] + rungs[last + 1, columns]) / 2)
    return np.where(wide.any(axis=0), middle, np.nan)
