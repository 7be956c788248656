"""Checkpoints that go backwards by themselves, around inputs made inside the model."""

from __future__ import annotations

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")
from torch.utils.checkpoint import checkpoint  # noqa: E402


class Model(torch.nn.Module):
    """A frozen embedding, a layer in a checkpoint, and a layer behind it."""

    def __init__(self, way, slip=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(5, 4, dtype=torch.float64)
        self.embedding.weight.requires_grad_(requires_grad=False)
        self.inner = torch.nn.Linear(4, 6, dtype=torch.float64)
        self.outer = torch.nn.Linear(6, 3, dtype=torch.float64)
        self.way, self.slip = way, slip
        if way == "hook":  # as transformers do it
            self.embedding.register_forward_hook(lambda *call: call[2].requires_grad_())

    def held(self, x, *_):
        out = self.inner(x).tanh()
        if self.slip != 1.0 and out.requires_grad:  # in the backward alone
            out.register_hook(lambda g: self.slip * g)
        return out

    def forward(self, index):
        x, more = self.embedding(index), ()
        if self.way == "forward":
            x.requires_grad_()
        if self.way == "dummy":
            more = (torch.zeros(1, requires_grad=True),)
        return self.outer(checkpoint(self.held, x, *more, use_reentrant=True))


INDEX = torch.tensor([0, 2, 4])


def _loss(out):
    return (out**2).mean()


@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("way", ["hook", "forward", "dummy"])
def test_what_training_would_find_is_compared(way, coverage):
    report = gl.check(Model(way), INDEX, loss=_loss, coverage=coverage)
    assert report.verdict == gl.Verdict.AGREES


@pytest.mark.parametrize("way", ["hook", "forward", "dummy"])
def test_a_slip_inside_is_found(way):
    report = gl.check(Model(way, slip=1.1), INDEX, loss=_loss)
    assert report.verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("way", ["hook", "forward", "dummy"])
def test_an_audit_accuses_nobody(way):
    audit = gl.blame(Model(way), INDEX, loss=_loss)
    assert audit.culprits == ()


@pytest.mark.parametrize("way", ["hook", "forward", "dummy"])
def test_parameters_in_place(way):
    """With ``params=`` as well; what they had in .grad is there afterwards."""
    net, slipped = Model(way), Model(way, slip=1.1)
    net.inner.weight.grad = torch.ones(6, 4, dtype=torch.float64)

    right, wrong = (
        gl.check(lambda: _loss(each(INDEX)), params=dict(each.named_parameters()))  # noqa: B023 - called at once
        for each in (net, slipped)
    )

    assert right.verdict == gl.Verdict.AGREES
    assert {
        c.input.name for c in wrong.comparisons if c.verdict.name == "DISAGREES"
    } == {
        "inner.weight",
        "inner.bias",
    }
    assert torch.equal(net.inner.weight.grad, torch.ones(6, 4, dtype=torch.float64))
    assert net.outer.weight.grad is None
