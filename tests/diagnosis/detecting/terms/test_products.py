"""Gradients of matrices that are of lower rank than they should be."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


@pytest.mark.parametrize("samples", [3, 9])
def test_a_loop_that_overwrites_leaves_one_product(rng, samples):
    """Of three samples two are lost, by rank; of nine as many as a matrix has rows."""
    x, y = rng.normal(size=(samples, 4)), rng.normal(size=(samples, 5))

    def loss_and_grads(p):
        for one, target in zip(x, y, strict=True):
            e = one @ p["W"] - target
            grad = np.outer(one, e)
        return 0.5 * ((x @ p["W"] - y) ** 2).sum(), {"W": grad}

    report = gl.check(loss_and_grads, {"W": rng.normal(size=(4, 5))})

    assert report.diagnosis == "lost_accumulation"


def test_a_determinant_left_out_is_no_lost_sample(rng):
    """Of log det A + b' A^-1 b one product is left; there are no samples at all."""
    a, b = rng.normal(size=(4, 4)) + 4 * np.eye(4), rng.normal(size=4)

    def f(a, b):
        return np.linalg.slogdet(a)[1] + b @ np.linalg.solve(a, b)

    def grad(a, b):
        w, x = np.linalg.solve(a.T, b), np.linalg.solve(a, b)
        return -np.outer(w, x), x + w

    finding = gl.check(f, a, b, grad=grad).findings[0]

    assert (finding.where, finding.kind) != ("a", "lost_accumulation")
    assert "missing_term" in {finding.kind, *finding.doubts}
    assert "samples" not in finding.evidence


@pytest.mark.parametrize("slip", ["no transpose", "no inverse"])
def test_a_fixed_point_has_no_samples(rng, slip):
    """z = tanh(W z + x): what its solver leaves of the slope is no sum over samples."""
    w, x = 0.25 * rng.normal(size=(4, 4)), rng.normal(size=4)

    def solve(w, x):
        z = np.zeros(4)
        for _ in range(200):
            z, before = np.tanh(w @ z + x), z
            if np.abs(z - before).max() < 1e-3:
                break
        return z

    def grad(w, x):
        z = solve(w, x)
        slope = 1 - z * z
        u = 2 * z  # (1 - slope * w).T u = 2 z is to be solved
        if slip == "no transpose":
            u = np.linalg.solve(np.eye(4) - slope[:, None] * w, u)
        return np.outer(u * slope, z), u * slope

    report = gl.check(lambda w, x: float((solve(w, x) ** 2).sum()), w, x, grad=grad)

    assert "lost_accumulation" not in {f.kind for f in report.findings}
    # at W = 0 the solve is none, and that is all that was measured there
    told = " ".join(finding.evidence for finding in report.findings)
    assert "shows only where samples or units differ" not in told
    assert "With w at zero" in told
