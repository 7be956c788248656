"""The numeric side of a check, measured: values, error bars, and what was seen.

Everything here is in real coordinates (see `gradlab.subject.subject`); `gradlab.check`
joins complex entries again at the end.

Is a complex step to be believed: along one direction, beside the adaptive ladder.
``abs``, ``max`` or a conjugate inside f gives a number, but the wrong one; and a solver
that stops when its value has converged stops before its derivative has. Differences
along one random direction through all columns tell, for some twenty evaluations.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.adaptive_columns import adaptive_columns, adaptive_line
from gradlab.differentiation.complex_step import complex_step, underflow
from gradlab.differentiation.evaluation import line_of
from gradlab.differentiation.finite_difference import central, one_sided
from gradlab.differentiation.method import (
    Adaptive,
    Auto,
    Backward,
    Central,
    ComplexStep,
    Forward,
    Method,
)
from gradlab.differentiation.noise.hidden_noise import (
    NOISE_COST,
    coarse_noise,
    noise_level,
)
from gradlab.differentiation.quotients import Quotients
from gradlab.differentiation.sizes.scales import scales_of, step_sizes
from gradlab.differentiation.smoothness import Smoothness
from gradlab.errors import ComplexStepError
from gradlab.pipeline.sides.early_ends import early_ends

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.ladder.derivatives import Derivatives
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.subject.subject import Subject

__all__ = ["VAGUE", "numeric_side"]

_ROUGH_KINDS = (Smoothness.NOISY, Smoothness.STAIRCASE)
VAGUE = 1e-8  # relative bar of a slope that a smooth f would have told better
_LOUD = 1e-10  # bars times the scale, relative to f: single precision leaves 1e-8
_HALF = 0.5  # of the coordinates that move an output
_SEED = 0  # of the lines along which noise is measured for a Jacobian by itself
_AGREE = 1e-4  # of the slope: how close differences must come
_BARS = 5.0  # and how many of their bars they may be away
_PLAIN = 100.0  # times what round-off does to a difference: more is something in f
_FINE = 1e-9  # of the slope: a bar this small leaves no room for it


def numeric_side(
    origin: Origin,
    which: int,
    positions: NDArray[np.intp],
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
    method
        `Auto` takes the cheap central difference.
    epsilon
        Relative noise of f that the steps are chosen for; default the rounding unit.
    """
    subject = origin.subject
    epsilon = subject.epsilon if epsilon is None else epsilon
    match method:
        case Adaptive():
            return _as_quotients(_climbed(origin, which, positions, meter))
        case ComplexStep():
            found = _complex_side(origin, which, positions, method.step, meter)
            off = early_ends(origin, which, meter)[:, positions]
            return dataclasses.replace(found, error=np.fmax(found.error, off))
        case Forward() | Backward():
            steps = _steps(subject, which, positions, method.step, epsilon, 1)
            sign = 1.0 if isinstance(method, Forward) else -1.0
            return one_sided(origin, which, positions, sign * steps, meter)
        case Auto() | Central():
            wanted = method.step if isinstance(method, Central) else None
            steps = _steps(subject, which, positions, wanted, epsilon, 2)
            return central(origin, which, positions, steps, meter)


def _complex_side(
    origin: Origin,
    which: int,
    positions: NDArray[np.intp],
    step: float | None,
    meter: Meter,
) -> Quotients:
    """Take complex steps, and believe them where differences say the same.

    Raises
    ------
    ComplexStepError
        If f is not analytic; or if it is, and the step that was asked for too long.
    """
    subject = origin.subject
    scales = scales_of(subject, which)[positions]

    def trusted(length: float | None) -> Quotients:
        found = complex_step(subject, which, positions, scales, length, meter)
        return _believed(origin, which, positions, scales, found, meter)

    try:
        return trusted(step)
    except ComplexStepError:
        if step is None:
            raise
    tiny = trusted(None)  # raises where it is f that is to blame
    name = subject.inputs[which].name
    msg = (
        f"a complex step of {step:.3g} is too long for {name}: differences agree with "
        f"one of {tiny.step.max():.1g} and not with this one, for what it leaves out "
        f"grows with its square; leave step out: nothing cancels, so it only has to be "
        f"tiny"
    )
    raise ComplexStepError(msg)


