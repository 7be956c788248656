"""What a scalar loss shows of terms that are lost: norms, products, steps of a loop."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def _normalised(rng, *, terms):
    """A weight, a batch normalisation with gain g and shift b, relu and one output."""
    x, y = rng.normal(size=(8, 3)), rng.normal(size=8)

    def loss_and_grads(params):
        w, g, b = params["W1"], params["g"], params["b"]
        z = x @ w
        s = np.sqrt(z.var(axis=0) + 1e-5)
        hat = (z - z.mean(axis=0)) / s
        pre = g * hat + b
        e = (np.maximum(pre, 0).sum(axis=1) - y) / 8
        d = e[:, None] * (pre > 0)
        dh = d * g
        dz = dh - terms * (dh.mean(axis=0) + hat * (dh * hat).mean(axis=0))
        grads = {"W1": x.T @ (dz / s), "g": (d * hat).sum(axis=0), "b": d.sum(axis=0)}
        return 4 * (e**2).sum(), grads

    params = {"W1": rng.normal(size=(3, 4)), "g": 1 + rng.random(4), "b": np.ones(4)}
    return loss_and_grads, params


def test_a_normalisation_taken_as_constant_is_told_from_a_loss(rng):
    """The size of a weight before it cannot matter; a shift is no bias of it."""
    assert gl.check(*_normalised(rng, terms=1.0)).ok

    report = gl.check(*_normalised(rng, terms=0.0))

    assert report.culprit == "W1"
    assert report.diagnosis == "missing_term"
    assert "each column of W1 is stretched" in report.findings[0].evidence


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_norm_that_is_constant_is_told_of_one_vector(rng, weight):
    """The part along the vector itself, or half of it, is missing: no penalty."""
    t = rng.normal(size=5)

    def loss(v):
        return float(t @ v / np.linalg.norm(v))

    def grad(v):
        size = np.linalg.norm(v)
        return (t - weight * v * (t @ v) / size**2) / size

    report = gl.check(loss, rng.normal(size=5), grad=grad)

    assert report.diagnosis == "missing_term"
    assert "is stretched" in report.findings[0].evidence


def test_a_long_slope_at_a_short_entry_is_no_normalisation():
    """Slopes 1 / x of a sum of logarithms add up to 3 along x: nothing cancels."""
    x = np.array([1e-7, 1.0, 2.0])

    report = gl.check(lambda x: float(np.log(x).sum()), x, grad=np.ones_like)

    assert not report.ok
    assert "normalised" not in report.findings[0].evidence


def test_a_penalty_behind_a_norm_is_a_penalty(rng):
    """Twice the vector has twice the slope of a penalty, and half that of a norm."""
    t = rng.normal(size=5)

    def loss_and_grad(v):
        size = np.linalg.norm(v)
        return float(t @ v / size), (t - v * (t @ v) / size**2) / size + 0.1 * v

    report = gl.check(loss_and_grad, rng.normal(size=5))

    assert report.diagnosis == "regularization"


def _recurrent(rng, *, assigns):
    """A loop over five steps, a batch of two; weights of state and input in one."""
    x, y = rng.normal(size=(5, 2, 3)), rng.normal(size=(5, 2, 4))

    def loss_and_grads(params):
        w, b = params["W"], params["b"]
        states, joined = [np.zeros((2, 4))], []
        for step in x:
            joined.append(np.c_[step, states[-1]])
            states.append(np.tanh(joined[-1] @ w + b))
        dw, db, carry = np.zeros_like(w), np.zeros_like(b), 0
        loss = sum(
            0.5 * ((h - t) ** 2).sum() for h, t in zip(states[1:], y, strict=True)
        )
        for t in reversed(range(5)):
            d = (states[t + 1] - y[t] + carry) * (1 - states[t + 1] ** 2)
            dw = joined[t].T @ d if assigns else dw + joined[t].T @ d
            db = db + d.sum(axis=0)
            carry = d @ w[3:].T
        return loss, {"W": dw, "b": db}

    return loss_and_grads, {"W": rng.normal(size=(7, 4)), "b": rng.normal(size=4)}


def test_steps_of_a_batch_that_are_overwritten_are_told_by_their_rank(rng):
    """A batch of two leaves two outer products of one step, where ten belong."""
    assert gl.check(*_recurrent(rng, assigns=False)).ok

    report = gl.check(*_recurrent(rng, assigns=True))

    assert report.diagnosis == "lost_accumulation"
    assert "a sum of 2 outer products" in report.findings[0].evidence


def test_a_pre_activation_has_a_low_rank_too(rng):
    """The array before an activation is no sum that lost terms: its own layer spans it.

    Three inputs give pre-activations of rank four at most with the bias, whatever the
    number of units and samples.
    """
    x, y = rng.normal(size=(12, 3)), rng.normal(size=(12, 6))

    def loss_and_grads(params):
        z = x @ params["W1"] + params["b1"]
        h = np.tanh(z)
        e = h @ params["W2"] - y
        d = (e @ params["W2"].T) * (1 - h * h)
        grads = {"W1": x.T @ d, "b1": d.sum(axis=0), "W2": z.T @ e}
        return 0.5 * (e**2).sum(), grads

    shapes = {"W1": (3, 6), "b1": 6, "W2": (6, 6)}
    params = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    report = gl.check(loss_and_grads, params)

    assert report.culprit == "W2"
    assert report.diagnosis == "stale_cache"
    assert "combinations of W1" in report.findings[0].evidence


def test_an_error_signal_in_the_span_of_the_next_layer_is_no_stale_array(rng):
    """One sample of five hidden signals: all of these are combinations of W2."""
    x, y = rng.normal(size=(9, 6)), rng.normal(size=(9, 2))

    def loss_and_grads(params):
        h = np.maximum(x @ params["W1"], 0)
        e = h @ params["W2"] - y
        d = (e @ params["W2"].T) * (h > 0)
        return 0.5 * (e**2).sum(), {"W1": x[:1].T @ d[:1], "W2": h.T @ e}

    params = {"W1": rng.normal(size=(6, 8)), "W2": rng.normal(size=(8, 2))}
    report = gl.check(loss_and_grads, params)

    assert report.culprit == "W1"
    assert "stale_cache" not in {f.kind for f in report.findings}


def test_a_gradient_that_does_not_follow_its_input_lacks_a_term(rng):
    """The dual of optimal transport: a, less what is transported from each place.

    With squares the plan is relu(alpha + beta - C) / gamma: all of it is positive here.
    """
    cost, beta = rng.uniform(0, 1, (6, 5)), 2 + rng.random(5)
    a = rng.uniform(0.1, 0.3, 6)

    def plan(alpha):
        return np.maximum(alpha[:, None] + beta - cost, 0)

    def dual(alpha):
        return alpha @ a - 0.5 * (plan(alpha) ** 2).sum()

    report = gl.check(dual, 2 + rng.random(6), grad=lambda alpha: a.copy())

    finding = report.findings[0]
    assert finding.kind == "missing_term"
    assert "is the same wherever alpha stands" in finding.evidence
    assert "wrong_derivative" in finding.doubts
