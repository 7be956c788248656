"""The square as a custom autograd Function, with any backward."""

from __future__ import annotations

import pytest

from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")


def squared(backward):
    """Return x -> x squared whose gradient is ``backward(x, g)``."""
    return with_backward(lambda x: x**2, backward)


half = squared(lambda x, g: g * x)  # forgets the factor 2


class HalfSquare(torch.nn.Module):
    """An activation whose gradient is half of what it should be."""

    def forward(self, x):
        """Square."""
        return half(x)
