"""A model that differentiates inside, and a backward that is right only once."""

from __future__ import annotations

import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")


# A sine whose slope is a constant to whoever differentiates again.
sine = with_backward(torch.sin, lambda x, up: up * x.cos().detach())


class Physics(torch.nn.Module):
    """The loss of a network by its own derivative."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(2, 4), torch.nn.Linear(4, 1)

    def forward(self, x):
        """Square of the gradient, less one."""
        x = x.detach().requires_grad_()
        u = self.last(sine(self.first(x)))
        (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        return (slope.pow(2).sum(1) + u[:, 0] - 1).pow(2).mean()


def test_a_backward_that_detaches_its_slope_may_be_wrong_the_second_time():
    """Layer by layer all is right: the second derivative is named among the doubts."""
    torch.manual_seed(0)
    x = torch.randn(6, 2, dtype=torch.float64)

    report = gl.check(Physics().double(), x)

    assert report.verdict is gl.Verdict.DISAGREES
    finding = report.findings[0]
    assert "second_order" in {finding.kind, *finding.doubts}
    assert "order=2" in finding.advice


def test_what_forward_computed_is_a_constant_though_it_is_saved():
    """Neither input nor output: `save_for_backward` keeps it without its graph."""

    class LogSum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            top = x.logsumexp(-1, keepdim=True)
            ctx.save_for_backward(x, top)
            return top.squeeze(-1)

        @staticmethod
        def backward(ctx, grad):
            x, top = ctx.saved_tensors
            return grad[:, None] * (x - top).exp()

    x = torch.tensor([[0.3, -0.7, 0.2], [1.1, 0.4, -0.5]], dtype=torch.float64)
    report = gl.check(LogSum.apply, x, order=2)

    assert report.diagnosis == "second_order"
    assert "a constant to it, saved or not" in report.findings[0].advice
