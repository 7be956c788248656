"""Derivatives of solvers that stop early have bars that reach to those of the solution.

The truth is the implicit function theorem at a solution to the last digit, or algebra.
"""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

import gradlab as gl
from gradlab.building import Sides, build_subject
from gradlab.differentiation.evaluation import line_rows
from gradlab.differentiation.metering.meter import Meter
from gradlab.pipeline.sides.lines_run import path_of

METHODS = ["complex-step", "adaptive", "central", "forward"]


def equilibrium(tolerance, seed):
    """A vector z = tanh(W z + u), by iteration; point, and Jacobian of the solution."""
    rng = np.random.default_rng(seed)
    weights, u = rng.normal(size=(4, 4)), rng.normal(size=4)
    weights *= 0.7 / np.linalg.norm(weights, 2)

    def solve(u, tolerance=tolerance):
        z, moved = 0 * u, 1.0
        while moved >= tolerance:
            following = np.tanh(weights @ z + u)
            z, moved = following, np.abs(following - z).max()
        return z

    slope = 1 - solve(u, 1e-15) ** 2
    inner = np.eye(4) - slope[:, None] * weights
    return solve, u, np.linalg.solve(inner, np.diag(slope))


def exponentials(tolerance, seed):
    """A series for each of three numbers, until its terms are small."""

    def one(x):
        term, total, k = 1.0, 1.0 + 0 * x, 0
        while abs(term) > tolerance:
            k += 1
            term = term * x / k
            total = total + term
        return total

    x = np.random.default_rng(seed).uniform(0.5, 3, 3)
    return lambda x: np.array([one(a) for a in x]), x, np.diag(np.exp(x))


def root(tolerance, seed):
    """Newton's method for y**3 + y = x, one number."""

    def solve(x, tolerance=tolerance):
        y, moved = 1.0, 1.0
        while abs(moved) >= tolerance:
            moved = (y**3 + y - x) / (3 * y**2 + 1)
            y = y - moved
        return y

    x = np.random.default_rng(seed).uniform(1, 20)
    return solve, np.array(x), 1 / (3 * solve(x, 1e-14) ** 2 + 1)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("tolerance", [1e-3, 1e-5, 1e-8])
@pytest.mark.parametrize("solver", [equilibrium, exponentials, root])
def test_bars_reach_to_the_slope_of_the_solution(solver, tolerance, method):
    """And are no wider than some hundred tolerances."""
    for seed in range(3):
        f, x, exact = solver(tolerance, seed)

        found = gl.numeric_jacobian(f, x, method=method)

        error = np.abs(found.value - exact)
        assert (error <= 5 * found.error + 1e-13).all()
        if method == "central":  # a ladder may take jumps for more than they are
            assert found.error.max() <= 100 * tolerance * np.abs(exact).max()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("f", "slope"),
    [
        (lambda x: np.sum(x**2) * (2 if x[0].real > 0.5 else 1), lambda x: 4 * x),
        (lambda x: np.sum(x**2) + (0.01 if x[0].real > 0.5 else 0), lambda x: 2 * x),
        (
            lambda x: np.sum(x**2) + (3 * x[0] - 1.5 if x[0].real > 0.5 else 0),
            lambda x: 2 * x + np.array([3, 0, 0]),
        ),
    ],
    ids=["much higher", "a step", "a kink"],
)
def test_branches_of_the_function_itself_leave_bars_small(f, slope, method):
    """Beyond a step f goes on with the same slope; at a kink it does not jump."""
    x = np.array([0.6, 1.1, -0.7])

    found = gl.numeric_jacobian(f, x, method=method)

    tall = 1e-6 if method == "forward" else 1e-8
    assert (np.abs(found.value - slope(x)) <= 5 * found.error).all()
    assert found.error.max() < tall


def test_a_formula_costs_four_evaluations_more():
    """Lines are the same on both ends of two lines, and there it ends."""
    x, calls = np.linspace(0.5, 2, 12), []

    def formula(x):
        calls.append(x)
        return np.sin(x).sum()

    found = gl.numeric_jacobian(formula, x, method="forward")

    assert found.evaluations == 2 * x.size + 4
    assert len(calls) <= found.evaluations + 2


def test_a_program_that_takes_other_lines_every_time_is_left_alone():
    """A cache that fills, a log that is written now and then: no tolerance."""
    count = 0

    def restless(x):
        nonlocal count
        count += 1
        for _ in range(count % 7):
            pass
        return np.sum(x**2)

    found = gl.numeric_jacobian(restless, np.ones(3), method="complex-step")

    assert found.error.max() < 1e-13


def test_no_value_far_away_is_no_jump():
    """Where f raises its lines end; nothing is known of a jump there."""

    def domain(x):
        if x[0].real > 1.2:
            raise ValueError
        return np.sum(x**3)

    found = gl.numeric_jacobian(domain, np.ones(2), method="complex-step")

    assert found.error.max() < 1e-13


def test_whoever_traced_before_does_so_afterwards():
    """Also where the function raises."""

    def tracer(*_):
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        path_of(lambda: None)
        with pytest.raises(ZeroDivisionError):
            path_of(lambda: 1 / 0)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("tolerance", [1e-4, 1e-7])
def test_a_check_by_complex_steps_accuses_no_right_implicit_gradient(tolerance):
    """What the iteration has wrong is the tolerance's; what a formula has is told."""
    verdicts = {}
    for factor in (1, 1.1):
        f, u, exact = equilibrium(tolerance, 1)
        verdicts[factor] = gl.check(
            f, u, jac=lambda _, j=factor * exact: j, method="complex-step"
        ).verdict

    assert verdicts[1] != gl.Verdict.DISAGREES
    assert verdicts[1.1] == gl.Verdict.DISAGREES


def test_what_garbage_collection_calls_is_no_line_of_the_function():
    """Whoever is told of it runs lines of his own, now and then."""
    calls = []

    def told(*_):
        calls.append(len(calls) % 3)

    def litter():
        for _ in range(3000):
            cell = []
            cell.append(cell)

    gc.callbacks.append(told)
    try:
        paths = {path_of(litter)[1] for _ in range(4)}
    finally:
        gc.callbacks.remove(told)

    assert len(paths) == 1


def test_only_lines_of_the_function_are_followed():
    """Frames of gradlab that lead to it are not: those take longer than many an f."""
    followed = {}

    def look(x):
        frame = sys._getframe()
        while frame is not None:
            code = frame.f_code
            followed[code.co_filename, code.co_name] = frame.f_trace is not None
            frame = frame.f_back
        return x

    subject = build_subject(look, (np.array([2.0]),), Sides(grad=np.ones(1)))
    subject.row()
    path_of(lambda: line_rows(subject, [np.array([0.5])], [1.0], Meter()))
    assert {name for (file, name), seen in followed.items() if seen} == {
        "look",
        "<lambda>",
    }
