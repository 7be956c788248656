"""Hard scalar functions with sixty-digit truth, for the adaptive differences.

Each formula is written once, for a library `t` that is either NumPy (what is
differentiated) or mpmath (the truth: a central difference at 200 digits). The functions
themselves are in `catalogue_tuned` and `catalogue_held_out`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import mpmath
import numpy as np

_DIGITS = 200
_STEP = mpmath.mpf(10) ** -80


class _Numpy:
    """The names of mpmath, in NumPy's float64."""

    sin, cos, tan, exp, log = np.sin, np.cos, np.tan, np.exp, np.log
    sqrt, tanh, cosh, sinh = np.sqrt, np.tanh, np.cosh, np.sinh
    atan, asin, expm1, log1p = np.arctan, np.arcsin, np.expm1, np.log1p
    fabs, erf = np.fabs, staticmethod(math.erf)
    gamma = staticmethod(math.gamma)
    pi = math.pi


@dataclasses.dataclass(frozen=True)
class Case:
    """One function at one point."""

    name: str
    family: str
    f: Callable[[float], float]
    x: float
    slope: Callable[[], mpmath.mpf]
    dtype: str = "float64"

    @property
    def scale(self) -> float:
        """What the caller passes for a single coordinate."""
        return abs(self.x) or 1.0

    def truth(self) -> float:
        """The derivative, correctly rounded."""
        with mpmath.workdps(_DIGITS):
            return float(self.slope())

    def __call__(self, x):
        """Evaluate in double precision; what raises comes back as nan."""
        with np.errstate(all="ignore"):
            try:
                return float(self.f(np.float64(x)))
            except (ValueError, OverflowError, ZeroDivisionError):
                return math.nan


def _difference(formula, x):
    """Differentiate at 200 digits with step 1e-80, which leaves over 100 digits."""
    point = mpmath.mpf(x)
    ahead, behind = formula(mpmath, point + _STEP), formula(mpmath, point - _STEP)
    return (ahead - behind) / (2 * _STEP)


def smooth(family, name, formula, *points):
    """Cases of one formula for both libraries."""
    return [
        Case(
            f"{name} at {x!r}",
            family,
            lambda v, formula=formula: formula(_Numpy, v),
            float(x),
            lambda formula=formula, x=x: _difference(formula, float(x)),
        )
        for x in points
    ]


def inside(family, name, f, formula, *points):
    """Cases whose float code differs from the formula it stands for."""
    return [
        Case(
            f"{name} at {x!r}",
            family,
            f,
            float(x),
            lambda x=x: _difference(formula, float(x)),
        )
        for x in points
    ]


def solved(family, name, f, slope, *points):
    """Cases with a derivative known in closed form, given as a function of mpf x."""
    return [
        Case(f"{name} at {x!r}", family, f, float(x), lambda x=x: slope(mpmath.mpf(x)))
        for x in points
    ]


def single(family, name, formula, *points):
    """Cases evaluated in float32 throughout, the argument included."""

    def f(v):
        return formula(_Numpy, np.float32(v))

    return [
        Case(
            f"{name} in float32 at {x!r}",
            family,
            f,
            float(np.float32(x)),
            lambda x=x: _difference(formula, float(np.float32(x))),
            "float32",
        )
        for x in points
    ]


# ------------------------------------------------------------- solvers used inside


def fixed_point(step, start, tolerance):
    """Iterate until two iterates are closer than the tolerance."""
    value = start
    for _ in range(10_000):
        after = step(value)
        if abs(after - value) < tolerance:
            return after
        value = after
    return value


def bisection(g, low, high, tolerance):
    """Halve until the bracket is shorter than the tolerance."""
    below = g(low) < 0
    while high - low > tolerance:
        middle = (low + high) / 2
        if (g(middle) < 0) == below:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def newton(g, slope, start, tolerance):
    """Newton's iteration, stopped at a step below the tolerance."""
    value = start
    for _ in range(100):
        step = g(value) / slope(value)
        value = value - step
        if abs(step) < tolerance:
            break
    return value


def series_exp(x, tolerance):
    """Sum the exponential series until a term is below the tolerance."""
    total, term, k = 1.0, 1.0, 0
    while abs(term) > tolerance:
        k += 1
        term *= x / k
        total += term
    return total


def simpson_adaptive(g, low, high, tolerance):
    """Adaptive Simpson quadrature with the textbook stopping rule."""

    def rule(a, b):
        return (b - a) / 6 * (g(a) + 4 * g((a + b) / 2) + g(b))

    def refine(a, b, whole, tol):
        middle = (a + b) / 2
        left, right = rule(a, middle), rule(middle, b)
        if abs(left + right - whole) <= 15 * tol or b - a < 1e-9:
            return left + right + (left + right - whole) / 15
        return refine(a, middle, left, tol / 2) + refine(middle, b, right, tol / 2)

    return refine(low, high, rule(low, high), tolerance)


def rounded(*stages):
    """Compose stages with a rounding to float32 before, between and after them."""

    def f(x):
        value = np.float32(x)
        for stage in stages:
            value = np.float32(stage(value))
        return float(value)

    return f


def kepler_slope(mean):
    """dE/dM of Kepler's equation E - 0.3 sin E = M."""
    root = mpmath.findroot(lambda e: e - mpmath.mpf(0.3) * mpmath.sin(e) - mean, mean)
    return 1 / (1 - mpmath.mpf(0.3) * mpmath.cos(root))


def cosine_slope(a):
    """dv/da of the fixed point v = cos(a v)."""
    v = mpmath.findroot(lambda v: v - mpmath.cos(a * v), 0.7)
    return -v * mpmath.sin(a * v) / (1 + a * mpmath.sin(a * v))


def lambert_slope(x):
    """dw/dx of w exp(w) = x."""
    w = mpmath.lambertw(x).real
    return w / (x * (1 + w))


F32 = np.float32
