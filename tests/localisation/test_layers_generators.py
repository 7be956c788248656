"""Layers that draw from random generators of their own."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn

import gradlab as gl
from tests.specimens.functions import with_backward

RNG = np.random.default_rng(5)

X = torch.tensor([[0.3, -0.7, 0.2], [1.1, 0.4, -0.5]], dtype=torch.float64)


class Noise(nn.Module):
    """Multiplies by noise: its gradient is the same noise."""

    def __init__(self, draw):
        super().__init__()
        self.draw = draw

    def forward(self, x):
        return x * (1 + 0.1 * self.draw())


class Held(Noise):
    """The same, with the generator itself in an attribute."""

    def forward(self, x):
        return x * (1 + 0.1 * self.draw.random())


# The gradient of the sine, a tenth too large.
slip = with_backward(lambda x: x.sin(), lambda x, grad: 1.1 * grad * x.cos())


class Wrong(nn.Module):
    def forward(self, x):
        return slip(x)


def torch_noise():
    """Draw from a generator of torch, in a closure."""
    generator = torch.Generator().manual_seed(3)
    return generator.get_state, Noise(lambda: torch.rand((), generator=generator))


def drawn():
    """Draw from a global of the module."""
    return RNG.normal()


KINDS = {
    "NumPy": lambda: (g := np.random.default_rng(1), Held(g)),
    "legacy": lambda: (g := np.random.RandomState(1), Held(g)),
    "Python": lambda: (g := random.Random(1), Held(g)),
    "global": lambda: (RNG, Noise(drawn)),
}


def state_of(generator):
    """Return the state as something that compares."""
    bits = getattr(generator, "bit_generator", None)
    if bits is not None:
        return bits.state
    if isinstance(generator, np.random.RandomState):
        return str(generator.get_state())
    return generator.getstate()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [True, False])
def test_a_generator_of_a_layers_own_is_rewound(kind, wrong):
    """Two layers that share it draw what they drew, each by itself; then it goes on."""
    generator, noise = KINDS[kind]()
    other = Wrong() if wrong else nn.Tanh()
    model = nn.Sequential(nn.Linear(3, 4), noise, other, noise, nn.Linear(4, 2))
    before = state_of(generator)

    audit = gl.blame(model.double(), X)

    assert audit.verdict.name == ("DISAGREES" if wrong else "AGREES")
    assert audit.culprits == (("2",) if wrong else ())
    assert state_of(generator) == before


@pytest.mark.parametrize("wrong", [True, False])
def test_a_generator_of_torch_in_a_closure_is_rewound(wrong):
    """As one in an attribute is."""
    state, noise = torch_noise()
    model = nn.Sequential(noise, Wrong() if wrong else nn.Tanh(), noise).double()
    before = state()

    audit = gl.blame(model, X.clone().requires_grad_())

    assert audit.culprits == (("1",) if wrong else ())
    assert torch.equal(state(), before)


def test_a_check_audits_layers_that_draw():
    """The wrong layer is named where the check disagrees."""
    _, noise = KINDS["NumPy"]()
    model = nn.Sequential(nn.Linear(3, 4), noise, Wrong()).double()

    report = gl.check(model, X, loss=torch.sum)

    assert report.culprit == "2"
