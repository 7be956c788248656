"""A sweep speaks of noise where arithmetic and the slopes of f do not explain it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import gradlab as gl


def diagonal(slope):
    """Jacobian of a function that is applied to each entry."""
    return lambda x: np.diag(slope(x))


@pytest.mark.parametrize("top", [7.0, 8.0, 10.0, 12.0])
def test_small_slopes_beside_large_values_are_no_noise(top):
    """The last digit of tanh(10) is a part in 1e8 of what moves it."""
    x = np.array([0.3, 1.0, top])
    sweep = gl.sweep(np.tanh, x, jac=diagonal(lambda x: 1 / np.cosh(x) ** 2))

    assert sweep.verdict == gl.Verdict.AGREES
    assert "noise" not in sweep.reading["x0"]


def test_a_saturated_network_carries_no_noise():
    """All of it runs in float64; some units hardly move."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    with torch.no_grad():
        net[0].weight.mul_(6)
    sweep = gl.sweep(net, 2 * torch.randn(4, 3, dtype=torch.float64))

    assert sweep.verdict == gl.Verdict.AGREES
    assert not any("noise" in sentence for sentence in sweep.reading.values())


def test_large_arguments_are_no_noise():
    """sin(1e7 x) has the rounding of 1e7 x, and no iteration inside."""
    sweep = gl.sweep(
        lambda x: np.sin(1e7 * x),
        np.array([1.3]),
        jac=diagonal(lambda x: 1e7 * np.cos(1e7 * x)),
        steps=np.geomspace(1e-14, 1e-7, 40),
    )

    assert "noise" not in sweep.reading["x"]


def test_cancellation_is_no_single_precision():
    """What is left of one has its last digits, multiplied or not."""
    sweep = gl.sweep(
        lambda x: (1 - np.cos(x)) / 5,
        np.array([1e-5]),
        jac=diagonal(lambda x: np.sin(x) / 5),
        steps=np.geomspace(1e-12, 1e-2, 40),
    )

    reading = sweep.reading["x"]
    assert "noise" not in reading or "a cancellation or" in reading


@pytest.mark.parametrize("size", [1.0, 1e-4, 1e4])
def test_single_precision_is_told_all_the_same(size):
    """Beside a saturated entry as well, whatever the size of f."""
    sweep = gl.sweep(
        lambda x: size * np.tanh(x.astype(np.float32)).astype(float),
        np.array([0.3, 1.0, 3.0]),
        jac=diagonal(lambda x: size / np.cosh(x) ** 2),
    )

    assert "noise" in sweep.reading["x"]
    assert "(float32 inside?)" in sweep.reading["x"]


def test_the_rest_of_small_numbers_may_be_either():
    """Noise of 1e-17 beside one is a cancellation, or float32 inside a small f."""
    sweep = gl.sweep(
        lambda x: 1e-9 * np.exp(x.astype(np.float32)).astype(float),
        np.array([1.3, 0.2]),
        jac=diagonal(lambda x: 1e-9 * np.exp(x)),
    )

    assert "(a cancellation or float32 inside?)" in sweep.reading["x"]


def test_an_entry_is_read_by_the_rounding_of_its_own_output():
    """A noisy output beside a large one is told of."""
    sweep = gl.sweep(
        lambda x: np.array([1e9 * x[0], float(np.exp(np.float32(x[1])))]),
        np.array([1.0, 0.5]),
        jac=lambda x: np.diag([1e9, np.exp(x[1])]),
    )

    assert "noise" in sweep.entry("x", 1, row=1).reading["x[1]"]


def test_a_gradient_of_rounding_alone_is_a_zero(rng):
    """A shift of all scores does nothing to a softmax; its sum is not exactly 0."""
    weights = rng.normal(size=5)

    def softmax(x):
        e = np.exp(x - x.max())
        return e / e.sum()

    def slopes(x, shift):
        p = softmax(x + shift)
        d = p * (weights - weights @ p)
        return d, d.sum(keepdims=True)

    inputs = rng.normal(size=5), np.array([0.3])
    sweep = gl.sweep(
        lambda x, shift: softmax(x + shift) @ weights, *inputs, grad=slopes
    )

    assert 0 < abs(slopes(*inputs)[1][0]) < 1e-15
    assert sweep.verdicts["shift"] == gl.Verdict.AGREES
    assert sweep.reading["shift"].startswith("correct: zero on both sides but for")
    assert sweep.reading["x"].startswith("V: correct")
