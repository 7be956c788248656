"""Layers that a custom Function calls: a checkpoint written by hand."""

from __future__ import annotations

import pytest
import torch

import gradlab as gl


class Checkpoint(torch.autograd.Function):
    """Runs a layer without recording, and again in backward."""

    @staticmethod
    def forward(ctx, run, adds_up, x, *weights):
        ctx.run, ctx.adds_up, ctx.weights = run, adds_up, weights
        ctx.save_for_backward(x)
        with torch.no_grad():
            return run(x)

    @staticmethod
    def backward(ctx, up):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            out = ctx.run(x)
        if ctx.weights:
            return None, None, *torch.autograd.grad(out, (x, *ctx.weights), up)
        if not ctx.adds_up:
            return None, None, torch.autograd.grad(out, x, up)[0]
        out.backward(up)
        return None, None, x.grad


class Net(torch.nn.Module):
    """Three layers, the middle one behind that checkpoint."""

    def __init__(self, *, handed=False, adds_up=False):
        super().__init__()
        self.first, self.inner = torch.nn.Linear(3, 4), torch.nn.Linear(4, 4)
        self.last, self.handed, self.adds_up = torch.nn.Linear(4, 2), handed, adds_up

    def forward(self, x):
        weights = tuple(self.inner.parameters()) if self.handed else ()
        hidden = torch.tanh(self.first(x))
        return self.last(Checkpoint.apply(self.inner, self.adds_up, hidden, *weights))


def audit(**options):
    torch.manual_seed(0)
    net, x = Net(**options).double(), torch.randn(5, 3, dtype=torch.float64)
    return gl.blame(net, x, loss=lambda out: (out**2).mean()), net, x


@pytest.mark.parametrize("adds_up", [False, True])
def test_what_a_function_calls_is_not_right_unseen(adds_up):
    """It was called, and whether its parameters get a gradient nobody looked at."""
    found, net, x = audit(adds_up=adds_up)
    row = found.table.set_index("name").loc["inner"]
    (warning,) = found.findings
    report = gl.check(net, x, loss=lambda out: (out**2).mean())

    assert row["state"] == "unchecked"
    assert "was called inside the Function `Checkpoint` alone" in row["reason"]
    assert (warning.severity, warning.where) == ("warning", "inner")
    assert "gl.check compares their gradients" in warning.evidence
    assert not str(found).startswith("✓")
    assert report.ok is adds_up  # the other one forgets the parameters


def test_parameters_that_a_function_is_given_are_looked_at():
    """Nothing is open then: the Function answers for them."""
    found, _, _ = audit(handed=True)

    assert not found.findings
    assert "was called inside" in found.table.set_index("name").loc["inner"]["reason"]
