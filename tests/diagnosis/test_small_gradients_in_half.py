"""What float16 loses of a small gradient does not double with the incoming one."""

from __future__ import annotations

import pytest

import gradlab as gl
from gradlab.diagnosis.measuring import responses
from gradlab.differentiation.metering.meter import BudgetExhausted
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")
nn = torch.nn


class Autocast(nn.Module):
    """An encoder as a training step in mixed precision runs it."""

    def __init__(self):
        super().__init__()
        options = {"dropout": 0.0, "batch_first": True}
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, **options)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.float16):
            return self.layer(x).float()


def energy(out):
    """Nearly the same of all that a layer norm is given: its gradient is as small."""
    return (out**2).mean()


@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("seed", range(3))
def test_small_right_gradients_are_not_accused(seed, coverage):
    """A few steps of 6e-8 are no linear map of what comes in; float64 has one."""
    torch.manual_seed(seed)
    net, x = Autocast(), torch.randn(2, 3, 4)
    energy(net(x)).backward()
    assert 0 < net.layer.linear1.weight.grad.abs().max() < 1e-4
    net.zero_grad()

    report = gl.check(net, x, loss=energy, coverage=coverage)

    assert report.verdict == gl.Verdict.AGREES, report
    assert report.ok, report


def test_a_budget_that_ends_with_the_twin_accuses_nobody(monkeypatch):
    """What float64 makes of the same incoming gradients is not known then."""
    torch.manual_seed(2)  # smaller still: rounding alone does not explain it
    net, x = Autocast(), torch.randn(2, 3, 4)
    asked, answers = [], responses._answers

    def ends(evidence, *args):
        asked.append(evidence.reference)
        if evidence.reference is None:
            raise BudgetExhausted
        return answers(evidence, *args)

    monkeypatch.setattr(responses, "_answers", ends)
    report = gl.check(net, x, loss=lambda out: 0.1 * energy(out))

    assert None in asked
    assert report.verdict == gl.Verdict.AGREES, report
    assert report.ok, report


# Right where one comes in, and always as if it were one.
deaf = with_backward(
    lambda x: x.sum(), lambda x, up: torch.ones_like(x) if up else 0 * x
)
deaf_always = with_backward(lambda x: x.sum(), lambda x, up: torch.ones_like(x))
clipped = with_backward(
    lambda x: x.sum(), lambda x, up: torch.ones_like(x) * up.clamp(-1, 1)
)


@pytest.mark.parametrize("backward", [deaf, deaf_always, clipped])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_what_does_not_double_at_any_size_is_told(backward, dtype):
    """The twin in float64 has the same flaw: nothing is forgiven for short numbers."""
    x = torch.linspace(-1, 1, 5).requires_grad_()

    report = gl.check(lambda x: backward(torch.sin(x).to(dtype)).float(), x)

    kinds = {str(f.kind) for f in report.findings if f.severity == "error"}
    assert kinds in ({"ignores_upstream"}, {"surrogate"}), report


class Small(nn.Module):
    """Two layers in mixed precision whose loss is a ten-millionth."""

    def __init__(self, dtype):
        super().__init__()
        self.first, self.second, self.dtype = nn.Linear(5, 8), nn.Linear(8, 3), dtype

    def forward(self, x):
        with torch.autocast("cpu", dtype=self.dtype):
            return 1e-7 * self.second(torch.tanh(self.first(x))).float().pow(2).mean()


@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_underflows_is_right_and_told(dtype, coverage):
    """Float16 has no such numbers on the way back; bfloat16 has those of float32."""
    torch.manual_seed(0)
    net, x = Small(dtype), torch.randn(6, 5)
    net(x).backward()
    lost = not net.first.weight.grad.any()
    net.zero_grad()
    assert lost == (dtype is torch.float16)

    report = gl.check(net, x, coverage=coverage)

    assert report.verdict == gl.Verdict.AGREES, report
    warned = [f for f in report.findings if f.severity == "warning"]
    assert bool(warned) == lost, report
    assert all("underflow" in f.evidence and "100 %" in f.evidence for f in warned)
    assert report.evaluations < 300


@pytest.mark.parametrize("coverage", ["full", "probe"])
def test_a_mistake_among_what_underflows_is_told(coverage):
    """The factor of a backward is in float64, too, and under a scaled loss."""
    double = with_backward(torch.tanh, lambda x, up: 2 * up * (1 - torch.tanh(x) ** 2))

    class Wrong(Small):
        def forward(self, x):
            with torch.autocast("cpu", dtype=self.dtype):
                hidden = double(self.first(x))
                return 1e-7 * self.second(hidden).float().pow(2).mean()

    torch.manual_seed(0)
    report = gl.check(Wrong(torch.float16), torch.randn(6, 5), coverage=coverage)

    assert report.verdict == gl.Verdict.DISAGREES, report
    wrong = {f.where for f in report.findings if f.severity == "error"}
    assert wrong, report
    assert not any(where.startswith("second") for where in wrong), report
