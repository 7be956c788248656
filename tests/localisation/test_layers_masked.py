"""Audits of layers behind a mask: fill values that are huge, or infinite."""

from __future__ import annotations

import math

import pytest
import torch

import gradlab as gl

FILLS = (-1e4, -1e9, torch.finfo(torch.float32).min, -math.inf)


def softmax(slip):
    """Softmax whose backward forgets its sum, or is half of it, or is right."""

    class Softmax(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            p = x.softmax(-1)
            ctx.save_for_backward(p)
            return p

        @staticmethod
        def backward(ctx, up):
            (p,) = ctx.saved_tensors
            inner = 0 if slip == "no sum" else (p * up).sum(-1, keepdim=True)
            return p * (up - inner) / (2 if slip == "half" else 1)

    return Softmax


class Attention(torch.nn.Module):
    """One causal head."""

    def __init__(self, fill, slip):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(4, 4) for _ in range(3))
        self.fill, self.softmax = fill, softmax(slip)

    def forward(self, x):
        scores = self.q(x) @ self.k(x).T
        future = torch.ones(len(x), len(x)).tril() == 0
        scores = scores.masked_fill(future, self.fill)
        return self.softmax.apply(scores) @ self.v(x)


def audit(fill, slip, dtype):
    torch.manual_seed(1)
    module, x = Attention(fill, slip).to(dtype), torch.randn(6, 4, dtype=dtype)
    return gl.blame(module, x, loss=lambda out: (out**2).mean())


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("fill", FILLS)
def test_a_wrong_softmax_behind_a_mask_is_named(fill, dtype):
    """Its size is that of the mask, and what the other scores do was nothing to it."""
    (found,) = audit(fill, "no sum", dtype).findings

    assert found.kind == "missing_term"
    assert "The Function `Softmax`" in found.evidence
    assert "mixes different indices along axis 1" in found.evidence


@pytest.mark.thinned(2)
@pytest.mark.parametrize("fill", FILLS)
def test_half_of_a_masked_softmax_is_named(fill):
    """The scale of what was measured is that of the entries that moved it."""
    (found,) = audit(fill, "half", torch.float64).findings

    assert found.kind == "scale"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("fill", FILLS)
def test_a_right_softmax_behind_a_mask_is_right(fill, dtype):
    """So are all layers around it: what stays infinite has not changed."""
    report = audit(fill, "", dtype)

    assert not report.findings
    assert set(report.table["state"]) == {"right"}


def test_couplings_are_seen_beside_entries_that_cannot_be_moved():
    """A check of the softmax alone leaves out what is infinite, and reads the rest."""
    x = torch.randn(5, 5, dtype=torch.float64)
    x = x.masked_fill(torch.ones(5, 5).tril() == 0, -math.inf).requires_grad_()

    first = gl.check(softmax("no sum").apply, x).findings[0]

    assert first.kind == "missing_term"
    assert not gl.check(softmax("").apply, x).findings
