"""Functions that are right in double, and wrong in the half precision they run in."""

from __future__ import annotations

import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")

HALVES = [torch.float16, torch.bfloat16]


def function(forward, vjp, slip=None):
    """A Function with a slip in half precision alone."""

    def backward(h, g):
        found = vjp(h, g)
        return slip(found) if slip and h.dtype in HALVES else found

    return with_backward(forward, backward)


class InHalf(torch.nn.Module):
    """A layer that computes a part of it in half."""

    def __init__(self, f, half):
        super().__init__()
        self.lin, self.f, self.half = torch.nn.Linear(5, 8), f, half

    def forward(self, x):
        return self.f(self.lin(x).to(self.half)).to(x.dtype)


def blamed(f, half, dtype=torch.float32, size=1.0):
    """Blame of a small network with such a layer."""
    torch.manual_seed(0)
    parts = (
        torch.nn.Linear(6, 5),
        torch.nn.Tanh(),
        InHalf(f, half),
        torch.nn.Linear(8, 2),
    )
    model, x = torch.nn.Sequential(*parts).to(dtype), torch.randn(7, 6, dtype=dtype)
    return gl.blame(model, x, loss=lambda out: size * (out**2).sum())


def normed(h):
    """RMSNorm."""
    return h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-3)


def norm_vjp(h, g):
    r = torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-3)
    return r * g - h * r**3 * (g * h).mean(-1, keepdim=True)


def one(h):
    """Shares that sum to one: no gradient but rounding."""
    return torch.softmax(h, -1).sum(-1, keepdim=True).expand_as(h) * 1.0


def one_vjp(h, g):
    shares, g = torch.softmax(h, -1), g.sum(-1, keepdim=True)
    return shares * (g - (g * shares).sum(-1, keepdim=True))


OWN = {"norm": (normed, norm_vjp), "one": (one, one_vjp)}


@pytest.mark.parametrize("half", HALVES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("slip", "kind", "told"),
    [
        (lambda g: 1.5 * g, "scale", "1.5 times that"),
        (lambda g: g.flip(-1), "unknown", "which is right"),
    ],
    ids=["factor", "order"],
)
def test_a_backward_that_is_wrong_in_half_alone_is_blamed(
    slip, kind, told, dtype, half
):
    """All layers were called right: each is checked in double."""
    audit = blamed(function(normed, norm_vjp, slip), half, dtype)

    assert audit.verdict == gl.Verdict.DISAGREES
    (finding,) = audit.findings
    assert (finding.kind.value, finding.where) == (kind, "2")
    assert str(half).removeprefix("torch.") in finding.evidence
    assert told in finding.evidence


@pytest.mark.parametrize("half", HALVES, ids=str)
@pytest.mark.parametrize("size", [1.0, 1e-3])
@pytest.mark.parametrize("own", OWN)
def test_what_half_precision_rounds_off_blames_nobody(own, size, half):
    """Nor where the gradient is nothing but rounding."""
    assert blamed(function(*OWN[own]), half, size=size).culprits == ()


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_a_weight_in_single_precision_hides_what_half_rounds_off(half):
    """The unit of rounding is that of the half input, whichever input comes first."""
    beside = with_backward(
        lambda w, h: one(h) + 0 * w.to(h.dtype),
        lambda w, h, g: (0 * w, 3 * (g * h) - g * h - 2 * (g * h)),
    )
    weight = torch.nn.Parameter(torch.ones(8))

    assert blamed(lambda h: beside(weight, h), half).culprits == ()


def test_factors_that_differ_are_not_told_as_one():
    """Two inputs, twice the gradient of one and half that of the other."""
    product = with_backward(
        lambda a, b: a * b,
        lambda a, b, g: (
            g * b * (2 if a.dtype in HALVES else 1),
            g * a / (2 if a.dtype in HALVES else 1),
        ),
    )
    audit = blamed(lambda h: product(torch.sin(h), torch.cos(h)), torch.bfloat16)

    (finding,) = audit.findings
    assert finding.kind.value == "unknown"
    assert "times that" not in finding.evidence
