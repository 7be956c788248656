"""Backwards that leave out too much where another input is frozen."""

from __future__ import annotations

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")

COVERAGES = ("full", "sample", "probe")


def product(flaw=""):
    """Return x * w, with a backward that looks at what is needed."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x.sin() * w

        @staticmethod
        def backward(ctx, upstream):
            x, w = ctx.saved_tensors
            first, second = ctx.needs_input_grad
            if first or not flaw:
                shared = upstream * x.sin()
            elif flaw == "another":
                shared = upstream
            if flaw == "none" and not first:
                return None, None
            return (
                upstream * w * x.cos() if first else None,
                shared if second else None,
            )

    return Product.apply


def inputs():
    torch.manual_seed(0)
    return torch.randn(5).double(), torch.randn(5).double()


@pytest.mark.parametrize("coverage", COVERAGES)
@pytest.mark.parametrize("flaw", ["raises", "another", "none"])
def test_a_gradient_that_is_wrong_alone(flaw, coverage):
    """Both are right together, and w has a wrong one, or none, where x is data."""
    report = gl.check(product(flaw), *inputs(), coverage=coverage)

    assert report.verdict == gl.Verdict.DISAGREES
    (error,) = [f for f in report.findings if f.severity == "error"]
    assert error.where == "w"
    assert "With no gradient asked for x " in error.evidence


@pytest.mark.parametrize("coverage", COVERAGES)
def test_one_that_leaves_out_what_nobody_needs(coverage):
    """The same, with what both need computed for both."""
    report = gl.check(product(), *inputs(), coverage=coverage)

    assert report.verdict == gl.Verdict.AGREES
    assert not report.findings


@pytest.mark.parametrize("flaw", ["", "another"])
def test_many_inputs_are_asked_for_by_halves(flaw):
    """Six parameters in three products: every other one is frozen."""
    own = product(flaw)

    def f(a, b, c, d, e, g):
        return own(a, b) + own(c, d) * own(e, g)

    report = gl.check(f, *inputs(), *inputs(), *inputs())

    assert report.ok is not bool(flaw)


def test_a_model_that_draws_is_not_accused():
    """Gradients that differ by what is drawn are told as that, if at all."""

    class Dropped(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.mask = (torch.rand(5) > 0.3).double()
            ctx.save_for_backward(x, w)
            return x * w * ctx.mask

        @staticmethod
        def backward(ctx, upstream):
            x, w = ctx.saved_tensors
            return upstream * w * ctx.mask, upstream * x * ctx.mask

    assert gl.check(Dropped.apply, *inputs()).verdict == gl.Verdict.AGREES
