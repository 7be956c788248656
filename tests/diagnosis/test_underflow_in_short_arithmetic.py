"""Mistakes of float32 code are read without its round-off: a slope of zero is none.

A saturated GELU has a slope of 1e-10, which float32 rounds to zero.
"""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

ROOT, CUBE, HALF, ONE = map(np.float32, (0.7978846, 0.044715, 0.5, 1))


def layer(turn):
    """GELU of x @ w + b; `turn` spoils the gradient of w."""

    def forward(x, w, b):
        z = x @ w + b
        return HALF * z * (ONE + np.tanh(ROOT * (z + CUBE * z**3))), (x, w, z)

    def backward(dout, cache):
        x, w, z = cache
        t = np.tanh(ROOT * (z + CUBE * z**3))
        inner = ROOT * (ONE + 3 * CUBE * z * z)
        d = dout * (HALF * (ONE + t) + HALF * z * (ONE - t * t) * inner)
        return d @ w.T, turn(x, d), d.sum(axis=0)

    rng = np.random.default_rng(0)
    shapes = (8, 5), (5, 4), (4,)
    x, w, b = (rng.normal(size=s).astype(np.float32) for s in shapes)
    z = (x @ w + b).astype(np.float64)
    assert (np.tanh(0.8 * (z + 0.0447 * z**3)) < -1 + 1e-8).any()  # saturated
    return gl.check(forward, x, w, b, backward=backward)


def test_the_right_one_agrees():
    """Also where float32 has a zero and float64 has none."""
    assert layer(lambda x, d: x.T @ d).verdict == gl.Verdict.AGREES


@pytest.mark.parametrize("factor", [1.003, 1.05, 2.0])
def test_a_factor_is_one_where_a_slope_underflows(factor):
    """0 is not 2 times 3e-10, but the formula says so."""
    report = layer(lambda x, d: x.T @ d * np.float32(factor))

    assert (report.diagnosis, report.culprits) == ("scale", ("w",))


def test_a_sign_is_one_where_a_slope_underflows():
    """The same of a minus."""
    assert layer(lambda x, d: -x.T @ d).diagnosis == "sign"
