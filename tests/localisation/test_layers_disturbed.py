"""Calls that are right by themselves, and spoil what another call counts on."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import gradlab as gl

X = torch.tensor([[0.3, -0.7, 0.2], [1.1, 0.4, -0.5]], dtype=torch.float64)


def square(out):
    """Every entry counts, by another weight."""
    return out.pow(2).sum()


def module(forward, **parts):
    """Make a module of some parts and a forward."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

    Model.forward = forward
    torch.manual_seed(0)
    for part in parts.values():
        for own in part.modules():
            if isinstance(own, nn.Linear):
                own.reset_parameters()
    return Model().double()


def beside_a_residual(*, wrong):
    """A backward that masks the gradient it is given, which a second path needs."""

    class Relu(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x > 0)
            return x.clamp(min=0)

        @staticmethod
        def backward(ctx, grad):
            (mask,) = ctx.saved_tensors
            return grad.mul_(mask) if wrong else grad * mask

    def forward(self, x):
        hidden = self.first(x)
        return self.last(hidden + Relu.apply(hidden))

    return module(forward, first=nn.Linear(3, 4), last=nn.Linear(4, 2))


def called_twice(*, wrong):
    """A layer that keeps what it was last called with, and is called twice."""

    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, layer):
            layer.seen, ctx.layer = x.detach(), layer
            ctx.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            seen = ctx.layer.seen if wrong else x
            return grad @ weight.T, seen.T @ grad, None

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([[0.4, -0.3], [0.2, 0.7]]))

        def forward(self, x):
            return Times.apply(x, self.weight, self)

    def forward(self, x):
        return self.layer(self.layer(self.first(x)).tanh())

    return module(forward, first=nn.Linear(3, 2), layer=Layer())


def beside_a_frozen_weight(*, wrong):
    """A backward that asks of the weight whether the bias needs a gradient."""

    class Affine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            ctx.save_for_backward(x, weight)
            return x @ weight + bias

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            needed = ctx.needs_input_grad
            return (
                grad @ weight.T if needed[0] else None,
                x.T @ grad if needed[1] else None,
                grad.sum(0) if needed[1 if wrong else 2] else None,
            )

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, 2), requires_grad=False)
            self.bias = nn.Parameter(torch.zeros(2))

        def forward(self, x):
            return Affine.apply(x, self.weight, self.bias)

    def forward(self, x):
        return self.last(self.layer(x).tanh())

    return module(forward, layer=Layer(), last=nn.Linear(2, 2))


def run_again(*, wrong):
    """A checkpoint around a dropout, which draws anew where nobody keeps its seed."""
    inner = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.4))

    def forward(self, x):
        hidden = checkpoint(
            self.inner,
            self.first(x),
            use_reentrant=False,
            preserve_rng_state=not wrong,
        )
        return self.last(hidden)

    return module(forward, first=nn.Linear(3, 4), inner=inner, last=nn.Linear(8, 2))


MODELS = [beside_a_residual, called_twice, beside_a_frozen_weight, run_again]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_what_one_call_does_to_another_is_told(model):
    """An audit that finds each call right has not seen that the model is."""
    assert gl.check(model(wrong=True), X, loss=square).verdict.name == "DISAGREES"

    audit = gl.blame(model(wrong=True), X, loss=square)

    assert not audit.ok
    assert audit.culprits
    told = {
        called_twice: "right after its own",  # one call is known to be the victim
        beside_a_residual: "writes to the gradient that it is given",
    }.get(model, "each right by itself")
    assert told in audit.findings[0].evidence


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_the_same_without_the_slip_is_right(model):
    """Every call, and all together."""
    assert gl.check(model(wrong=False), X, loss=square).verdict.name == "AGREES"

    audit = gl.blame(model(wrong=False), X, loss=square)

    assert audit.ok
    assert not audit.findings


def test_a_hook_behind_the_accumulation_is_named():
    """It is not called, for it may step an optimiser: the report says so."""
    model = nn.Linear(3, 2).double()
    model.weight.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(0.5))

    report, audit = gl.check(model, X, loss=square), gl.blame(model, X, loss=square)

    assert [f.where for f in report.findings] == ["weight"]
    assert report.findings[0].severity == "warning"
    assert "runs after its gradient was accumulated" in report.findings[0].evidence
    assert [f.evidence for f in audit.findings] == [report.findings[0].evidence]
    assert model.weight.grad is None


