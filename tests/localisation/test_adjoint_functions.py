"""Functions that get a module and its parameters, as adjoints of integrators do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gradlab as gl
from tests.specimens.functions import with_backward


class Adjoint(torch.autograd.Function):
    """A layer run without a graph, and run again in the backward."""

    @staticmethod
    def forward(ctx, x, inner, factor, *weights):
        ctx.inner, ctx.factor = inner, factor
        ctx.save_for_backward(x, *weights)
        with torch.no_grad():
            return inner(x)

    @staticmethod
    def backward(ctx, upstream):
        x, *weights = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            out = torch.tanh(ctx.inner(x)) if ctx.factor is None else ctx.inner(x)
            slope, *others = torch.autograd.grad(out, [x, *weights], upstream)
        return (ctx.factor or 1.0) * slope, None, None, *others


class Model(nn.Module):
    """Hands over what it would train, as torchdiffeq does."""

    def __init__(self, factor):
        super().__init__()
        self.inner, self.factor = nn.Linear(3, 3), factor

    def forward(self, x):
        weights = [p for p in self.inner.parameters() if p.requires_grad]
        return Adjoint.apply(x, self.inner, self.factor, *weights)


@pytest.fixture(params=[torch.float64, torch.float32])
def point(request):
    """Four samples of three numbers."""
    torch.manual_seed(0)
    return torch.randn(4, 3, dtype=request.param, requires_grad=True)


def test_a_right_adjoint_is_not_accused(point):
    """Its parameters move where the module has them, too: the two are one tensor."""
    audit = gl.blame(Model(1.0).to(point.dtype), point)
    assert not audit.culprits
    states = {row.name: row.state.name for row in audit.rows}
    assert states["Model:Adjoint"] == "RIGHT"


@pytest.mark.parametrize("factor", [1.01, None])
def test_a_wrong_one_is(point, factor):
    """By a factor of its input, or the slope of another layer; nothing raises."""
    model = Model(factor).to(point.dtype)
    audit = gl.blame(model, point)
    assert audit.culprits == ("Model",)
    report = gl.check(model, point)
    assert report.verdict.name == "DISAGREES"
    assert model.inner.weight.grad is None


# A slot of a buffer, written past the version counter, as torchdiffeq does.
def assign_forward(scratch, value, place):
    scratch.data[place] = value
    return scratch


assign = with_backward(
    assign_forward,
    lambda _scratch, _value, place, upstream: (upstream, upstream[place], None),
)


# Returns what it is given, and twice its gradient.
same = with_backward(lambda x: x.view_as(x), lambda _x, upstream: 2 * upstream)


class Slots(nn.Module):
    """Two layers, the results of which are collected in one buffer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3).double(), nn.Linear(3, 3).double()

    def forward(self, x):
        scratch = torch.zeros(2, *x.shape, dtype=x.dtype)
        one = torch.tanh(self.first(x))
        scratch = assign(scratch, one, 0)
        return assign(scratch, self.second(one), 1).sum(0)


def test_writing_past_the_version_counter_is_no_mistake():
    """What was in the buffer is not known any more, so nothing is said of it."""
    torch.manual_seed(0)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    audit = gl.blame(Slots(), x)
    assert not audit.culprits
    reasons = [row.reason for row in audit.rows if row.type == "Assign"]
    assert all("behind the back of autograd" in reason for reason in reasons)
    assert gl.check(Slots(), x).verdict.name == "AGREES"


def test_returning_what_was_given_excuses_nothing():
    """A view of an input is no writing to it."""
    torch.manual_seed(0)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3).double()

        def forward(self, x):
            return torch.tanh(same(self.layer(x)))

    assert gl.blame(Twice(), x).culprits == ("Twice",)


class Timed(torch.autograd.Function):
    """A layer times a number that nobody asks the gradient of; slips in its weights."""

    @staticmethod
    def forward(ctx, time, inner, *weights):
        ctx.inner = inner
        ctx.save_for_backward(time, *weights)
        with torch.no_grad():
            return time * inner(torch.ones_like(time))

    @staticmethod
    def backward(ctx, upstream):
        time, *weights = ctx.saved_tensors
        with torch.enable_grad():
            out = torch.tanh(ctx.inner(torch.ones_like(time)))
            found = torch.autograd.grad(out, weights, upstream * time)
        return None, None, *found


class Integrated(nn.Module):
    """Only the parameters are asked for."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(3, 3).double()

    def forward(self, time):
        """Return time * inner(1)."""
        return Timed.apply(time, self.inner, *self.inner.parameters())


def test_what_the_model_asks_no_gradient_of_is_not_missed():
    """No gradient of the time is right: nobody asked for one."""
    time = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    audit = gl.blame(Integrated(), time)
    assert audit.culprits == ("Integrated",)
    assert [finding.kind for finding in audit.findings] == ["unknown"]
    report = gl.check(Integrated(), time)
    assert report.diagnosis != "detached"
    assert not any("time" in finding.evidence for finding in report.findings)
