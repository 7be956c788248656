"""What is off by far less than a tolerance of f is no accusation.

Truth is algebra: an exponential, and a term that its gradient leaves out.
"""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

LOOSE = 1e-3


def exponential(x, tol=LOOSE):
    """Sum its series to a tolerance: as many terms, whatever x is."""
    total, term, size, n = np.ones_like(x), np.ones_like(x), 1.0, 1
    while size > tol:
        term = term * x / n
        total = total + term
        size /= n
        n += 1
    return total


@pytest.mark.parametrize(
    ("coupling", "verdict"), [(0, "AGREES"), (3e-6, "UNDECIDED"), (2e-3, "DISAGREES")]
)
def test_what_is_far_below_a_tolerance_is_no_accusation(coupling, verdict):
    # as samples of a batch share the steps of an integrator, which no formula knows
    report = gl.check(
        lambda x: exponential(x) + coupling * np.sin(x[::-1]),
        np.array([0.3, 0.2, 0.25]),
        jac=lambda x: np.diag(np.exp(x)),
    )
    assert report.verdict.name == verdict
