"""Deliberate gradients of functions that stand still are told as such."""

from __future__ import annotations

import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("seed", range(4))
def test_a_hard_choice_that_hardly_changes_is_straight_through(seed):
    """Of two classes that noise has set far apart, the other is chosen far out."""
    logits = torch.tensor([1.54, -0.29], dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([1.0, 2.0], dtype=torch.float64)
    torch.manual_seed(seed)

    report = gl.check(
        lambda p: torch.nn.functional.gumbel_softmax(p, tau=0.5, hard=True) @ weights,
        logits,
    )

    assert report.diagnosis == "surrogate"
    assert "staircase" in report.findings[0].evidence


class Rounded(torch.autograd.Function):
    """Rounds, and hands gradients on as they come."""

    @staticmethod
    def forward(_ctx, x):
        return x.round()

    @staticmethod
    def backward(_ctx, up):
        return up


def to_levels(w, rounded, scale):
    return rounded(w / scale) * scale


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "detached"])
@pytest.mark.parametrize(
    "rounded", [Rounded.apply, lambda t: t + (t.round() - t).detach()]
)
def test_a_quantiser_whose_scale_is_the_largest_weight(rounded, kept, dtype):
    """It stands still in all other weights; in that one it moves, by its scale."""
    torch.manual_seed(0)
    x = torch.randn(5, 4, dtype=dtype)
    w = torch.randn(3, 4, dtype=dtype, requires_grad=True)

    def loss(w):
        scale = w.abs().max() / 7
        levels = to_levels(w, rounded, scale if kept else scale.detach())
        return ((x @ levels.T) ** 2).sum()

    report = gl.check(loss, w)

    assert report.diagnosis == "surrogate"
    assert "straight through" in report.findings[0].evidence


def test_units_that_are_off_are_no_staircase():
    """A mask that is missing gives gradients where f is flat, but f leaves smoothly."""
    torch.manual_seed(1)
    x = torch.randn(12, dtype=torch.float64, requires_grad=True)
    slip = with_backward(lambda x: x.relu() ** 2, lambda x, up: 2 * x * up)

    report = gl.check(lambda x: slip(x).sum(), x)

    assert report.diagnosis == "wrong_mask"


@pytest.mark.parametrize("seed", range(3))
def test_a_joint_norm_holds_parameters_of_one_entry_too(seed):
    """Clipped by the norm of all: one finding, of the lone bias as of the weights."""
    torch.manual_seed(seed)
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)
    ).double()
    x, y = torch.randn(8, 3, dtype=torch.float64), torch.randn(8, 1).double()

    def loss(out):
        return ((out - y) ** 2).mean()

    loss(net(x)).backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    given = {name: p.grad.clone() for name, p in net.named_parameters()}

    report = gl.check(net, x, loss=loss, grad=given)

    told = [(str(f.kind), f.evidence) for f in report.findings]
    assert [kind for kind, _ in told] == ["surrogate"]
    assert "the joint norm exactly 0.1" in told[0][1]
    assert set(report.culprits) == set(given)


def test_one_number_has_no_norm_to_be_clipped_by():
    """A gradient of 0.1 where 0.3 belongs is a factor: any round number is a norm."""
    report = gl.check(lambda w: 0.3 * w, 2.0, grad=lambda _w: 0.1)

    assert report.diagnosis != "surrogate"
