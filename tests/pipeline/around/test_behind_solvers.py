"""Slips of a thousandth behind solvers that jump: a smaller tolerance tells them.

Truth is algebra: a linear differential equation, and a fixed point of one number.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import gradlab as gl
from tests.specimens.linear_flow import T, flow, rate


def solved(method, tol):
    """End of y' = -a y + b from 1 to the time 2."""

    def end(t):
        found = solve_ivp(rate(t), (0, 2), [1.0], method=method, rtol=tol, atol=1e-5)
        return found.y[0, -1]

    return end


SOLVERS = [("LSODA", 1e-4), ("Radau", 1e-4), ("BDF", 1e-4)]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("method", "tol"), SOLVERS)
@pytest.mark.parametrize("factor", [[1.001, 1.001], [1.003, 1.003]])
def test_a_thousandth_behind_an_integrator_is_told(method, tol, factor):
    """Each of these agreed, or was undecided, within bars of a percent."""
    report = gl.check(solved(method, tol), T, grad=lambda t: np.array(factor) * flow(t))

    assert report.verdict.name == "DISAGREES"
    told = report["t"]
    truth = flow(T)[None]
    assert (np.abs(told.numeric - truth) <= 5 * told.numeric_error).all()


def test_a_sweep_says_what_a_check_says():
    """Or one of them would be wrong."""
    f = solved("LSODA", 1e-4)

    wrong = gl.sweep(f, T, grad=lambda t: 1.001 * flow(t))

    assert wrong.verdicts["t"].name == "DISAGREES"
    assert "analytic = 1.001 x numeric" in wrong.reading["t"]
    assert gl.sweep(f, T, grad=flow).verdicts["t"].name == "AGREES"


@pytest.mark.parametrize(("method", "tol"), SOLVERS)
def test_a_right_gradient_agrees_as_before(method, tol):
    """Its distance to what the solver gives shrinks with the tolerance."""
    assert gl.check(solved(method, tol), T, grad=flow).verdict.name == "AGREES"


def test_a_gradient_with_a_loose_tolerance_of_its_own_is_not_accused():
    """By the equations of its sensitivities, solved no better than f is."""

    def loose(t):
        a, b = t

        def rhs(_, w):
            return [-a * w[0] + b, -a * w[1] - w[0], -a * w[2] + 1]

        found = solve_ivp(
            rhs, (0, 2), [1.0, 0, 0], method="LSODA", rtol=5e-4, atol=1e-5
        )
        return found.y[1:, -1]

    assert np.abs(loose(T) / flow(T) - 1).max() > 1e-5

    report = gl.check(solved("LSODA", 1e-4), T, grad=loose)

    assert report.verdict.name != "DISAGREES"


def test_numbers_that_a_solver_left_are_not_accused():
    """What is given may come of the solver as it is: undecided, with the reason."""
    given = 1.001 * flow(T)

    report = gl.check(solved("LSODA", 1e-4), T, grad=given)

    assert report.verdict.name == "UNDECIDED"
    told = " ".join(finding.evidence for finding in report.findings)
    assert "what is given may be of the solver as it is" in told
