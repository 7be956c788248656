"""Networks as they are before training: biases of zero, rows of padding, zero layers.

Every ReLU stands at its kink for an input of zeros, and behind a layer of zeros.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import gradlab as gl
from tests.specimens.activations import softmax
from tests.specimens.functions import with_backward


def perceptron(seed):
    """Three layers without biases yet, and two rows of padding."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)
    ).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    x[3:] = 0
    for layer in (model[0], model[2], model[4]):
        nn.init.zeros_(layer.bias)
    return model, x


# One percent too much.
scaled = with_backward(lambda x: x.clone(), lambda _x, gradient: 1.01 * gradient)


class Wrong(nn.Module):
    """A layer with too large a gradient behind it."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return scaled(self.layer(x))


@pytest.mark.parametrize("seed", [3, 4, 5, 9, 11])
def test_padding_before_training(seed):
    """Kinks of some outputs, and far kinks of others, leave nothing of those open."""
    model, x = perceptron(seed)

    assert gl.check(model, x).verdict == gl.Verdict.AGREES


@pytest.mark.parametrize("seed", [3, 5])
def test_one_percent_there(seed):
    """A layer that is off by a percent is told."""
    model, x = perceptron(seed)
    model[0] = Wrong(model[0])

    assert gl.check(model, x).verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("seed", [0, 3])
def test_a_layer_of_zeros(seed):
    """Behind it f is the square of a ReLU at 0: that was undecided, or accused."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)
    ).double()
    for parameter in (model[0].bias, model[2].weight, model[2].bias, model[4].bias):
        nn.init.zeros_(parameter)
    x, y = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 1, 1, 0])

    def loss(out):
        return nn.functional.cross_entropy(out, y)

    assert gl.check(model, x, loss=loss).verdict == gl.Verdict.AGREES
    wrong = nn.Sequential(*model[:4], Wrong(model[4]))
    y[0] = 1  # or the gradient that is scaled is zero

    assert gl.check(wrong, x, loss=loss).verdict == gl.Verdict.DISAGREES


def student(seed, slip=None):
    """Two hidden layers in NumPy whose masks are zero at the kink."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(6, 4))
    X[4:] = 0
    y = rng.integers(0, 3, 6)
    weights = {
        "W1": rng.normal(size=(4, 7)),
        "b1": np.zeros(7),
        "W2": rng.normal(size=(7, 5)),
        "b2": np.zeros(5),
        "W3": rng.normal(size=(5, 3)),
        "b3": np.zeros(3),
    }

    def loss_and_gradients(w):
        a = X @ w["W1"] + w["b1"]
        h = np.maximum(a, 0)
        c = h @ w["W2"] + w["b2"]
        k = np.maximum(c, 0)
        z = k @ w["W3"] + w["b3"]
        p = softmax(z)
        d = p.copy()
        d[np.arange(6), y] -= 1
        d /= 6
        found = {"W3": k.T @ d, "b3": d.sum(axis=0)}
        d = (d @ w["W3"].T) * (c > 0)
        found |= {"W2": h.T @ d, "b2": d.sum(axis=0)}
        d = (d @ w["W2"].T) * (a > 0)
        found |= {"W1": X.T @ d, "b1": d.sum(axis=0)}
        if slip:
            found[slip] = 1.01 * found[slip]
        return -np.log(p[np.arange(6), y]).mean(), found

    return loss_and_gradients, weights


@pytest.mark.parametrize("seed", [11, 17])
def test_masks_of_padding_are_those_of_a_point_beside(seed):
    """All biases a little lower, the gradient is the same: it is right at the point."""
    f, weights = student(seed)

    assert gl.check(f, weights).verdict == gl.Verdict.AGREES


@pytest.mark.parametrize("slip", ["W1", "b1", "W2"])
def test_a_slip_beside_such_masks(slip):
    """A percent of one gradient is told."""
    f, weights = student(11, slip)

    assert gl.check(f, weights).verdict == gl.Verdict.DISAGREES
