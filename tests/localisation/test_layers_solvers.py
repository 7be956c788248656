"""Layers that end their iterations early: right ones stay open, wrong ones are told."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gradlab as gl
from tests.specimens.functions import with_backward

X = torch.tensor([[1.7, 2.3, 3.1]])


class Solve(torch.autograd.Function):
    """The fixed point of y = x + sin(y) / 2, to a tolerance; its gradient is right."""

    factor = 1.0

    @staticmethod
    def forward(ctx, x):
        y = x.clone()
        while True:
            z = x + 0.5 * torch.sin(y)
            if (z - y).abs().max() < 1e-3:
                break
            y = z
        ctx.save_for_backward(z)
        return z

    @classmethod
    def backward(cls, ctx, grad):
        (z,) = ctx.saved_tensors
        return grad / (1 - 0.5 * torch.cos(z)) * cls.factor


class Slip(Solve):
    """The same, three percent off."""

    factor = 1.03


class Model(nn.Module):
    """A solver after a dropout and a norm."""

    def __init__(self, solver):
        super().__init__()
        self.layer, self.drop, self.norm = (
            nn.Linear(3, 3),
            nn.Dropout(),
            nn.LayerNorm(3),
        )
        self.solver = solver

    def forward(self, x):
        return self.solver.apply(self.norm(self.drop(self.layer(x))))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_solver_that_ends_early_stays_open(seed, dtype, training):
    """Differences follow the last step, the gradient the solution: 0.1 % apart."""
    torch.manual_seed(seed)
    model = Model(Solve).to(dtype).train(training)
    before = dict(model.named_parameters())

    audit = gl.blame(model, X.to(dtype), loss=torch.sum)

    assert audit.culprits == ()
    assert audit.verdict.name == "UNDECIDED"
    assert "takes one step more" in audit.findings[0].evidence
    assert all(p is before[name] for name, p in model.named_parameters())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_its_slip_is_told(dtype):
    """Three percent are no matter of the tolerance."""
    torch.manual_seed(0)
    audit = gl.blame(Model(Slip).to(dtype), X.to(dtype), loss=torch.sum)

    assert audit.culprits == ("Model",)


class Steps(nn.Module):
    """The flow of y' = -a y**2 over a unit of time, in a hundred steps of Euler."""

    def __init__(self):
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return Flow.apply(x, self.rate)


class Flow(torch.autograd.Function):
    """x / (1 + a x) in small steps; its gradient is that of the flow."""

    @staticmethod
    def forward(ctx, x, rate):
        ctx.save_for_backward(x, rate)
        y, time, step = x.clone(), 0.0, 1e-2
        while time < 1 - step / 2:
            y, time = y - step * rate * y**2, time + step
        return y

    @staticmethod
    def backward(ctx, grad):
        x, rate = ctx.saved_tensors
        below = (1 + rate * x) ** 2
        return grad / below, -(grad * x**2 / below).sum()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_an_integrator_stays_open(dtype):
    """In float32 as well, where the audit measures in double."""
    x = torch.tensor([[0.4, 0.6, 0.8]], dtype=dtype)

    audit = gl.blame(Steps().to(dtype), x.requires_grad_())

    assert audit.culprits == ()
    assert audit.verdict.name == "UNDECIDED"
    assert "in steps of 0.01" in audit.findings[0].evidence


class Bounded(nn.Module):
    """A solution that keeps away from its bound, and gradients of a last iterate."""

    def __init__(self, off, of_bound):
        super().__init__()
        self.layer = nn.Linear(3, 3).double()
        self.bound = nn.Parameter(torch.rand(3, dtype=torch.float64) + 1)
        self.solve = with_backward(
            lambda a, bound: torch.sin(a) + 0 * bound,
            lambda a, bound, up: (up * torch.cos(a) * (1 + off), of_bound * up),
        )

    def forward(self, x):
        return self.solve(self.layer(x), self.bound)


@pytest.mark.parametrize(
    ("off", "of_bound", "culprits"),
    [
        (2e-8, 1e-8, ()),  # an interior-point method (qpth)
        (0.0, 1e-8, ("Bounded",)),  # what matters has all its digits
        (2e-8, 1e-6, ("Bounded",)),
        (2e-8, 0.5, ("Bounded",)),
    ],
)
def test_next_to_nothing_is_no_mistake_where_gradients_have_few_digits(
    off, of_bound, culprits
):
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 3, dtype=torch.float64)

    assert gl.blame(Bounded(off, of_bound), x).culprits == culprits
