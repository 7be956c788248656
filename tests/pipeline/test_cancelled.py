"""Functions of which cancellation leaves nothing but round-off."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")


# Rows without their mean; a slip leaves the mean in the gradient.
normalised = with_backward(
    lambda x, slip: x - x.mean(dim=-1, keepdim=True),
    lambda _x, slip, grad: (grad - (1 - slip) * grad.mean(dim=-1, keepdim=True), None),
)


def _total(scale, slip):
    """Sum of what has no mean: zero whatever w is, and b beside it."""
    torch.manual_seed(0)
    x = torch.randn(6, 30, dtype=torch.float64)
    w = torch.randn(20, 30, dtype=torch.float64)
    b = torch.zeros(20, dtype=torch.float64)

    def fn(w, b):
        return scale * (normalised(torch.tanh(x @ w.T), slip) + b).sum()

    return fn, w, b


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e7])
def test_a_sum_that_cancels_is_measured_once(scale):
    """Its slopes are zeros, and no jumps; the bias beside them has its own."""
    fn, w, b = _total(scale, 0.0)

    report = gl.check(fn, w, b, names=("w", "b"))

    assert report.verdict is gl.Verdict.AGREES
    assert report.findings == ()
    assert report.evaluations < 4 * (w.numel() + b.numel())


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e7])
@pytest.mark.parametrize("slip", [1.0, 1e-3])
def test_a_slope_where_there_is_none_is_found(scale, slip):
    """However little of the mean is left in the gradient."""
    fn, w, b = _total(scale, slip)

    report = gl.check(fn, w, b, names=("w", "b"))

    assert report.verdict is gl.Verdict.DISAGREES
    assert [str(part.verdict) for part in report.comparisons] == ["DISAGREES", "AGREES"]


def test_a_small_effect_beside_what_cancels_is_not_lost():
    """Of a millionth, beside two numbers of size one that are the same."""
    x = np.linspace(0.5, 1.5, 4)

    def fn(x):
        return (np.sin(x[0]) ** 2 + np.cos(x[0]) ** 2 - 1) + 1e-6 * x[3] * x[2]

    def grad(x, factor):
        return np.array([0.0, 0.0, 1e-6 * x[3], factor * 1e-6 * x[2]])

    assert gl.check(fn, x, grad=lambda x: grad(x, 1.0)).ok
    assert not gl.check(fn, x, grad=lambda x: grad(x, 1.001)).ok
