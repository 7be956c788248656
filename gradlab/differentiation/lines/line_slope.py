"""The derivative of a scalar line at its origin, with an error bar to trust.

Three central differences, steps in ratio two; two levels of Richardson extrapolation
must tell the same story, and the differences must shrink the way a smooth function's
do. Otherwise the bar is what the raw quotients disagree by, and the ladder moves on:
down where truncation or kinks dominate, up where round-off does.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Slope", "line_slope", "moved_exponent", "start_exponent"]

# Weights of the smallest step in the twice extrapolated quotient add up to 64/45.
_WEIGHT = 1.5
_ROUNDS = 5  # positions of the ladder, three steps each
_FIRST = 2  # exponent; the longest of its three steps is the inputs' own size
_SMOOTH = (2.0, 8.0)  # ratio of successive differences; 4 for a smooth function


@dataclasses.dataclass(frozen=True, slots=True)
class Slope:
    """Derivative of a scalar line at its origin.

    Attributes
    ----------
    value, error
        Derivative and estimated absolute error; nan and inf where f is not finite.
    truncation, noise
        The two parts of the error: what the steps disagree by, and round-off.
    exponent
        The smallest step it rests on is ``2**-exponent``.
    evaluations
        How many were made.
    """

    value: float
    error: float
    truncation: float
    noise: float
    exponent: int
    evaluations: int
    smooth: bool = True  # the quotients shrink as a smooth function's do

    @property
    def next_exponent(self) -> int:
        """Exponent at which both parts of the error would have been equal.

        Truncation goes with the sixth power of the step, round-off with its inverse.
        """
        if not (np.isfinite(self.truncation) and self.noise > 0):
            return self.exponent
        ratio = max(self.truncation, 1e-3 * self.noise) / self.noise
        return self.exponent + min(6, max(-2, round(math.log2(ratio) / 7)))


def start_exponent(epsilon: float) -> int:
    """First ladder position for arithmetic of round-off `epsilon`.

    Steps of 2**-10 to 2**-8 of the inputs' size in float64: networks bend on the scale
    of 0.3 of it, so that truncation (sixth power) and round-off are both near 1e-12.

    Examples
    --------
    >>> start_exponent(2.2e-16), start_exponent(1.2e-7)
    (10, 4)
    """
    return max(3, round(-10 * math.log2(epsilon) / 52))


def moved_exponent(exponent: int, shift: float, epsilon: float) -> int:
    """Ladder position for a direction, from the one that served another.

    What a step bends or crosses grows with the length of the direction, the root of its
    number of coordinates.

    Parameters
    ----------
    exponent
        That served.
    shift
        How much longer this direction is, as a power of two.
    epsilon
        Of the arithmetic.
    """
    first = start_exponent(epsilon)
    return min(max(round(exponent + shift), first - 6), first + 14)


def line_slope(
    evaluate: Callable[[float], float],
    *,
    noise: float,
    exponent: int,
    deepest: int,
    enough: Callable[[float, float], bool],
) -> Slope:
    """Differentiate a scalar line at zero.

    Parameters
    ----------
    evaluate
        The line; nan where it has no value.
    noise
        Absolute round-off of one value.
    exponent
        Where to start: steps 2**-exponent and its two doubles, or the longest there
        are, up to one.
    deepest
        Largest exponent worth trying; beyond it steps vanish in the round-off of x.
    enough
        ``enough(value, error)``: whether the question is answered; if not, up to four
        more positions are tried, and the best one counts.

    Examples
    --------
    >>> found = line_slope(
    ...     lambda t: float(np.sin(1 + t)),
    ...     noise=1e-16,
    ...     exponent=10,
    ...     deepest=40,
    ...     enough=lambda value, error: True,
    ... )
    >>> bool(abs(found.value - np.cos(1)) <= found.error < 1e-12), found.evaluations
    (True, 6)
    """
    quotients: dict[int, float] = {}

    def quotient(p: int) -> float:
        if p not in quotients:
            step = 2.0**-p
            with np.errstate(all="ignore"):
                quotients[p] = (evaluate(step) - evaluate(-step)) / (2 * step)
        return quotients[p]

    best: Slope | None = None
    tried: set[int] = set()
    p = max(exponent, _FIRST)
    while len(tried) < _ROUNDS and p not in tried and _FIRST <= p <= deepest:
        tried.add(p)
        found = _extrapolate(quotient(p), quotient(p - 1), quotient(p - 2), noise, p)
        if best is None or not best.error <= found.error:
            best = found
        if enough(best.value, best.error):
            break
        p = _move(found)
    if best is None:
        best = Slope(np.nan, np.inf, np.inf, noise, exponent, 0)
    return dataclasses.replace(best, evaluations=2 * len(quotients))


def _extrapolate(d1: float, d2: float, d4: float, noise: float, p: int) -> Slope:
    """Combine central quotients of steps h, 2h and 4h, h = 2**-p."""
    with np.errstate(all="ignore"):
        rounding = _WEIGHT * noise * 2.0**p
        near, far = (4 * d1 - d2) / 3, (4 * d2 - d4) / 3
        value = (16 * near - far) / 15
        first, second = abs(d1 - d2), abs(d2 - d4)
        quiet = second <= 4 * rounding  # nothing but round-off to be seen
        smooth = _SMOOTH[0] * first <= second + rounding and second <= (
            _SMOOTH[1] * first + rounding
        )
        # the raw quotients' spread where they do not shrink as t**2 does
        spread = abs(near - far) / 4 if smooth or quiet else max(first, second)
        error = spread + rounding
    if not np.isfinite(value):
        return Slope(np.nan, np.inf, np.inf, rounding, p, 0)
    tame = bool(smooth or quiet)
    return Slope(float(value), float(error), float(spread), float(rounding), p, 0, tame)


def _move(found: Slope) -> int:
    """Next ladder position: towards the balance of the two parts of the error."""
    target = found.next_exponent
    if not np.isfinite(found.truncation):
        return found.exponent + 6
    if found.truncation > 8 * found.noise:
        # kinks do not obey the sixth power: get away from them
        return max(target, found.exponent + (3 if found.smooth else 6))
    if found.truncation < found.noise / 8:
        return min(target, found.exponent - 1)
    return found.exponent  # balanced: this is as good as it gets
