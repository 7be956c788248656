"""Modules that keep something of every call: batches must not leave theirs behind."""

from __future__ import annotations

import pytest

import gradlab as gl
from tests.specimens.torch_sides import randn

torch = pytest.importorskip("torch")


class Remembering(torch.nn.Module):
    """Uses in one call what it kept of the last, and logs all of them."""

    def __init__(self, slip=1.0):
        super().__init__()
        self.linear = torch.nn.Linear(16, 24).double()
        self.slip, self.last, self.log = slip, None, []

    def forward(self, x):
        """Hidden units, which nothing that was kept changes."""
        hidden = torch.tanh(self.linear(x))
        if self.last is not None:
            hidden = hidden + 0 * self.last.sum()
        self.last = hidden.detach()
        self.log.append(self.last)
        # the value stays, the gradient is multiplied
        return self.slip * hidden + (1 - self.slip) * self.last


@pytest.mark.parametrize("coverage", ["full", "probe"])
def test_what_is_kept_is_no_hindrance(coverage):
    """A right gradient agrees, and the module holds what it held before."""
    torch.manual_seed(0)
    module, x = Remembering(), randn(5, 16)
    module(x)
    last, log = module.last, list(module.log)

    report = gl.check(module, x, coverage=coverage)

    assert report.ok, report
    assert module.last is last
    assert len(module.log) >= len(log)
    assert all(type(entry) is torch.Tensor for entry in module.log)


def test_a_slip_beside_it_is_found():
    """One and a half times the gradient, as a part was cut off: the line is named."""
    torch.manual_seed(0)

    report = gl.check(Remembering(slip=1.5), randn(5, 16), coverage="full")

    assert not report.ok
    first = report.findings[0]
    assert first.kind == gl.BugKind.DETACHED
    assert "1.5 times the derivative" in first.evidence
    assert "detach (1x, test_torch_keeping.py:" in first.evidence
