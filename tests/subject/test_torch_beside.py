"""What a function holds in float32 is widened where it meets float64."""

from __future__ import annotations

import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")

from gradlab.subject.tensors.subjects import torch_subject  # noqa: E402

F = torch.nn.functional


def values(*shape, seed=0, dtype=torch.float32):
    """Normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


W, ROW, KERNEL = values(4, 4), values(4, seed=1), values(2, 1, 3, 3, seed=2)
NET = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh())
SPARSE = torch.eye(4).to_sparse() * 0.3
KEPT = torch.zeros(4, 4)


def image(x):
    """One picture, one channel."""
    return x[None, None]


# what the user wrote, and the same with everything in float64
HELD = {
    "product": (lambda x: W @ x, lambda x: W.double() @ x),
    "linear": (
        lambda x: F.linear(x, W, ROW),
        lambda x: F.linear(x, W.double(), ROW.double()),
    ),
    "by keyword": (
        lambda x: F.linear(x, weight=W),
        lambda x: F.linear(x, W.double()),
    ),
    "in a list": (
        lambda x: torch.einsum("ij,jk->ik", [W, x]),
        lambda x: W.double() @ x,
    ),
    "convolution": (
        lambda x: F.conv2d(image(x), KERNEL),
        lambda x: F.conv2d(image(x), KERNEL.double()),
    ),
    "added in place": (
        lambda x: x.clone().add_(W) @ W,
        lambda x: (x + W.double()) @ W.double(),
    ),
    "type of another": (
        lambda x: x.type_as(W) @ W,
        lambda x: x @ W.double(),
    ),
    "sparse": (
        lambda x: torch.sparse.mm(SPARSE, x),
        lambda x: SPARSE.to_dense().double() @ x,
    ),
}


@pytest.mark.parametrize("name", HELD)
def test_what_a_function_holds_is_widened(name):
    """The copy computes the same in float64, from end to end."""
    (fn, exact), x = HELD[name], values(4, 4, seed=3)

    double = torch_subject(fn, (x,)).in_double()

    assert double.outputs[0].dtype == "float64"
    wanted = exact(x.double()).flatten().numpy()
    assert double.row() == pytest.approx(wanted, rel=1e-14, abs=1e-15)


def written(x):
    """Write into a tensor of its own, in float32."""
    KEPT[:] = x @ W
    return KEPT * 1.0


def into(x):
    """Let torch write the product into a copy of one."""
    return torch.mm(x, W, out=KEPT.clone())


@pytest.mark.parametrize("fn", [written, into])
def test_what_is_written_in_float32_has_no_reference(fn):
    """A tensor that takes the result is not widened: its digits are what f has."""
    assert torch_subject(fn, (values(4, 4, seed=3),)).in_double() is None


def test_a_module_that_a_function_calls_is_widened():
    """Its parameters are what they were, in float32 and without a gradient."""
    x, before = values(2, 4), NET[0].weight.detach().clone()

    double = torch_subject(lambda x: 2 * NET(x), (x,)).in_double()

    wanted = 2 * torch.tanh(
        F.linear(x.double(), *(p.double() for p in NET[0].parameters()))
    )
    assert double.row() == pytest.approx(wanted.detach().flatten().numpy(), rel=1e-14)
    assert torch.equal(NET[0].weight, before)
    assert NET[0].weight.grad is None


# ``x @ W`` with a backward that is off by a factor.
product = with_backward(
    lambda x, factor: x @ W, lambda _x, factor, up: (factor * (up @ W.T), None)
)


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1, gl.Verdict.AGREES), (1.0003, gl.Verdict.DISAGREES)]
)
def test_a_float32_product_with_what_is_held_is_decided(factor, verdict):
    """A right backward agrees; one that is off by 0.03 % is told, and by what."""
    x = values(3, 4, seed=5).requires_grad_()

    report = gl.check(product, x, factor)

    assert report.verdict == verdict
    assert report.diagnosis == ("scale" if factor > 1 else "low_precision")


# Twice the sine, in float32 without a need.
doubled = with_backward(lambda x: 2 * x.float().sin(), lambda _x, up: up * 2)


def test_a_cast_to_float32_is_none_to_half_precision():
    """Of a function that calls `float()` nothing is said about half precision."""
    report = gl.check(doubled, values(4).requires_grad_())

    assert report.verdict == gl.Verdict.DISAGREES
    assert not any("half precision" in finding.evidence for finding in report.findings)
