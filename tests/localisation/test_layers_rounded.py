"""Layers of float64 that round to float32 inside: what an audit says of them."""

from __future__ import annotations

import pytest

import gradlab as gl
from gradlab.localisation.layers.audited import LayerState

torch = pytest.importorskip("torch")


class SoftMinimum(torch.autograd.Function):
    """Squares beside a minimum smoothed over 0.1; its backward smooths by `slip`."""

    @staticmethod
    def forward(ctx, x, centres, slip):
        ctx.save_for_backward(x, centres)
        ctx.slip = slip
        near = -((x - centres) ** 2) / 0.1
        value = 20 - 0.1 * near.logsumexp(1) + (x**2).sum()
        return value.float().to(x.dtype)

    @staticmethod
    def backward(ctx, upstream):
        x, centres = ctx.saved_tensors
        weights = (-ctx.slip * (x - centres) ** 2 / 0.1).softmax(1)
        slopes = 2 * (x - centres) * weights + 2 * x
        return upstream @ slopes, None, None


class Layer(torch.nn.Module):
    """Applies it."""

    def __init__(self, centres, slip):
        super().__init__()
        self.centres, self.slip = centres, slip

    def forward(self, x):
        return SoftMinimum.apply(x, self.centres, self.slip)


def states(slip):
    """Audit the layer at ten points."""
    found = []
    for seed in range(10):
        torch.manual_seed(seed)
        x = torch.randn(12, dtype=torch.float64, requires_grad=True)
        centres = torch.randn(3, 12, dtype=torch.float64)
        audit = gl.blame(Layer(centres, slip), x, seed=seed)
        state = {layer.type: layer.state for layer in audit.rows}
        found.append(state["SoftMinimum"])
    return found


def test_right_backward_is_called_right():
    """Over steps as long as the rounding asks for both sides agree."""
    assert states(1.0) == [LayerState.RIGHT] * 10


def test_wrong_backward_is_not_called_right():
    """Gradients off by some percent are hidden by rounding over short steps only.

    Neither does one entry that happens to be right speak for all, nor is a slope in
    doubt because sums over short steps are noise.
    """
    found = states(0.1)
    assert found.count(LayerState.RIGHT) <= 1
    assert found.count(LayerState.WRONG) >= 3
