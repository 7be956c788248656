"""A second step for a few suspects tells curvature from kinks."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def cubes(x):
    """Flat at zero, where it curves more than it slopes."""
    return x**3


def test_curvature_beside_a_small_slope_is_no_kink():
    """x^3 at 0.004 bends by a thousandth of its slope in one step, and is smooth."""
    x = np.linspace(0.5, 1.5, 40)
    x[7] = 0.004

    report = gl.check(cubes, x, jac=lambda x: np.diag(3 * x**2))

    assert report.verdict == gl.Verdict.AGREES
    assert report["x"].escalated == 0
    assert not report.findings


def test_a_kink_is_still_told():
    """The slopes of |x| at zero stay apart at any step."""
    x = np.linspace(0.5, 1.5, 40)
    x[7] = 0.0

    report = gl.check(np.abs, x, jac=lambda x: np.diag(np.sign(x)))

    assert [f.kind for f in report.findings] == ["nondifferentiable"]


def test_a_kink_between_the_two_steps_is_still_told():
    """A slope that changes between the short step and the long one is looked at."""
    x = np.linspace(0.5, 1.5, 40)
    x[7] = 0.004

    def f(x):
        return x**3 + 1e-3 * np.maximum(x - 0.00401, 0)

    report = gl.check(f, x, jac=lambda x: np.diag(3 * x**2))

    assert report["x"].escalated > 0


@pytest.mark.parametrize("slip", [1.001, 0.99, 2.0, -1.0, 0.0])
def test_a_wrong_small_entry_is_found(slip):
    """A slip of one entry of a thousandth or more is found where f curves, too."""
    x = np.linspace(0.5, 1.5, 40)
    x[7] = 0.004

    def jac(x):
        slopes = 3 * x**2
        slopes[7] *= slip
        return np.diag(slopes)

    report = gl.check(cubes, x, jac=jac)

    assert report.verdict == gl.Verdict.DISAGREES


def test_truncation_is_seen():
    """sin(40 x) where its slope vanishes: the third derivative is all there is."""
    x = np.full(40, 0.3)
    x[3] = np.pi / 80 * (1 + 1e-6)

    report = gl.check(
        lambda x: np.sin(40 * x), x, jac=lambda x: np.diag(40 * np.cos(40 * x))
    )

    assert report.verdict == gl.Verdict.AGREES
