"""Layers that return what they are given, and change the gradient on the way back."""

from __future__ import annotations

import pytest
import torch

import gradlab as gl


class _Reverse(torch.autograd.Function):
    """Hands on what it is given, and the gradient times a number."""

    @staticmethod
    def forward(ctx, h, factor):
        ctx.factor = factor
        return h.view_as(h)

    @staticmethod
    def backward(ctx, up):
        return ctx.factor * up, None


@pytest.mark.parametrize("factor", [-1.0, -0.7, 0.1])
def test_a_layer_that_reverses_gradients_may_be_meant(factor):
    """Where what comes out is what went in, a factor is there on purpose, mostly."""

    class Reversal(torch.nn.Module):
        def forward(self, h):
            return _Reverse.apply(h, factor)

    torch.manual_seed(0)
    layers = [torch.nn.Linear(3, 4), Reversal(), torch.nn.Linear(4, 2)]
    net = torch.nn.Sequential(*layers).double()

    x = torch.randn(5, 3, dtype=torch.float64)
    audit = gl.blame(net, x, loss=lambda out: out.square().mean())

    assert audit.culprits == ("1",)

    assert str(audit.findings[0].kind) == "surrogate"
    assert "returns what it is given" in audit.findings[0].evidence
