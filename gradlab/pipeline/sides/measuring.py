"""The numeric side of a check, measured: values, error bars, and what was seen.

Everything here is in real coordinates (see `gradlab.subject.subject`); `gradlab.check`
joins complex entries again at the end.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.adaptive_columns import adaptive_columns
from gradlab.differentiation.complex_step import complex_step
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
from gradlab.pipeline.sides.believing import believed
from gradlab.pipeline.sides.early_ends import early_ends

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.adaptive import Derivatives
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.subject.subject import Subject

__all__ = ["numeric_side"]

_ROUGH_KINDS = (Smoothness.NOISY, Smoothness.STAIRCASE)
_VAGUE = 1e-8  # relative bar of a slope that a smooth f would have told better
_LOUD = 1e-10  # bars times the scale, relative to f: single precision leaves 1e-8
_HALF = 0.5  # of the coordinates that move an output
_SEED = 0  # of the lines along which noise is measured for a Jacobian by itself


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
        return believed(origin, which, positions, scales, found, meter)

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
        vague = found.error > np.fmax(_VAGUE * np.abs(found.value), loud[:, positions])
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
