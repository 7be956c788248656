"""What cancels in a backward leaves units of its last digit, which accuse nobody.

The truth is the closed form of the derivative, in which nothing cancels.
"""

from __future__ import annotations

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")


def _certain(x):
    """Cross-entropy with logits; exact forward, backward ``sigmoid(x) - target``."""
    target = torch.tensor([0.0, 1.0, 1.0, 0.0]).to(x)
    return torch.nn.functional.binary_cross_entropy_with_logits(
        x, target, reduction="none"
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("sure", [30.0, 36.0, 40.0, 80.0])
def test_a_gradient_below_the_last_digit_of_its_terms_accuses_nobody(dtype, sure):
    """1 - sigmoid(40) is 4e-18; the backward subtracts 1 from 1 and has none of it."""
    x = torch.tensor([-sure, sure, -sure, 3.0], dtype=dtype)

    report = gl.check(_certain, x)

    assert report.verdict != gl.Verdict.DISAGREES
    assert not report.culprits


@pytest.mark.parametrize("factor", [1.05, 0.0])
@pytest.mark.parametrize("rate", [1.0, -1.0])
def test_a_faint_output_is_no_excuse(factor, rate):
    """exp(-40) beside 40: a formula that is a product has all its digits there."""

    class Slipped(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.exp(rate * x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return factor * rate * grad * torch.exp(rate * x)

    def f(x):
        return torch.stack([Slipped.apply(x[0]), x[1] ** 2])

    x = torch.tensor([-40.0 * rate, 20.0], dtype=torch.float64)
    assert gl.check(f, x).verdict == gl.Verdict.DISAGREES
