"""Models that keep parameters in half precision, and others beside them in more."""

from __future__ import annotations

import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")
nn = torch.nn

bent = with_backward(
    lambda x, factor: torch.tanh(x),
    lambda x, factor, up: (factor * up * (1 - torch.tanh(x) ** 2), None),
)


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


def checked(half, factor, coverage="auto"):
    """Check a model whose tanh has a slope times a factor."""
    torch.manual_seed(0)
    net, x = Mixed(half, factor), torch.randn(4, 5)
    return gl.check(net, x, loss=lambda out: (out**2).mean(), coverage=coverage)


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
