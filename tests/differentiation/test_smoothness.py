"""Kinds of points are told apart, and nothing smooth is called a kink."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.differentiation.adaptive import adaptive
from gradlab.differentiation.smoothness import Smoothness

pytestmark = pytest.mark.untraced


def look(f, x, scale=1.0):
    """Differentiate a scalar function; what raises is nan."""

    def value(v):
        try:
            with np.errstate(all="ignore"):
                return float(f(np.float64(v)))
        except (ValueError, ZeroDivisionError):
            return np.nan

    def sample(which, displacement):
        moved = x + displacement
        return np.array([[value(v)] for v in moved]), moved - x

    found = adaptive(
        sample,
        points=np.array([float(x)]),
        scales=np.array([scale]),
        base=np.array([value(x)]),
    )
    return {
        name: getattr(found, name)[0, 0]
        for name in ("value", "error", "left", "right", "noise")
    } | {"kind": Smoothness(found.kind[0, 0]), "evaluations": found.evaluations}


KINKS = {
    "abs": (abs, 0.0, -1.0, 1.0),
    "relu": (lambda x: max(x, 0.0), 0.0, 0.0, 1.0),
    "leaky relu": (lambda x: x if x > 0 else 0.01 * x, 0.0, 0.01, 1.0),
    "max of two": (lambda x: max(x, x * x), 1.0, 1.0, 2.0),
    "clip": (lambda x: np.clip(x, -1, 1), 1.0, 1.0, 0.0),
    "relu times exp": (lambda x: max(x, 0.0) * np.exp(x) + x, 0.0, 1.0, 2.0),
    "hinge on 5": (lambda x: 5 + max(0.0, 1 - x), 1.0, -1.0, 0.0),
}


@pytest.mark.parametrize("name", KINKS)
def test_kink_gives_both_slopes(name):
    """At a kink the value is the mean of both slopes and the bar reaches both."""
    f, x, left, right = KINKS[name]
    found = look(f, x)
    assert found["kind"] == Smoothness.KINK
    assert found["left"] == pytest.approx(left, abs=1e-6)
    assert found["right"] == pytest.approx(right, abs=1e-6)
    assert found["value"] == pytest.approx((left + right) / 2, abs=1e-6)
    assert found["error"] >= abs(right - left) / 2 * (1 - 1e-9)


@pytest.mark.parametrize("distance", 10.0 ** np.arange(-11, -1))
@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("f", [abs, lambda x: max(x, 0.0) + np.sin(x)])
def test_kink_nearby_is_smooth_with_the_slope_of_its_side(f, side, distance):
    """A kink closer than the usual steps does not leak into the slope."""
    found = look(f, side * distance)
    exact = side * 1.0 if f is abs else max(side, 0) + np.cos(distance)
    assert found["kind"] == Smoothness.SMOOTH
    assert abs(found["value"] - exact) <= 10 * found["error"]
    assert found["error"] < 0.1


@pytest.mark.parametrize("steps_away", [0.0, 0.1, 0.5, 1, 2, 5, 10])
def test_kink_within_ten_usual_steps_is_never_a_confident_error(steps_away):
    """From 0 to 10 steps of 6e-6 away: the right slope, or a bar over both."""
    x = 1 - steps_away * 6e-6
    found = look(lambda v: max(v - 1, 0.0) + 2 * v, x)
    exact = 2.5 if steps_away == 0 else 2.0
    assert abs(found["value"] - exact) <= 10 * found["error"]
    assert found["error"] <= 0.5 + 1e-6


SMOOTH = {
    "sin(300x)": (lambda x: np.sin(300 * x), 1.0),
    "sin(100x)": (lambda x: np.sin(100 * x), 0.3),
    "sin(1e5x)": (lambda x: np.sin(1e5 * x), 1.0),
    "x^4 at 0": (lambda x: x**4, 0.0),
    "sharp but smooth": (lambda x: np.sqrt(x * x + 1e-10), 0.0),
    "steep sigmoid": (lambda x: 1 / (1 + np.exp(-1e5 * x)), 0.0),
    "log near its edge": (np.log, 1e-3),
    "x |x|": (lambda x: x * abs(x), 0.0),
    "exp": (np.exp, 3.0),
    "dead relu": (lambda x: max(x - 3, 0.0), 1.0),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_is_smooth(name):
    """Strong curvature is no kink, oscillation no noise."""
    f, x = SMOOTH[name]
    assert look(f, x)["kind"] == Smoothness.SMOOTH


@pytest.mark.parametrize(
    ("f", "x"),
    [(np.sign, 0.0), (np.floor, 2.0), (np.round, 0.5), (lambda x: x + (x > 1), 1.0)],
    ids=["sign", "floor", "round", "step on a slope"],
)
def test_jump_has_no_derivative(f, x):
    """At a jump no finite bar is honest."""
    found = look(f, x)
    assert found["kind"] == Smoothness.JUMP
    assert np.isinf(found["error"])


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (np.floor, 2.3),
        (np.round, 7.2),
        (lambda x: np.round(256 * x) / 256, 0.7),
        (lambda x: np.round(1e3 * x) / 1e3, 0.7),
    ],
    ids=["floor", "round", "quantised", "three decimals"],
)
def test_staircase_has_slope_zero_between_its_steps(f, x):
    """Between two steps the derivative is exactly 0, and that is certain."""
    found = look(f, x)
    assert found["kind"] == Smoothness.STAIRCASE
    assert found["value"] == 0
    assert found["error"] < 1e-9


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (lambda x: np.clip(x, -1, 1), 2.0),
        (lambda x: 1 + max(x, 0.0), -0.1),
        (lambda x: max(x, 0.0) ** 2, -0.01),
        (lambda x: np.floor(x) + max(x - 3, 0), 2.3),
    ],
    ids=["clip", "relu", "squared relu", "a step and a slope"],
)
def test_what_is_flat_and_then_moves_by_no_whole_steps_is_no_staircase(f, x):
    """Only moves that are all multiples of one height are stairs; this saturates."""
    found = look(f, x)
    assert found["kind"] == Smoothness.SMOOTH
    assert found["value"] == 0
    assert found["error"] < 1e-9


def test_random_noise_is_noise_of_the_right_size(rng):
    """Noise of 1e-4 is measured within a factor 5, and the slope is honest."""
    found = look(lambda x: np.sin(x) + 1e-4 * rng.normal(), 1.0)
    assert found["kind"] == Smoothness.NOISY
    assert 2e-5 < found["noise"] < 1e-3
    assert abs(found["value"] - np.cos(1)) <= 10 * found["error"]


def test_edge_of_the_domain_uses_the_side_that_exists():
    """exp on x >= 0 only: the slope from the right, marked as an edge."""
    found = look(lambda x: np.exp(x) if x >= 0 else np.nan, 0.0)
    assert found["kind"] == Smoothness.EDGE
    assert abs(found["value"] - 1) <= 10 * found["error"]
    assert found["error"] < 1e-6
    assert np.isnan(found["left"])


def test_raising_beyond_the_domain_is_like_nan():
    """A function that raises has an edge like one that returns nan."""

    def f(x):
        if x < 0:
            raise ValueError
        return 3 * x

    found = look(f, 0.0)
    assert found["kind"] == Smoothness.EDGE
    assert found["value"] == pytest.approx(3, rel=1e-9)


@pytest.mark.parametrize("distance", [1e-2, 1e-5, 1e-8])
def test_close_to_the_edge_is_smooth_with_the_right_slope(distance):
    """log at a distance from 0 far below the scale: steps shrink to fit."""
    found = look(np.log, distance)
    assert abs(found["value"] - 1 / distance) <= 10 * found["error"]
    assert found["error"] < 1e-6 / distance


def test_infinite_slope_is_infinite():
    """sqrt at 0 has the slope +inf from the right."""
    found = look(np.sqrt, 0.0)
    assert found["kind"] == Smoothness.EDGE
    assert found["value"] == np.inf
    assert np.isinf(found["error"])


def test_vertical_tangent_is_not_resolved():
    """The cube root at 0 is steep on both sides: no finite slope, no finite bar."""
    found = look(np.cbrt, 0.0)
    assert found["kind"] == Smoothness.UNRESOLVED
    assert np.isinf(found["error"])


def test_edge_that_is_a_cliff_has_no_slope():
    """Defined on one side only, and not approaching its value there: no finite bar."""
    found = look(lambda x: np.nan if x < 0 else 1.0 + x if x > 0 else 0.0, 0.0)
    assert found["kind"] == Smoothness.EDGE
    assert np.isinf(found["error"])
