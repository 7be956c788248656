"""Models that keep parameters in half precision, and others beside them in more."""

from __future__ import annotations

import pytest

import gradlab as gl
from tests.specimens.functions import bent

torch = pytest.importorskip("torch")
nn = torch.nn


class Mixed(nn.Module):
    """Linear layers in half precision and a norm in single, with casts in between.

    The casts name their dtype, as a copy of the model in float64 has them as well.
    """

    def __init__(self, half, factor):
        super().__init__()
        self.half, self.factor = half, factor
        self.first, self.norm = nn.Linear(5, 6).to(half), nn.LayerNorm(6)
        self.last = nn.Linear(6, 3).to(half)

    def forward(self, x):
        h = bent(self.first(x.to(self.half)), self.factor)
        return self.last(self.norm(h.float()).to(self.half)).float()


def energy(out):
    return (out**2).mean()


def example(half, factor):
    """A model whose tanh has a slope times a factor, and what it is called with."""
    torch.manual_seed(0)
    return Mixed(half, factor), torch.randn(4, 5)


def checked(half, factor, coverage):
    return gl.check(*example(half, factor), loss=energy, coverage=coverage)


@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_right_ones_are_compared_in_float64(half, coverage):
    """In half precision there is nothing to compare: they were left undecided."""
    report = checked(half, 1.0, coverage)

    assert report.ok, report
    assert any("casts to half precision left out" in told for told in report.remarks)
    assert report.evaluations < 250


@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("factor", [1.3, -1.0])
def test_wrong_ones_are_told(factor, coverage):
    """By the parameters in front of the mistake, in either precision."""
    report = checked(torch.bfloat16, factor, coverage)

    wrong = {c.input.name for c in report.comparisons if c.verdict != gl.Verdict.AGREES}
    assert wrong == {"first.weight", "first.bias"}, report
    assert report.culprits[0] == "Mixed", report
    kinds = {str(f.kind) for f in report.findings if f.severity == "error"}
    assert kinds == {"scale" if factor > 0 else "sign"}, report


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_code_between_layers_is_audited_without_its_casts(factor, half):
    """That of a right model was left open, for what its casts hide."""
    audit = gl.blame(*example(half, factor), loss=energy)

    right = factor == 1.0
    assert audit.verdict == (gl.Verdict.AGREES if right else gl.Verdict.DISAGREES)
    assert audit.culprits == (() if right else ("Mixed",))


class Fickle(nn.Module):
    """A hook turns the gradient round, in half precision alone."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, x):
        h = torch.tanh(self.first(x)).bfloat16()
        if h.requires_grad:
            h.register_hook(lambda up: -up if up.dtype == torch.bfloat16 else up)
        return self.last((1 * h).float())


def test_what_is_wrong_in_half_precision_alone_is_not_called_right():
    """Without the casts its gradient is another one: that is no rounding."""
    torch.manual_seed(0)
    net, x = Fickle(), torch.randn(3, 4)

    assert gl.blame(net, x, loss=energy).verdict != gl.Verdict.AGREES
    assert gl.check(net, x, loss=energy).verdict == gl.Verdict.DISAGREES


class Recurrent(nn.Module):
    """Cells in mixed precision that hand on a state in single."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 4)

    def forward(self, x):
        h = torch.zeros(len(x), 4)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for step in x.unbind(1):
                h = self.cell(step, h.float())
        return h.float()


def test_a_cell_under_autocast_keeps_no_state():
    """In float64, where nothing is cast, it gives what half precision rounded."""
    torch.manual_seed(0)

    audit = gl.blame(Recurrent(), torch.randn(2, 3, 4), loss=energy)

    assert audit.verdict == gl.Verdict.AGREES, audit
