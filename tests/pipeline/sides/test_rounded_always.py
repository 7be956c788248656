"""Gradients that are rounded whatever comes in: what that costs is measured."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

W = np.random.default_rng(0).normal(size=(6, 8))
X = np.random.default_rng(1).uniform(0.5, 2.0, 8)
WAYS = ("at the end", "throughout", "on the way")


def value(x):
    """Return the sum of squares of a layer."""
    return (np.tanh(W.astype(x.dtype) @ x) ** 2).sum()


def slope(x):
    """Return its gradient in the arithmetic of x."""
    h = np.tanh(W.astype(x.dtype) @ x)
    return W.astype(x.dtype).T @ (2 * h * (1 - h * h))


def rounded(dtype, way, factor=1.0, entry=0):
    """Return a gradient of few digits, one entry of which is off."""

    def gradient(x):
        short = x.astype(dtype)
        found = slope(short if way == "throughout" else x)
        if way == "on the way":
            found = slope(short.astype(x.dtype))
        found[entry] *= factor
        return found.astype(dtype)

    return gradient


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_what_is_rounded_alone_is_right(dtype, way):
    """Wherever it rounds."""
    report = gl.check(value, X.astype(dtype), grad=rounded(dtype, way))

    assert report.verdict == gl.Verdict.AGREES


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("dtype", "factor"), [(np.float16, 1.2), (np.float16, 0.8), (np.float32, 1.001)]
)
def test_one_entry_that_is_off(dtype, factor, way):
    """More than the rounding of such numbers scatters by, and the place is told."""
    entry = int(np.abs(slope(X)).argmax())

    report = gl.check(value, X.astype(dtype), grad=rounded(dtype, way, factor, entry))

    assert report.verdict == gl.Verdict.DISAGREES
    wrong = report["x"].verdicts == gl.Verdict.DISAGREES
    assert np.flatnonzero(wrong).tolist() == [entry]


@pytest.mark.parametrize("factor", [1.0, 0.8])
def test_rows_of_a_jacobian(factor):
    """As of a gradient, so of the products that a backward of float16 returns."""

    def forward(x):
        return np.tanh(W.astype(x.dtype) @ x), (x, np.tanh(W.astype(x.dtype) @ x))

    def backward(upstream, kept):
        x, h = kept
        found = W.astype(x.dtype).T @ (upstream * (1 - h * h))
        return (found * factor).astype(np.float16)

    report = gl.check(forward, X.astype(np.float16), backward=backward)

    expected = gl.Verdict.AGREES if factor == 1 else gl.Verdict.DISAGREES
    assert report.verdict == expected
