"""Jumps too small to see widen the bar; a series beyond its reach is no jump."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import Verdict
from tests.differentiation.catalogue import cosine_slope, fixed_point

SATURATING = {
    "tanh": (np.tanh, lambda y: 1 / np.cosh(y) ** 2),
    "sigmoid": (lambda y: 1 / (1 + np.exp(-y)), lambda y: 1 / (2 + 2 * np.cosh(y))),
}


@pytest.mark.parametrize("name", SATURATING)
def test_bars_of_what_saturates_stay_small(name):
    """Steps beyond the poles of f blew up one bar in twenty, to a hundredth of f."""
    f, slope = SATURATING[name]
    rng = np.random.default_rng(49)
    a, x = rng.normal(size=(30, 25)), rng.normal(size=25)
    exact = slope(a @ x)[:, None] * a

    found = gl.numeric_jacobian(lambda x: f(a @ x), x)

    error = np.abs(found.value - exact)
    assert (error <= 10 * found.error + 1e-9 * np.abs(exact)).all()
    wide = (found.error > 1e-6 * np.abs(exact)) & (error < 1e-9 * np.abs(exact))
    assert wide.sum() <= 3  # of 750; 29 to 34 before


def test_right_jacobian_of_tanh_is_not_left_undecided():
    """One entry of 750 was, for its bar of five times itself."""
    rng = np.random.default_rng(49)
    a, x = rng.normal(size=(30, 25)), rng.normal(size=25)
    jac = lambda x: (1 - np.tanh(a @ x) ** 2)[:, None] * a
    report = gl.check(lambda x: np.tanh(a @ x), x, jac=jac)
    assert report.verdict == Verdict.AGREES


@pytest.mark.parametrize("at", [0.5, 0.6, 0.8])
def test_bar_of_a_solver_covers_what_its_tolerance_leaves(at):
    """Its jumps do not grow with the step as a series does."""
    solve = lambda a: fixed_point(lambda v: np.cos(a * v), 0.5, 1e-6)
    found = gl.numeric_jacobian(solve, np.array(at))
    error = abs(found.value - float(cosine_slope(at)))
    assert error > 1e-9
    assert error <= found.error
