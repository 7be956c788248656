"""Which numbers are tolerances: those that count only together, too.

Truth is algebra: the end of a linear differential equation.
"""

from __future__ import annotations

from scipy.integrate import solve_ivp

import gradlab as gl
from tests.specimens.linear_flow import T, flow, rate


def test_two_tolerances_are_made_smaller_together():
    """The absolute one counts where the relative one is no longer larger."""

    def f(t):
        found = solve_ivp(rate(t), (0, 2), [1.0], rtol=1e-5, atol=1e-6)
        return found.y[0, -1]

    assert gl.check(f, T, grad=flow).verdict.name == "UNDECIDED"
    wrong = gl.check(f, T, grad=lambda t: flow(t) * [1, 1.001])
    assert wrong.verdict.name == "DISAGREES"
