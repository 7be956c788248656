"""Functions of one tensor as custom autograd Functions, with any backward."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


def with_backward(forward, backward):
    """Return `forward` with the gradient ``backward(x, g)``, right or wrong."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, g):
            return backward(ctx.saved_tensors[0], g)

    return Function.apply


class Spoiled(torch.autograd.Function):
    """The identity, with any slip in its backward: ``slip(g)`` may write to `g`."""

    @staticmethod
    def forward(ctx, x, slip):
        ctx.slip = slip
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return ctx.slip(g.clone()), None


def stray(size):
    """Return a backward of ``2 * x`` with one entry more, where none should be."""

    def backward(x, g):
        gradient = 2 * g
        gradient[11, 17] += size * g[3, 5]
        return gradient

    return backward
