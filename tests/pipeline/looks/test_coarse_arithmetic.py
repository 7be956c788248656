"""Kernels that take float32 alone, and multiply in less: right ones are not accused."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from tests.sizes import drawn

torch = pytest.importorskip("torch")

SEEDS = range(drawn(1, 3))


def rounded(x, digits):
    """To so many binary digits, nearest; in NumPy, where nobody watches."""
    significand, exponent = np.frexp(x.detach().numpy())
    short = np.round(significand * 2.0**digits) * 2.0**-digits
    return torch.from_numpy(np.ldexp(short, exponent).astype(np.float32))


def product(digits, factor=1.0):
    """Make a product of matrices of rounded entries; `factor` spoils its backward."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            if a.dtype != torch.float32:
                msg = "this kernel takes float32 alone"
                raise TypeError(msg)
            ctx.save_for_backward(a, b)
            return rounded(a, digits) @ rounded(b, digits)

        @staticmethod
        def backward(ctx, g):
            a, b = (rounded(x, digits) for x in ctx.saved_tensors)
            g = rounded(g, digits)
            return factor * (g @ b.mT), a.mT @ g

    return Product.apply


def linear(mm, draw):
    """A product alone."""
    return mm, (draw(4, 5), draw(5, 3))


def attention(mm, draw):
    """One head."""

    def head(q, k, v):
        return mm(torch.softmax(mm(q, k.mT) / 2, -1), v)

    return head, (draw(4, 4), draw(4, 4), draw(4, 4))


def residual(mm, draw):
    """The same input goes past the products, where it is rounded less."""

    def block(x, v, w):
        return x + mm(torch.nn.functional.silu(mm(x, v)), w)

    return block, (draw(4, 6), draw(6, 9) / 2.4, draw(9, 6) / 3)


def checked(make, mm, seed, **options):
    """Check at a point that the seed draws."""
    generator = torch.Generator().manual_seed(seed)
    f, point = make(mm, lambda *shape: torch.randn(*shape, generator=generator))
    return gl.check(f, *(x.requires_grad_() for x in point), **options)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("digits", [8, 11])
@pytest.mark.parametrize("make", [linear, attention, residual])
def test_right_products_are_not_accused(make, digits):
    """TensorFloat-32 keeps eleven digits, bfloat16 eight; half of them were."""
    told = {checked(make, product(digits), seed).verdict for seed in SEEDS}

    assert gl.Verdict.DISAGREES not in told


@pytest.mark.parametrize("make", [linear, attention, residual])
def test_wrong_products_are_told_over_many_stairs(make):
    """By a fifth, which is far more than TensorFloat-32 takes away."""
    told = {checked(make, product(11, 1.2), seed).verdict for seed in SEEDS}

    assert told == {gl.Verdict.DISAGREES}


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_where_nothing_is_short_a_percent_is_told(factor):
    """All digits of float32 are there: nothing is excused."""
    told = {checked(linear, product(24, factor), seed).verdict for seed in SEEDS}

    right = factor == 1
    assert told == {gl.Verdict.AGREES if right else gl.Verdict.DISAGREES}


def test_it_is_said_that_digits_are_missing():
    """Of what was taken back."""
    reports = [checked(linear, product(11), seed) for seed in SEEDS]
    short = [f for r in reports for f in r.findings if f.kind == "low_precision"]

    assert any("TensorFloat-32" in finding.evidence for finding in short)
    assert all(finding.severity != "error" for r in reports for finding in r.findings)


@pytest.mark.parametrize("method", ["central", "adaptive"])
def test_nor_are_they_by_a_method_of_ones_own(method):
    """Whose accusations another look confirmed by luck."""
    mm = product(11)
    told = {checked(attention, mm, seed, method=method).verdict for seed in SEEDS}

    assert gl.Verdict.DISAGREES not in told


def test_bars_of_adaptive_differences_cover_what_stairs_do():
    """Of a matrix that is rounded as well; 20 of 240 did not."""
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(*shape, generator=generator) for shape in ((4, 5), (5, 3)))
    mm = product(11)

    found = gl.numeric_jacobian(lambda x: mm(x, w), x, method="adaptive")

    right = np.kron(np.eye(4), rounded(w, 11).numpy().T)
    off = np.abs(found.value.reshape(right.shape) - right)
    assert (off <= 3 * found.error.reshape(right.shape) + 1e-5).all()


@pytest.mark.parametrize("method", ["auto", "adaptive"])
def test_a_budget_that_ends_accuses_nobody_for_stairs(method):
    """It hears the worst of what is sure over a good part of the scale."""
    for budget in (800, 1300):
        for seed in SEEDS:
            options = {"budget": budget, "method": method}
            assert not checked(linear, product(11), seed, **options).culprits


def test_a_budget_that_ends_tells_what_is_wrong_all_the_same():
    """By a half, and of most of it."""
    mm = product(11, 1.5)
    reports = [checked(linear, mm, seed, budget=800) for seed in range(3)]

    assert sum(report.verdict == gl.Verdict.DISAGREES for report in reports) >= 2
