"""One mistake, one finding: what it spoils is told with it, what it does not is not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gradlab as gl
from tests.specimens.activations import sigmoid


def _classifier(rng, slip="", *, width=5):
    """Two layers of sigmoids and a softmax, with a penalty on the weights."""
    x, y = rng.normal(size=(8, 4)), rng.integers(0, 3, 8)

    def loss_and_grads(p):
        h1 = sigmoid(x @ p["W1"] + p["b1"])
        h2 = sigmoid(h1 @ p["W2"] + p["b2"])
        s = h2 @ p["W3"] + p["b3"]
        e = np.exp(s)
        q = e / e.sum(axis=1, keepdims=True)
        loss = -np.log(q[np.arange(8), y]).mean()
        d3 = q - np.eye(3)[y]
        d3 = d3 if slip == "sum" else d3 / 8
        slope = h1 * (1 - h1) if slip == "slope of another layer" else h2 * (1 - h2)
        d2 = d3 @ p["W3"].T * slope
        d1 = d2 @ p["W2"].T * h1 * (1 - h1)
        signals = ((x, d1), (h1, d2), (h2, d3))
        grads = {}
        for i, (entering, signal) in enumerate(signals, 1):
            grads |= {f"W{i}": entering.T @ signal, f"b{i}": signal.sum(axis=0)}
        return loss, grads

    sizes = (4, width, width, 3)
    params = {}
    for i, (a, b) in enumerate(itertools.pairwise(sizes), 1):
        params |= {f"W{i}": rng.normal(size=(a, b)), f"b{i}": 0.1 * rng.normal(size=b)}
    return loss_and_grads, params


@pytest.mark.parametrize("width", [5, 8])  # 8 is the number of samples as well
def test_a_mean_that_is_missing_everywhere_is_one_finding(width, rng):
    """All six gradients are eight times too large: the last layer is named first."""
    report = gl.check(*_classifier(rng, "sum", width=width))

    (told,) = report.findings
    assert told.kind == "missing_reduction"
    assert told.places == ("b3", "W3", "b2", "W2", "b1", "W1")
    assert report.culprits == told.places
    assert "b3, W3, b2, W2 and 2 more: " in " ".join(str(report).split())
    assert str(told).startswith("b3, W3, b2, W2 and 2 more: missing_reduction")


def test_a_slope_of_another_layer_is_told_by_moving_that_layer(rng):
    """h1 (1 - h1) for h2 (1 - h2): right where both layers stand at one level."""
    report = gl.check(*_classifier(rng, "slope of another layer"))

    (told,) = report.findings
    assert told.kind == "stale_cache"
    assert told.places == ("b2", "W2", "b1", "W1")
    assert "a slope is that of another layer's array" in told.evidence
    assert "b1, W1 come before it" in told.evidence


def test_the_right_classifier_has_no_finding(rng):
    """Nor has its twin of one width."""
    assert not gl.check(*_classifier(rng)).findings


def test_places_survive_storage(rng, tmp_path):
    """A report that is saved names them all when it is loaded."""
    report = gl.check(*_classifier(rng, "sum"))
    report.save(tmp_path / "report.npz")

    assert gl.load(tmp_path / "report.npz").findings == report.findings


def _autoencoder(rng, slip=""):
    """One weight, used forward and backward."""
    x = rng.normal(size=(6, 5))

    def loss_and_grads(p):
        h = np.tanh(x @ p["W"] + p["b"])
        e = (h @ p["W"].T + p["c"] - x) / 6
        a = e @ p["W"] * (1 - h * h)
        weight = x.T @ a + (0 if slip else e.T @ h)
        return 3 * (e**2).sum(), {"W": weight, "b": a.sum(0), "c": e.sum(0)}

    params = {"W": rng.normal(size=(5, 3)), "b": rng.normal(size=3)}
    return loss_and_grads, {**params, "c": rng.normal(size=5)}


def test_a_second_use_of_a_weight_that_is_left_out(rng):
    """With the weight at zero its other use is all there is: no slope is wrong."""
    (told,) = gl.check(*_autoencoder(rng, "decoder")).findings

    assert (told.kind, told.where) == ("missing_term", "W")
    assert "second use of that weight" in told.evidence
    assert not gl.check(*_autoencoder(rng)).findings


def _recurrent(rng, slip=""):
    """A state that is carried through four steps."""
    steps, target = rng.normal(size=(4, 3)), rng.normal(size=(4, 2))

    def loss_and_grads(p):
        states = [np.zeros(4)]
        for x in steps:
            states.append(np.tanh(p["Wx"] @ x + p["Wh"] @ states[-1] + p["bh"]))
        errors = np.array([p["Wy"] @ h for h in states[1:]]) - target
        grads = {name: np.zeros_like(value) for name, value in p.items()}
        carry = np.zeros(4)
        for t in reversed(range(4)):
            grads["Wy"] += np.outer(errors[t], states[t + 1])
            back = p["Wy"].T @ errors[t] + (0 if slip == "no carry" else carry)
            a = back * (1 - states[t + 1] ** 2)
            grads["bh"] += a
            grads["Wx"] += np.outer(a, steps[t])
            grads["Wh"] += np.outer(a, states[t])
            carry = (p["Wh"] if slip == "transposed" else p["Wh"].T) @ a
        return 0.5 * (errors**2).sum(), grads

    shapes = {"Wx": (4, 3), "Wh": (4, 4), "bh": (4,), "Wy": (2, 4)}
    return loss_and_grads, {k: 0.6 * rng.normal(size=s) for k, s in shapes.items()}


def test_a_state_that_hands_nothing_back_is_a_missing_term(rng):
    """Right where the recurrent weight is zero, and the transpose keeps its name."""
    (told,) = gl.check(*_recurrent(rng, "no carry")).findings
    (other,) = gl.check(*_recurrent(rng, "transposed")).findings

    assert (told.kind, sorted(told.places)) == ("missing_term", ["Wh", "Wx", "bh"])
    assert "With all of Wh at zero the gradient of bh is right" in told.evidence
    assert other.kind == "transpose"
    assert not gl.check(*_recurrent(rng)).findings


def test_a_gain_that_is_left_out_is_told_by_moving_it(rng):
    """Of a gradient that lacks a gain: right with the gain at one."""
    x, target = rng.normal(size=(5, 4)), rng.normal(size=(5, 2))

    def loss_and_grads(p):
        h = np.tanh(x @ p["W"])
        e = (h * p["g"]) @ p["V"] - target
        back = e @ p["V"].T  # times g
        grads = {"W": x.T @ (back * (1 - h * h)), "g": (back * h).sum(0)}
        return 0.5 * (e**2).sum(), {**grads, "V": (h * p["g"]).T @ e}

    params = {"W": rng.normal(size=(4, 3)), "g": np.array([0.4, -0.8, 1.7])}
    params["V"] = rng.normal(size=(3, 2))
    (told,) = gl.check(loss_and_grads, params).findings

    assert (told.kind, told.where) == ("wrong_derivative", "W")
    assert "With all of g at 1 the gradient of W is right" in told.evidence
    assert "at 0.6 analytic = 1.6667 x numeric" in told.evidence


@pytest.mark.parametrize("divided", [False, True])
def test_a_deviation_given_by_its_logarithm_is_told_by_moving_it(divided, rng):
    """Of means in a mixture: right with all logarithms at zero."""
    x = rng.normal(size=12)

    def loss_and_grads(p):
        s = np.exp(p["log_s"])
        d = (x[:, None] - p["mu"]) / s
        logs = -0.5 * d**2 - p["log_s"]
        each = np.exp(logs)
        r = each / each.sum(axis=1, keepdims=True)
        mu = -(r * d / (s if divided else 1)).sum(axis=0)
        loss = -np.log(each.sum(axis=1)).sum()
        return loss, {"mu": mu, "log_s": -(r * (d**2 - 1)).sum(axis=0)}

    params = {"mu": rng.normal(size=3), "log_s": 0.4 * rng.normal(size=3)}
    findings = gl.check(loss_and_grads, params).findings

    told = [(f.kind, f.where) for f in findings]
    assert told == ([] if divided else [("wrong_derivative", "mu")])
    assert divided or "With all of log_s at 0" in findings[0].evidence


def test_a_mask_that_is_not_its_own_is_told_where_units_are_off(rng):
    """Of the incoming gradient: not zero where all units of the layer are off."""
    x, target = rng.normal(size=(9, 4)), rng.normal(size=(9, 2))

    def loss_and_grads(p, *, own=False):
        z = x @ p["W1"] + p["b1"]
        h = np.maximum(z, 0)
        e = h @ p["W2"] - target
        back = e @ p["W2"].T
        a = back * ((z if own else back) > 0)
        grads = {"W1": x.T @ a, "b1": a.sum(0), "W2": h.T @ e}
        return 0.5 * (e**2).sum(), grads

    params = {"W1": rng.normal(size=(4, 5)), "b1": rng.normal(size=5)}
    params["W2"] = rng.normal(size=(5, 2))
    (told,) = gl.check(loss_and_grads, params).findings

    assert (told.kind, told.places) == ("wrong_mask", ("b1", "W1"))
    assert "switched off the function stands still" in told.evidence
    assert not gl.check(lambda p: loss_and_grads(p, own=True), params).findings


def _convolution(rng, slip=""):
    """Two filters over images, and a linear layer of as many inputs as classes."""
    x, y = rng.normal(size=(5, 4, 4)), rng.normal(size=(5, 3))

    def loss_and_grads(p):
        patches = np.stack(
            [x[:, i : i + 3, j : j + 3] for i in range(2) for j in range(2)], axis=1
        )
        a = np.einsum("npij,fij->nfp", patches, p["k"]) + p["bk"][:, None]
        h = np.tanh(a)
        e = (h.reshape(5, -1) @ p["W"] + p["b"] - y) / 5
        d = (e @ p["W"].T).reshape(h.shape) * (1 - h * h)
        kernel = np.einsum("nfp,npij->fij", d, patches)
        if slip == "one position":
            kernel = np.einsum("nf,nij->fij", d[:, :, -1], patches[:, -1])
        bias = d.mean(axis=(0, 2)) if slip == "mean" else d.sum(axis=(0, 2))
        grads = {"k": kernel, "bk": bias}
        weight = h.reshape(5, -1).T @ e
        return 2.5 * (e**2).sum(), {**grads, "W": weight, "b": e.sum(axis=0)}

    shapes = {"k": (2, 3, 3), "bk": (2,), "W": (8, 3), "b": (3,)}
    return loss_and_grads, {k: rng.normal(size=s) for k, s in shapes.items()}


def test_two_numbers_that_share_one_over_n_are_a_mean(rng):
    """The bias of two filters, averaged over 5 images of 4 positions: 1/20."""
    (told,) = gl.check(*_convolution(rng, "mean")).findings

    assert (told.kind, told.where) == ("missing_reduction", "bk")
    assert "a mean over 20 samples" in told.evidence


def test_a_kernel_is_not_said_to_be_tied(rng):
    """Only one matrix is there, and it is not the one whose lengths two biases have."""
    (told,) = gl.check(*_convolution(rng, "one position")).findings

    assert told.where == "k"
    assert "tied" not in told.evidence


def test_what_comes_before_a_weight_without_a_bias_is_told_with_it(rng):
    """A mask made from x spoils the weight before it, and x: that is one mistake."""

    def forward(x, V, W):
        a = x @ V
        return x + np.maximum(a, 0) @ W, (x, V, W, a)

    def backward(d, cache):
        x, first, second, _ = cache
        da = d @ second.T * (x > 0)
        return d + da @ first.T, x.T @ da, np.maximum(x @ first, 0).T @ d

    shapes = {"x": (4, 5), "V": (5, 5), "W": (5, 5)}
    point = [rng.normal(size=shape) for shape in shapes.values()]
    (told,) = gl.check(forward, *point, backward=backward).findings

    assert (told.kind, told.places) == ("wrong_mask", ("V", "x"))
    assert "x comes before it, and may be spoiled by it." in told.evidence


def test_a_cause_of_its_own_is_not_taken_for_spoiled(rng):
    """x has a flipped sign beside a doubled V: neither is told with the other."""

    def forward(x, V):
        return np.tanh(x @ V), (x, V, np.tanh(x @ V))

    def backward(d, cache):
        x, weight, out = cache
        da = d * (1 - out**2)
        return -da @ weight.T, 2 * x.T @ da

    x, weight = rng.normal(size=(4, 3)), rng.normal(size=(3, 2))
    findings = gl.check(forward, x, weight, backward=backward).findings

    assert {(f.kind, f.places) for f in findings} == {
        ("sign", ("x",)),
        ("scale", ("V",)),
    }


def test_labels_of_other_samples_spoil_what_comes_before(rng):
    """The last weight tells it: its bias sums over samples, and is right all the same.

    So is the bias of a layer before it, where all its units are switched on.
    """
    x, labels = rng.normal(size=(8, 5)), rng.integers(0, 3, size=8)
    params = {
        "W1": rng.normal(size=(5, 6)),
        "b1": rng.normal(size=6),
        "W2": rng.normal(size=(6, 3)),
        "b2": rng.normal(size=3),
    }

    def loss_and_grads(p):
        z = x @ p["W1"] + p["b1"]
        h = np.maximum(z, 0)
        e = np.exp(h @ p["W2"] + p["b2"])
        probabilities = e / e.sum(axis=1, keepdims=True)
        d = probabilities.copy()
        d[np.arange(8), np.roll(labels, 1)] -= 1
        back = (d @ p["W2"].T) * (z > 0)
        grads = {"W1": x.T @ back, "b1": back.sum(axis=0)}
        grads |= {"W2": h.T @ d, "b2": d.sum(axis=0)}
        return -np.log(probabilities[np.arange(8), labels]).sum(), grads

    report = gl.check(loss_and_grads, params)

    (finding,) = report.findings
    assert (finding.kind, finding.where) == ("wrong_index", "W2")
    assert set(finding.also) == {"W1", "b1"}


def test_a_path_is_named_after_the_input_on_it_that_is_wrong(rng):
    """Attention: x is right without queries as it is without keys; keys are wrong."""
    x, ask, key = (rng.normal(size=size) for size in [(5, 4), (4, 4), (4, 4)])
    target = rng.normal(size=(5, 4))

    def loss_and_grads(p):
        q, k = p["x"] @ p["Q"], p["x"] @ p["K"]
        e = np.exp(q @ k.T / 2)
        a = e / e.sum(axis=1, keepdims=True)
        dv = a.T @ target
        da = target @ p["x"].T
        ds = a * (da - (da * a).sum(axis=1, keepdims=True)) / 2
        dq, dk = ds @ k, ds @ q  # ds.T @ q
        dx = dv + dq @ p["Q"].T + dk @ p["K"].T
        grads = {"x": dx, "Q": p["x"].T @ dq, "K": p["x"].T @ dk}
        return ((a @ p["x"]) * target).sum(), grads

    report = gl.check(loss_and_grads, {"x": x, "Q": ask, "K": key})

    assert report.culprits == ("K", "x")


def _finished(rng, change):
    """A classifier whose finished gradients are all changed alike; its report."""
    loss_and_grads, params = _classifier(rng)

    def changed(p):
        loss, grads = loss_and_grads(p)
        return loss, change(p, grads)

    return gl.check(changed, params)


def _decayed(p, grads):
    return {name: g + 0.01 * p[name] for name, g in grads.items()}


def _clipped(_, grads):
    return {name: np.clip(g, -0.01, 0.01) for name, g in grads.items()}


def _clipped_by_norm(_, grads):
    norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
    return {name: g * (0.1 / norm) for name, g in grads.items()}


CHANGES = {
    _decayed: "regularization",
    _clipped: "surrogate",
    _clipped_by_norm: "surrogate",
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_done_to_finished_gradients_comes_of_no_signal(change, rng):
    """Decay and clipping spoil each gradient by itself: none is wrong for another."""
    report = _finished(rng, change)

    (finding,) = report.findings
    assert finding.kind == CHANGES[change]
    assert set(finding.places) == set(report.culprits)
    assert "error signal" not in finding.evidence
    assert "may be spoiled" not in finding.evidence
