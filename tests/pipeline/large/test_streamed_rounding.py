"""Jacobians that do not fit, of functions that round inside."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_what_rounding_hides_is_kept_for_some_columns(factor):
    """Single precision inside is heard in every tile."""
    rng = np.random.default_rng(0)
    A = (rng.normal(size=(100, 100)) / 14).astype(np.float32)
    x = rng.normal(size=100)

    def f(x):
        return np.tanh(A @ x.astype(np.float32)).astype(float)

    def jac(x):
        slopes = (1 - np.tanh(A @ x.astype(np.float32)) ** 2)[:, None] * A
        slopes[3, 7:11] *= np.float32(factor)
        return slopes.astype(float)

    report = gl.check(f, x, jac=jac, memory="1MiB", diagnose=False)

    wrong = report.verdict is gl.Verdict.DISAGREES
    assert wrong == (factor != 1.0)
