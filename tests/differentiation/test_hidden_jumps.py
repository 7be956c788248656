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


class TestManyEntries:
    """What one entry in a hundred shows is an accident, what many show is a solver."""

    SIZE = 40

    @pytest.fixture
    def weights(self):
        """A matrix of a recurrence, and one that is positive definite."""
        rng = np.random.default_rng(0)
        inside, a = rng.normal(size=(2, self.SIZE, self.SIZE))
        return 0.3 * inside, a @ a.T / self.SIZE + 2 * np.eye(self.SIZE)

    @pytest.mark.parametrize("seed", [5, 7])
    def test_bars_of_a_recurrent_network_stay_small(self, weights, seed):
        """12 and 22 bars of 1,600 were wider than a millionth, of slopes known to 9."""
        inside, x = weights[0], np.random.default_rng(seed).normal(size=self.SIZE)

        def unrolled(x):
            y, jacobian = x, np.eye(self.SIZE)
            for _ in range(20):
                y = np.tanh(inside @ y + 0.3 * x)
                straight = inside @ jacobian + 0.3 * np.eye(self.SIZE)
                jacobian = (1 - y**2)[:, None] * straight
            return y, jacobian

        found, (_, exact) = (
            gl.numeric_jacobian(lambda x: unrolled(x)[0], x),
            unrolled(x),
        )

        error = np.abs(found.value - exact)
        assert (error <= 10 * found.error + 1e-9 * np.abs(exact)).all()
        assert (found.error <= 1e-6 * np.abs(exact)).all()

    def test_bars_of_a_solver_stay_wide(self, weights):
        """Gradient descent that stops at 1e-6 jumps, and hundreds of bars say so."""
        a, x = weights[1], np.random.default_rng(5).normal(size=self.SIZE)

        def solved(x):
            y = np.zeros(self.SIZE)
            while np.abs(residual := a @ y + 0.3 * np.sin(y) - x).max() > 1e-6:
                y = y - 0.25 * residual
            return y

        found = gl.numeric_jacobian(solved, x)

        assert (found.error > 1e-8).mean() > 0.2
