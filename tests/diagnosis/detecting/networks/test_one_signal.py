"""One wrong error signal is one finding: of one unit, by directions, through a gate."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gradlab as gl
from tests.specimens.activations import sigmoid


def mlp(rng, slip=""):
    """Three layers of tanh, the mean of squares, eight samples."""
    x, y = rng.normal(size=(8, 3)), rng.normal(size=(8, 2))
    params = {}
    for i, (a, b) in enumerate(itertools.pairwise((3, 5, 4, 2)), 1):
        params |= {f"W{i}": rng.normal(size=(a, b)), f"b{i}": rng.normal(size=b)}

    def loss_and_grads(p):
        h1 = np.tanh(x @ p["W1"] + p["b1"])
        h2 = np.tanh(h1 @ p["W2"] + p["b2"])
        r = h2 @ p["W3"] + p["b3"] - y
        d3 = r / 8
        d2 = d3 @ p["W3"].T * (1 - h2**2)
        if slip == "divided twice":
            d2 = d2 / 8
        if slip == "slope":
            d2 = d3 @ p["W3"].T * (1 - h2)
        d1 = d2 @ p["W2"].T * (1 - h1**2)
        grads = {}
        for i, (entered, signal) in enumerate(((x, d1), (h1, d2), (h2, d3)), 1):
            grads |= {f"W{i}": entered.T @ signal, f"b{i}": signal.sum(axis=0)}
        return (r**2).sum() / 16, grads

    return loss_and_grads, params


@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize(
    ("slip", "kind"),
    [("divided twice", "missing_reduction"), ("slope", "wrong_derivative")],
)
def test_inputs_that_only_directions_show_are_told_with_their_signal(
    slip, kind, coverage, rng
):
    """W2 and W1 have no entry that was looked at, and are not right for that."""
    (found,) = gl.check(*mlp(rng, slip), coverage=coverage).findings

    assert (found.kind, found.where) == (kind, "b2")
    assert set(found.places) == {"b2", "W2", "b1", "W1"}
    assert "of the same layer is right" not in found.evidence
    assert "W2 is wrong with it" in found.evidence


@pytest.mark.parametrize("coverage", ["full", "probe"])
def test_the_right_layers_have_no_finding(coverage, rng):
    """Nor are there any by directions."""
    assert not gl.check(*mlp(rng), coverage=coverage).findings


def classifier(rng, slip="", *, samples=7):
    """Samples in columns, relu and one sigmoid, dA before dZ, as a course has it."""
    x, y = rng.normal(size=(3, samples)), np.arange(samples)[None] % 2
    params = {
        "W1": rng.normal(size=(4, 3)),
        "b1": rng.normal(size=(4, 1)),
        "W2": rng.normal(size=(1, 4)),
        "b2": rng.normal(size=(1, 1)),
    }

    def loss_and_grads(p):
        z1 = p["W1"] @ x + p["b1"]
        a1 = np.maximum(z1, 0)
        a2 = sigmoid(p["W2"] @ a1 + p["b2"])
        da = ((1 - y) / (1 - a2) - y / a2) / samples
        slopes = {"no slope": 1, "half a slope": 1 - a2, "": a2 * (1 - a2)}
        d2 = da * slopes[slip]
        d1 = p["W2"].T @ d2 * (z1 > 0)
        grads = {
            "W1": d1 @ x.T,
            "b1": d1.sum(axis=1, keepdims=True),
            "W2": d2 @ a1.T,
            "b2": d2.sum(axis=1, keepdims=True),
        }
        loss = -(y * np.log(a2) + (1 - y) * np.log(1 - a2)).mean()
        return loss, grads

    return loss_and_grads, params


@pytest.mark.parametrize("slip", ["no slope", "half a slope"])
def test_a_single_unit_is_a_layer_by_its_name(slip, rng):
    """The mistake is at the sigmoid: the layers before it are spoiled."""
    (found,) = gl.check(*classifier(rng, slip)).findings

    assert (found.kind, found.where) == ("wrong_derivative", "b2")
    assert set(found.places) == {"b2", "W2", "b1", "W1"}
    assert "the layer of W2 and b2" in found.evidence


def test_a_cause_is_not_told_as_spoiled_by_itself(rng):
    """Order F for order C behind a convolution: nothing explains it, and b leads."""
    images, y = rng.normal(size=(4, 2, 4, 4)), rng.normal(size=(4, 3))
    windows = np.lib.stride_tricks.sliding_window_view(images, (2, 2), axis=(2, 3))
    params = {
        "W": rng.normal(size=(3, 2, 2, 2)),
        "b": rng.normal(size=3),
        "V": rng.normal(size=(27, 3)),
    }

    def loss_and_grads(p):
        z = np.einsum("ncijkl,ockl->noij", windows, p["W"])
        h = np.tanh(z + p["b"][:, None, None])
        r = h.reshape(4, 27) @ p["V"] - y
        back = (r @ p["V"].T).reshape(4, 3, 3, 3).transpose(0, 3, 1, 2) * (1 - h**2)
        grads = {
            "W": np.einsum("noij,ncijkl->ockl", back, windows),
            "b": back.sum(axis=(0, 2, 3)),
            "V": h.reshape(4, 27).T @ r,
        }
        return (r**2).sum() / 2, grads

    (found,) = gl.check(loss_and_grads, params).findings

    assert found.places == ("b", "W")
    assert "V, behind it, is right" in found.evidence
    assert "b is wrong as well" not in found.evidence


def test_the_right_classifier_has_no_finding(rng):
    """Its last layer has one unit, and is right."""
    assert not gl.check(*classifier(rng)).findings


def test_a_factor_of_one_sample_is_no_cause_of_its_own(rng):
    """One sample alone reaches the first layer: what is wrong behind it is a factor."""
    (found,) = gl.check(*classifier(rng, "no slope", samples=1)).findings

    assert found.where == "b2"
    assert set(found.places) == {"b2", "W2", "b1", "W1"}


def gated(rng, slip=""):
    """One step of a gated unit; the candidate's slope may be lost, or a gate's sign."""
    arrays = [
        rng.normal(size=shape) for shape in ((4, 3), (4, 5), *[(3, 5), (5, 5)] * 2)
    ]

    def forward(x, h, Wz, Uz, Wn, Un):
        z, n = sigmoid(x @ Wz + h @ Uz), np.tanh(x @ Wn + h @ Un)
        return (1 - z) * n + z * h, (x, h, Wz, Uz, Wn, Un, z, n)

    def backward(up, cache):
        x, h, Wz, Uz, Wn, Un, z, n = cache
        az = up * (h - n) * z * (1 - z) * (-1 if slip == "sign" else 1)
        an = up * (1 - z) * (1 - n**2)
        dh = az @ Uz.T + an @ Un.T + (0 if slip == "carry" else up * z)
        return az @ Wz.T + an @ Wn.T, dh, x.T @ az, h.T @ az, x.T @ an, h.T @ an

    return forward, arrays, backward


def test_one_sign_of_two_matrices_is_one_finding(rng):
    """What comes before them is spoiled, and told as such."""
    forward, arrays, backward = gated(rng, "sign")
    (found,) = gl.check(forward, *arrays, backward=backward).findings

    assert found.kind == "sign"
    assert found.places == ("Uz", "Wz", "h", "x")
    assert "h, x come before it" in found.evidence


def test_a_lost_path_of_a_state_is_left_open(rng):
    """Of a loss the state alone is wrong: in its own line, or for want of a path."""
    forward, arrays, backward = gated(rng, "carry")
    weights = rng.normal(size=(4, 5))

    def loss_and_grads(p):
        out, cache = forward(*p.values())
        return (out * weights).sum(), dict(
            zip(p, backward(weights, cache), strict=True)
        )

    names = ("x", "h", "Wz", "Uz", "Wn", "Un")
    (found,) = gl.check(loss_and_grads, dict(zip(names, arrays, strict=True))).findings

    assert found.places == ("h",)
    assert "missing_term" in found.doubts


def test_the_right_gate_has_no_finding(rng):
    """Of all six gradients."""
    forward, arrays, backward = gated(rng)

    assert not gl.check(forward, *arrays, backward=backward).findings


def test_a_bias_of_one_sample_is_no_wrong_slope(rng):
    """With all units at one pre-activation it is one factor too, at each another."""
    x, y = rng.normal(size=(4, 3)), np.array([1.0, -1.0, -1.0, 1.0])

    def loss_and_grads(W, b):
        h = np.tanh(x @ W + b)
        error = h[:, 0] * h[:, 1] + 0.5 * h[:, 0] - y
        signal = np.stack([h[:, 1] + 0.5, h[:, 0]], 1) * (1 - h**2)
        signal *= 2 * error[:, None]
        return (error**2).sum(), (x.T @ signal, signal[-1])

    W, b = rng.normal(size=(3, 2)), rng.normal(size=2)
    (found,) = gl.check(loss_and_grads, W, b).findings

    assert found.where == "b"
    assert "activation is wrong" not in found.evidence
