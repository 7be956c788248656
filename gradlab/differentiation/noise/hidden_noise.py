"""Noise of f that is more than its rounding: measured, and told from other reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.evaluation import displaced_sets, line_rows
from gradlab.differentiation.noise.noise import difference_noise
from gradlab.differentiation.sizes.magnitudes import is_short
from gradlab.differentiation.sizes.scales import scales_of
from gradlab.subject.subject import DOUBLE, block_slices

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.subject.subject import Subject

__all__ = [
    "HALF_SPACING",
    "LAST_DIGITS",
    "LINE_COST",
    "NOISE_COST",
    "ROUGH",
    "SPACING",
    "coarse_noise",
    "hidden_rounding",
    "inherited_at_most",
    "line_noise",
    "may_be_rough",
    "noise_level",
    "rounding_inside",
]

ROUGH = 30.0  # times the rounding unit: noise above this is more than rounding
_SHORT = float(np.finfo(np.float32).eps)
_SEVERAL = 4  # outputs at least that tell what all have in common
_COARSE = 1e-5  # relative: coarser than single precision is no such rounding
_ALIKE = 16.0  # times more or less than most: roundings of numbers of one format
_MOST = 0.75  # of the outputs
# Of the noise of most outputs, relative: no arithmetic is as uneven. On the checks that
# `adaptive_columns` tells of, anything from 0 to 0.1 gives the same verdicts.
_LUCKY = 1e-3
_CANCELLED = 1 / 16  # relative: an output that is mostly noise tells of no arithmetic
_SMALL = 0.1  # of the largest output: what is below may be the rest of larger numbers
_INSIDE = 2.0  # roundings of the largest output, that a small one may have
# Of a significand in single precision: rounded numbers have fewer one time in 4096,
# sums of a few halves and quarters nearly always.
_SIGNIFICANT = 12
_LARGE = 1 << 16  # coordinates of several inputs: up to these, lines go in one batch
LAST_DIGITS = 1e-15  # absolute: what 1 + small cannot resolve
SPACING = 3e-7  # of the points noise is read from, relative; single precision has 1e-7
HALF_SPACING = 3e-3  # the same where half precision is hidden, which has 1e-3
_NOISE_POINTS, _LINES = 6, 3
LINE_COST = _LINES * _NOISE_POINTS
NOISE_COST = _LINES * 2 * _NOISE_POINTS  # evaluations
_BESIDE = 1e-3  # relative: another point, where f is of about the same size


def noise_level(
    origin: Origin, meter: Meter, seed: int, *, spacing: float = SPACING
) -> NDArray[np.float64]:
    """Measure the noise of every output, whatever it comes from.

    Along three random directions through all inputs together, forth and back, at
    distances just above the spacing of single precision, which often hides inside. The
    point itself is left out, and of the six lines the third quietest tells: a kink
    close by is noise on one side of it, and roundings that happen to be equal are
    silence on two. Lines on which they are so quiet that only luck explains it do not
    count.

    Parameters
    ----------
    spacing
        Of the points, relative; `HALF_SPACING` is just above that of half precision.

    Returns
    -------
    ndarray
        Standard deviation of f around a smooth function, shape (rows,); 0 where there
        is none, or it cannot be told.
    """
    meter.need(NOISE_COST)
    subject, base = origin.subject, origin.base
    rng = np.random.default_rng([seed, 11])
    values = np.stack(_along_lines(subject, rng, meter, spacing), axis=1)
    with np.errstate(all="ignore"):
        size = np.abs(values).max(axis=0)  # first: squares of 1e200 overflow
        levels = difference_noise(values / size) * size
    still = (levels == 0).all(axis=0)
    off = 2 * (values == 0).all(axis=0).sum(axis=0) >= values.shape[1]
    heard = np.where(np.isfinite(levels) & (levels > 0) & ~off, levels, np.inf)
    heard = np.where(levels < _LUCKY * _on_both_sides(levels), np.inf, heard)
    middle = np.maximum((np.isfinite(heard).sum(axis=0) - 1) // 2, 0)
    noise = np.take_along_axis(np.sort(heard, axis=0), middle[None], axis=0)[0]
    noise = np.where(np.isfinite(noise), noise, 0.0)
    # outputs that did not move share the arithmetic of those that did
    with np.errstate(all="ignore"):
        relative = np.where(noise > 0, noise / np.abs(base), np.nan)
        # but for what is left of a cancellation, the noise of which is of its terms
        told = relative < _CANCELLED
    seen = np.isfinite(relative)
    if 2 * told.sum() >= max(len(base), 2):
        typical = float(np.median(relative[told]))
        # as do those that rounding happened to leave alone on most lines
        lucky = relative < _LUCKY * typical
        if typical > ROUGH * subject.epsilon and 2 * lucky.sum() < len(base):
            seen &= ~lucky
        noise = np.where(seen, noise, typical * np.abs(base))
    # 1 + small has lost what is below its last digit, and then stands still
    noise = np.where(still, np.fmax(noise, LAST_DIGITS), np.nan_to_num(noise))
    return np.asarray(noise)


def coarse_noise(origin: Origin, meter: Meter, seed: int) -> NDArray[np.float64] | None:
    """Measure the noise of an f that computes in less than its numbers can hold.

    Products in TensorFloat-32 stand still over the steps at which that of float32 is
    measured, and are a staircase over longer ones.

    Returns
    -------
    ndarray or None
        As `noise_level`, over steps of half precision. None where it is no more than
        rounding, and where f runs in float64: the copy there has all digits, as far as
        casts are seen.
    """
    if origin.subject.epsilon <= DOUBLE:
        return None
    noise = noise_level(origin, meter, seed, spacing=HALF_SPACING)
    own = ROUGH * origin.subject.epsilon * np.abs(origin.base)
    return noise if (noise > own).any() else None


def _on_both_sides(levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Tell the loudest that a line is on both of its sides, where both tell, (rows,).

    A kink is heard on one side. Where points are as far apart as the steps of f, or a
    multiple of it, three lines of six may be silent by luck.
    """
    sides = levels.reshape(-1, 2, *levels.shape[1:])
    quieter = np.nan_to_num(sides.min(axis=1), nan=0.0, posinf=0.0)
    return np.asarray(quieter.max(axis=0))


