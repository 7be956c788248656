"""Kernels of the user's that take one dtype alone, and round inside where nobody sees.

So are most that are written for a GPU. There is no copy in float64 to measure with.
"""

from __future__ import annotations

import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")


def as_tensor_float_32(x):
    """Cut the last 13 of 23 bits, as a tensor core does with what it multiplies."""
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def product(scale=1.0, *, rounded=False):
    """Build a matrix product in float32 whose gradient of x may be off by a factor."""

    def multiply(a, b):
        if rounded:
            a, b = as_tensor_float_32(a), as_tensor_float_32(b)
        return a @ b

    def own_product_forward(x, w):
        assert x.dtype == w.dtype == torch.float32, "the kernel takes float32"
        return multiply(x, w)

    return with_backward(
        own_product_forward,
        lambda x, w, g: (scale * multiply(g, w.t()), multiply(x.t(), g)),
    )


def matrices(rng, *sizes):
    """Draw a left and a right factor."""
    n, m, k = sizes
    pair = rng.normal(size=(n, m)), rng.normal(size=(m, k))
    return [torch.tensor(each, dtype=torch.float32) for each in pair]


def to_loss(f):
    """Sum the squares of what a function returns."""
    return lambda *inputs: (f(*inputs) ** 2).sum()


@pytest.mark.parametrize("reduced", [False, True])
def test_directions_settle_a_product_in_single_precision(reduced, rng):
    """Its line is straight: longer steps were better, until none was left."""
    inputs = matrices(rng, 8, 32, 32)
    right, wrong = product(), product(1.02)
    if reduced:
        right, wrong = to_loss(right), to_loss(wrong)

    assert gl.check(right, *inputs, coverage="probe").verdict == gl.Verdict.AGREES
    report = gl.check(wrong, *inputs, coverage="probe")
    assert report.verdict == gl.Verdict.DISAGREES
    assert report.culprits == (report.comparisons[0].input.name,)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", range(2))
def test_product_of_a_tensor_core_is_not_accused(seed, rng):
    """It is made of steps that no cast announces: f stood still, or jumped."""
    for _ in range(seed):
        rng.normal(size=5)
    inputs = matrices(rng, 4, 16, 12)
    report = gl.check(product(rounded=True), *inputs, coverage="full")
    assert report.verdict != gl.Verdict.DISAGREES
    assert not [f for f in report.findings if f.severity == "error"]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", range(2))
def test_wrong_product_of_a_tensor_core_is_found(seed, rng):
    """A factor of 1.1 is more than those steps explain."""
    for _ in range(seed):
        rng.normal(size=5)
    inputs = matrices(rng, 4, 16, 12)
    report = gl.check(product(1.1, rounded=True), *inputs, coverage="full")
    assert report.verdict == gl.Verdict.DISAGREES
    assert report.culprits == ("x",)
