"""Last digits of terms that cancel in a backward, behind weights and sums.

The truth is that of autograd: ``sigmoid(x) - target`` is right to the last digit of
one, and what is multiplied by it is as right.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gradlab as gl
from tests.specimens.functions import with_backward

BOTH = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])


def network(seed, steep, squash, dtype):
    """Return a network whose last weights are so steep, and inputs of it."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 6), squash(), nn.Linear(6, 3)).double()
    with torch.no_grad():
        model[2].weight.mul_(steep)
    x = torch.randn(5, 6, dtype=torch.float64)
    return model.to(dtype), x.to(dtype)


# Cross-entropy with logits of targets that are met, and a slip of its backward.
def binary_backward(logits, slip, grad):
    slopes = torch.sigmoid(logits) - (logits > 0).to(logits)
    return (slip(grad * slopes / logits.numel()), None)


binary = with_backward(
    lambda logits, slip: nn.functional.softplus(-logits.abs()).mean(), binary_backward
)


SLIPS = {
    "a factor": lambda g: 1.01 * g,
    "a sign": lambda g: -g,
    "nothing": torch.zeros_like,
    "a column": lambda g: g * torch.tensor([1.0, 1.0, 0.5]).to(g),
}


@pytest.mark.thinned(2)
@BOTH
@pytest.mark.parametrize(("seed", "steep"), [(2, 200), (8, 200)])
def test_nobody_is_accused_of_last_digits_behind_weights(seed, steep, dtype):
    """1 - sigmoid(33) has 40 units; a hundred weights later it has as many."""
    model, x = network(seed, steep, nn.Sigmoid, dtype)
    report = gl.check(model, x, loss=lambda out: binary(out, lambda g: g))

    assert report.verdict != gl.Verdict.DISAGREES


@pytest.mark.thinned(2)
@pytest.mark.parametrize("slip", SLIPS.values(), ids=SLIPS)
def test_a_slip_is_told_at_the_same_place(slip):
    """On the way to the middle of everything it does not stay as small."""
    model, x = network(2, 200, nn.Sigmoid, torch.float64)
    report = gl.check(model, x, loss=lambda out: binary(out, slip))

    assert report.verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("seed", [8, 20])
def test_single_precision_beside_a_saturated_tanh(seed):
    """1 - tanh(x) ** 2 has few units there: the gradient is off by three percent."""
    model, x = network(seed, 200, nn.Tanh, torch.float32)
    loss = lambda out: torch.tanh(out).pow(2).mean()

    assert gl.check(model, x, loss=loss).verdict != gl.Verdict.DISAGREES
    wrong = gl.check(model, x, loss=lambda out: loss(1.02 * out - 0.02 * out.detach()))
    assert wrong.verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("seed", [5, 10])
def test_a_loss_below_the_last_digit_of_single_precision(seed):
    """It is zero there, or one unit; in float64 it is 1e-9: no other function."""
    model, x = network(seed, (20, 60, 200)[seed % 3], nn.Sigmoid, torch.float32)
    report = gl.check(
        model, x, loss=lambda out: nn.functional.cross_entropy(out, out.argmax(1))
    )

    assert report.verdict != gl.Verdict.DISAGREES
