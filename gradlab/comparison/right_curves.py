"""What the curve of a right gradient says: a V, half of one, or why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.relative_errors import relative_error
from gradlab.differentiation.error_curves import (
    FEW,
    NOTHING,
    CurveReading,
    envelope,
    flat_part,
)
from gradlab.differentiation.smoothness import Smoothness

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.comparison.swept import Curves, Swept

__all__ = ["level_part", "read_right_curve", "short"]

_COARSE = 1e-10  # a round-off above this is not that of float64
_ROUGH = 1e-6  # a floor above this is noise, whatever the slope of the curve
_NOISY = 1e5  # times the expected rounding: beyond, f is noisier than its arithmetic
_DIGITS = 64.0  # rounding units of one: what values near it lose
_REACHES = 1e-3  # of the size of f over its slope: a step that bends most functions
_RISEN = 3.0  # times the floor: a side of a V
_FAR = 1e3  # times rounding: what no rounding does
_SPREAD = 3.0  # noise of f over that of its quotients, relative and symmetric: 2 to 4


def short(value: float) -> str:
    """Write one digit, and nothing for nothing.

    Examples
    --------
    >>> short(3.2e-7), short(0.0)
    ('3e-07', '0')
    """
    return "0" if value == 0 else f"{value:.0e}"


def read_right_curve(
    block: Swept, steps: NDArray[np.float64], curves: Curves, curve: CurveReading
) -> str:
    """Say in one sentence what the curve of a right gradient shows.

    Parameters
    ----------
    block, steps, curves, curve
        As in `read_sweep`.

    Examples
    --------
    >>> sweep = gl.sweep(lambda x: np.exp(x).sum(), np.ones(2), grad=np.exp)
    >>> read_right_curve(
    ...     sweep["x"],
    ...     sweep.steps,
    ...     sweep.curves["central", "x"],
    ...     sweep.curve("central", "x"),
    ... ).split(",")[0]
    'V: correct'
    """
    known = np.isfinite(curves.own)
    sentence = (
        _equal_up_to(steps[known], curves.own[known], curve)
        or _not_shown(steps[known], curves.own[known], curve)
        or _without_curve(steps, curves)
        or _apart(block, steps, curves)
        or _curve_words(block, steps, curves, curve)
    )
    return sentence + _until(steps, curves)


def _curve_words(
    block: Swept, steps: NDArray[np.float64], curves: Curves, curve: CurveReading
) -> str:
    """Describe the curve of a right gradient."""
    correct = "V: correct" if _has_two_sides(curves, curve) else "correct"
    told = f"best step {short(curve.best_step)}, floor {short(curve.floor)}"
    if np.isfinite(curve.kink):
        return (
            f"{correct}, {told}; kink at distance {short(curve.kink)}: larger steps "
            f"cross it"
        )
    if block.epsilon > _COARSE:
        return (
            f"{correct}; {block.dtype} noise floor {short(curve.floor)} at step "
            f"{short(curve.best_step)}"
        )
    if inside := _noise(block, curve):
        return f"{correct}, but {inside}; {told}"
    if sentence := _one_branch(block, steps, curves, curve):
        return sentence
    edge = (block.kinds == Smoothness.EDGE).any()
    return f"V: correct, {told}" + (
        "; only one side of the point exists" if edge else ""
    )


def _has_two_sides(curves: Curves, curve: CurveReading) -> bool:
    """Whether the error rises to either side of where it is lowest."""
    own = curves.own[np.isfinite(curves.own)]
    lowest = int(np.argmin(envelope(own)))
    high = own > _RISEN * curve.floor
    return bool(high[:lowest].any() and high[lowest + 1 :].any())


def _until(steps: NDArray[np.float64], curves: Curves) -> str:
    """Say from which step on f has no values any more; "" if it has them all."""
    if not curves.lost[-1:].any():
        return ""
    first = steps.size - int(np.argmin(np.append(curves.lost[::-1], False)))
    return f"; at steps from {short(steps[first])} on f is not finite"


def _equal_up_to(
    steps: NDArray[np.float64], error: NDArray[np.float64], curve: CurveReading
) -> str:
    """Say up to where both sides are the same number; "" if that is nowhere."""
    first = int(np.argmax(error > 0)) if error.any() else 0
    if first == 0 or not (error[first + 1 :] > NOTHING).all():
        return ""
    last = short(steps[first - 1])
    if (error[first:] == 1).all():  # beside a gradient of 0 every error is 1
        return (
            f"correct: both sides are 0 at steps up to {last}; longer ones give a "
            f"quotient that is not"
        )
    if np.isfinite(curve.kink):
        return (
            f"correct: both sides are exactly equal up to a kink at distance "
            f"{short(curve.kink)}, which larger steps cross"
        )
    return (
        f"correct: both sides are exactly equal at steps up to {last}; those from "
        f"{short(steps[first])} on are too large"
    )


def _not_shown(
    steps: NDArray[np.float64], error: NDArray[np.float64], curve: CurveReading
) -> str:
    """Say that no step gives a digit of what is right; "" if one does."""
    least = float(error.min(initial=np.inf))
    if not curve.floor > NOTHING or (error.size < FEW and least <= NOTHING):
        return ""
    at = short(steps[int(np.argmin(error))])
    which = "no step" if least > NOTHING else "no run of steps"
    return (
        f"correct by the check; {which} of this ladder shows it: the smallest error is "
        f"{short(least)}, at step {at}"
    )


def _one_branch(
    block: Swept, steps: NDArray[np.float64], curves: Curves, curve: CurveReading
) -> str:
    """Say which side of the V is not there; "" if both are."""
    best, floor = short(curve.best_step), short(curve.floor)
    told = f"best step {best}, floor {floor}"
    if not np.isfinite(curve.roundoff_line[1]):
        if curve.floor > _ROUGH:
            return f"correct, but no V: at the best step, {best}, the error is {floor}"
        return f"correct: no rounding seen, {told}"
    if np.isfinite(curve.truncation):
        return ""
    if (gap := _leap(steps, curves, curve)) > 0:
        return (
            f"correct, {told}; steps from {short(gap)} on are too large, and this "
            f"ladder has none between"
        )
    if curves.lost.any() or _short_of(steps, block, curve):
        return f"correct: no truncation seen, {told}"
    return f"correct, no truncation error (f is a low polynomial here): {told}"


def _leap(steps: NDArray[np.float64], curves: Curves, curve: CurveReading) -> float:
    """Return the step from which on the error is far above rounding; 0 if none is."""
    known = np.isfinite(curves.own)
    steps, error = steps[known], curves.own[known]
    line = 10 ** curve.roundoff_line[1] / steps
    below = np.flatnonzero(error <= _FAR * np.maximum(line, curve.floor))
    first = below[-1] + 1 if below.size else 0
    return float(steps[first]) if first < steps.size else 0.0


def _short_of(steps: NDArray[np.float64], block: Swept, curve: CurveReading) -> bool:
    """Whether rounding hides whatever truncation the longest step may have.

    Rounding is ``epsilon |f|``, relative to ``|f'| h``: it tells how long a step is for
    the function, ``h |f'| / |f|``.
    """
    rounding = 10 ** curve.roundoff_line[1] / steps[-1]
    return bool(block.epsilon < _REACHES * rounding)


def _noise(block: Swept, curve: CurveReading) -> str:
    """Say how noisy f is for its arithmetic, and where that may be from; else ""."""
    seen = 10 ** curve.roundoff_line[1]
    noise = block.epsilon * seen / block.rounded(block.rounding)
    if not noise > _NOISY * block.epsilon:
        return ""
    inside = "an iteration"
    if 1e-9 < noise < 1e-4:
        inside = "float32" if noise < 1e-5 else "half precision"
    if seen <= block.rounded(_DIGITS * block.epsilon):
        inside = f"a cancellation or {inside}"
    size = short(_SPREAD * noise)
    return f"f carries noise of {size} of its size ({inside} inside?)"


def _apart(block: Swept, steps: NDArray[np.float64], curves: Curves) -> str:
    """Say where an error stays that no rounding explains; "" if there is none."""
    level, start, stop = level_part(steps, curves.own, curves.bar)
    apart = relative_error(block.analytic, block.reference, block.floor)[block.told]
    if not level <= 3 * float(apart.max(initial=0.0)):  # or the quotient is off
        return ""
    return (
        f"correct to {short(level)}: both sides differ by that from {short(start)} "
        f"to {short(stop)}, which is allowed"
    )


def level_part(
    steps: NDArray[np.float64], error: NDArray[np.float64], bar: NDArray[np.float64]
) -> tuple[float, float, float]:
    """Return a height that is no rounding's, and the steps that have it; else nan."""
    known = np.isfinite(error)
    steps, error, bar = steps[known], error[known], bar[known]
    part = flat_part(steps, error)
    if part is None or np.median(error[part] / bar[part]) < 10:
        return float("nan"), float("nan"), float("nan")
    held = steps[part]
    return float(np.median(error[part])), float(held[0]), float(held[-1])


def _without_curve(steps: NDArray[np.float64], curves: Curves) -> str:
    """Say why there is no V to read; "" if there is one."""
    error = curves.error[np.isfinite(curves.error)]
    if not error.any():
        return "correct: both sides are exactly equal at every step"
    if error.size < FEW:
        lowest = int(np.nanargmin(curves.error))
        return (
            f"correct: error {short(curves.error[lowest])} at step "
            f"{short(steps[lowest])}; "
            f"a ladder of {error.size} is too short to see a V"
        )
    if (error > 0).sum() < 3:
        return "correct: both sides are exactly equal at nearly every step"
    return ""
