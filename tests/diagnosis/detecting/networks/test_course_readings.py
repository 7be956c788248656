"""Slips of programs that courses hand out, and what a teacher would say first."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from tests.specimens.activations import softmax


def kinds(report):
    """Kinds of all errors, in their order."""
    return [str(f.kind) for f in report.findings if f.severity == "error"]


def two_layers(rng, *, features, slip):
    """Return what the exercise on gradient checking has: samples stand in columns."""
    x, y = rng.normal(size=(features, 6)), rng.normal(size=(2, 6))
    params = {
        "W1": rng.normal(size=(5, features)),
        "b1": rng.normal(size=(5, 1)),
        "W2": rng.normal(size=(2, 5)),
        "b2": rng.normal(size=(2, 1)),
    }

    def model(p):
        h = np.tanh(p["W1"] @ x + p["b1"])
        r = p["W2"] @ h + p["b2"] - y
        d2 = r / x.shape[1]
        d1 = p["W2"].T @ d2 * (1 - h**2)
        sums = {"b1": d1.sum(1, keepdims=True), "b2": d2.sum(1, keepdims=True)}
        grads = {"W1": d1 @ x.T, "W2": d2 @ h.T, **sums}
        for name in slip:
            grads[name] = slip[name] * grads[name]
        return (r**2).sum() / 2 / x.shape[1], grads

    return model, params


def test_factor_that_is_the_number_of_features(rng):
    """db1 = 4 / m * sum(dZ1), with 4 features, is a factor and no mean's 1/4."""
    report = gl.check(*two_layers(rng, features=4, slip={"b1": 4.0}))

    assert kinds(report) == ["scale"]


def test_all_gradients_times_the_samples(rng):
    """Where all are too large by a length of the data, that one is the samples'."""
    slip = dict.fromkeys(("W1", "b1", "W2", "b2"), 6.0)

    report = gl.check(*two_layers(rng, features=6, slip=slip))

    assert set(kinds(report)) == {"missing_reduction"}


def transitions(scores, labels, subtract):
    """Negative log-likelihood of pairs of neighbours, as of a chain of labels."""

    def loss(t):
        p = softmax(t.ravel()).reshape(t.shape)
        grad = p * (len(labels) - 1)
        value = -np.log(p[labels[:-1], labels[1:]]).sum()
        if subtract:
            np.subtract.at(grad, (labels[:-1], labels[1:]), 1.0)
        return value, grad

    return loss, scores


@pytest.mark.parametrize("subtract", [True, False])
def test_true_pairs_forgotten(rng, subtract):
    """The 1 of each true pair is missing: a term, not an index, though rows repeat."""
    labels = np.array([0, 1, 0, 2, 1])

    report = gl.check(*transitions(rng.normal(size=(3, 3)), labels, subtract))

    assert kinds(report) == ([] if subtract else ["missing_term"])


def test_label_taken_from_every_row(rng):
    """p[:, y] -= 1 lands in every row: an index."""
    y, n = np.array([0, 2, 1, 2]), 4

    def loss(z):
        p = softmax(z)
        value = -np.log(p[np.arange(n), y]).sum()
        p[:, y] -= 1
        return value, p

    assert kinds(gl.check(loss, rng.normal(size=(4, 5))))[0] == "wrong_index"


@pytest.mark.parametrize("tiled", [True, False])
def test_gradients_of_other_windows(rng, tiled):
    """Upstream tiled where it should be repeated: the mask is right, the index not."""

    def forward(x):
        out = x.reshape(3, 2, 3, 2).max((1, 3))
        return out, x == out.repeat(2, 0).repeat(2, 1)

    def backward(dout, mask):
        return mask * (
            np.tile(dout, (2, 2)) if tiled else dout.repeat(2, 0).repeat(2, 1)
        )

    report = gl.check(forward, rng.normal(size=(6, 6)), backward=backward)

    assert kinds(report) == (["wrong_index"] if tiled else [])


@pytest.mark.parametrize("added", [True, False])
def test_word_that_is_drawn_twice(rng, added):
    """Of two uses of one row of a table the second overwrites the first."""
    words = [0, 2, 2, 4]

    def loss(p):
        v, table = p["v"], p["U"]
        grads = {"v": np.zeros_like(v), "U": np.zeros_like(table)}
        total = 0.0
        for k in words:
            s = 1 / (1 + np.exp(table[k] @ v))
            total -= np.log(s)
            grads["v"] += (1 - s) * table[k]
            grads["U"][k] = (1 - s) * v + (grads["U"][k] if added else 0)
        return total, grads

    point = {"v": rng.normal(size=3), "U": rng.normal(size=(5, 3))}

    assert kinds(gl.check(loss, point)) == ([] if added else ["lost_accumulation"])
