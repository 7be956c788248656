"""Mistakes in one line of a backward: what else of the layer is right says so."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.diagnosis.finding import BugKind

RNG = np.random.default_rng(2)
TOKENS, TARGET = RNG.normal(size=(2, 5, 4))
IMAGES = RNG.normal(size=(3, 2, 5, 5))


def attention(slip=None):
    """Layer norm, one head of attention, a residual and a squared error."""
    rng = np.random.default_rng(3)
    params = {name: rng.normal(size=(4, 4)) * 0.6 for name in ("Wq", "Wk", "Wv", "Wo")}
    params |= {"g": 1 + rng.normal(size=4) / 9, "be": rng.normal(size=4) / 9}
    centred = TOKENS - TOKENS.mean(axis=1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)

    def loss_and_grads(params):
        x = normal * params["g"] + params["be"]
        q, k, v = (x @ params[name] for name in ("Wq", "Wk", "Wv"))
        powers = np.exp(q @ k.T / 2)
        weights = powers / powers.sum(axis=1, keepdims=True)
        off = TOKENS + weights @ v @ params["Wo"] - TARGET
        signal = off / off.size
        back = signal @ params["Wo"].T
        of_weights = back @ v.T
        inner = (weights * of_weights).sum(axis=1, keepdims=True)
        if slip == "no sum":
            inner = 0
        scores = weights * (of_weights - inner) / 2
        of_q, of_k, of_v = scores @ k, scores.T @ q, weights.T @ back
        of_x = sum(
            of @ params[name].T
            for of, name in ((of_q, "Wq"), (of_k, "Wk"), (of_v, "Wv"))
        )
        entered = TOKENS if slip == "stale" else x
        grads = {
            "Wo": (weights @ v).T @ signal,
            "Wq": x.T @ of_q,
            "Wk": x.T @ of_k,
            "Wv": entered.T @ of_v,
            "g": (of_x * (x if slip == "gain" else normal)).sum(axis=0),
            "be": of_x.sum(axis=0),
        }
        return (off**2).mean() / 2, grads

    return loss_and_grads, params


@pytest.mark.parametrize("slip", ["no sum", "gain"])
def test_gains_of_a_norm_are_biases_of_no_weight(slip):
    """Of the same size as many a weight, they belong to none: nothing is claimed."""
    report = gl.check(*attention(slip))

    assert not report.ok
    assert not any("of the same layer" in f.evidence for f in report.findings)


def test_a_weight_that_is_wrong_alone_has_a_wrong_line():
    """The array that is multiplied is the tokens, where the normalised ones belong."""
    first = gl.check(*attention("stale")).findings[0]

    assert (first.kind, first.where) == (BugKind.STALE_CACHE, "Wv")
    assert "All other gradients are right" in first.evidence


def test_correct_attention_is_not_accused():
    """The correct twin has no finding."""
    assert not gl.check(*attention()).findings


def recurrence(slip=None):
    """All states of a tanh recurrence over a batch, as course code has it."""
    rng = np.random.default_rng(5)
    shapes = ((2, 4, 3), (2, 5), (3, 5), (5, 5), (5,))
    arrays = tuple(rng.normal(size=shape) / 2 for shape in shapes)

    def forward(x, h0, Wx, Wh, b):
        states = [h0]
        for t in range(4):
            states.append(np.tanh(x[:, t] @ Wx + states[-1] @ Wh + b))
        return np.stack(states[1:], axis=1), (x, Wx, Wh, states)

    def backward(up, cache):
        x, Wx, Wh, states = cache
        dx, dWx, dWh, db = np.zeros_like(x), 0 * Wx, 0 * Wh, np.zeros(5)
        carry = np.zeros((2, 5))
        for t in reversed(range(4)):
            signal = (up[:, t] + carry) * (1 - states[t + 1] ** 2)
            entered = x[:, (t + 1) % 4] if slip == "next input" else x[:, t]
            before = states[t + 1] if slip == "next state" else states[t]
            dWx = entered.T @ signal + (0 if slip == "overwritten" else dWx)
            dWh += before.T @ signal
            db += signal.sum(axis=0)
            dx[:, t], carry = signal @ Wx.T, signal @ Wh.T
        return dx, carry, dWx, dWh, db

    return forward, arrays, backward


@pytest.mark.parametrize(
    ("slip", "where", "kind"),
    [
        ("next input", "Wx", BugKind.STALE_CACHE),
        ("next state", "Wh", BugKind.STALE_CACHE),
        ("overwritten", "Wx", BugKind.LOST_ACCUMULATION),
    ],
)
def test_arrays_of_another_step_lose_no_rank(slip, where, kind):
    """A loop that overwrites leaves fewer outer products; a shifted one as many."""
    forward, arrays, backward = recurrence(slip)
    report = gl.check(forward, *arrays, backward=backward)

    assert report.culprits == (where,)
    assert report.findings[0].kind == kind
    assert "step" in report.findings[0].advice


def test_correct_recurrence_is_not_accused():
    """The correct twin has no finding."""
    forward, arrays, backward = recurrence()

    assert not gl.check(forward, *arrays, backward=backward).findings


def convolution(slip=None):
    """Three by three kernels, their bias, a mean over positions, a linear layer."""
    rng = np.random.default_rng(4)
    params = {
        "W": rng.normal(size=(4, 2, 3, 3)) / 2,
        "b": rng.normal(size=4) / 9,
        "V": rng.normal(size=(4, 3)),
    }
    windows = np.lib.stride_tricks.sliding_window_view(IMAGES, (3, 3), axis=(2, 3))

    def loss_and_grads(params):
        z = np.einsum("ncijkl,ockl->noij", windows, params["W"])
        z += params["b"][:, None, None]
        hidden = np.maximum(z, 0)
        out = hidden.mean(axis=(2, 3)) @ params["V"]
        signal = out / 3
        back = (signal @ params["V"].T)[:, :, None, None] / 9
        back = back * (np.where(z > 0, 1.0, 0.1) if slip == "leaky" else z > 0)
        grads = {
            "W": np.einsum("noij,ncijkl->ockl", back, windows),
            "b": back.mean(axis=(0, 2, 3)) if slip == "mean" else back.sum((0, 2, 3)),
            "V": hidden.mean(axis=(2, 3)).T @ signal,
        }
        return (out**2).sum() / 6, grads

    return loss_and_grads, params


def test_the_bias_of_a_convolution_belongs_to_its_kernels():
    """Both are wrong: no linear layer of the same size vouches for the signal."""
    report = gl.check(*convolution("leaky"))

    assert {"W", "b"} == set(report.culprits)
    assert not any("V of the same layer" in f.evidence for f in report.findings)


def test_a_mean_in_place_of_a_sum_is_told_by_its_weight():
    """1/27 is three images times nine positions; the kernels are right."""
    first = gl.check(*convolution("mean")).findings[0]

    assert (first.kind, first.where) == (BugKind.MISSING_REDUCTION, "b")
    assert "a mean over 27 samples stands where a sum belongs" in first.evidence


def test_correct_convolutions_are_not_accused():
    """The correct twin has no finding."""
    assert not gl.check(*convolution()).findings


def test_zeros_beside_another_factor_are_no_mask():
    """Half of a quotient rule is zero where the other half is not, and no mask."""
    x = np.random.default_rng(6).normal(size=8)
    target = np.array([1, 0, 0, 1, 1, 0, 1, 0.0])

    def chances(x):
        return 1 / (1 + np.exp(-x))

    def dice(x):
        y = chances(x)
        return float(1 - (2 * (y * target).sum() + 1) / (y.sum() + target.sum() + 1))

    def grad(x):
        y = chances(x)
        return -2 * target / (y.sum() + target.sum() + 1) * y * (1 - y)

    first = gl.check(dice, x, grad=grad).findings[0]

    assert first.kind == BugKind.UNKNOWN
    assert first.doubts == (BugKind.WRONG_MASK, BugKind.MISSING_TERM)


def test_no_guess_is_made_of_what_several_inputs_share():
    """No name fits Wq and Wk; what comes before is right where Wq hands on nothing."""
    found = gl.check(*attention("no sum")).findings

    (unnamed,) = found
    assert unnamed.kind == BugKind.UNKNOWN
    assert unnamed.places == ("Wk", "Wq", "be", "g")
    assert "With all of Wq at zero the gradient of g is right" in unnamed.evidence
    assert "The gradients of Wv, Wo are right." in unnamed.evidence


def test_a_bias_in_front_of_a_norm_vouches_for_nothing():
    """Its gradient is zero whatever the error signal is."""
    rng = np.random.default_rng(5)
    x, goal = rng.normal(size=(6, 3)), rng.normal(size=(6, 4))
    params = {"W": rng.normal(size=(3, 4)), "b": rng.normal(size=4)}

    def loss_and_grads(params):
        z = x @ params["W"] + params["b"]
        hidden = np.tanh(z - z.mean(axis=0))
        signal = goal * (1 - hidden)  # a slope of another function
        signal -= signal.mean(axis=0)
        grads = {"W": x.T @ signal, "b": signal.sum(axis=0)}
        return (hidden * goal).sum(), grads

    report = gl.check(loss_and_grads, params)
    first = report.findings[0]

    assert first.where == "W"
    assert report["b"].verdict == gl.Verdict.AGREES
    assert "of the same layer" not in first.evidence


def test_a_mask_the_wrong_way_round_is_told():
    """The signal passes where units are off, and stops where they are on."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=(8, 5))
    params = {
        "W1": rng.normal(size=(5, 6)),
        "b1": rng.normal(size=6) / 9,
        "W2": rng.normal(size=(6, 3)),
        "b2": rng.normal(size=3),
    }

    def loss_and_grads(params):
        z = x @ params["W1"] + params["b1"]
        hidden = np.maximum(z, 0)
        out = hidden @ params["W2"] + params["b2"]
        back = out @ params["W2"].T * (z < 0)
        grads = {
            "W1": x.T @ back,
            "b1": back.sum(axis=0),
            "W2": hidden.T @ out,
            "b2": out.sum(axis=0),
        }
        return (out**2).sum() / 2, grads

    first = gl.check(loss_and_grads, params).findings[0]

    assert (first.kind, first.where) == (BugKind.WRONG_MASK, "b1")
    assert "the wrong way round" in first.evidence


