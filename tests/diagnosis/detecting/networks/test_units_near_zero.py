"""Slopes of activations behind weights without a bias: which is wrong, and how."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import gradlab as gl


def _network(rng, activate, slope, *, rows_are_units=False):
    """Two layers without biases; `slope(z, incoming)` is what the backward uses."""
    x, y = rng.normal(size=(9, 3)), rng.normal(size=(9, 2))

    def loss_and_grads(params):
        first, second = params["W1"], params["W2"]
        z = x @ (first.T if rows_are_units else first)
        h = activate(z)
        e = (h @ second - y) / len(x)
        back = e @ second.T
        d_first = x.T @ (back * slope(z, back))
        return 0.5 * len(x) * (e**2).sum(), {
            "W1": d_first.T if rows_are_units else d_first,
            "W2": h.T @ e,
        }

    shape = (4, 3) if rows_are_units else (3, 4)
    params = {"W1": rng.normal(size=shape), "W2": rng.normal(size=(4, 2))}
    return loss_and_grads, params


def _relu(z):
    return np.maximum(z, 0)


@pytest.mark.parametrize("rows_are_units", [False, True])
@pytest.mark.parametrize(
    ("slope", "kind", "words"),
    [
        (lambda z, back: 1.0, "wrong_mask", "on for every sample"),
        (lambda z, back: z < 0, "wrong_mask", "wrong way round"),
        (lambda z, back: back > 0, "wrong_mask", "stays the same"),
        (lambda z, back: np.where(z > 0, 1, 0.2), "wrong_derivative", "0.2 x"),
    ],
)
def test_masks_are_told_without_a_bias(rng, slope, kind, words, rows_are_units):
    """No bias is needed to see which mask of a relu a backward uses."""
    network = _network(rng, _relu, slope, rows_are_units=rows_are_units)

    report = gl.check(*network)

    assert report.culprit == "W1"
    assert report.findings[0].kind == kind
    assert words in report.findings[0].evidence


@pytest.mark.parametrize(
    ("slope", "words"),
    [
        (lambda z, back: 1.0, "gradient is right"),
        (lambda z, back: np.tanh(z), None),
        (lambda z, back: 2 * (1 - np.tanh(z)), "analytic = 2 x numeric"),
    ],
)
def test_slopes_are_told_without_a_bias(rng, slope, words):
    """A wrong slope of tanh is one factor where all pre-activations are zero.

    One that vanishes there is no factor, and is not told as one.
    """
    report = gl.check(*_network(rng, np.tanh, slope))

    told = [f.evidence for f in report.findings if f.where == "W1"]
    assert (words is None) != any("weights of one unit" in each for each in told)
    assert words is None or any(words in each for each in told)


def test_a_wrong_array_is_no_wrong_slope(rng):
    """A weight that is multiplied with another array has a right slope behind it."""
    x, other = rng.normal(size=(2, 8, 3))
    y = rng.normal(size=8)

    def loss_and_grads(w):
        z = x @ w
        e = np.tanh(z).sum(axis=1) - y
        return 0.5 * (e**2).sum(), other.T @ (e[:, None] * (1 - np.tanh(z) ** 2))

    report = gl.check(loss_and_grads, rng.normal(size=(3, 4)))

    assert not any("weights of one unit" in f.evidence for f in report.findings)


def test_a_lost_projection_is_no_wrong_slope(rng):
    """An error that vanishes with the input, and no activation: nothing is claimed."""
    x, target = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))

    def grad(x):
        return target / np.linalg.norm(x, axis=1, keepdims=True)

    report = gl.check(
        lambda x: float((target * x / np.linalg.norm(x, axis=1, keepdims=True)).sum()),
        x,
        grad=grad,
    )

    assert report.diagnosis == "missing_term"


def test_wide_layers_are_told_in_little_memory(rng):
    """A layer on 1,050 pixels: no array has one number for each pair of weights."""
    x, y = rng.normal(size=(4, 1050)), rng.normal(size=(4, 20))

    def loss_and_grad(w):
        h = np.maximum(x @ w, 0)
        return 0.5 * ((h - y) ** 2).sum(), x.T @ (h - y)

    tracemalloc.start()
    try:
        report = gl.check(loss_and_grad, 0.05 * rng.normal(size=(1050, 20)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert report.diagnosis == "wrong_mask"
    assert peak < 100 * 2**20  # a square matrix of as many weights has 3.3 GiB


def test_rounding_inside_is_no_switch(rng):
    """Over steps that hardly move a float32 a jump of its last digit is no mask."""
    a, x = rng.normal(size=(6, 3)), rng.normal(size=(4, 3))

    def f(x):
        z = a @ x.T
        return np.float64(np.float32(20 + np.sin(z).sum() + (z**2).sum()))

    def grad(x):
        z = a @ x.T
        return (a.T @ (np.cos(z) + 2.0 * z + 0.3 * np.sin(2 * z))).T

    report = gl.check(f, x, grad=grad)

    assert report.culprit == "x"
    assert not any("switches" in finding.evidence for finding in report.findings)