def _along_lines(
    subject: Subject, rng: np.random.Generator, meter: Meter, width: float
) -> list[NDArray[np.float64]]:
    """Values along three random lines, forth and back: six arrays (points, rows)."""
    sizes = _own_sizes(subject)
    spacing = width * np.arange(1, _NOISE_POINTS + 1)
    lines = [_random_line(sizes, rng) for _ in range(_LINES)]
    halves = [(line, side) for line in lines for side in (spacing, -spacing)]
    whole = sum(map(len, sizes))
    if len(sizes) > 1 and whole > _LARGE:  # all at once would take too much memory
        return [line_rows(subject, line, side.tolist(), meter) for line, side in halves]
    moves = [np.multiply.outer(side, np.concatenate(line)) for line, side in halves]
    inputs = tuple(range(len(sizes)))
    values = displaced_sets(subject, inputs, np.concatenate(moves), meter)
    return np.split(values, len(halves))


def _random_line(
    sizes: list[NDArray[np.float64]], rng: np.random.Generator
) -> list[NDArray[np.float64]]:
    """Draw a direction through all inputs, by the sizes of their coordinates."""
    return [size * rng.uniform(-1, 1, len(size)) for size in sizes]


def _own_sizes(subject: Subject) -> list[NDArray[np.float64]]:
    """Size of each coordinate by itself; its tensor's where all of that are zero."""
    found = []
    for which in range(len(subject.inputs)):
        size = np.abs(subject.point(which))
        size = np.where(np.isfinite(size), size, 0.0)
        found.append(size if size.any() else scales_of(subject, which))
    return found


def may_be_rough(subject: Subject, meter: Meter, seed: int) -> bool:
    """Ask in six evaluations whether it is worth measuring noise in 36.

    Along one line, at the distances of `noise_level`: whether any output stands still
    there, or shows more than its rounding.
    """
    values, levels = _along_one_line(subject, meter, seed)
    with np.errstate(all="ignore"):
        size = np.abs(values).max(axis=0)
        levels = levels / size
        still = (values == values[0]).all(axis=0) & (size > 0)
        return bool((still | (levels > ROUGH * subject.epsilon)).any())


def line_noise(subject: Subject, meter: Meter, seed: int) -> NDArray[np.float64]:
    """Measure the noise of every output by six evaluations along one line, (rows,).

    Along another where an output is silent, by luck, up to `LINE_COST` evaluations. 0
    where there is none, or it cannot be told; an entry that is silent has the noise
    that half of those of its output have.
    """
    blocks = block_slices(subject.outputs)
    noise = np.zeros(max((rows.stop for rows in blocks), default=0))
    for line in range(_LINES):
        values, told = _along_one_line(subject, meter, seed + line)
        # below its own rounding f stood still, or took steps of one height by luck
        least = subject.epsilon * np.abs(values).max(axis=0)
        noise = np.where(told > np.fmax(noise, least), told, noise)
        noise[~np.isfinite(noise)] = 0.0
        if all(noise[rows].any() for rows in blocks):
            break
    for rows in blocks:
        own = noise[rows]
        if own.any():
            noise[rows] = np.where(own > 0, own, np.median(own[own > 0]))
    return noise


