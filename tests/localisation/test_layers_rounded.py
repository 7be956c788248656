"""Layers of float64 that round to float32 inside: what an audit says of them."""

from __future__ import annotations

import pytest

import gradlab as gl
from gradlab.localisation.layers.audited import LayerState
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")


class SoftMinimum(torch.autograd.Function):
    """Squares beside a minimum smoothed over 0.1; its backward smooths by `slip`."""

    @staticmethod
    def forward(ctx, x, centres, slip):
        ctx.save_for_backward(x, centres)
        ctx.slip = slip
        near = -((x - centres) ** 2) / 0.1
        value = 20 - 0.1 * near.logsumexp(1) + (x**2).sum()
        return value.float().to(x.dtype)

    @staticmethod
    def backward(ctx, upstream):
        x, centres = ctx.saved_tensors
        weights = (-ctx.slip * (x - centres) ** 2 / 0.1).softmax(1)
        slopes = 2 * (x - centres) * weights + 2 * x
        return upstream @ slopes, None, None


class Layer(torch.nn.Module):
    """Applies it."""

    def __init__(self, centres, slip):
        super().__init__()
        self.centres, self.slip = centres, slip

    def forward(self, x):
        return SoftMinimum.apply(x, self.centres, self.slip)


def states(slip):
    """Audit the layer at ten points."""
    found = []
    for seed in range(10):
        torch.manual_seed(seed)
        x = torch.randn(12, dtype=torch.float64, requires_grad=True)
        centres = torch.randn(3, 12, dtype=torch.float64)
        audit = gl.blame(Layer(centres, slip), x, seed=seed)
        state = {layer.type: layer.state for layer in audit.rows}
        found.append(state["SoftMinimum"])
    return found


def test_right_backward_is_called_right():
    """Over steps as long as the rounding asks for both sides agree."""
    assert states(1.0) == [LayerState.RIGHT] * 10


def test_wrong_backward_is_not_called_right():
    """Gradients off by some percent are hidden by rounding over short steps only.

    Neither does one entry that happens to be right speak for all, nor is a slope in
    doubt because sums over short steps are noise.
    """
    found = states(0.1)
    assert found.count(LayerState.RIGHT) <= 1
    assert found.count(LayerState.WRONG) >= 3


class NextTo(torch.nn.Module):
    """A function of parameters that lie next to one of its poles."""

    def __init__(self, function, point):
        super().__init__()
        self.function = function
        self.point = torch.nn.Parameter(point)

    def forward(self):
        return self.function(self.point).sum()


POLES = {
    "a reciprocal": (lambda x: 1 / (x - 1), 1.0),
    "a tangent": (torch.tan, 0.5 * torch.pi),
    "a logarithm": (lambda x: torch.log(abs(x + 1)), -1.0),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", POLES)
def test_a_pole_within_the_step_accuses_nobody(name, seed):
    """Beyond it f looks smooth, and its slope is a millionth of that at the point."""
    function, pole = POLES[name]
    torch.manual_seed(seed)
    point = pole + 1e-9 * torch.randn(6, dtype=torch.float64)

    assert gl.blame(NextTo(function, point)).culprits == ()


# A sine whose backward is ten billion times too steep.
own_steep = with_backward(
    torch.sin, lambda x, upstream: 10000000000.0 * torch.cos(x) * upstream
)


def test_a_slope_that_f_has_at_no_step_is_wrong():
    """However steep it is: short steps are asked, and do not bear it out."""
    torch.manual_seed(0)
    module = NextTo(own_steep, torch.randn(6, dtype=torch.float64))

    assert gl.blame(module).culprits == ("NextTo",)


class Beginning(torch.nn.Module):
    """Logits of a layer that begins at nearly zero; its backward is off by `factor`."""

    def __init__(self, size, factor):
        super().__init__()
        torch.manual_seed(4)
        self.weight = torch.nn.Parameter(size * torch.randn(4, dtype=torch.float64))
        self.inputs = torch.randn(20, 4, dtype=torch.float64)
        self.labels = (torch.randn(20) > 0).double()
        self.factor = factor

    def forward(self):
        # the value is that of the weight, the slope `factor` times as steep
        steep = self.factor * self.weight
        weight = self.weight.detach() + steep - steep.detach()
        logits = self.inputs @ weight
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, self.labels)


@pytest.mark.parametrize("size", [1e-8, 1e-12, 1e-20])
@pytest.mark.parametrize("factor", [1.0, 1.05, 2.0, 0.0, -1.0])
def test_a_tensor_that_the_layer_does_not_notice_is_moved_farther(size, factor):
    """By its own size it moves no output by more than a rounding."""
    audit = gl.blame(Beginning(size, factor))

    assert audit.culprits == (() if factor == 1 else ("Beginning",))