def test_a_sum_over_all_outputs_is_no_ignored_gradient():
    """Twice the incoming gradient gives twice as much: it is used, and all of it."""
    rng = np.random.default_rng(9)
    x, w, b = rng.normal(size=(4, 6)), rng.normal(size=(6, 3)), rng.normal(size=3)

    def forward(x, w, b):
        return x @ w + b, (x, w)

    def backward(upstream, cache):
        x, w = cache
        return upstream @ w.T, x.T @ upstream, np.full(3, upstream.sum())

    first = gl.check(forward, x, w, b, backward=backward).findings[0]

    assert (first.kind, first.where) == (BugKind.WRONG_AXIS, "b")


@pytest.mark.parametrize(
    ("slope", "words"),
    [
        (lambda x: 1 / (1 + np.exp(-x)), "is g alone"),
        (lambda x: x / (2 + np.exp(x) + np.exp(-x)), "is x g' alone"),
        (lambda x: 1 / (2 + np.exp(x) + np.exp(-x)), None),
    ],
    ids=["the first term", "the second term", "the factor without x"],
)
def test_one_term_of_the_product_rule_is_told_as_such(slope, words):
    """Of swish, x sigmoid(x), the derivative has two terms; one is easily left out."""
    x = np.array([-1.3, -0.4, 0.2, 0.7, 1.1, 2.0])

    report = gl.check(
        lambda x: x / (1 + np.exp(-x)), x, jac=lambda x: np.diag(slope(x))
    )

    if words is None:
        assert "the derivative is g + x g'" not in report.findings[0].evidence
    else:
        assert report.diagnosis == "missing_term"
        assert words in report.findings[0].evidence


