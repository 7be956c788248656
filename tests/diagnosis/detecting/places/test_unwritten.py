"""Slices at an end that get no gradient: never written, or zero for another reason."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


@pytest.mark.parametrize(("slip", "first"), [("mask", False), ("loop", True)])
def test_a_unit_whose_signals_cancel_is_not_left_out(slip, first):
    """Two samples of a hinge: one is beyond its margin, and counts in the gradient.

    Their labels are opposite, so unit 0 of the bias gets 1/4 - 1/4, and its weight
    does not. A loop that leaves the unit out leaves zeros in both.
    """
    x = np.array([[0.3, -1.0], [0.5, 0.5], [0.4, 2.0], [0.3, 1.5]])
    y = np.array([1.0, -1.0, 1.0, 1.0])
    params = {
        "W": np.array([[1.0, 0.1, 0.0], [-0.5, 0.3, 0.2]]),
        "b": np.array([0.3, 0.2, -4.0]),
    }

    def loss_and_grads(p):
        z = x @ p["W"] + p["b"]
        unit = np.array([0, 0, 1, 1])
        margin = 1 - y * z[np.arange(4), unit]
        d = np.zeros_like(z)
        inside = np.ones(4) if slip == "mask" else margin > 0
        d[np.arange(4), unit] = -y * inside / 4
        if slip == "loop":
            d[:, 0] = 0
        return np.maximum(margin, 0).mean(), {"W": x.T @ d, "b": d.sum(axis=0)}

    report = gl.check(loss_and_grads, params)

    told = [finding.evidence for finding in report.findings]
    assert not report.ok
    assert any("Index 0 along axis" in one for one in told) is first
