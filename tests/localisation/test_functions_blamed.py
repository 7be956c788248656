"""Mistakes in a custom Function, or a hook, inside a module's own forward."""

from __future__ import annotations

import pytest

import gradlab as gl
from gradlab.diagnosis.finding import BugKind

torch = pytest.importorskip("torch")
nn = torch.nn


# What a backward returns instead of the right gradient of its input x.
SLIPS = {
    "scale": lambda right, x, upstream: 2 * right,
    "missing_reduction": lambda right, x, upstream: right / len(x),
    "missing_term": lambda right, x, upstream: upstream * torch.sigmoid(x),
    "wrong_mask": lambda right, x, upstream: right * (x > 0),
    "wrong_index": lambda right, x, upstream: right.roll(1, -1),
    "detached": lambda right, x, upstream: 0 * right,
}


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slip):
        ctx.save_for_backward(x)
        ctx.slip = slip
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, upstream):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        right = upstream * s * (1 + x * (1 - s))
        return SLIPS[ctx.slip](right, x, upstream), None


class Root(nn.Module):
    """Applies the Function between two layers, in the forward of the root."""

    def __init__(self, slip):
        super().__init__()
        torch.manual_seed(3)
        self.slip = slip
        self.first, self.last = nn.Linear(4, 5).double(), nn.Linear(5, 3).double()

    def forward(self, x):
        return self.last(Swish.apply(self.first(x), self.slip))


class Own(nn.Module):
    """The same with parameters of its own, before and behind."""

    def __init__(self, slip):
        super().__init__()
        torch.manual_seed(3)
        self.slip = slip
        self.first = nn.Parameter(torch.randn(4, 5).double())
        self.last = nn.Parameter(torch.randn(5, 3).double())

    def forward(self, x):
        return Swish.apply(x @ self.first, self.slip) @ self.last


def inputs():
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(1)).double()


@pytest.mark.parametrize("slip", SLIPS)
@pytest.mark.parametrize("kind", [Root, Own])
def test_the_function_is_named_and_explained(kind, slip):
    """One error, about the Function: parameters in front of it are not the cause."""
    report = gl.check(kind(slip), inputs(), loss=lambda y: y.pow(2).mean())

    errors = [f for f in report.findings if f.severity == "error"]
    assert report.culprit == kind.__name__
    assert [(f.kind, f.where) for f in errors] == [(BugKind(slip), kind.__name__)]
    assert errors[0].evidence.startswith("The Function `Swish` (")
    assert f"in `{kind.__name__}` is wrong" in errors[0].evidence
    assert "with respect to first" not in errors[0].evidence


class Hooked(nn.Module):
    """Puts a hook on a tensor of its own forward."""

    def __init__(self, change):
        super().__init__()
        torch.manual_seed(3)
        self.change = change
        self.first, self.last = nn.Linear(4, 5).double(), nn.Linear(5, 3).double()

    def forward(self, x):
        hidden = self.first(x).tanh()
        if hidden.requires_grad:
            hidden.register_hook(self.change)
        return self.last(hidden)


def halve(gradient):
    return gradient / 2


def clip(gradient):
    return gradient.clamp(-0.02, 0.02)


def normalise(gradient):
    return gradient / gradient.norm()


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (halve, BugKind.SCALE),
        (clip, BugKind.SURROGATE),
        (normalise, BugKind.SURROGATE),
    ],
)
def test_hooks_that_forward_puts_on_tensors_are_named(change, kind):
    """Whatever a hook does to a gradient, it is the cause, and has a place."""
    report = gl.check(Hooked(change), inputs(), loss=lambda y: y.pow(2).mean())

    first = report.findings[0]
    assert (first.kind, first.where) == (kind, "Hooked")
    assert f"the hook `{change.__name__}` (test_functions_blamed.py:" in first.evidence
    assert "Remove the hook" in first.advice


def test_hooks_that_normalise_are_surrogates_on_modules_too():
    """The same gradient for twice the incoming one is what such a hook is for."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    net[1].register_full_backward_hook(lambda _m, gi, _go: (normalise(gi[0]),))

    first = gl.check(net, inputs(), loss=lambda y: y.pow(2).mean()).findings[0]

    assert (first.kind, first.where) == (BugKind.SURROGATE, "1")


def test_hooks_that_only_look_are_not_accused():
    """A correct model with a hook that records norms gets no finding."""
    norms = []
    report = gl.check(
        Hooked(lambda gradient: norms.append(float(gradient.norm()))),
        inputs(),
        loss=lambda y: y.pow(2).mean(),
    )

    assert report.verdict == gl.Verdict.AGREES
    assert not report.findings


class Picky(torch.autograd.Function):
    """Takes one precision alone, as a kernel does."""

    @staticmethod
    def forward(ctx, x, kind, factor):
        if x.dtype != torch.float32:
            msg = f"float32 is wanted, not {x.dtype}"
            raise kind(msg)
        ctx.save_for_backward(x)
        ctx.factor = factor
        return torch.sin(x)

    @staticmethod
    def backward(ctx, upstream):
        (x,) = ctx.saved_tensors
        return ctx.factor * upstream * x.cos(), None, None


class Sine(nn.Module):
    def __init__(self, kind, factor):
        super().__init__()
        self.options = kind, factor

    def forward(self, x):
        return Picky.apply(x, *self.options)


@pytest.mark.parametrize("factor", [1.0, 1.5])
@pytest.mark.parametrize("kind", [TypeError, ValueError, AssertionError, RuntimeError])
def test_a_function_that_refuses_float64_is_judged_in_its_own(kind, factor):
    """Whatever it raises; wrong ones were not checked but for RuntimeError."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), Sine(kind, factor), nn.Linear(6, 2))

    audit = gl.blame(model, torch.randn(5, 4), loss=lambda out: out.square().mean())

    assert audit.culprits == (() if factor == 1 else ("1",))
    rows = audit.table.set_index("name")["state"]
    assert rows["1:Picky"] == ("right" if factor == 1 else "wrong")


