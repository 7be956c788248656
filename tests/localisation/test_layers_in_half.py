"""Functions that are right in double, and wrong in the half precision they run in."""

from __future__ import annotations

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")

HALVES = [torch.float16, torch.bfloat16]


def function(forward, vjp, slip=None):
    """A Function with a slip in half precision alone."""

    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, h):
            ctx.save_for_backward(h)
            return forward(h)

        @staticmethod
        def backward(ctx, g):
            (h,) = ctx.saved_tensors
            found = vjp(h, g)
            return slip(found) if slip and h.dtype in HALVES else found

    return Own.apply


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
