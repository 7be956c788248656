"""Sides with one slope and two curvatures: squared hinges, ``x |x|``, Huber's knee."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

ONE_SIDED = {
    "squared relu": lambda x: np.maximum(x, 0) ** 2,
    "other side": lambda x: -0.7 * np.minimum(x, 0) ** 2,
    "x |x|": lambda x: x * np.abs(x),
    "softplus of relu": lambda x: (
        np.log1p(np.exp(np.maximum(x, 0))) - 0.5 * x * (x > 0)
    ),
    "even": lambda x: np.log(np.cosh(2 * np.maximum(x, 0))),
    "two exponentials": lambda x: np.where(
        x > 0, np.expm1(2 * np.abs(x)) - 2 * np.abs(x), np.expm1(-np.abs(x)) + np.abs(x)
    ),
}  # each with a slope of zero at 0


@pytest.mark.parametrize("name", ONE_SIDED)
@pytest.mark.parametrize("slope", [0.0, 1.0, -0.03])
def test_bar_of_sides_with_their_own_curvatures(name, slope):
    """Their slope is told to 1e-9 beside a constant of one, with a bar that holds."""

    def f(x):
        return float(1 + slope * x[0] + ONE_SIDED[name](x[0]))

    found = gl.numeric_jacobian(f, np.zeros(1))

    assert abs(found.value[0] - slope) <= found.error[0] < 1e-9


@pytest.mark.parametrize("name", ONE_SIDED)
def test_the_slope_of_such_a_point_agrees(name):
    """A gradient of zero there was undecided, for the bar was the root of rounding."""
    report = gl.check(
        lambda x: float(1 + ONE_SIDED[name](x).sum()),
        np.zeros(4),
        grad=lambda x: np.zeros(4),
    )

    assert report.verdict == gl.Verdict.AGREES


def test_no_more_evaluations_than_a_root_of_rounding_took():
    """Four long steps show both sides; 44 evaluations of shorter ones did not."""
    found = gl.numeric_jacobian(
        lambda x: float(1 + x[0] + np.maximum(x[0], 0) ** 2), np.zeros(1)
    )

    assert found.evaluations < 44


@pytest.mark.parametrize("name", ONE_SIDED)
@pytest.mark.parametrize("off", [1e-3, 1e-5])
def test_another_slope_there_disagrees(name, off):
    """What is off by a hundred-thousandth of f is told."""
    report = gl.check(
        lambda x: float(1 + ONE_SIDED[name](x).sum()),
        np.zeros(4),
        grad=lambda x: np.array([0, 0, off, 0]),
    )

    assert report.verdict == gl.Verdict.DISAGREES


def test_a_kink_is_none_of_these():
    """One-sided slopes that differ are told as before: a mean, and a bar over both."""
    found = gl.numeric_jacobian(
        lambda x: float(1 + np.maximum(x[0], 0) ** 2 + 1e-3 * np.abs(x[0])), np.zeros(1)
    )

    assert found.error[0] >= 0.9e-3


@pytest.mark.parametrize("offset", [1e-3, 1e-6, 1e-9])
def test_the_knee_beside_the_point(offset):
    """Where curvature changes a little aside, bars hold as well."""

    def f(x):
        return float(1 + x[0] + np.maximum(x[0] - offset, 0) ** 2)

    found = gl.numeric_jacobian(f, np.zeros(1))

    assert abs(found.value[0] - 1) <= 5 * found.error[0]


@pytest.mark.parametrize("strength", [0.05, 0.3, 0.7])
def test_beside_an_output_that_stays(strength):
    """One that no step moves takes no rungs from one with sides of their own."""

    def f(x):
        return np.sin(x) + strength * np.maximum(x, 0) ** 2 + 2.0

    found = gl.numeric_jacobian(f, np.array([0.0, 0.7]))

    assert abs(found.value[0, 0] - 1) <= 5 * found.error[0, 0] < 1e-8
