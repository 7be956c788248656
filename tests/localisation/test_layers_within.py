"""Layers that a custom Function calls: a checkpoint written by hand."""

from __future__ import annotations

import pytest
import torch

import gradlab as gl


class Checkpoint(torch.autograd.Function):
    """Runs a layer without recording, and again in backward.

    There `adds_up` is a factor of what it adds to ``.grad`` of the layer's parameters.
    """

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
        out.backward(ctx.adds_up * up)
        return None, None, x.grad / ctx.adds_up


class Net(torch.nn.Module):
    """Three layers, the middle one behind that checkpoint."""

    def __init__(self, *, handed=False, adds_up=0.0):
        super().__init__()
        self.first, self.inner = torch.nn.Linear(3, 4), torch.nn.Linear(4, 4)
        self.last, self.handed, self.adds_up = torch.nn.Linear(4, 2), handed, adds_up

    def forward(self, x):
        weights = tuple(self.inner.parameters()) if self.handed else ()
        hidden = torch.tanh(self.first(x))
        return self.last(Checkpoint.apply(self.inner, self.adds_up, hidden, *weights))


def audit(dtype=torch.float64, **options):
    torch.manual_seed(0)
    net, x = Net(**options).to(dtype), torch.randn(5, 3, dtype=dtype)
    return gl.blame(net, x, loss=lambda out: (out**2).mean()), net, x


def test_what_a_function_calls_is_not_right_unseen():
    """It was called, and its parameters get no gradient from there."""
    found, net, x = audit()
    row = found.table.set_index("name").loc["inner"]
    (warning,) = found.findings
    report = gl.check(net, x, loss=lambda out: (out**2).mean())

    assert row["state"] == "unchecked"
    assert "was called inside the Function `Checkpoint` alone" in row["reason"]
    assert (warning.severity, warning.where) == ("warning", "inner")
    assert "gl.check compares their gradients" in warning.evidence
    assert not str(found).startswith("✓")
    assert not report.ok


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_parameters_whose_gradients_it_adds_are_looked_at(dtype):
    """As a reversible block does: by ``backward()``, with nothing to return."""
    found, net, x = audit(adds_up=1.0, dtype=dtype)

    assert found.verdict == gl.Verdict.AGREES
    assert not found.findings
    assert "gl.check" not in found.table.set_index("name").loc["inner"]["reason"]
    assert x.grad is None
    assert all(parameter.grad is None for parameter in net.parameters())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_slip_in_what_it_adds_is_its_own(dtype):
    """The gradient that it returns is right, and so is all before it."""
    found, net, x = audit(adds_up=1.1, dtype=dtype)
    report = gl.check(net, x, loss=lambda out: (out**2).mean())

    assert found.culprits == ("Net",)
    assert "Function `Checkpoint`" in found.findings[0].evidence
    assert found.contaminated == ("inner.weight", "inner.bias")
    wrong = [c.input.name for c in report.comparisons if c.verdict.name == "DISAGREES"]
    assert sorted(wrong) == ["inner.bias", "inner.weight"]


def test_parameters_that_a_function_is_given_are_looked_at():
    """Nothing is open then: the Function answers for them."""
    found, _, _ = audit(handed=True)

    assert not found.findings
    assert "was called inside" in found.table.set_index("name").loc["inner"]["reason"]
