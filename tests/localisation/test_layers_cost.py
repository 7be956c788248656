"""What an audit costs: how often layers are run that have nothing to do with a mistake.

Counted in forward calls of one layer, which is torch's own, so that one probe is
enough for it: the recorded run, its vector-Jacobian product, and two moved calls.
"""

from __future__ import annotations

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")

nn = torch.nn

RIGHT = 4


class _Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, upstream):
        (x,) = ctx.saved_tensors
        gate = torch.sigmoid(x)
        return ctx.factor * upstream * (gate + x * gate * (1 - gate)), None


class Swish(nn.Module):
    factor = 1.0

    def forward(self, x):
        return _Swish.apply(x, self.factor)


class Residual(nn.Module):
    """A block whose own code adds, and forgets half of the gradient where it cuts."""

    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(4, 8), Swish(), nn.Linear(8, 4)
        self.cut = False

    def forward(self, x):
        return (x.detach() if self.cut else x) + self.down(self.act(self.up(x)))


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.blocks = nn.Sequential(*(Residual() for _ in range(4)))

    def forward(self, x):
        return self.blocks(self.first(x).tanh()).square().mean()


class Counted:
    """Counts the forward calls of a layer."""

    def __init__(self, layer):
        self.calls = 0
        forward = layer.forward

        def counting(*args):
            self.calls += 1
            return forward(*args)

        layer.forward = counting


@pytest.fixture
def model():
    torch.manual_seed(2)
    return Deep().double()


def calls(model, layer):
    """How often an audit of a model runs a layer; the audit."""
    counted = Counted(layer)
    audit = gl.blame(model, torch.randn(5, 3, dtype=torch.float64))
    return counted.calls, audit


def test_each_layer_of_a_right_model_is_run_four_times(model):
    """What cuts the graph is looked for in code between layers, not in a run of all."""
    count, audit = calls(model, model.first)

    assert audit.culprits == ()
    assert count == RIGHT


@pytest.mark.parametrize("block", [1, 3])
def test_a_wrong_function_has_layers_run_again_only_in_its_block(model, block):
    """The parameters just before it move it within the reach of the model."""
    model.blocks[block].act.factor = 1.001

    count, audit = calls(model, model.first)

    assert audit.culprits == (f"blocks.{block}.act",)
    assert count == RIGHT


def test_many_wrong_functions_have_no_layer_run_more_often_for_each_other(model):
    """Four mistakes cost what they cost in four blocks by themselves."""
    for block in model.blocks:
        block.act.factor = -1.0

    count, audit = calls(model, model.first)

    assert sorted(audit.culprits) == [f"blocks.{k}.act" for k in range(4)]
    assert count == RIGHT


def test_a_wrong_sum_is_moved_by_the_block_before_it(model):
    """Only to name the line that cuts the graph is all of the model run once more."""
    model.blocks[3].cut = True

    count, audit = calls(model, model.first)

    assert audit.culprits == ("blocks.3",)
    assert count == RIGHT + 1


def test_a_kink_within_the_first_step_is_passed_by_a_shorter_one():
    """One entry of a thousand close to zero costs two runs more, and no doubt."""
    layer = nn.Sequential(nn.ReLU())
    x = torch.linspace(-1, 1, 1000, dtype=torch.float64)
    x[500] = 1e-6
    x.requires_grad_()

    audit = gl.blame(layer, x)

    assert audit.culprits == ()
    assert audit.evaluations == 5
