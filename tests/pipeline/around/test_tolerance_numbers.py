"""Which numbers are tolerances: those that count only together, too.

Truth is algebra: the end of a linear differential equation.
"""

from __future__ import annotations

import numpy as np
from scipy.integrate import solve_ivp

import gradlab as gl

T = np.array([1.3, 0.7])


def flow(t):
    """Its derivative in a and b."""
    a, b = t
    left = np.exp(-2 * a)
    return np.array([-2 * (1 - b / a) * left - b / a**2 * (1 - left), (1 - left) / a])


def test_two_tolerances_are_made_smaller_together():
    """The absolute one counts where the relative one is no longer larger."""

    def f(t):
        found = solve_ivp(
            lambda _, y: -t[0] * y + t[1], (0, 2), [1.0], rtol=1e-5, atol=1e-6
        )
        return found.y[0, -1]

    assert gl.check(f, T, grad=flow).verdict.name == "UNDECIDED"
    wrong = gl.check(f, T, grad=lambda t: flow(t) * [1, 1.001])
    assert wrong.verdict.name == "DISAGREES"
