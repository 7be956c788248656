"""A small network with a wrong layer, for whatever device it is moved to."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


class Slip(torch.autograd.Function):
    """Square, with a derivative five percent too large."""

    @staticmethod
    def forward(ctx, x):
        """What is computed."""
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        """What autograd is told."""
        return 2.1 * ctx.saved_tensors[0] * g


class Slipping(torch.nn.Module):
    """The same as a layer."""

    def forward(self, x):
        """Square."""
        return Slip.apply(x)


def network(*middle, dtype=torch.float64, device="cpu"):
    """Build a network around some layers, and something to feed it."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 5), *middle, torch.nn.Linear(5, 2))
    return net.to(device, dtype), torch.randn(6, 4).to(device, dtype)
