"""A module that holds the memory of a parameter a second time is told so."""

from __future__ import annotations

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")
nn = torch.nn


class Held(nn.Module):
    """Multiplies by a weight, and by what it keeps of it."""

    def __init__(self, keep):
        super().__init__()
        self.layer = nn.Linear(4, 4, bias=False).double()
        keep(self)

    def forward(self, x):
        hidden = torch.tanh(self.layer(x))
        for kept in (*getattr(self, "kept", ()), *self.buffers()):
            hidden = hidden @ kept
        return hidden


def _as_list(self):
    self.kept = [self.layer.weight.data.t()]


def _as_buffer(self):
    self.register_buffer("mirror", self.layer.weight.detach())


def _as_copy(self):
    self.kept = [self.layer.weight.detach().clone()]


def _as_the_same(self):
    self.kept = [self.layer.weight]


def _warned(module):
    report = gl.check(module, torch.randn(3, 4, dtype=torch.float64))
    assert report.verdict == gl.Verdict.AGREES
    told = [f for f in report.findings if f.kind == gl.BugKind.ALIASING]
    return {(finding.where, finding.severity) for finding in told}


@pytest.mark.parametrize("keep", [_as_list, _as_buffer])
def test_a_view_without_gradient_is_warned_of(keep):
    """What is read of it follows the weight in training, and has no gradient."""
    assert _warned(Held(keep)) == {("layer.weight", "warning")}


@pytest.mark.parametrize("keep", [_as_copy, _as_the_same])
def test_copies_and_the_parameter_itself_are_no_views(keep):
    """A copy does not follow; the parameter has its gradient."""
    assert not _warned(Held(keep))


def test_layers_of_torch_hold_nothing_twice():
    """Recurrent layers list their weights again, attention splits them: no warning."""
    for layer in (nn.LSTM(4, 4), nn.GRU(4, 4, bidirectional=True)):
        assert not _warned(layer.double())
