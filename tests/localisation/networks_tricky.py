"""Networks that make an audit's life hard: in place, checkpointed, random, keywords."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.localisation.networks import SLIPS, Case, Swish, entropy, network


@network
def in_place(slip):
    """In-place layers and in-place arithmetic."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.head = (
                nn.Linear(5, 6),
                nn.Linear(6, 6),
                nn.Linear(6, 3),
            )
            self.relu, self.act = nn.ReLU(inplace=True), Swish(slip)

        def forward(self, x):
            h = self.relu(self.a(x))
            h = self.act(self.b(h))
            h += 1
            h.mul_(0.5)
            return self.head(h)

    return Case(Net(), (torch.randn(4, 5),), "act", loss=entropy())


@network
def in_place_residual(slip):
    """A residual block of a ResNet, all in place."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 3, 3, padding=1)
            self.bn, self.relu = nn.BatchNorm2d(3), nn.ReLU(inplace=True)
            self.act = Swish(slip)

        def forward(self, x):
            out = self.bn(self.conv1(x))
            out += x
            return self.act(self.relu(out))

    net = nn.Sequential(Block(), nn.Flatten(), nn.Linear(48, 3))
    return Case(net, (torch.randn(4, 3, 4, 4),), "0.act", loss=entropy())


@network
def overwrites_its_input(slip):
    """The first layer overwrites the user's input."""
    net = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 5), Swish(slip))
    return Case(net, (torch.randn(4, 5),), "2")


@network
def in_place_function(slip):
    """A custom Function that marks its input dirty."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, slip):
            ctx.mark_dirty(x)
            ctx.slip = slip
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return SLIPS[ctx.slip](2 * g, 0 * g + 1, g), None

    class Twice(nn.Module):
        def forward(self, x):
            return Double.apply(x, slip)

    net = nn.Sequential(nn.Linear(5, 5), Twice(), nn.Linear(5, 3))
    return Case(net, (torch.randn(4, 5),), "1", loss=entropy())


def _checkpointed(slip, reentrant):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Linear(5, 6)
            self.block = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3), Swish(slip))
            self.other = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3), Swish())
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            x = self.stem(x)
            x = checkpoint(self.block, x, use_reentrant=reentrant)
            x = checkpoint(self.other, x, use_reentrant=reentrant)
            return self.head(x)

    return Case(Net(), (torch.randn(4, 5),), "block.2", loss=entropy())


@network
def checkpointed(slip):
    """Checkpointing, recomputed in the backward."""
    return _checkpointed(slip, reentrant=False)


@network
def checkpointed_reentrant(slip):
    """The old, re-entrant checkpointing."""
    return _checkpointed(slip, reentrant=True)


@network
def keywords_and_dicts(slip):
    """Keyword arguments, dicts in and out."""

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.act = nn.Linear(5, 5), Swish(slip)

        def forward(self, *, x, scale, flag=True):
            h = self.act(self.fc(x["a"])) * scale
            return {"h": h, "extra": [h.detach().sum(), "text", None], "flag": flag}

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.head = Inner(), nn.Linear(5, 3)

        def forward(self, x, *, mask=None):
            out = self.inner(x={"a": x}, scale=2.0)
            return {"logits": self.head(out["h"] * mask), "hidden": out["h"]}

    x, mask = torch.randn(4, 5), torch.ones(5)
    cross = entropy()
    return Case(
        Net(),
        (x,),
        "inner.act",
        {"mask": mask},
        loss=lambda out: cross(out["logits"]),
    )


@network
def tuples(slip):
    """Nested tuples in and out, integers among them."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = Swish(slip)

        def forward(self, pair):
            a, b = pair
            return self.act(a) * b, (a + b, a.argmax(-1))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.two = nn.Linear(5, 3), nn.Linear(5, 3), Two()

        def forward(self, x):
            first, (second, _index) = self.two((self.a(x), self.b(x)))
            return first, second

    return Case(Net(), (torch.randn(4, 5),), "two.act")


@network
def dropout(slip):
    """Dropout in training mode."""
    net = nn.Sequential(
        nn.Linear(5, 8), nn.Dropout(0.5), Swish(slip), nn.Dropout(0.5), nn.Linear(8, 3)
    )
    return Case(net, (torch.randn(4, 5),), "2", loss=entropy())


@network
def functional_dropout_between(slip):
    """Functional dropout between layers."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.act = nn.Linear(5, 8), nn.Linear(8, 3), Swish(slip)
            self.drop = nn.Dropout(0.2)

        def forward(self, x):
            h = F.dropout(self.drop(self.a(x)), 0.4)
            return self.b(F.dropout(self.act(h), 0.4))

    return Case(Net(), (torch.randn(4, 5),), "act", loss=entropy())


@network
def stochastic_depth(slip):
    """Randomness of Python and NumPy."""
    import random

    import numpy as np

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.act = nn.Linear(5, 5), nn.Linear(5, 5), Swish(slip)

        def forward(self, x):
            h = self.act(self.a(x))
            if random.random() < 0.5:
                h = h + self.b(h) * float(np.random.rand())
            return h * float(np.random.rand())

    return Case(Net(), (torch.randn(4, 5),), "act")


@network
def spectral_norm(slip):
    """Parametrised weights."""
    fc = nn.utils.parametrizations.spectral_norm(nn.Linear(5, 5))
    weighted = nn.utils.parametrizations.weight_norm(nn.Linear(5, 5))
    return Case(nn.Sequential(fc, Swish(slip), weighted), (torch.randn(4, 5),), "1")
