"""The square as a custom autograd Function, with any backward."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


def squared(backward):
    """Return x -> x squared whose gradient is ``backward(x, g)``."""

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        def backward(ctx, g):
            return backward(ctx.saved_tensors[0], g)

    return Square.apply


half = squared(lambda x, g: g * x)  # forgets the factor 2


class HalfSquare(torch.nn.Module):
    """An activation whose gradient is half of what it should be."""

    def forward(self, x):
        """Square."""
        return half(x)