class Buffered(torch.autograd.Function):
    """A product that keeps its input in itself, or in a buffer that all calls share."""

    shared = torch.zeros(2, 3, dtype=torch.float64)

    @staticmethod
    def forward(ctx, x, weight, wrong):
        ctx.x = Buffered.shared if wrong else torch.empty_like(x)
        ctx.x.copy_(x)
        ctx.save_for_backward(weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad):
        (weight,) = ctx.saved_tensors
        return grad @ weight.T, ctx.x.T @ grad, None


class Product(nn.Module):
    """A layer that applies it."""

    def __init__(self, *, wrong):
        super().__init__()
        self.weight, self.wrong = nn.Parameter(torch.randn(3, 3)), wrong

    def forward(self, x):
        return Buffered.apply(x, self.weight, self.wrong)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_buffer_that_the_next_call_fills_is_told(wrong):
    """Each product is right alone; the first reads what the last has kept."""
    torch.manual_seed(0)
    layers = [Product(wrong=wrong), nn.Tanh(), Product(wrong=wrong)]
    model = nn.Sequential(*layers).double()

    audit = gl.blame(model, X, loss=square)

    assert audit.culprits == (("0",) if wrong else ())
    if wrong:
        assert audit.findings[0].kind == "stale_cache"
        assert "gives another gradient of input 1" in audit.findings[0].evidence
        assert "save_for_backward" in audit.findings[0].advice


@pytest.mark.parametrize("wrong", [False, True])
def test_a_buffer_that_two_calls_in_a_function_share_is_told(wrong):
    """Seen from outside the gradient is that of another formula, or a factor."""
    torch.manual_seed(0)
    first, last = (torch.randn(3, 3, dtype=torch.float64) for _ in range(2))

    def f(first, last):
        hidden = torch.tanh(Buffered.apply(X, first, wrong))
        return square(Buffered.apply(hidden, last, wrong))

    report = gl.check(f, first.requires_grad_(), last.requires_grad_())

    assert report.diagnosis == ("stale_cache" if wrong else "none")
    assert report.culprits == (("first",) if wrong else ())


class Masked(torch.autograd.Function):
    """A rectifier that masks the gradient it is given, or a copy of it."""

    @staticmethod
    def forward(ctx, x, wrong):
        ctx.save_for_backward(x)
        ctx.wrong = wrong
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        if not ctx.wrong:
            grad = grad.clone()
        grad[x < 0] = 0
        return grad, None


@pytest.mark.filterwarnings("ignore:Use of .* on expanded tensors")
@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize(
    "beside", [lambda y: 2 * y.sin(), torch.zeros_like], ids=["branch", "alone"]
)
def test_a_function_that_writes_to_the_gradient_of_a_sum(beside, wrong):
    """All entries of that are one number in memory: masked once, it is zero for all."""
    x = X.flatten().clone().requires_grad_()

    report = gl.check(lambda x: (Masked.apply(1.5 * x, wrong) + beside(x)).sum(), x)

    assert report.diagnosis == ("mutates_input" if wrong else "none")
    assert report.culprits == (("x",) if wrong else ())
    if wrong:
        assert len(report.findings) == 1
        assert "The Function `Masked`" in report.findings[0].evidence
        assert "clone()" in report.findings[0].advice


@pytest.mark.filterwarnings("ignore:Use of .* on expanded tensors")
@pytest.mark.parametrize("wrong", [False, True])
def test_a_layer_that_writes_to_the_gradient_of_a_sum(wrong):
    """Nothing arrives at it any more once it has written: it is looked at all the same.

    Where nobody shares the gradient the same layer does no harm.
    """
    model = module(
        lambda self, x: Masked.apply(self.first(x), wrong), first=nn.Linear(3, 4)
    )

    report = gl.check(model, X, loss=lambda out: out.sum())

    kinds = [(str(f.kind), f.where) for f in report.findings]
    assert kinds == ([("mutates_input", "Model")] if wrong else [])
    assert gl.check(model, X, loss=square).ok
    assert gl.blame(model, X, loss=square).ok
