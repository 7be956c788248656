"""Zeros of the analytic side, where some entries stand at a kink and are right."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def test_a_mask_is_read_beside_kinks_that_are_right():
    """A clip at its very bounds takes one of two slopes; the mask is elsewhere."""
    x, weights = np.array([-1.0, -0.5, 0.0, 0.3, 1.0, 2.0]), np.arange(1.0, 7.0)

    report = gl.check(
        lambda x: np.clip(x, -1, 1) * weights,
        x,
        jac=lambda x: np.diag(((x > 0.1) & (x <= 1)) * weights),
    )
    finding = report.findings[0]

    assert finding.kind == "wrong_mask"
    assert "zero where the function moves" in finding.evidence
    assert "from 0 to 0" not in finding.evidence


def test_slopes_of_knots_that_are_left_out_may_be_a_term():
    """A Jacobian without one of four basis functions has zeros that are no mask's."""
    u = np.linspace(1.05, 4.95, 9)
    i, t = np.floor(u).astype(int), u - np.floor(u)
    basis = (
        -0.5 * t**3 + t**2 - 0.5 * t, 1.5 * t**3 - 2.5 * t**2 + 1,
        -1.5 * t**3 + 2 * t**2 + 0.5 * t, 0.5 * t**3 - 0.5 * t**2,
    )  # fmt: skip

    def jacobian(count):
        matrix = np.zeros((9, 7))
        for k in range(count):
            matrix[np.arange(9), i - 1 + k] += basis[k]
        return matrix

    finding = gl.check(
        lambda y: jacobian(4) @ y, np.arange(7.0), jac=lambda y: jacobian(3)
    ).findings[0]

    assert "missing_term" in {finding.kind, *finding.doubts}


@pytest.mark.parametrize("lost", ["depth", "rows"])
def test_what_a_jacobian_leaves_out_by_hand_may_be_a_term(rng, lost):
    """Of f * X / z the slope in z, or that of every second row, is left out."""
    points = rng.normal(size=(6, 3)) + np.array([0, 0, 6])

    def image(t, f):
        y = points + t
        return (f * y[:, :2] / y[:, 2:]).ravel()

    def jac(t, f):
        y = points + t
        slopes = np.zeros((6, 2, 3))
        slopes[:, 0, 0] = slopes[:, 1, 1] = f[0] / y[:, 2]
        if lost != "depth":
            slopes[:, :, 2] = -f * y[:, :2] / y[:, 2:] ** 2
        own = (y[:, :2] / y[:, 2:]).reshape(12, 1)
        if lost == "rows":
            own[1::2] = 0
        return slopes.reshape(12, 3), own

    finding = gl.check(image, np.zeros(3), np.array([2.0]), jac=jac).findings[0]

    assert finding.where == ("t" if lost == "depth" else "f")
    assert "missing_term" in {finding.kind, *finding.doubts}
