"""Layers that cast to single precision inside, and cut that branch off by mistake.

Steps that are shorter than the rounding of the cast do not move what was cast: they see
the slope of all else, as the wrong gradient does.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from gradlab.blaming import blame  # noqa: E402


def norm(h, cut):
    """Divide by a norm in single precision."""
    return h / (cut(h).float().norm(dim=-1, keepdim=True) + 1)


def spread(h, cut):
    """Subtract a mean in single precision, and divide by a deviation."""
    single = cut(h).float()
    mean, variance = single.mean(-1, keepdim=True), single.var(-1, keepdim=True)
    return (h - mean) / (variance + 0.1).sqrt()


def weights(h, cut):
    """Weigh entries by a softmax in single precision."""
    return cut(h).float().softmax(-1).to(h.dtype) * h


class Block(torch.nn.Module):
    """Does one of these between two layers."""

    def __init__(self, inner, cut):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.inner, self.cut = inner, cut

    def forward(self, x):
        h = self.inner(self.first(x), self.cut)
        return self.last(h.to(self.last.weight.dtype))


def audited(inner, cut, *, double, seed):
    """Audit a model with such a block in it."""
    torch.manual_seed(seed)
    block = Block(inner, cut)
    tail = (torch.nn.Tanh(), torch.nn.Linear(8, 2))
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), block, *tail)
    x = torch.randn(5, 3)
    if double:
        model, x = model.double(), x.double()
    return blame(model, x, loss=lambda out: out.pow(2).mean())


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("inner", [norm, spread, weights])
def test_a_branch_that_is_cast_and_cut_is_wrong(inner, double, seed):
    """The gradient takes what was cast for a constant; over longer steps it is none."""
    audit = audited(inner, torch.Tensor.detach, double=double, seed=seed)
    assert audit.culprits == ("1",)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("inner", [norm, spread, weights])
def test_a_branch_that_is_cast_is_right(inner, double, seed):
    """The same where the gradient goes through the cast."""
    audit = audited(inner, lambda h: h, double=double, seed=seed)
    assert audit.culprits == ()
    assert all(row.state == "right" for row in audit.rows)
