"""What a search says of functions with a solver inside that stops at a tolerance.

Their slopes are off by what the tolerance leaves, in every entry. The gradients are
those of the solution itself, by the implicit function theorem.
"""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

SIZE = 6


def equilibrium(rng, tolerance):
    """Iterate ``z = tanh(W z + b)``; the gradient of a loss with respect to b."""
    W = rng.standard_normal((SIZE, SIZE))
    W *= 0.7 / np.linalg.norm(W, 2)
    target, b = rng.standard_normal((2, SIZE))

    def solve(b, tolerance):
        z, following = np.ones(SIZE), np.zeros(SIZE)
        while np.abs(following - z).max() >= tolerance:
            z, following = following, np.tanh(W @ following + b)
        return following

    def grad(b):
        z = solve(b, 1e-15)
        slope = 1 - z**2
        return slope * np.linalg.solve(
            (np.eye(SIZE) - slope[:, None] * W).T, z - target
        )

    return lambda b: 0.5 * np.sum((solve(b, tolerance) - target) ** 2), b, grad


def descent(rng, tolerance):
    """Fit a ridge by gradient descent; the gradient of the sum of its weights."""
    X, y = rng.standard_normal((20, SIZE)), rng.standard_normal(20)

    def system(penalty):
        return X.T @ X / 20 + np.diag(np.exp(penalty)), X.T @ y / 20

    def f(penalty):
        H, b = system(penalty)
        w, step = np.zeros(SIZE), 1 / np.linalg.norm(H, 2)
        while np.linalg.norm(slope := H @ w - b) >= tolerance:
            w = w - step * slope
        return w.sum()

    def grad(penalty):
        H, b = system(penalty)
        return (
            -np.linalg.solve(H, np.ones(SIZE)) * np.exp(penalty) * np.linalg.solve(H, b)
        )

    return f, 0.3 * rng.standard_normal(SIZE) - 1, grad


def jacobi(rng, tolerance):
    """Solve a linear system by Jacobi's iteration; with respect to its diagonal."""
    A = rng.standard_normal((SIZE, SIZE))
    np.fill_diagonal(A, 0)
    b, rows = rng.standard_normal(SIZE), np.abs(A).sum(axis=1)

    def f(d):
        x, following = np.ones(SIZE), np.zeros(SIZE)
        while np.abs(following - x).max() >= tolerance:
            x, following = following, (b - A @ following) / (d + rows)
        return following.sum()

    def grad(d):
        inverse = np.linalg.inv(A + np.diag(d + rows))
        return -inverse.sum(axis=0) * (inverse @ b)

    return f, rng.uniform(0.2, 1, SIZE), grad


SOLVERS = [
    (equilibrium, 1e-3), (equilibrium, 1e-5), (equilibrium, 1e-7), (equilibrium, 1e-8),
    (descent, 1e-5), (descent, 1e-7), (jacobi, 1e-4), (jacobi, 1e-6), (jacobi, 1e-8),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("solver", "tolerance"), SOLVERS)
class TestSolvers:
    @pytest.mark.thinned(2)
    def test_right_gradient_is_accused_only_where_a_full_check_accuses_it(
        self, solver, tolerance, seed
    ):
        """A search is no more ready to accuse than the check of every entry."""
        f, x, grad = solver(np.random.default_rng(seed), tolerance)

        if not gl.locate(f, x, grad=grad).ok:
            whole = gl.check(f, x, grad=grad, diagnose=False)
            assert whole.verdict == gl.Verdict.DISAGREES

    @pytest.mark.thinned(2)
    def test_sign_of_one_entry_is_found_through_the_tolerance(
        self, solver, tolerance, seed
    ):
        """Entries that are all off by a little do not hide one that is off by much."""
        f, x, grad = solver(np.random.default_rng(seed), tolerance)
        largest = int(np.argmax(np.abs(grad(x))))
        signs = np.where(np.arange(SIZE) == largest, -1.0, 1.0)

        found = gl.locate(f, x, grad=lambda x: signs * grad(x))

        assert (largest,) in [entry.index for entry in found.entries]


@pytest.mark.parametrize("seed", range(6))
def test_entries_within_the_tolerance_hide_no_wrong_sign(seed):
    """Where all entries are off by half of what is forgiven, a wrong sign is found."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(400)
    slips = 1 + 5e-7 * rng.choice([-1.0, 1.0], 400)
    slips[seed] = -1.0

    found = gl.locate(lambda x: np.exp(x).sum(), x, grad=lambda x: slips * np.exp(x))

    assert [entry.index for entry in found.entries] == [(seed,)]
