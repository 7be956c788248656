"""Reading a curve of error against step: slopes, floor, best step, kinks.

Too large a step truncates (the error grows like ``A h**p``), too small a step cancels
(it grows like ``u / h``). Both branches are fitted robustly, by the median of pairwise
slopes (Theil, 1950; Sen, J. Am. Stat. Assoc. 63, 1968), so that the zeros which such
curves have where errors of opposite sign happen to cancel do not count.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.curve_kinks import kink_distance

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "FEW",
    "NOTHING",
    "ORDERS",
    "CurveReading",
    "envelope",
    "flat_part",
    "plateau",
    "read_curve",
]

# Order of the truncation error of every method that takes a step.
ORDERS = {"central": 2, "forward": 1, "backward": 1, "complex-step": 2, "five-point": 4}

_SATURATED = 0.03  # relative errors above this are no longer in proportion to h**p
_CLEAR = 20.0  # times the rounding error, for a truncation error to be seen
_WINDOW = 6  # points of the truncation branch that are fitted: the smallest steps
FEW = 6  # steps: fewer make no curve
NOTHING = 0.3  # relative errors above this leave not one digit
_REACH = 2 / 3  # decades over which a curve must be low to count as low
_SPARSE = 0.3  # share of errors above 0 from which on the zeros count as luck
_SAME = 0.1  # spread of errors that count as the same, relative
_LONG = 1.5  # decades over which an error that stays the same is none of the step
_INTEGER = 0.35  # a slope this close to an integer is that integer
_GAP = 3.0  # times the usual distance of two steps: beyond, a ladder has two parts
_ON = 0.3  # decades by which a point may miss a line that it lies on


@dataclasses.dataclass(frozen=True, slots=True)
class CurveReading:
    """What one curve of error against step says.

    Parameters
    ----------
    truncation, roundoff
        Slopes of the two branches on log-log axes; nan where a branch is not seen.
    best_step
        Where the fitted branches balance; without one of them, the middle of the
        flattest, lowest part; of a ladder too short for either, the lowest of all. nan
        if the curve has no finite point, or no step gives a digit.
    floor
        Smallest error that is not a lucky crossing: the minimum of the fitted branches,
        or of the running maximum over neighbouring steps.
    truncation_line, roundoff_line
        ``(p, c)`` of ``10**c * h**p``; c is nan where there is no such branch.
    kink
        Distance at which the error leaps, or nan.
    """

    truncation: float
    roundoff: float
    best_step: float
    floor: float
    truncation_line: tuple[float, float]
    roundoff_line: tuple[float, float]
    kink: float


def _slope(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Median of the slopes between all pairs of points."""
    i, j = np.triu_indices(x.size, 1)
    return float(np.median((y[j] - y[i]) / (x[j] - x[i])))


