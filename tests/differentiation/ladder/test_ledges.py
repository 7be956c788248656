"""Between two jumps of rounding inside f: the local slope is not sold as the meant one.

The truth is mpmath's, at 200 digits.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

import gradlab as gl
from tests.differentiation.catalogue import F32, inside, smooth, solved
from tests.differentiation.catalogue_table import by_gradlab


def gelu(*points):
    """Cases of x Phi(x), whose factor 1 + erf cancels far to the left."""
    return inside(
        "cancellation",
        "gelu",
        lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2))),
        lambda t, x: x * t.ncdf(x),
        *points,
    )


GELU = gelu(-6.7, -7.0, -7.2, -7.5, -7.8, -8.0)
SOFTPLUS = smooth(
    "cancellation",
    "x log(1 + exp(x))",
    lambda t, x: x * t.log(1 + t.exp(x)),
    *(-20.5, -24.0, -27.5, -29.0),
)
SINGLE = inside(
    "f32 inside",
    "x (1 - exp(-x)) in float32 inside",
    lambda v: v * float(F32(1) - np.exp(F32(-v))),
    lambda t, x: x * (1 - t.exp(-x)),
    *(5e-4, 2e-3, 5e-2),
)


@pytest.mark.parametrize("case", GELU + SOFTPLUS + SINGLE, ids=lambda case: case.name)
def test_slope_of_a_ledge_carries_a_bar_that_reaches_the_truth(case):
    """f is linear to the last bit between two jumps, with another slope than beyond."""
    found = by_gradlab(case)
    assert found.honest, (found.value, found.bar, found.truth)


def test_nine_of_ten_ledges_are_seen_wherever_the_point_falls(rng):
    """One in some twenty looks like a jump on one side, whatever steps are taken."""
    results = [by_gradlab(case) for case in gelu(*rng.uniform(-8.1, -6.5, 60))]
    assert np.mean([result.honest for result in results]) >= 0.9


STRUCTURE = [
    *smooth("fine", "sin", lambda t, x: x + 1e-4 * t.sin(1e5 * x), 0.7, 1.3),
    *smooth("fine", "tanh", lambda t, x: 2 + 1e-3 * t.tanh((x - 1) * 1e6), 1 + 3e-7),
    *solved("kink", "leaky", lambda v: min(v, 0.9 + 0.1 * v), lambda _: 1, 1 - 1e-4),
    *solved("jump", "step", lambda v: v * v + (v > 1), lambda x: 2 * x, 1 - 1e-5),
    *solved(
        "kinks",
        "clipped",
        lambda v: min(max(v - 1, -1e-6), 1e-6) + 0.1 * v + 1,
        lambda _: mpmath.mpf(11) / 10,
        1.0,
    ),
]


@pytest.mark.parametrize("case", STRUCTURE, ids=lambda case: case.name)
def test_structure_that_is_meant_keeps_its_narrow_bar(case):
    """Fine waves, a kink or a jump close by, a pair of kinks: this slope is meant."""
    found = by_gradlab(case)
    assert found.honest, (found.value, found.bar, found.truth)
    assert found.bar < 1e-6 * abs(found.truth)


@pytest.mark.parametrize("x", [-7.2, -7.7, -8.0])
def test_right_gelu_far_to_the_left_is_no_false_alarm(x):
    """gelu'(-7.2) is -1.6e-11, and float64 shows 3.0e-13 between two of its jumps."""
    erf = np.vectorize(math.erf)

    def normal(x):
        return (1 + erf(x / math.sqrt(2))) / 2

    def jac(x):
        return np.diag(normal(x) + x * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi))

    report = gl.check(lambda x: x * normal(x), np.array([x, 1.0]), jac=jac)
    assert report.ok, report


def naive(z):
    """The loss of a confident wrong answer as it is often written: 1 - s jumps."""
    return -np.log(1 - 1 / (1 + np.exp(-z))) + np.sin(z)


STAIRS = [
    *(
        (naive, lambda z: 1 / (1 + np.exp(-z)) + np.cos(z), z)
        for z in (8.984712663724974, 9.60775943466544, 14.034032424901978)
    ),
    *(
        (
            lambda x: np.sqrt(1e8 + x * x) - 1e4 + x,
            lambda x: 1 + x / np.sqrt(1e8 + x * x),
            x,
        )
        for x in (0.12152180921721512, 1.369837756441943, 3.431029061310975)
    ),
]


@pytest.mark.parametrize(("f", "slope", "x"), STAIRS)
def test_longer_steps_that_agree_are_believed_among_stairs(f, slope, x):
    """Jumps of 1e-14 to 1e-10 inside, over decades of step: no slope between them."""
    found = gl.numeric_jacobian(lambda t: f(t[0]), np.array([x]))
    assert abs(found.value[0] - slope(x)) <= found.error[0], found
    assert found.error[0] < 1e-6, found


LOW = [(2.7e-11, 3.6e-8, 1.97288), (2.7e-11, 3.6e-8, 1.9731), (5e-11, 5e-8, 0.5)]


@pytest.mark.parametrize(("height", "width", "x"), LOW)
def test_structure_as_low_as_stairs_is_told_by_how_it_begins(height, width, x):
    """A wave bends before it turns; a stair ends at once."""

    def f(t):
        return t[0] + height * np.sin((t[0] - x) / width + 1)

    found = gl.numeric_jacobian(f, np.array([x]))
    truth = 1 + height / width * np.cos(1)
    assert abs(found.value[0] - truth) <= found.error[0], found
