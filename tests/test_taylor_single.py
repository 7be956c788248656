"""The Taylor test of gradients in float32: a slip of the formula is no round-off."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


@pytest.mark.parametrize("factor", [1.0, 1.0002, 1.0004])
def test_a_slip_smaller_than_roundings_of_float32(factor):
    """In float64 the same gradient is as wrong: no round-off, and a check says so."""
    x = np.linspace(-1, 2, 20, dtype=np.float32)

    def grad(x):
        return factor * np.cos(x)

    test = gl.taylor_test(lambda x: np.sin(x).sum(), x, grad=grad)
    report = gl.check(lambda x: np.sin(x).sum(), x, grad=grad)

    expected = "AGREES" if factor == 1 else "DISAGREES"
    assert test.verdict is report.verdict is gl.Verdict[expected]
    assert "steps too long" not in test.reading


def test_a_slip_of_a_function_in_torch():
    """The same of a custom Function, at the negative entries alone."""
    torch = pytest.importorskip("torch")

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * x.cos() * torch.where(x < 0, 1.001, 1.0)

    x = torch.linspace(-1, 2, 20)

    assert gl.taylor_test(lambda x: x.sin().sum(), x).verdict is gl.Verdict.AGREES
    wrong = gl.taylor_test(lambda x: Sine.apply(x).sum(), x)
    assert wrong.verdict is gl.Verdict.DISAGREES


@pytest.mark.parametrize("seed", range(4))
def test_roundings_of_a_right_gradient_are_no_slip(seed):
    """(x + c) - c is x, of which float32 keeps two digits here."""
    x = np.linspace(-1, 2, 6, dtype=np.float32)

    def grad(x):
        far = np.asarray(1e5, x.dtype)
        return np.cos((x + far) - far)

    assert np.abs(grad(x) - np.cos(x)).max() > 1e-3

    test = gl.taylor_test(lambda x: np.sin(x).sum(), x, grad=grad, seed=seed)

    assert test.verdict is gl.Verdict.AGREES


def test_numbers_in_float32_are_as_exact_as_float32():
    """A gradient that is given as numbers has no digits beyond its own."""
    x = np.linspace(-1, 2, 20, dtype=np.float32)

    test = gl.taylor_test(lambda x: np.sin(x).sum(), x, grad=np.cos(x))

    assert test.verdict is gl.Verdict.AGREES
