"""Networks of every shape with one hand-written piece that can be right or wrong.

`NETWORKS` maps a name to a function that takes a slip (see `SLIPS`) and returns a
`Case`: the model, how it is called, and what an audit has to name. The truth is known
by construction: the derivative of swish is a formula, and a slip changes what its
backward returns.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


def _half(g, x, upstream):
    kept = g.clone()
    kept[0] = 0
    return kept


# What a backward returns instead of the right gradient g of its input x.
SLIPS = {
    "right": lambda g, x, upstream: g,
    "slip of 0.1 %": lambda g, x, upstream: 1.001 * g,
    "twice": lambda g, x, upstream: 2 * g,
    "sign": lambda g, x, upstream: -g,
    "nothing": lambda g, x, upstream: torch.zeros_like(g),
    "no chain rule": lambda g, x, upstream: torch.where(
        upstream == 0, torch.zeros_like(g), g / upstream
    ),
    "passes straight": lambda g, x, upstream: upstream.clone(),
    "extra term": lambda g, x, upstream: g + 0.01 * x,
    "mean over batch": lambda g, x, upstream: g / len(x),
    "first sample lost": _half,
    "flipped": lambda g, x, upstream: g.flip(-1),
}
KINDS = {
    "slip of 0.1 %": "scale",
    "twice": "scale",
    "sign": "sign",
    "nothing": "detached",
    "no chain rule": "ignores_upstream",
    "mean over batch": "missing_reduction",
}


class SwishFunction(torch.autograd.Function):
    """x * sigmoid(x), with a backward that makes the slip it is told."""

    @staticmethod
    def forward(ctx, x, slip):
        """Save what the slip needs."""
        ctx.save_for_backward(x)
        ctx.slip = slip
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, upstream):
        """Return the right gradient, changed by the slip."""
        (x,) = ctx.saved_tensors
        gate = torch.sigmoid(x)
        g = upstream * (gate + x * gate * (1 - gate))
        return SLIPS[ctx.slip](g, x, upstream), None


swish = SwishFunction.apply  # bound early, as users do


class Swish(nn.Module):
    """The activation under suspicion."""

    def __init__(self, slip="right"):
        super().__init__()
        self.slip = slip

    def forward(self, x):
        """Apply swish."""
        return swish(x, self.slip)


@dataclasses.dataclass
class Case:
    """A model at a point, and the name of what is wrong if the slip is."""

    module: nn.Module
    args: tuple
    culprit: str
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    loss: Any = None

    def double(self):
        """Turn model and inputs into double precision, in place."""
        self.module.double()
        self.args = tuple(_double(a) for a in self.args)
        self.kwargs = {k: _double(a) for k, a in self.kwargs.items()}
        return self


def _double(value):
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        leaf = value.detach().double()
        return leaf.requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(_double(v) for v in value)
    return value


NETWORKS: dict[str, Any] = {}


def network(make):
    """Register a network under the name of its maker."""
    NETWORKS[make.__name__] = lambda slip="right": make(slip)
    return make


def entropy(classes=3, n=4):
    """Give a cross-entropy against fixed labels."""
    y = torch.arange(n) % classes
    return lambda out: F.cross_entropy(out, y)


def load():
    """Import the families of networks; each registers its own."""
    for family in ("plain", "tricky", "special"):
        importlib.import_module(f"tests.localisation.networks_{family}")
    return NETWORKS
