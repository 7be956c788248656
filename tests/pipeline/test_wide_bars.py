"""What agrees for a wide bar alone has better steps asked, and is told then."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

CASES = {
    "an offset of a million": (lambda x: 1e6 + np.sin(x), np.cos, 0.3, 1.001),
    "an offset of 1e8": (lambda x: 1e8 + np.sin(x), np.cos, -2.2, 1.01),
    "a power at zero": (lambda x: x**x, lambda x: x**x * (np.log(x) + 1), 1e-8, 1.001),
}


@pytest.mark.parametrize("name", CASES)
def test_a_slip_within_the_first_bar_is_told(name):
    f, slope, at, factor = CASES[name]
    x = np.array([at])
    report = gl.check(f, x, jac=lambda x: np.diag(factor * slope(x)))
    assert report.verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("name", CASES)
def test_a_right_gradient_agrees(name):
    f, slope, at, _ = CASES[name]
    report = gl.check(f, np.array([at]), jac=lambda x: np.diag(slope(x)))
    assert report.verdict == gl.Verdict.AGREES


@pytest.mark.parametrize("seed", range(3))
def test_many_entries_of_a_large_sum_are_hardly_ever_asked_twice(seed):
    x = np.random.default_rng(seed).normal(size=200)
    report = gl.check(lambda x: 1e5 + np.sin(x).sum(), x, grad=np.cos)
    assert report.verdict == gl.Verdict.AGREES
    assert report.evaluations < 3 * x.size