class Half(torch.autograd.Function):
    """Takes and returns bfloat16 alone."""

    @staticmethod
    def forward(ctx, x, factor):
        if x.dtype != torch.bfloat16:
            msg = f"bfloat16 is wanted, not {x.dtype}"
            raise TypeError(msg)
        ctx.save_for_backward(x)
        ctx.factor = factor
        return torch.sin(x.float()).bfloat16()

    @staticmethod
    def backward(ctx, upstream):
        (x,) = ctx.saved_tensors
        return (ctx.factor * upstream.float() * x.float().cos()).bfloat16(), None


@pytest.mark.parametrize("factor", [2.0, -1.0, 0.0])
def test_what_half_precision_cannot_tell_is_not_called_right(factor):
    """Rounding is as large as the slope; five of twelve wrong ones were."""

    class Layer(nn.Module):
        def forward(self, x):
            return Half.apply(x, factor)

    states = []
    for seed in range(4):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(6, 8), Layer(), nn.Linear(8, 3)).bfloat16()
        x = torch.randn(5, 6).bfloat16()
        audit = gl.blame(model, x, loss=lambda out: out.float().square().mean())
        states.append(audit.table.set_index("name")["state"]["1:Half"])

    assert "right" not in states


@pytest.mark.parametrize("factor", [1, 2])
def test_a_function_may_keep_what_it_likes_under_any_name(factor):
    """``ctx`` is the node of the graph: ``ctx.name`` hides what torch calls it."""

    class Named(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, name):
            ctx.name = name
            ctx.save_for_backward(x)
            return getattr(torch, name)(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return factor * grad * x.cos() if ctx.name == "sin" else None, None

    class Wave(torch.nn.Module):
        def forward(self, x):
            return Named.apply(x, "sin")

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), Wave()).double()
    x = torch.randn(5, 3, dtype=torch.float64)
    wrong = factor == 2

    for coverage in ("full", "probe"):
        report = gl.check(model, x, loss=lambda out: out.sum(), coverage=coverage)
        assert report.verdict.name == ("DISAGREES" if wrong else "AGREES")
    audit = gl.blame(model, x, loss=lambda out: out.sum())

    assert audit.culprits == (("1",) if wrong else ())


class Softplus(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return nn.functional.softplus(x)

    @staticmethod
    def backward(ctx, upstream):
        (x,) = ctx.saved_tensors
        return ctx.factor * upstream * torch.sigmoid(x), None


class Force(nn.Module):
    """Hands on the slope of an energy, and not the energy; or looks at it only."""

    def __init__(self, factor, *, used=True):
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer = nn.Linear(3, 5), nn.Linear(5, 1)
        self.factor, self.used = factor, used

    def forward(self, x):
        x = x.detach().requires_grad_()
        energy = self.outer(Softplus.apply(self.inner(x), self.factor)).sum()
        force = -torch.autograd.grad(energy, x, create_graph=True)[0]
        return force if self.used else self.inner(x)


@pytest.mark.parametrize(
    ("factor", "used", "culprits"),
    [(0.5, True, ("Force",)), (1.0, True, ()), (0.5, False, ())],
    ids=["wrong", "right", "not used"],
)
def test_a_backward_that_the_forward_asks_for_matters(factor, used, culprits):
    """Where half the slope is handed on, that is what the loss is made of."""
    model = Force(factor, used=used).double()
    x = torch.randn(5, 3, dtype=torch.float64)

    audit = gl.blame(model, x, loss=lambda force: force.pow(2).mean())

    assert audit.culprits == culprits
    assert ("Function `Softplus`" in str(audit)) == bool(culprits)


class Beside(nn.Module):
    """Returns what a Function makes of a layer, too; the loss reads the layer alone."""

    def __init__(self, slip):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.slip = nn.Linear(4, 5).double(), slip

    def forward(self, x):
        out = self.first(x)
        return out, Swish.apply(out, self.slip)


def test_a_mistake_that_no_loss_depends_on_is_told_as_one():
    """It spoils nothing here, and is twice the derivative all the same."""
    x = torch.randn(3, 4, dtype=torch.float64)

    audit = gl.blame(Beside("scale"), x, loss=lambda out: out[0].pow(2).sum())

    assert not audit.culprits
    (finding,) = audit.findings
    told = "the loss does not depend on it; by itself it is wrong: its backward is 2"
    assert told in finding.evidence
