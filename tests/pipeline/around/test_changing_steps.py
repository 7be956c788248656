"""Integrators that choose other steps where their tolerance is smaller, and jump.

Truth is algebra: logistic growth.
"""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

# J. Dormand and P. Prince, A family of embedded Runge-Kutta formulae (1980), table 2.
STAGES = (
    (),
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
EMBEDDED = (
    5179 / 57600,
    0,
    7571 / 16695,
    393 / 640,
    -92097 / 339200,
    187 / 2100,
    0.025,
)


def grown(params, end, rtol=1e-3):
    """Logistic growth of a tenth, by steps as long as the error before allows."""
    rate, most = params
    y, time, step = 0.1, 0.0, end
    while end - time > 1e-14:
        step = min(step, end - time)
        moves = []
        for row in STAGES:
            new = y + np.dot(row, moves)
            moves.append(step * rate * new * (1 - new / most))
        allowed = rtol * (0.1 + max(abs(y), abs(new)))
        error = max(abs(new - y - np.dot(EMBEDDED, moves)) / allowed, 1e-9)
        if error < 1:
            y, time = new, time + step
        step *= min(10.0, max(0.1, 0.9 / error**0.2))
    return y


def grown_gradient(params, end):
    """Derivative of the solution of the equation in rate and limit."""
    rate, most = params
    gap, left = most / 0.1 - 1, np.exp(-rate * end)
    total = 1 + gap * left
    return (
        np.array(
            [most * gap * end * left, total - 10 * most * left],
        )
        / total**2
    )


CASES = [(4.0, (2.81000585, 1.40794079)), (6.0, (2.22364325, 1.5504637))]


@pytest.mark.parametrize(("end", "params"), CASES)
@pytest.mark.parametrize("slip", [1.0, 1.05])
def test_the_error_of_a_solver_that_jumps_is_told_from_a_slip(end, params, slip):
    """Over a short step a jump is a wrong slope: over a longer one it is nothing."""
    report = gl.check(
        lambda p: grown(p, end),
        np.array(params),
        grad=lambda p: grown_gradient(p, end) * np.array([1.0, slip]),
    )
    told = gl.Verdict.UNDECIDED if slip == 1.0 else gl.Verdict.DISAGREES
    assert report.verdict == told
