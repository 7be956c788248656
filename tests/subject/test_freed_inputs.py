"""Functions that let go of the memory of what they are given, to make it again."""

from __future__ import annotations

import pytest

import gradlab as gl
from gradlab.localisation.layers.audited import LayerState

torch = pytest.importorskip("torch")


class Reversible(torch.autograd.Function):
    """``y = x + tanh(b)`` for halves a and b; frees its input and makes it again."""

    @staticmethod
    def forward(ctx, x, slip, strict):
        a, b = x.detach().chunk(2)
        out = torch.cat([a + torch.tanh(b), b])
        x.untyped_storage().resize_(0)
        ctx.out, ctx.slip, ctx.strict, ctx.left = out, slip, strict, 1
        return out.clone()

    @staticmethod
    def backward(ctx, upstream):
        if ctx.strict and not torch.autograd._is_checkpoint_valid():
            raise RuntimeError("please use .backward() if possible")
        if ctx.left == 0:
            raise RuntimeError("its memory was let go after one backward pass")
        ctx.left = 0
        _, b = ctx.out.chunk(2)
        above, below = upstream.chunk(2)
        slope = ctx.slip * (1 - torch.tanh(b) ** 2)
        return torch.cat([above, below + slope * above]), None, None


def point():
    torch.manual_seed(2)
    return torch.randn(6, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("slip", [1.0, 0.5])
def test_a_function_that_frees_its_input_is_judged_by_its_values(slip, strict):
    """What it frees is there again; a backward that runs once has a graph each."""
    x = point()
    before = x.detach().clone()

    report = gl.check(lambda x: Reversible.apply(x, slip, strict), x)

    assert report.ok == (slip == 1.0)
    assert torch.equal(x.detach(), before)
    assert x.grad is None


class Model(torch.nn.Module):
    """A layer in front of it, whose output is freed."""

    def __init__(self, slip):
        super().__init__()
        torch.manual_seed(4)
        self.first = torch.nn.Linear(6, 6).double()
        self.slip = slip

    def forward(self, x):
        return Reversible.apply(self.first(x), self.slip, False).sum()


def test_a_layer_whose_output_is_freed_is_audited():
    """The audit keeps its own copy of what it will read."""
    x = point()

    audit = gl.blame(Model(1.0), x)

    states = {row.name: row.state for row in audit.rows}
    assert states["first"] == LayerState.RIGHT
    assert LayerState.WRONG not in states.values()
    assert gl.check(Model(1.0), x).ok
    assert not gl.check(Model(0.5), x).ok
