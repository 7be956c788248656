"""Functions that get a module and its parameters, looked at by themselves."""

from __future__ import annotations

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")


class Through(torch.autograd.Function):
    """``x * net(y)`` for halves x and y; its backward forgets a factor."""

    @staticmethod
    def forward(ctx, both, net, *weights):
        ctx.net = net
        ctx.save_for_backward(both, *weights)
        x, y = both.chunk(2, dim=1)
        with torch.no_grad():
            return torch.cat([x * net(y), y], dim=1)

    @staticmethod
    def backward(ctx, upstream):
        both, *_ = ctx.saved_tensors
        above, below = upstream.chunk(2, dim=1)
        with torch.enable_grad():
            x, y = (part.detach().requires_grad_() for part in both.chunk(2, dim=1))
            out = x * ctx.net(y)
        found = torch.autograd.grad(out, (x, y, *ctx.net.parameters()), above)
        return (torch.cat([above, found[1] + below], dim=1), None, *found[2:])


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.net = torch.nn.Linear(3, 3).double()

    def forward(self, both):
        return Through.apply(both, self.net, *self.net.parameters())


def test_parameters_that_it_finds_in_its_module_are_not_said_to_do_nothing():
    """A copy of a weight beside the module moves nothing, and that is no mistake."""
    x = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)

    report = gl.check(Block(), x)

    told = " ".join(finding.evidence for finding in report.findings)
    assert not report.ok
    assert "does not depend" not in told
    assert not any("weight" in finding.where for finding in report.findings)