def _along_one_line(
    subject: Subject, meter: Meter, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Evaluate at the distances of `noise_level`: values, and the noise they show."""
    line = _random_line(_own_sizes(subject), np.random.default_rng([seed, 13]))
    steps = SPACING * np.arange(1, _NOISE_POINTS + 1)
    values = line_rows(subject, line, steps.tolist(), meter)
    with np.errstate(all="ignore"):
        size = np.abs(values).max(axis=0)  # first: squares of 1e200 overflow
        return values, difference_noise(values / size) * size


def hidden_rounding(
    origin: Origin, noise: NDArray[np.float64], meter: Meter
) -> NDArray[np.float64] | None:
    """Tell the rounding of every output, (rows,), where all are rounded alike.

    Single precision inside is the same to every output, relative to its size. An output
    that one coordinate alone moves has nothing to know it by but the others, and a
    ladder that does not know it takes one long staircase for a slope. Noise that is not
    alike has other reasons, such as a pole nearby: there a ladder knows better. Where
    outputs are too few to be alike, they are numbers of single precision themselves, or
    nothing is told.
    """
    base, epsilon = origin.base, origin.subject.epsilon
    with np.errstate(all="ignore"):
        relative = noise / np.abs(base)
    relative = relative[np.isfinite(relative) & (relative > 0)]
    if len(relative) < _SEVERAL:
        return _of_short_numbers(origin, noise, meter)
    typical = float(np.median(relative))
    if not ROUGH * epsilon < typical < _COARSE:
        return None
    alike = (relative < _ALIKE * typical) & (relative > typical / _ALIKE)
    if alike.mean() < _MOST:
        return None
    return np.asarray(np.nan_to_num(typical * np.abs(base)))


def _of_short_numbers(
    origin: Origin, noise: NDArray[np.float64], meter: Meter
) -> NDArray[np.float64] | None:
    """Tell the rounding of outputs in float64 that all are float32 underneath.

    Numbers rounded to the nearest of a grid are off by a twelfth of its square, in the
    mean. What was measured may be more, if what is rounded was computed as short; a
    pole close by is louder than that. A number may be short by itself, as an input is
    that was read as float32: of one that is rounded, that of any other point is short.
    """
    base = np.where(np.isfinite(origin.base), origin.base, 0.0)
    if origin.subject.epsilon >= _SHORT or not is_short(base) or not noise.any():
        return None
    significand = np.frexp(base)[0] * 2.0**_SIGNIFICANT
    if (significand == np.round(significand)).all():
        return None
    beside = _elsewhere(origin, meter)
    if not is_short(beside[np.isfinite(beside)]):
        return None
    with np.errstate(over="ignore"):
        grid = np.spacing(np.abs(base).astype(np.float32)).astype(np.float64) / 12**0.5
    heard = np.where(noise < _ALIKE * grid, noise, 0.0)
    return np.asarray(np.fmax(grid, heard))


def _elsewhere(origin: Origin, meter: Meter) -> NDArray[np.float64]:
    """Evaluate at a point beside, in all coordinates, (rows,)."""
    subject = origin.subject
    line = _random_line(_own_sizes(subject), np.random.default_rng(19))
    return np.asarray(line_rows(subject, line, [_BESIDE], meter)[0])


def rounding_inside(origin: Origin, noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Tell what small outputs inherit from larger numbers inside, (rows,).

    The imaginary parts of what is nearly real (an inverse Fourier transform) are the
    rounding of the real parts: far more than that of their own size. A ladder that does
    not know it takes it for kinks. No more is told than was measured, nor than the
    largest output explains: whatever is louder may be a pole.
    """
    heard = np.where(noise == LAST_DIGITS, 0.0, np.nan_to_num(noise))
    return np.fmin(heard, inherited_at_most(origin))


def inherited_at_most(origin: Origin) -> NDArray[np.float64]:
    """Tell how much rounding of the largest output small ones may have, (rows,).

    0 for those that are not small beside it.
    """
    size = np.abs(origin.base)
    top = float(np.max(size, where=np.isfinite(size), initial=0.0))
    return np.where(size < _SMALL * top, _INSIDE * origin.subject.epsilon * top, 0.0)
