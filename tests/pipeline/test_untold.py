"""Inputs that hardly move f: their gradients are seen, or nothing is said of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import gradlab as gl
from tests.specimens.functions import with_output

X = torch.tensor([[0.3, -0.7, 0.2], [1.1, 0.4, -0.5]], dtype=torch.float64)


class Sized(torch.autograd.Function):
    """A product with a constant, and a backward that is off by a factor."""

    @staticmethod
    def forward(ctx, x, size, factor):
        """Multiply."""
        ctx.slope = size * factor
        return x * size

    @staticmethod
    def backward(ctx, grad):
        """Multiply once more, by the factor as well."""
        return grad * ctx.slope, None, None


class Faint(nn.Module):
    """A layer, and beside it a parameter of hardly any influence."""

    def __init__(self, size, factor):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 4)
        self.faint = nn.Parameter(torch.randn(4))
        self.size, self.factor = size, factor

    def forward(self, x):
        """Add both."""
        return self.layer(x) + Sized.apply(self.faint, self.size, self.factor)


def total(out):
    """A loss of the order of one."""
    return out.sin().sum()


@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("size", [1e-6, 1e-8, 1e-9, 1e-10])
def test_a_parameter_of_little_influence_is_told(size, coverage):
    """Whoever moves f by a thousand-millionth may still have a factor too much."""
    right = gl.check(Faint(size, 1.0).double(), X, loss=total, coverage=coverage)
    wrong = gl.check(Faint(size, 2.0).double(), X, loss=total, coverage=coverage)

    assert right.verdict.name == "AGREES"
    assert wrong.verdict.name == "DISAGREES"


def chain(factor, depth):
    """Sigmoids behind each other; the first has a slope that is off by a factor."""
    first = with_output(
        lambda x: x.sigmoid(), lambda out, grad: grad * out * (1 - out) * factor
    )

    class Layer(nn.Module):
        def forward(self, x):
            return first(x)

    torch.manual_seed(0)
    rest = [part for _ in range(depth) for part in (nn.Linear(4, 4), nn.Sigmoid())]
    return nn.Sequential(nn.Linear(3, 4), Layer(), *rest).double()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("depth", [6, 10, 12])
def test_a_gradient_that_vanishes_is_seen_or_left_open(depth, coverage):
    """A slope that is half too large, behind so many sigmoids, never agrees."""
    right, wrong = (
        gl.check(
            chain(factor, depth), X, loss=lambda o: o.pow(2).sum(), coverage=coverage
        )
        for factor in (1.0, 1.5)
    )

    assert right.verdict.name != "DISAGREES"
    assert wrong.verdict.name != "AGREES"
    if depth < 12:
        assert (right.verdict.name, wrong.verdict.name) == ("AGREES", "DISAGREES")


def test_what_is_left_open_says_by_how_much():
    """One method that was asked for has wide bars: the report says which, and why."""

    def f(a, b):
        return np.sin(a).sum() + 1e-11 * b.sum()

    a, b = np.array([0.3, 1.2]), np.array([2.0, -1.0])
    report = gl.check(
        f,
        a,
        b,
        grad=lambda a, b: (np.cos(a), np.full(2, 3e-11)),
        method=gl.Central(step=1e-6),
    )

    assert report["a"].verdict.name == "AGREES"
    assert report["b"].verdict.name == "UNDECIDED"
    assert any(f.where == "b" and "±" in f.evidence for f in report.findings)


# ------------------------------------------------ zero, but for rounding
def attention(q, k, v, bias):
    """A softmax does not see what is added to all keys alike."""
    scores = q @ (k + bias).T / np.sqrt(3)
    return (scores.softmax(-1) @ v).square().sum()


def normalised(x, weight, bias):
    """Nor does a batch normalisation see the bias in front of it."""
    return nn.functional.batch_norm(x @ weight + bias, None, None, training=True)


@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        (attention, [(5, 3), (4, 3), (4, 2), (3,)]),
        (
            lambda *inputs: normalised(*inputs).pow(3).sum(),
            [(6, 3), (3, 4), (4,)],
        ),
        (lambda x: x.softmax(0).sum(), [(5,)]),
        (lambda x, w: torch.tanh(1e3 * (x @ w)).sum(), [(4, 3), (3, 2)]),
    ],
    ids=["bias of keys", "bias before a batch norm", "a softmax in all", "saturated"],
)
def test_gradients_of_nothing_but_rounding_agree(f, shapes, coverage):
    """They claim last digits of what others are: no slope that could be missed."""
    torch.manual_seed(1)
    inputs = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]

    report = gl.check(f, *inputs, coverage=coverage)

    assert report.verdict.name == "AGREES"


# ------------------------------------------------ far out on an exponential
SATURATED = {  # f, its derivative, how far out: it moves by 1e-11 beside twelve
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda x: np.exp(-x), 25.0),
    "tanh": (np.tanh, lambda x: 4 * np.exp(-2 * x), 12.5),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SATURATED)
def test_slopes_far_out_on_an_exponential_are_told(name, seed):
    """A climb to the size of x leads nowhere there, and steps of one remain to do."""
    f, slope, far = SATURATED[name]
    x = np.random.default_rng(seed).uniform(-1, 1, 12) + far

    def check(factor):
        return gl.check(lambda x: f(x).sum(), x, grad=lambda x: factor * slope(x))

    assert check(1.0).verdict == gl.Verdict.AGREES
    assert check(2.0).verdict == gl.Verdict.DISAGREES
    assert check(-1.0).verdict == gl.Verdict.DISAGREES
