"""A layer that is looked at on one sample of a batch, where that shows its slip."""

from __future__ import annotations

import pytest

import gradlab as gl
from gradlab.diagnosis.finding import BugKind

torch = pytest.importorskip("torch")
nn = torch.nn


class Gelu(torch.autograd.Function):
    """Forgets the second term of the product rule."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * (1 + torch.erf(x / 2**0.5)) / 2

    @staticmethod
    def backward(ctx, upstream):
        (x,) = ctx.saved_tensors
        return upstream * (1 + torch.erf(x / 2**0.5)) / 2


class Centred(torch.autograd.Function):
    """Subtracts the mean over samples; the backward does not."""

    @staticmethod
    def forward(ctx, x):
        return x - x.mean(dim=0, keepdim=True)

    @staticmethod
    def backward(ctx, upstream):
        return upstream


class Between(nn.Module):
    """Applies a Function between two layers, to tokens of a batch."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(5)
        self.function = function
        self.first, self.last = nn.Linear(8, 96).double(), nn.Linear(96, 2).double()

    def forward(self, x):
        return self.last(self.function.apply(self.first(x))).pow(2).mean()


def tokens():
    return torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(2)).double()


def test_one_sample_tells_what_a_large_batch_hides():
    """Of 2,304 entries, 96 are looked at: their Jacobian shows the lost term."""
    finding = gl.check(Between(Gelu), tokens()).findings[0]

    assert (finding.kind, finding.where) == (BugKind.MISSING_TERM, "Between")
    assert "With f = x g(x), the analytic side is g alone" in finding.evidence


def test_samples_that_depend_on_each_other_are_not_cut_apart():
    """The mean over samples is a coupling that one sample does not have."""
    finding = gl.check(Between(Centred), tokens()).findings[0]

    assert finding.where == "Between"
    assert "The Function `Centred`" in finding.evidence
    assert finding.kind == BugKind.MISSING_TERM
