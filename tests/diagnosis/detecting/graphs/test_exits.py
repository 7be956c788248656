"""Paths that leave torch are found by holding what left it fixed."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("fn", "named"),
    [
        (lambda x: x / x.norm().item(), "item"),
        (lambda x: x * float(x.sum()), "__float__"),
        (lambda x: x * torch.tensor([x[0], x[1], 1.0, x[3]]), "torch.tensor"),
        (lambda x: x + torch.as_tensor([[x[2], 1.0]]).sum(), "torch.as_tensor"),
        (lambda x: x + torch.from_numpy(np.sin(x.detach().numpy())), "numpy"),
    ],
)
def test_exit_is_named(fn, named, dtype, rng):
    """A number that left torch is a constant to autograd: detached, and by what."""
    x = torch.tensor(rng.normal(size=4), dtype=dtype, requires_grad=True)

    report = gl.check(fn, x)

    assert report.diagnosis == "detached"
    assert named in report.findings[0].evidence


def test_branch_is_not_accused(rng):
    """An item() that only chooses a branch changes no slope and is not blamed."""
    x = torch.tensor(rng.normal(size=4), requires_grad=True)
    call = lambda x: (x**2).sum() if x.sum().item() > 0 else (x**3).sum()

    report = gl.check(call, x)

    assert report.findings == ()


def test_other_slip_beside_an_exit(rng):
    """What is wrong for another reason is not put on a harmless item()."""
    x = torch.tensor(rng.normal(size=4), requires_grad=True)

    doubled = with_backward(lambda x: 1.0 * x, lambda _x, up: 3 * up)

    def call(x):
        return torch.sin(doubled(x)) * (1.0 if x.sum().item() > 0 else 2.0)

    assert gl.check(call, x).diagnosis == "scale"


def test_draws_around_an_input_are_named():
    """``Normal.sample()`` moves with its mean, and has a gradient of zero there.

    A policy gradient is right for what was drawn; that, and what to do, is said.
    """
    policy = torch.nn.Linear(3, 2, dtype=torch.float64)
    torch.manual_seed(0)
    state = torch.randn(4, 3, dtype=torch.float64)

    def loss(weight):
        around = torch.distributions.Normal(state @ weight.mT + policy.bias, 0.7)
        action = around.sample()
        return -(around.log_prob(action).sum(1) * (action.sum(1) - 0.3)).mean()

    report = gl.check(loss, policy.weight.detach().requires_grad_())

    finding = report.findings[0]
    assert str(finding.kind) == "detached"
    assert "draws by normal (1x, test_exits.py:" in finding.evidence
    assert "score function" in finding.advice


def test_scales_gathered_in_a_list_are_told_once():
    """Three parameters are read as numbers: one finding, which says by what."""

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scales = torch.nn.ParameterList(map(torch.tensor, [1.0, 2.0, 0.5]))
            self.layer = torch.nn.Linear(3, 3)

        def forward(self, x):
            return self.layer(x) * torch.tensor([s + 0 for s in self.scales])

    torch.manual_seed(0)
    x = torch.randn(4, 3, dtype=torch.float64)

    report = gl.check(Scaled().double(), x, loss=lambda out: (out**2).mean())

    assert {str(f.kind) for f in report.findings} == {"detached"}
    assert len(report.findings) == 1
    assert "torch.tensor (1x" in report.findings[0].evidence
    assert {"scales.0", "scales.1", "scales.2"} <= set(report.culprits)
