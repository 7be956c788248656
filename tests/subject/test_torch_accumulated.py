"""Gradients that a backward adds to ``.grad`` by itself, as training gets them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import gradlab as gl
from tests.specimens.functions import with_backward


class Coupled(torch.autograd.Function):
    """A reversible block: keeps its output alone and runs its layers again."""

    @staticmethod
    def forward(ctx, x, first, second, slip):
        a, b = x.chunk(2, -1)
        a = a + first(b)
        b = b + second(a)
        ctx.kept, ctx.layers, ctx.slip = (a, b), (first, second), slip
        return torch.cat([a, b], -1)

    @staticmethod
    def backward(ctx, upstream):
        (a, b), (first, second) = ctx.kept, ctx.layers
        da, db = (part.clone() for part in upstream.chunk(2, -1))
        with torch.enable_grad():
            a = a.detach().requires_grad_()
            out = second(a)
            torch.autograd.backward(out, db)
        b = b - out.detach()
        da += a.grad
        with torch.enable_grad():
            b = b.detach().requires_grad_()
            out = first(b)
            torch.autograd.backward(out, upstream.chunk(2, -1)[0] if ctx.slip else da)
        return torch.cat([da, db + b.grad], -1), None, None, None


class Reversible(nn.Module):
    """Two layers in one such block."""

    def __init__(self, slip=False):
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
        self.second = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
        self.slip = slip

    def forward(self, x):
        return Coupled.apply(x, self.first, self.second, self.slip)


# A scale whose backward forgets the weight.
half = with_backward(
    lambda x, weight: x * weight, lambda _x, weight, upstream: (upstream * weight, None)
)


@pytest.fixture(params=[torch.float64, torch.float32])
def point(request):
    """Three samples of four numbers."""
    torch.manual_seed(0)
    return torch.randn(3, 4, dtype=request.param, requires_grad=True)


@pytest.mark.parametrize("coverage", ["full", "probe"])
def test_a_reversible_block_is_right(point, coverage):
    """Its parameters get their gradients beside the one that is returned."""
    module = Reversible().to(point.dtype)
    module.first[0].weight.grad = torch.ones_like(module.first[0].weight)
    report = gl.check(module, point, coverage=coverage)
    assert report.verdict.name == "AGREES"
    assert "backward()" in report.analytic
    assert (module.first[0].weight.grad == 1).all()
    assert module.second[0].weight.grad is None
    assert point.grad is None


def test_what_else_its_parameters_get_comes_on_top(point):
    """A penalty on them has a gradient of its own: none of them is without."""
    module = Reversible().to(point.dtype)

    def penalised(out):
        return (out**2).sum() + sum((p**2).sum() for p in module.parameters())

    report = gl.check(module, point, loss=penalised)
    assert report.verdict.name == "AGREES"
    assert "backward()" in report.analytic
    assert gl.blame(module, point, loss=penalised).ok


@pytest.mark.parametrize("slip", [False, True])
def test_parameters_in_place(point, slip):
    """With ``params=`` as well; what they had in .grad is there afterwards."""
    module = Reversible(slip=slip).to(point.dtype)
    module.first[0].bias.grad = torch.ones_like(module.first[0].bias)

    def loss():
        return (module(point) ** 2).sum()

    report = gl.check(loss, params=dict(module.named_parameters()))

    wrong = {c.input.name for c in report.comparisons if c.verdict.name == "DISAGREES"}
    assert wrong == ({"first.0.weight", "first.0.bias"} if slip else set())
    assert (module.first[0].bias.grad == 1).all()
    assert module.second[0].bias.grad is None


@pytest.mark.parametrize("slip", [False, True])
def test_an_audit_looks_at_it_too(point, slip):
    audit = gl.blame(Reversible(slip=slip).to(point.dtype), point)
    assert audit.culprits == (("Reversible",) if slip else ())
    assert audit.ok is not slip


def test_a_wrong_one_is_told(point):
    """Without the part of the second layer, the first gets a part of its gradient."""
    report = gl.check(Reversible(slip=True).to(point.dtype), point)
    wrong = {c.input.name for c in report.comparisons if c.verdict.name == "DISAGREES"}
    assert wrong == {"first.0.weight", "first.0.bias", "x"}


def test_a_checkpoint_that_is_re_entrant_is_right(point):
    """It cannot be asked for gradients of chosen inputs, and need not be."""
    layer = nn.Linear(4, 2).to(point.dtype)
    last = nn.Linear(2, 2).to(point.dtype)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.last = layer, last

        def forward(self, x):
            inside = checkpoint(
                lambda z: torch.tanh(self.layer(z)), x, use_reentrant=True
            )
            return self.last(inside)

    report = gl.check(Model(), point)
    assert report.verdict.name == "AGREES"
    assert layer.weight.grad is None


def test_what_is_forgotten_is_still_told():
    """A gradient that comes by no way is none."""
    torch.manual_seed(0)
    x, w = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    report = gl.check(half, x, w)
    assert report["weight"].verdict.name == "DISAGREES"
    assert report.analytic == "autograd, reverse mode"
    assert report.findings[0].kind.value == "detached"
