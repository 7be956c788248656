"""Bars of cheap differences that stand alone: seen, not assumed.

A check looks again at whatever disagrees; the bar of a Jacobian that nobody compares
has to be right by itself. One or two evaluations of a coordinate show no truncation and
no noise, so one more is made, farther away. Central differences are asked in groups
first: were some of their slopes wrong, so would be the sum of them along a random line,
and only where that strays each has a further point of its own. Where this shows that f
bends, jumps or shakes within the step as no function of its size does on its own scale,
the adaptive ladder tells how far off the difference is. The difference itself stays
what was asked for.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.adaptive_columns import adaptive_columns
from gradlab.differentiation.evaluation import displaced_rows, displaced_sets
from gradlab.differentiation.finite_difference import seen_truncation, stairs
from gradlab.differentiation.method import Adaptive, Auto, Backward, ComplexStep
from gradlab.differentiation.noise.hidden_noise import ROUGH, noise_level
from gradlab.differentiation.noise.noise import ULPS
from gradlab.differentiation.sizes.scales import scales_of
from gradlab.pipeline.sides.measuring import VAGUE, numeric_side
from gradlab.subject.subject import DOUBLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.method import Method
    from gradlab.differentiation.origin import Origin
    from gradlab.differentiation.quotients import Quotients

__all__ = ["own_bars"]

# Steps to the further point: with a whole number of them, what rounds to multiples of
# one quantum could stray by nothing at all.
_FARTHER = 5**0.5
_ASTRAY = 0.1  # of the move that the slope explains: beyond, it explains little
_GENTLE = 1e2  # times what a function of its size does on its own scale
_LIVELY = 1e6  # the same, of a function whose slope may still be believed
_ROUNDING = 20.0  # times the round-off of f that a stray must have to mean anything
_TWO_SIDED, _ONE_SIDED = 1.0, 2.0  # bars in units of what the further point shows
_ENOUGH = 8  # coordinates, before what most of them show is the noise of an output
# Measured on 60 families of functions (poles, ripples, kinks, jumps, noise, few digits,
# float32 inside, solvers, pairs of columns that are wrong alike), 180,000 entries:
# beyond 1, 5 and 20 bars are no more than with a further point for each. With one line
# a group instead of two it is more where few outputs tell, with `_EVEN` of 10 as well.
_LINES = 2
_TOGETHER, _FEWEST = 25, 6  # coordinates in one group, and before there is one
# of each step, by chance: over a whole one the same is rounded alike
_NEARER = (0.4, 0.7)
_QUIET = 4.0  # times what rounding does to f: above, a group is taken apart
_EVEN = 2.0  # times what f of its size bends: above, there may be a kink at the point
_BATCH_BYTES = 2**24  # of displacements, and of results


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Look:
    """What one further point of each coordinate shows; arrays (rows, n)."""

    stray: NDArray[np.float64]  # of f, from where the difference foretold it
    move: NDArray[np.float64]  # that the slope explains over one step
    step: NDArray[np.float64]
    scales: NDArray[np.float64]  # (n,)


def own_bars(
    origin: Origin,
    which: int,
    found: Quotients,
    method: Method,
    meter: Meter,
) -> NDArray[np.float64]:
    """Give differences of all coordinates of one input bars that cover their errors.

    One further evaluation for each coordinate; some twenty where that one contradicts;
    and for a step that was asked for, the same differences with the usual one.

    Parameters
    ----------
    found
        The differences of all coordinates, in order.
    method
        That they came from. What the complex step says of itself is returned as it is,
        and so is what adaptive differences say of all that moves.

    Returns
    -------
    ndarray
        Shape (rows, n), inf where nothing is known.
    """
    subject, base = origin.subject, origin.base
    if isinstance(method, ComplexStep) or found.value.size == 0:
        return np.asarray(found.error)
    if isinstance(method, Adaptive):
        error = found.error.copy()
        still = np.flatnonzero((found.value == 0).all(axis=0))
        slope, _ = stairs(origin, which, still, meter)
        error[:, still] = np.fmax(error[:, still], slope)
        return _standing(origin, found, error, meter)
    if not isinstance(method, Auto) and method.step is not None:
        # a step that was asked for may be too long to show anything, or too short
        usual, every = type(method)(), np.arange(found.value.shape[1])
        other = numeric_side(origin, which, every, usual, meter)
        error = own_bars(origin, which, other, usual, meter)
        with np.errstate(all="ignore"):
            error = np.abs(found.value - other.value) + error
        return np.where(np.isnan(error), np.inf, error)
    two_sided = bool(np.isfinite(found.bend).any())
    sign = -1.0 if isinstance(method, Backward) else 1.0
    look = _further(origin, which, found, sign, meter, two_sided=two_sided)
    with np.errstate(all="ignore"):
        error = np.fmax(found.error, 0.0)
        if two_sided:
            error = np.fmax(error, seen_truncation(found, look.scales))
        width = _TWO_SIDED if two_sided else _ONE_SIDED
        error = np.fmax(error, width * _floored(look.stray) / look.step)
        doubtful = _doubtful(found, look, base, subject.epsilon, two_sided=two_sided)
        still = np.flatnonzero(((found.value == 0) & (look.stray == 0)).all(axis=0))
        slope, moved = stairs(origin, which, still, meter)
        doubtful[:, still] |= moved
    columns = np.flatnonzero(doubtful.any(axis=0))
    if columns.size:
        closer = adaptive_columns(origin, which, columns, meter)
        with np.errstate(all="ignore"):
            seen = np.abs(found.value[:, columns] - closer.value) + closer.error
        seen = np.where(np.isnan(seen), np.inf, seen)
        error[:, columns] = np.where(doubtful[:, columns], seen, error[:, columns])
    error[:, still] = np.fmax(error[:, still], slope)
    known = np.isfinite(found.value) & ~np.isnan(error)
    return np.where(known, error, np.inf)


def _standing(
    origin: Origin, found: Quotients, error: NDArray[np.float64], meter: Meter
) -> NDArray[np.float64]:
    """Widen the bars of outputs that stand still where f is rounded inside.

    A tanh in single precision that has saturated moves by less than its last digit: its
    slope is as small as that, and nobody knows how small.
    """
    with np.errstate(all="ignore"):
        rough = (error > VAGUE * np.abs(found.value)) & (found.value != 0)
        few = 2 * rough.sum(axis=1) < (found.value != 0).sum(axis=1)
    zero = found.value == 0
    if few.all() or not zero.any():
        return error
    subject, base = origin.subject, origin.base
    noise = noise_level(origin, meter, 0)
    with np.errstate(all="ignore"):
        relative = noise / np.abs(base)
        told = ~few & np.isfinite(relative) & (relative > ROUGH * subject.epsilon)
        if not told.any():
            return error
        grain = float(np.median(relative[told])) * np.abs(base)
        least = np.nan_to_num(grain[:, None] / np.abs(found.step))
    return np.where(zero, np.fmax(error, least), error)


def _further(
    origin: Origin,
    which: int,
    found: Quotients,
    sign: float,
    meter: Meter,
    *,
    two_sided: bool,
) -> _Look:
    """Evaluate farther from the point; behind it where there is no value ahead.

    Strays are in units of the leading term of the series that the difference leaves
    out: ``h^3 f'''`` of a central, ``h^2 f''`` of a one-sided one.
    """
    subject, base = origin.subject, origin.base
    reach = _FARTHER
    unit = (reach**3 - reach) / 6 if two_sided else (reach**2 - reach) / 2
    step, scales = found.step, scales_of(subject, which)
    if two_sided:
        stray = _asked_together(origin, which, found, scales, meter)
    else:
        stray = np.full_like(step, np.nan)
    for side in (sign, -sign)[: 2 if two_sided else 1]:
        open_ = np.flatnonzero(~np.isfinite(stray).all(axis=0))
        if open_.size == 0:
            break
        values, taken = displaced_rows(
            subject, which, open_, side * reach * step[0, open_], meter
        )
        with np.errstate(all="ignore"):
            slope, h = found.value[:, open_], step[:, open_]
            foretold = base[:, None] + slope * taken
            if two_sided:
                foretold += found.bend[:, open_] / (2 * h) * taken**2
            stray[:, open_] = np.abs(values.T - foretold) / unit
    with np.errstate(all="ignore"):
        move = np.abs(found.value) * step
    return _Look(stray, move, step, scales)


def _asked_together(
    origin: Origin,
    which: int,
    found: Quotients,
    scales: NDArray[np.float64],
    meter: Meter,
) -> NDArray[np.float64]:
    """Give the strays of columns of which a group of them tells enough; else nan.

    For each column what all of its group stray together, as if it were its own. What
    does not move, what may bend at the very point (of which odd parts tell nothing),
    and groups that stray by more than rounding explains are left open.
    """
    stray = np.full_like(found.step, np.nan)
    subject, base, step = origin.subject, origin.base, found.step[0]
    if subject.epsilon > DOUBLE or (found.value == 0).all(axis=1).any():
        return stray
    size = _sizes(found, scales, base)
    with np.errstate(all="ignore"):
        # numbers inside are rounded as if each coordinate were
        inside = np.linalg.norm(found.value * scales, axis=1)[:, None]
        rounding = ULPS * subject.epsilon * np.fmax(size, inside)
        gentle = np.fmax(_EVEN * size * (step / scales) ** 2, rounding)
        plain = (np.abs(found.bend) * step / 2 <= gentle).all(axis=0)
        plain &= (found.value != 0).any(axis=0)
        known = np.fmax(found.error * step, rounding)
    columns = np.flatnonzero(plain)
    if columns.size < _FEWEST:
        return stray
    rng = np.random.default_rng(0)
    point = subject.point(which)
    groups = np.array_split(rng.permutation(columns), -(-columns.size // _TOGETHER))
    for _ in range(_LINES):
        drawn = rng.uniform(-1, 1, step.size)
        shares = _NEARER[0] + (_NEARER[1] - _NEARER[0]) * np.abs(drawn)
        moves = np.sign(drawn) * shares * step
        taken = (point + moves) - (point - moves)
        shares -= shares**3
        gone = _gone(origin, which, groups, moves, meter)
        quiet = []
        for group, difference in zip(groups, gone, strict=True):
            with np.errstate(all="ignore"):
                off = np.abs(difference - found.value[:, group] @ taken[group]) / 2
                seen = off[:, None] / shares[group]
            if (seen <= _QUIET * known[:, group]).all():
                quiet.append(group)
                stray[:, group] = np.fmax(seen, stray[:, group])
            else:
                stray[:, group] = np.nan
        groups = quiet
    return stray


def _gone(
    origin: Origin,
    which: int,
    groups: list[NDArray[np.intp]],
    moves: NDArray[np.float64],
    meter: Meter,
) -> Iterator[NDArray[np.float64]]:
    """Yield how far f goes from behind the point to ahead of it, for each group."""
    subject, count = origin.subject, len(moves)
    widest = max(count, len(origin.base))
    several = max(1, meter.room(_BATCH_BYTES) // (16 * widest))
    for start in range(0, len(groups), several):
        some = groups[start : start + several]
        lines = np.zeros((len(some), count))
        for line, group in zip(lines, some, strict=True):
            line[group] = moves[group]
        both = np.concatenate([lines, -lines])
        values = displaced_sets(subject, (which,), both, meter)
        with np.errstate(all="ignore"):
            yield from values[: len(some)] - values[len(some) :]


def _floored(stray: NDArray[np.float64]) -> NDArray[np.float64]:
    """Let no coordinate be lucky: half of what most show is what each may hide.

    Of coordinates that move the output only; a stray that is not known stays so.
    """
    if stray.shape[1] < _ENOUGH:
        return stray
    moved = stray > 0
    count = moved.sum(axis=1)[:, None]
    ranked = np.sort(np.where(moved, stray, np.inf), axis=1)
    middle = np.hstack([np.maximum(count - 1, 0) // 2, count // 2])
    usual = np.take_along_axis(ranked, np.minimum(middle, stray.shape[1] - 1), axis=1)
    floor = np.where(count[:, 0] >= _ENOUGH, usual.mean(axis=1) / 2, 0.0)[:, None]
    return np.where(moved, np.maximum(stray, floor), stray)


def _sizes(
    found: Quotients, scales: NDArray[np.float64], base: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Say how large outputs are, or what one coordinate may make of them, (rows, 1)."""
    slopes = np.abs(found.value) * scales
    size = np.where(np.isfinite(slopes), slopes, 0.0).max(axis=1, initial=0.0)
    return np.asarray(np.fmax(size, np.abs(base))[:, None])


def _doubtful(
    found: Quotients,
    look: _Look,
    base: NDArray[np.float64],
    epsilon: float,
    *,
    two_sided: bool,
) -> NDArray[np.bool_]:
    """Say where f does within two steps what no function of its size and scale does."""
    order = 3 if two_sided else 2
    size = _sizes(found, look.scales, base)
    usual = size * (look.step[:1] / look.scales) ** order  # one step a column
    rounding = _ROUNDING * epsilon * np.fmax(np.abs(base)[:, None], look.move)
    gentle = look.stray <= np.fmax(_LIVELY * usual, rounding)
    gentle &= look.stray <= np.fmax(_GENTLE * usual, _ASTRAY * look.move)
    return np.asarray(~gentle & np.isfinite(found.value))
