"""Slopes that settle slowly, or never: roots, logarithms, broken powers."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def entropy(x):
    """``x log x``, with its limit at 0 and nothing below."""
    return np.where(x == 0, 0.0, x * np.log(np.where(x == 0, 1.0, x)))


def logarithmic(x):
    """``x log|x|``, with its limit at 0."""
    return np.where(x == 0, 0.0, x * np.log(np.abs(np.where(x == 0, 1.0, x))))


def slope_of(f, constant):
    """Slope and bar at 0, beside a sine of slope 1 and a constant."""
    with np.errstate(invalid="ignore"):
        found = gl.numeric_jacobian(
            lambda x: float(f(x) + np.sin(x) + constant), np.array(0.0)
        )
    return float(found.value), float(found.error)


@pytest.mark.parametrize("constant", [0.0, 1.0, 1e3])
@pytest.mark.parametrize(
    ("f", "end"),
    [
        (logarithmic, -np.inf),
        (lambda x: -entropy(x), np.inf),
        (lambda x: np.sign(x) * np.sqrt(np.abs(x)), np.inf),
        (lambda x: np.sign(x) * np.abs(x) ** 0.9, np.inf),
    ],
)
def test_slopes_without_end_are_infinite(f, end, constant):
    """The slope of ``x log|x|`` falls by log 2 with every halving of the step."""
    value, error = slope_of(f, constant)

    assert value == end
    assert error == np.inf


@pytest.mark.parametrize("constant", [0.0, 1.0, 1e3])
@pytest.mark.parametrize("power", [1.2, 1.25, 1.4, 1.5])
@pytest.mark.parametrize("one_sided", [False, True])
def test_bars_cover_slopes_that_settle_like_a_broken_power(power, one_sided, constant):
    """The derivative of ``sign(x) |x|**p`` at 0 is 0 for p > 1, however slowly."""

    def f(x):
        size = np.maximum(x, 0.0) if one_sided else np.abs(x)
        return np.sign(x) * size**power

    value, error = slope_of(f, constant)

    assert abs(value - 1.0) <= 1.1 * error


def test_a_slope_beyond_all_steps_is_told_by_none():
    """At 0 the derivative of ``x / log|x|`` is 0, over steps of 1e-16 still -1/37."""

    def f(x):
        return np.where(x == 0, 0.0, x / np.log(np.where(x == 0, 0.5, np.abs(x))))

    value, error = slope_of(f, 0.0)

    assert abs(value - 1.0) <= error


def test_zero_for_an_infinite_slope_is_a_convention():
    """0 for the infinite slope of an entropy accuses nobody; -inf is wrong."""
    x = np.array([0.0, 0.3, 0.7])

    def verdict(at_zero):
        grad = np.array([at_zero, *(-np.log(x[1:]) - 1)])
        with np.errstate(invalid="ignore"):
            return gl.check(
                lambda x: float(-entropy(x).sum()), x, grad=lambda _: grad
            ).verdict

    assert verdict(0.0) == gl.Verdict.UNDECIDED
    assert verdict(np.inf) < gl.Verdict.DISAGREES
    assert verdict(-np.inf) == gl.Verdict.DISAGREES
