"""The numeric side of a check, measured: values, error bars, and what was seen.

Everything here is in real coordinates (see `gradlab.subject.subject`); `gradlab.check`
joins complex entries again at the end.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.adaptive import AdaptiveSettings, adaptive
from gradlab.differentiation.complex_step import complex_step
from gradlab.differentiation.evaluation import (
    displaced_rows,
    displaced_sets,
    line_rows,
)
from gradlab.differentiation.finite_difference import (
    central,
    one_sided,
    scales_of,
    step_sizes,
)
from gradlab.differentiation.method import (
    Adaptive,
    Auto,
    Backward,
    Central,
    ComplexStep,
    Forward,
    Method,
)
from gradlab.differentiation.noise import difference_noise
from gradlab.differentiation.own_scales import joined, merged, on_their_own
from gradlab.differentiation.quotients import Quotients
from gradlab.differentiation.sharing import shared_noise
from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.believing import believed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.adaptive import Derivatives, Sampler
    from gradlab.differentiation.evaluation import Meter
    from gradlab.subject.subject import Subject

__all__ = [
    "LAST_DIGITS",
    "ROUGH",
    "hidden_rounding",
    "look_closer",
    "noise_level",
    "numeric_side",
]

_BEYOND = 8.0  # steps longer than this many scales average over what f does
_NEAR = 0.0  # power of two of the scale: the longest step that averages nothing
_SIGNAL = 30.0  # times its own noise: scatter of f above this is no noise
_AMPLIFIED = 10.0  # noise of f in an extrapolation, in units of noise / longest step
_SPACING = 3e-7  # of the points noise is read from, relative; single precision has 1e-7
_NOISE_POINTS = 6
ROUGH = 30.0  # times the rounding unit: noise above this is more than rounding
_GUESSED = 2.0  # times its bar: a few roundings are no fair sample of all
_FAR_ROUNDINGS = 4.0  # of relative size, that a slope over a long step may be off by
_SEVERAL = 4  # outputs at least that tell what all have in common
_COARSE = 1e-5  # relative: coarser than single precision is no such rounding
_ALIKE = 16.0  # times more or less than most: roundings of numbers of one format
_MOST = 0.75  # of the outputs
_LUCKY = 1e-3  # of the noise of most outputs, relative: no arithmetic is as uneven
_ROUGH_KINDS = (Smoothness.NOISY, Smoothness.STAIRCASE)
_VAGUE = 1e-8  # relative bar of a slope that a smooth f would have told better
_HALF = 0.5  # of the coordinates that move an output
_SEED = 0  # of the lines along which noise is measured for a Jacobian by itself
_LARGE = 1 << 16  # coordinates of several inputs: up to these, lines go in one batch
LAST_DIGITS = 1e-15  # absolute: what 1 + small cannot resolve


def numeric_side(
    subject: Subject,
    which: int,
    positions: NDArray[np.intp],
    base: NDArray[np.float64],
    method: Method,
    meter: Meter,
    *,
    epsilon: float | None = None,
) -> Quotients:
    """Differentiate with respect to some coordinates of one input.

    Parameters
    ----------
    positions
        Coordinates to perturb, shape (n,).
    base
        f at the point, shape (rows,).
    method
        `Auto` takes the cheap central difference.
    epsilon
        Relative noise of f that the steps are chosen for; default the rounding unit.
    """
    epsilon = subject.epsilon if epsilon is None else epsilon
    scales = scales_of(subject, which)[positions]
    match method:
        case Adaptive():
            return _as_quotients(_climbed(subject, which, positions, base, meter))
        case ComplexStep():
            found = complex_step(subject, which, positions, scales, method.step, meter)
            return believed(subject, which, positions, scales, base, found, meter)
        case Forward() | Backward():
            steps = _steps(scales, method.step, epsilon, 1)
            sign = 1.0 if isinstance(method, Forward) else -1.0
            return one_sided(subject, which, positions, sign * steps, base, meter)
        case Auto() | Central():
            wanted = method.step if isinstance(method, Central) else None
            steps = _steps(scales, wanted, epsilon, 2)
            return central(subject, which, positions, steps, base, meter)


def _steps(
    scales: NDArray[np.float64], wanted: float | None, epsilon: float, order: int
) -> NDArray[np.float64]:
    if wanted is not None:
        return np.full_like(scales, wanted)
    return step_sizes(scales, epsilon, order)


def noise_level(
    subject: Subject, base: NDArray[np.float64], meter: Meter, seed: int
) -> NDArray[np.float64]:
    """Measure the noise of every output, whatever it comes from.

    Along three random directions through all inputs together, forth and back, at
    distances just above the spacing of single precision, which often hides inside. The
    point itself is left out, and of the six lines the third quietest tells: a kink
    close by is noise on one side of it, and roundings that happen to be equal are
    silence on two.

    Returns
    -------
    ndarray
        Standard deviation of f around a smooth function, shape (rows,); 0 where there
        is none, or it cannot be told.
    """
    rng = np.random.default_rng([seed, 11])
    values = np.stack(_along_lines(subject, rng, meter), axis=1)
    with np.errstate(all="ignore"):
        size = np.abs(values).max(axis=0)  # first: squares of 1e200 overflow
        levels = difference_noise(values / size) * size
    still = (levels == 0).all(axis=0)
    heard = np.where(np.isfinite(levels) & (levels > 0), levels, np.inf)
    middle = np.maximum((np.isfinite(heard).sum(axis=0) - 1) // 2, 0)
    noise = np.take_along_axis(np.sort(heard, axis=0), middle[None], axis=0)[0]
    noise = np.where(np.isfinite(noise), noise, 0.0)
    # outputs that did not move share the arithmetic of those that did
    with np.errstate(all="ignore"):
        relative = np.where(noise > 0, noise / np.abs(base), np.nan)
    seen = np.isfinite(relative)
    if 2 * seen.sum() >= max(len(base), 2):
        typical = float(np.median(relative[seen]))
        # as do those that rounding happened to leave alone on most lines
        lucky = relative < _LUCKY * typical
        if typical > ROUGH * subject.epsilon and 2 * lucky.sum() < len(base):
            seen &= ~lucky
        noise = np.where(seen, noise, typical * np.abs(base))
    # 1 + small has lost what is below its last digit, and then stands still
    noise = np.where(still, np.fmax(noise, LAST_DIGITS), np.nan_to_num(noise))
    return np.asarray(noise)


def _along_lines(
    subject: Subject, rng: np.random.Generator, meter: Meter
) -> list[NDArray[np.float64]]:
    """Values along three random lines, forth and back: six arrays (points, rows)."""
    sizes = [_own_sizes(subject, k) for k in range(len(subject.inputs))]
    spacing = _SPACING * np.arange(1, _NOISE_POINTS + 1)
    lines = [[size * rng.uniform(-1, 1, len(size)) for size in sizes] for _ in range(3)]
    halves = [(line, side) for line in lines for side in (spacing, -spacing)]
    whole = sum(map(len, sizes))
    if len(sizes) > 1 and whole > _LARGE:  # all at once would take too much memory
        return [line_rows(subject, line, side.tolist(), meter) for line, side in halves]
    moves = [np.multiply.outer(side, np.concatenate(line)) for line, side in halves]
    inputs = tuple(range(len(sizes)))
    values = displaced_sets(subject, inputs, np.concatenate(moves), meter)
    return np.split(values, len(halves))


def _own_sizes(subject: Subject, which: int) -> NDArray[np.float64]:
    """Size of each coordinate by itself; its tensor's where all are zero."""
    size = np.abs(subject.point(which))
    size = np.where(np.isfinite(size), size, 0.0)
    return size if size.any() else scales_of(subject, which)


