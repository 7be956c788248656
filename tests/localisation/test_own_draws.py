"""Inputs drawn with the seed that everybody takes are inputs like any other.

``torch.manual_seed(0)`` before the input is drawn gives the numbers that a generator
of gradlab's own would give with seed 0. Along itself a normalised input does not move.
"""

from __future__ import annotations

import pytest

from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import gradlab as gl  # noqa: E402


class Normalise(torch.autograd.Function):
    """x / |x|, with a gradient that a test multiplies."""

    @staticmethod
    def forward(ctx, x, factor):
        """Save the input and its norm."""
        norm = x.norm()
        ctx.save_for_backward(x, norm)
        ctx.factor = factor
        return x / norm

    @staticmethod
    def backward(ctx, g):
        """Project the incoming gradient on what is orthogonal to x."""
        x, norm = ctx.saved_tensors
        return ctx.factor * (g / norm - x * (g * x).sum() / norm**3), None


class Standardise(torch.autograd.Function):
    """Columns of mean zero and variance one, with the gradient worked out."""

    @staticmethod
    def forward(ctx, x):
        """Save what the backward needs."""
        inverse = (x.var(0, unbiased=False) + 1e-5).rsqrt()
        out = (x - x.mean(0)) * inverse
        ctx.save_for_backward(out, inverse)
        return out

    @staticmethod
    def backward(ctx, g):
        """Take off the mean, and the part along the output."""
        out, inverse = ctx.saved_tensors
        return inverse * (g - g.mean(0) - out * (g * out).mean(0))


class Unit(nn.Module):
    """A layer that normalises."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        """Normalise."""
        return Normalise.apply(x, self.factor)


def drawn(*shape, dtype=torch.float64):
    """Draw numbers as users do: right after seeding with 0."""
    return torch.randn(
        *shape, dtype=dtype, generator=torch.Generator().manual_seed(0)
    ).requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("factor", [1.0, 2.0, -1.0])
def test_audit_of_what_is_still_along_its_input(dtype, factor):
    """J x = 0, so neither a direction nor a weight may be the input itself."""
    audit = gl.blame(Unit(factor), drawn(4, 3, dtype=dtype))

    assert audit.culprits == (() if factor == 1.0 else ("Unit",))


def test_gradient_that_cancels_is_not_held_against_its_layout():
    """With the input as cotangent, d x is rounding, in every order of summation."""
    report = gl.check(Standardise.apply, drawn(6, 4))

    assert (report.verdict.name, report.findings) == ("AGREES", ())


def test_sum_of_what_is_normalised_has_no_gradient_to_depend_on_memory():
    """d x of ``out.sum()`` is zero but for rounding, and rounding may differ."""
    for seed in range(6):
        x = torch.randn(
            37, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
        )
        report = gl.check(Standardise.apply, x.requires_grad_(), coverage="sample")

        assert report.ok, report.findings


# Right but for one unit of the first sample.
def selu_backward(x, grad):
    slope = torch.where(x > 0, 1.0, 1.6732632423543772 * x.exp())
    slope[0, 0] *= 1.5
    return 1.0507009873554805 * grad * slope


selu = with_backward(torch.selu, selu_backward)


class OneUnit(torch.nn.Module):
    """Applies it."""

    def forward(self, x):
        """Behind a dropout."""
        return selu(x)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", range(6))
def test_a_check_audits_its_layers_under_the_draw_that_it_compares(seed):
    """Another draw of the dropout would hide the unit, and the layer with it."""
    torch.manual_seed(82)
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 6),
        torch.nn.LayerNorm(6),
        torch.nn.Dropout(0.5),
        OneUnit(),
        torch.nn.Linear(6, 2),
    ).double()
    x = torch.randn(4, 3, dtype=torch.float64)
    torch.manual_seed(seed)
    kept = torch.get_rng_state()

    report = gl.check(model, x, loss=lambda out: out.sin().sum())
    audit = gl.blame(model, x, loss=lambda out: out.sin().sum())

    assert torch.equal(torch.get_rng_state(), kept)
    assert report.culprits[:1] == audit.culprits
    assert audit.culprits in {(), ("3",)}