@pytest.mark.parametrize("every", [False, True])
def test_a_loop_that_assigns_ends_with_a_state_of_zero(rng, every):
    """Then the weight of states gets nothing, for the first state is zero.

    In a loss of the last state, and in one of all of them.
    """
    x, target = rng.normal(size=(4, 3, 2)), rng.normal(size=(3, 3))
    params = {"Wx": rng.normal(size=(2, 3)), "Wh": rng.normal(size=(3, 3))}
    params["b"] = rng.normal(size=3)

    def loss_and_grads(p, assigned=("Wx", "Wh", "b")):
        states = [np.zeros((3, 3))]
        for step in x:
            states.append(np.tanh(step @ p["Wx"] + states[-1] @ p["Wh"] + p["b"]))
        seen = range(1 if every else 4, 5)
        loss = 0.5 * sum(((states[t] - target) ** 2).sum() for t in seen)
        grads = {name: np.zeros_like(value) for name, value in p.items()}
        back = 0.0
        for t in reversed(range(4)):
            back = back + (states[t + 1] - target) * (t + 1 in seen)
            d = back * (1 - states[t + 1] ** 2)
            added = {"Wx": x[t].T @ d, "Wh": states[t].T @ d, "b": d.sum(axis=0)}
            for name, one in added.items():
                grads[name] = one + (0 if name in assigned else grads[name])
            back = d @ p["Wh"].T
        return loss, grads

    assert gl.check(lambda p: loss_and_grads(p, ()), params).ok
    alone = gl.check(lambda p: loss_and_grads(p, ("Wh",)), params)
    assert alone.diagnosis == "detached"  # as far as is seen: the others are right

    report = gl.check(loss_and_grads, params)

    assert report.diagnosis == "lost_accumulation"
    assert set(report.culprits) == set(params)