def look_closer(
    subject: Subject,
    which: int,
    positions: NDArray[np.intp],
    base: NDArray[np.float64],
    meter: Meter,
    *,
    noise: NDArray[np.float64] | None = None,
    stretch: float = 1.0,
) -> Derivatives:
    """Climb the adaptive ladder at some coordinates of one input.

    Parameters
    ----------
    noise
        Known noise of each output, shape (rows,): no bar is smaller than what it does
        to the step that was taken.
    stretch
        Factor on all steps.
    """
    if noise is not None:  # a second look, which nobody could foresee
        meter.expect(Adaptive.cost * len(positions))

    def sample(
        columns: NDArray[np.intp], displacements: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return displaced_rows(subject, which, positions[columns], displacements, meter)

    points = subject.point(which)[positions]
    scales = scales_of(subject, which)[positions]
    hidden = None if noise is None else hidden_rounding(subject, noise, base)
    found = _climb(subject, sample, points, scales * stretch, base, noise=hidden)
    if hidden is not None:
        found = dataclasses.replace(found, error=_guessed(found, hidden, base))
    own_scale = on_their_own(found, points, scales)
    if own_scale.size:
        heard = shared_noise(found.value.T, found.error.T, found.noise.T)
        own = _climb(
            subject,
            sample,
            points,
            np.abs(points) * stretch,
            base,
            some=own_scale,
            noise=np.nan_to_num(heard),
        )
        found = merged(found, own, own_scale)
    if noise is None:
        return found
    # beyond the scale of the input, "noise" may be the very signal: 1e13 + sin(x)
    rounding = subject.epsilon * np.abs(base)
    with np.errstate(all="ignore"):
        signal = found.noise > _SIGNAL * np.fmax(noise, rounding)[:, None]
        averaged = signal & (found.step > _BEYOND * scales)
    again = np.flatnonzero(averaged.any(axis=0))
    if again.size:
        near = _climb(
            subject, sample, points, scales * stretch, base, some=again, farthest=_NEAR
        )
        found = joined(found, near, again, averaged[:, again])
    return _sobered(found, noise)


def _guessed(
    found: Derivatives, hidden: NDArray[np.float64], base: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Bars of slopes of an f that is rounded inside, which few roundings tell.

    Far from the point f may be much larger than there, and so are its roundings: no
    slope is known better than the values that it is made of.
    """
    with np.errstate(all="ignore"):
        relative = np.nan_to_num(hidden / np.abs(base))
    least = _FAR_ROUNDINGS * relative.max(initial=0.0) * np.abs(found.value)
    wider = np.fmax(_GUESSED * found.error, least)
    return np.asarray(np.where(found.value != 0, wider, found.error))


def _climbed(
    subject: Subject,
    which: int,
    positions: NDArray[np.intp],
    base: NDArray[np.float64],
    meter: Meter,
) -> Derivatives:
    """Climb the ladder, and once more where f turns out to be rough.

    One ladder alone may take a staircase of single precision for a slope. What most
    coordinates show of an output tells; only then is noise measured, in 36 evaluations.
    """
    found = look_closer(subject, which, positions, base, meter)
    with np.errstate(all="ignore"):
        moved = np.isfinite(found.error) & ((found.value != 0) | (found.noise > 0))
        rough = np.isin(found.kind, _ROUGH_KINDS)
        rough |= found.error > _VAGUE * np.abs(found.value)
    share = (rough & moved).sum(axis=1) / np.maximum(moved.sum(axis=1), 1)
    if not (share >= _HALF).any():
        return found
    noise = noise_level(subject, base, meter, _SEED)
    return look_closer(subject, which, positions, base, meter, noise=noise)


def hidden_rounding(
    subject: Subject, noise: NDArray[np.float64], base: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """Tell the rounding of every output, (rows,), where all are rounded alike.

    Single precision inside is the same to every output, relative to its size. An output
    that one coordinate alone moves has nothing to know it by but the others, and a
    ladder that does not know it takes one long staircase for a slope. Noise that is not
    alike has other reasons, such as a pole nearby: there a ladder knows better.
    """
    with np.errstate(all="ignore"):
        relative = noise / np.abs(base)
    relative = relative[np.isfinite(relative) & (relative > 0)]
    if len(relative) < _SEVERAL:
        return None
    typical = float(np.median(relative))
    if not ROUGH * subject.epsilon < typical < _COARSE:
        return None
    alike = (relative < _ALIKE * typical) & (relative > typical / _ALIKE)
    if alike.mean() < _MOST:
        return None
    return np.asarray(np.nan_to_num(typical * np.abs(base)))


def _climb(
    subject: Subject,
    sample: Sampler,
    points: NDArray[np.float64],
    scales: NDArray[np.float64],
    base: NDArray[np.float64],
    *,
    some: NDArray[np.intp] | None = None,
    farthest: float | None = None,
    noise: NDArray[np.float64] | None = None,
) -> Derivatives:
    """Climb the ladder of all columns, or of some."""
    settings = AdaptiveSettings()
    if farthest is not None:
        settings = dataclasses.replace(settings, farthest=farthest)
    if some is None:
        some = np.arange(len(points))

    def resample(
        columns: NDArray[np.intp], displacements: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return sample(some[columns], displacements)

    return adaptive(
        resample,
        points=points[some],
        scales=scales[some],
        base=base,
        floor=subject.epsilon,
        settings=settings,
        noise=noise,
    )


def _sobered(found: Derivatives, noise: NDArray[np.float64]) -> Derivatives:
    """Widen bars that no noise of f allows."""
    with np.errstate(all="ignore"):
        # an extrapolation rests on smaller steps, too
        least = _AMPLIFIED * noise[:, None] / np.abs(found.step)
        error = np.where(least > found.error, least, found.error)
    return dataclasses.replace(found, error=error)


def _as_quotients(found: Derivatives) -> Quotients:
    return Quotients(
        value=found.value,
        error=found.error,
        step=found.step,
        bend=found.right - found.left,
    )