def envelope(errors: NDArray[np.float64], reach: int = 1) -> NDArray[np.float64]:
    """Return the running maximum of neighbours: lucky crossings disappear.

    Parameters
    ----------
    errors
        One curve.
    reach
        Neighbours on either side that count.

    Examples
    --------
    >>> envelope(np.array([1.0, 1.0, 1e-9, 1.0, 1.0])).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    padded = np.pad(errors, reach, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1)
    cover: NDArray[np.float64] = windows.max(axis=1)
    return cover


def _cover(
    steps: NDArray[np.float64], errors: NDArray[np.float64], reach: int
) -> NDArray[np.float64]:
    """Take the envelope of every part of a ladder that has no gap, by itself."""
    apart = np.diff(np.log10(steps))
    usual = np.median(apart) if apart.size else 0.0
    parts = np.split(errors, np.flatnonzero(apart > _GAP * usual) + 1)
    return np.concatenate([envelope(part, reach) for part in parts])


def read_curve(
    steps: NDArray[np.float64], errors: NDArray[np.float64], order: int = 2
) -> CurveReading:
    """Read slopes, floor, best step and kinks off one curve of error against step.

    Parameters
    ----------
    steps
        Positive, ascending, shape (S,).
    errors
        Relative errors, shape (S,); those that are not finite are left out.
    order
        Expected order of the truncation error, to tell a kink from mere truncation.

    Returns
    -------
    CurveReading
        With nan for whatever the curve does not show.

    Examples
    --------
    >>> h = 10.0 ** np.arange(-14, 0.1, 0.25)
    >>> reading = read_curve(h, h**2 / 6 + 2.2e-16 / h)
    >>> round(reading.truncation, 1), round(reading.roundoff, 1)
    (2.0, -1.0)
    >>> f"{reading.best_step:.0e}"
    '9e-06'
    """
    usable = np.isfinite(errors)
    steps, errors = steps[usable], errors[usable]
    nan = float("nan")
    if steps.size == 0:
        return CurveReading(nan, nan, nan, nan, (nan, nan), (nan, nan), nan)
    leap, distance = kink_distance(steps, errors, order)
    steps, errors = steps[: leap + 1], errors[: leap + 1]
    positive = errors > 0
    if positive.sum() >= max(5, _SPARSE * positive.size):
        # an error of exactly 0 among others is the luckiest of crossings
        steps, errors = steps[positive], errors[positive]
    reach = 1
    if steps.size > 4:  # two thirds of a decade to either side, less of a short ladder
        apart = np.diff(np.log10(steps))
        reach = max(1, round(min(_REACH, apart.sum() / 9) / np.median(apart)))
    cover = _cover(steps, errors, reach)
    # of equally low steps the largest: it is the farthest from rounding
    lowest = steps.size - 1 - int(np.argmin(cover[::-1]))
    x = np.log10(steps)
    with np.errstate(divide="ignore"):
        y, top = np.log10(errors), np.log10(cover)
    left = (x < x[lowest]) & (errors > 0) & (errors < 10 * _SATURATED)
    roundoff, amplitude = nan, -np.inf
    if left.sum() >= 4:
        fall = _slope(x[left], top[left])
        if fall < -0.5:
            roundoff, amplitude = fall, float(np.median((y + x)[left]))
    bottom = float(np.median(y[max(lowest - reach, 0) : lowest + reach + 1]))
    truncation, line = _truncation(x, y, lowest, bottom, amplitude)
    best, floor = float(steps[lowest]), float(cover[lowest])
    if np.isfinite(amplitude) and np.isfinite(truncation):
        # minimum of 10**c h**p + 10**a / h, in logarithms: h may be 1e-300
        exponent, c = line
        where = (amplitude - c - np.log10(exponent)) / (exponent + 1)
        where = float(np.clip(where, x[0], x[-1]))
        terms = np.log(10) * np.array([c + exponent * where, amplitude - where])
        best = 10**where
        floor = min(floor, float(np.exp(np.logaddexp(*terms))))
    elif not np.isfinite(amplitude):
        best, floor = _best_without_rounding(steps, errors, cover, line)
    if not np.isfinite(amplitude):
        amplitude = nan
    if (level := flat_part(steps, errors)) is not None:  # the branches do not meet
        floor, best = float(np.median(errors[level])), float(10 ** np.mean(x[level]))
    if floor > NOTHING:
        best = nan
    return CurveReading(
        truncation=truncation,
        roundoff=roundoff,
        best_step=best,
        floor=floor,
        truncation_line=line,
        roundoff_line=(-1.0, amplitude),
        kink=distance,
    )


def _best_without_rounding(
    steps: NDArray[np.float64],
    errors: NDArray[np.float64],
    cover: NDArray[np.float64],
    line: tuple[float, float],
) -> tuple[float, float]:
    """Best step and floor of a curve that shows no rounding."""
    x = np.log10(steps)
    with np.errstate(divide="ignore"):
        y = np.log10(errors)
    if _ends_on(line, x, y):  # there is no flat part: the shortest step is best
        return float(steps[0]), float(errors[0])
    if steps.size < FEW:  # no curve either: the lowest of them
        lowest = steps.size - 1 - int(np.argmin(errors[::-1]))
        return float(steps[lowest]), float(errors[lowest])
    # any step of the flat part will do; its middle is safest
    flat = np.flatnonzero(cover <= 3 * cover.min())
    return float(10 ** np.mean(x[flat[[0, -1]]])), float(cover.min())


def _ends_on(
    line: tuple[float, float], x: NDArray[np.float64], y: NDArray[np.float64]
) -> bool:
    """Whether the shortest step lies on the line of truncation, rounding not reached.

    Examples
    --------
    >>> x = np.arange(-3.0, 0.0)
    >>> (
    ...     _ends_on((2.0, -1.0), x, 2 * x - 1),
    ...     _ends_on((2.0, -1.0), x, 2 * x + [3, 0, -1]),
    ... )
    (True, False)
    """
    exponent, c = line
    return bool(abs(y[0] - c - exponent * x[0]) < _ON)


def flat_part(steps: NDArray[np.float64], errors: NDArray[np.float64]) -> slice | None:
    """Find where the error is the same over decades, and nowhere much smaller.

    Neither rounding nor truncation does that: the two sides differ by so much.

    Parameters
    ----------
    steps, errors
        The curve, ascending in step.

    Returns
    -------
    slice
        The longest such part; None if there is none.

    Examples
    --------
    >>> h = 10.0 ** np.arange(-14, 0.1, 0.25)
    >>> part = flat_part(h, h**2 / 6 + 2.2e-16 / h + 1e-7)
    >>> f"{h[part][0]:.0e} {h[part][-1]:.0e}"
    '3e-08 3e-04'
    >>> flat_part(h, h**2 / 6 + 2.2e-16 / h) is None
    True
    """
    x, longest = np.log10(steps), None
    low = envelope(errors).min(initial=np.inf)
    ends = np.arange(steps.size)
    for first in np.flatnonzero((errors > 0) & (errors <= 3 * low)):
        same = np.abs(errors - errors[first]) <= _SAME * errors[first]
        stop = int(np.argmin(np.append(same | (ends < first), False)))
        width = float(x[stop - 1] - x[first])
        if width >= _LONG and (
            longest is None or width > float(x[longest.stop - 1] - x[longest.start])
        ):
            longest = slice(int(first), stop)
    return longest


def _truncation(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    lowest: int,
    bottom: float,
    amplitude: float,
) -> tuple[float, tuple[float, float]]:
    """Slope and line of the branch to the right of the valley, below any kink."""
    nan = float("nan")
    place = np.arange(x.size)
    # the bottom may lie above rounding: as far as the derivative is known
    floor = bottom if np.isfinite(amplitude) else y[np.isfinite(y)].min(initial=0.0)
    for clear, ceiling in ((_CLEAR, _SATURATED), (5.0, 0.2)):
        above = y > np.maximum(amplitude - x, floor) + np.log10(clear)
        branch = (place > lowest) & above & (y < np.log10(ceiling))
        chosen = np.flatnonzero(branch)[:_WINDOW]
        if chosen.size >= 3:
            slope = _slope(x[chosen], y[chosen])
            if slope < 0.5:
                continue
            near = round(slope)
            exponent = float(near) if abs(slope - near) < _INTEGER else slope
            return slope, (exponent, float(np.median(y[chosen] - exponent * x[chosen])))
    return nan, (nan, nan)


def plateau(
    steps: NDArray[np.float64],
    errors: NDArray[np.float64],
    own: NDArray[np.float64],
) -> tuple[float, float, float]:
    """Find where the error stays although the numeric side is much better than that.

    Parameters
    ----------
    steps
        Ascending.
    errors
        Relative error of one wrong entry.
    own
        Relative error of the numeric side itself, judged without the analytic one.

    Returns
    -------
    level, start, stop
        Height of the plateau and the steps between which it holds; nan if no step is
        good enough to see it.

    Examples
    --------
    >>> h = 10.0 ** np.arange(-12, 0.0)
    >>> plateau(h, np.full(12, 0.5), h**2 + 1e-16 / h)
    (0.5, 1e-12, 0.1)
    """
    seen = np.isfinite(errors) & np.isfinite(own) & (own < 0.1 * errors)
    if not seen.any():
        return float("nan"), float("nan"), float("nan")
    level = float(np.median(errors[seen]))
    with np.errstate(divide="ignore"):
        near = seen & (np.abs(np.log10(errors / level)) < 0.15)
    held = steps[near] if near.any() else steps[seen]
    return level, float(held[0]), float(held[-1])