def _steps(
    subject: Subject,
    which: int,
    positions: NDArray[np.intp],
    wanted: float | None,
    epsilon: float,
    order: int,
) -> NDArray[np.float64]:
    if wanted is not None:
        return np.full(len(positions), wanted)
    return step_sizes(scales_of(subject, which)[positions], epsilon, order)


def _climbed(
    origin: Origin, which: int, positions: NDArray[np.intp], meter: Meter
) -> Derivatives:
    """Climb the ladder, and once more where f turns out to be rough.

    One ladder alone may take a staircase of single precision for a slope. What most
    coordinates show of an output tells; only then is noise measured, in 36 evaluations.
    Where f does not run in float64 so many tell whether it is coarser still.
    """
    subject, base = origin.subject, origin.base
    found = adaptive_columns(origin, which, positions, meter)
    with np.errstate(all="ignore"):
        moved = np.isfinite(found.error) & ((found.value != 0) | (found.noise > 0))
        rough = np.isin(found.kind, _ROUGH_KINDS)
        # and by more than doubles leave of a small slope, as of a tanh that saturates
        loud = np.multiply.outer(_LOUD * np.abs(base), 1 / scales_of(subject, which))
        vague = found.error > np.fmax(VAGUE * np.abs(found.value), loud[:, positions])
        rough |= vague
    share = (rough & moved).sum(axis=1) / np.maximum(moved.sum(axis=1), 1)
    coarse = None
    if meter.left() > NOISE_COST:  # what the ladders have found is not lost for it
        coarse = coarse_noise(origin, meter, _SEED)
    if not (share >= _HALF).any() and coarse is None:
        return found
    noise = noise_level(origin, meter, _SEED)
    if coarse is not None:
        noise = np.fmax(noise, coarse)
    return adaptive_columns(origin, which, positions, meter, noise=noise)


def _as_quotients(found: Derivatives) -> Quotients:
    return Quotients(
        value=found.value,
        error=found.error,
        step=found.step,
        bend=found.right - found.left,
    )


def _believed(
    origin: Origin,
    which: int,
    positions: NDArray[np.intp],
    scales: NDArray[np.float64],
    found: Quotients,
    meter: Meter,
) -> Quotients:
    """Compare complex steps with differences along one random direction.

    Parameters
    ----------
    scales
        Of the coordinates, (n,).
    found
        What complex steps say of them.

    Returns
    -------
    Quotients
        The same; where differences find more in f than rounding, or something else,
        with bars as wide as that leaves it open.

    Raises
    ------
    ComplexStepError
        If differences say something else.
    """
    subject, base = origin.subject, origin.base
    rng = np.random.default_rng(0)
    # each by its own size: one step has to suit 1e-8 beside 1e8
    own = np.abs(subject.point(which)[positions])
    own = np.where(np.isfinite(own) & (own > 0), own, scales)
    moves = rng.choice([-1.0, 1.0], len(positions)) * own
    line = adaptive_line(origin, line_of(subject, [(which, positions, moves)]), meter)
    slope, bar, step = line.value[:, 0], line.error[:, 0], line.step[:, 0]
    with np.errstate(all="ignore"):
        expected = found.value @ moves
        size = np.abs(found.value) @ np.abs(moves)
        apart = np.abs(expected - slope)
        least = underflow(subject.epsilon) / found.step
        lost = least @ np.abs(moves)
        wrong = apart > _BARS * bar + _AGREE * size + lost
        if wrong.any():
            msg = (
                f"the function is not analytic in {subject.inputs[which].name}: the "
                f"complex step says {expected[wrong][0]:.6g} along a random direction, "
                f"differences say {slope[wrong][0]:.6g} (abs, max, a comparison or a "
                'conjugate on the way?); use method="central"'
            )
            raise ComplexStepError(msg)
        plain = _PLAIN * subject.epsilon * np.abs(base) / step
        told = (bar <= np.fmax(plain, _FINE * size)) & (apart <= _BARS * bar)
        left_open = np.where(told, 0.0, apart + bar)
        left_open = np.where(np.isnan(left_open), np.inf, left_open)
        error = np.fmax(found.error, left_open[:, None] / own)
    return dataclasses.replace(found, error=error)
