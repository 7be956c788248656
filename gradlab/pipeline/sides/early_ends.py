"""Bars of derivatives of a program that stops early: as far as it is from what it ends.

A solver ends at a tolerance. From here to there it takes the same number of steps, and
its derivative is that of so many steps, to the last digit: no difference, and no
complex step, sees that it is not the derivative of the solution. Farther on it takes a
step more. Both places are told apart by the lines that are run (`lines_run`), for four
evaluations where f is a formula. Where f jumps as the lines change, and its slope does,
the height of the jump over the way between two of them is what slopes are off by.

References
----------
J. Gilbert, *Automatic differentiation and iterative processes*, Optimization Methods
and Software 1 (1992): derivatives converge after the values do.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.evaluation import line_of, line_rows
from gradlab.differentiation.sizes.scales import scales_of
from gradlab.pipeline.sides.lines_run import path_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin

__all__ = ["early_ends"]

_REACH = 0.9  # of the size of every coordinate: how far is looked
_QUARTERS = 12  # of the reach: other lines nearer than that are no solver's steps
_HALVINGS = 24  # of the way to the place where the lines change
_BESIDE = 64.0  # parts of that way: over how many slopes beside it are taken
_SHORTER = 8.0  # where the next change is nearer than that
_LOUD = 50.0  # times the rounding of f: a jump
_SLIGHT = 1e-2  # of f: a higher one is no tolerance's
_SAME = 1e-3  # of what jumps make up for: a slope that goes on so is f's own
_WIDE, _STEEP = 2.0, 32.0  # times that: what slopes may be off by, at least and at most


@dataclasses.dataclass(slots=True, eq=False)
class _Line:
    """f along a line, with the way that it goes there."""

    origin: Origin
    directions: list[NDArray[np.float64] | None]
    meter: Meter

    def at(self, step: float) -> tuple[NDArray[np.float64], int]:
        """Evaluate: values (rows,) and path."""
        rows, path = path_of(
            lambda: line_rows(self.origin.subject, self.directions, [step], self.meter)
        )
        return rows[0], path


def early_ends(origin: Origin, which: int, meter: Meter) -> NDArray[np.float64]:
    """Say what derivatives may be off by for f stopping early.

    Four evaluations where the same lines are run all around, two for one coordinate;
    else some seventy.

    Parameters
    ----------
    which
        Number of the input.

    Returns
    -------
    ndarray
        Shape (rows, n); zero where f does not jump to another number of steps.
    """
    subject, base = origin.subject, origin.base
    scales = scales_of(subject, which)
    if not base.size * scales.size:
        return np.zeros((base.size, scales.size))
    # each by its own size: what is small and positive stays so
    own = np.abs(subject.point(which))
    own = np.where(np.isfinite(own) & (own > 0), own, scales)
    every = np.arange(len(own))
    moves = np.random.default_rng(0).choice([-1.0, 1.0], len(own)) * own
    lines = [
        _Line(origin, line_of(subject, [(which, every, signs * moves)]), meter)
        for signs in (np.ones(len(own)), 1.0 - 2 * (every % 2))[: len(own)]
    ]
    with meter.overlooking():  # so far away f may raise
        off = _off_along(lines)
    with np.errstate(all="ignore"):
        return np.asarray(np.nan_to_num(off[:, None] / scales, posinf=0.0))


def _off_along(lines: list[_Line]) -> NDArray[np.float64]:
    """Say by how much slopes are off along the first line on which other lines are run.

    Shape (rows,); zero where nothing is seen.
    """
    ends = [[line.at(sign * _REACH)[1] for sign in (1, -1)] for line in lines]
    off = np.zeros(len(lines[0].origin.base))
    if all(path == ends[0][0] for path in np.ravel(ends)):
        return off
    line = lines[0]
    here = line.at(0.0)[1]
    if line.at(0.0)[1] != here:  # not even the same lines at the same place
        return off
    told, line = next(
        (paths, line)
        for paths, line in zip(ends, lines, strict=True)
        if paths != [here, here]
    )
    ways = [
        _way(line, sign, here) if path != here else (_REACH, np.inf)
        for sign, path in zip((1, -1), told, strict=True)
    ]
    between = sum(inside for inside, _ in ways)
    for sign, (inside, outside) in zip((1, -1), ways, strict=True):
        if np.isfinite(outside) and inside > 0:
            off = np.fmax(off, _off(line, sign * inside, sign * outside, between))
    return off


def _way(line: _Line, sign: int, here: int) -> tuple[float, float]:
    """Find where the lines change: the last place before, and the first one behind."""
    low, high = 0.0, _REACH
    for _ in range(_QUARTERS):
        if line.at(sign * high / 4)[1] == here:
            low = high / 4
            break
        high /= 4
    if low == 0.0:
        return 0.0, np.inf
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if line.at(sign * middle)[1] == here:
            low = middle
        else:
            high = middle
    return low, high


def _off(
    line: _Line, inside: float, outside: float, between: float
) -> NDArray[np.float64]:
    """Say by how much slopes along the line are off, given one change of lines.

    Zero where f goes on as if nothing had been, has a kink, or jumps and goes on with
    the same slope: that is its own.
    """
    beside = abs(inside) / _BESIDE * np.sign(inside)
    before, slope_before, here, _ = _side(line, inside, -beside)
    behind, slope_behind, there, same = _side(line, outside, beside)
    if here == there:  # as it was a moment ago, it is not again
        return np.zeros(len(before))
    if not same:
        behind, slope_behind, _, same = _side(line, outside, beside / _SHORTER)
    epsilon = line.origin.subject.epsilon
    with np.errstate(all="ignore"):
        way = outside - inside
        jump = np.abs(behind - before - way * slope_before)
        size = np.fmax(np.abs(before), np.abs(behind)) + np.abs(slope_before)
        off = jump / between
        change = np.abs(slope_behind - slope_before) if same else off
        # and more than bends where nothing jumps
        least = np.fmax(_LOUD * epsilon * size, _BESIDE * abs(way) * change)
        tooth = (jump > least) & (jump <= _SLIGHT * size)
        flat = (slope_before == 0) & (slope_behind == 0)  # a stair has no slope to keep
        tooth &= flat | (change > _SAME * off)
        wide = np.fmax(_WIDE * off, np.fmin(change, _STEEP * off))
        # what jumps less here may end as early, and jump more elsewhere
        share = np.where(tooth & np.isfinite(wide), wide / size, 0.0)
        return np.asarray(np.nan_to_num(share.max(initial=0.0) * size))


def _side(
    line: _Line, end: float, step: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], int, bool]:
    """Return f at one end, its slope from there on, its path, whether that stays."""
    (f0, path0), (f1, path1), (f2, path2) = (line.at(end + k * step) for k in range(3))
    with np.errstate(all="ignore"):
        slope = (4 * f1 - 3 * f0 - f2) / (2 * step)
    return f0, slope, path0, path0 == path1 == path2
