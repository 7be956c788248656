"""One line of a network: which samples, entries and steps its gradient is made of."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def _dense(rng, *, activation, slope, slip, shape=(6, 4, 5)):
    """A net of three layers whose gradients `slip` may spoil; mean squared error."""
    n, d, h = shape
    x, y = rng.normal(size=(n, d)), rng.normal(size=(n, 3))
    sizes = ((d, h), (h, h), (h, 3))
    params = {f"W{k}": rng.normal(size=s) / 2 for k, s in enumerate(sizes, 1)}
    params |= {f"b{k}": rng.normal(size=s[1]) / 9 for k, s in enumerate(sizes, 1)}

    def loss_and_grads(p):
        z1 = x @ p["W1"] + p["b1"]
        a1 = activation(z1)
        z2 = a1 @ p["W2"] + p["b2"]
        a2 = activation(z2)
        d3 = (a2 @ p["W3"] + p["b3"] - y) / n
        d2 = d3 @ p["W3"].T * slope(z2)
        d1 = d2 @ p["W2"].T * slope(z1)
        grads = {"W1": x.T @ d1, "W2": a1.T @ d2, "W3": a2.T @ d3}
        grads |= {"b1": d1.sum(axis=0), "b2": d2.sum(axis=0), "b3": d3.sum(axis=0)}
        slip(grads, a1, d2)
        return 0.5 * n * (d3**2).sum(), grads

    return loss_and_grads, params


def test_activations_of_other_samples(rng):
    """With W1 at zero all samples are alike: no term through W1 is lost."""

    def slip(grads, a1, d2):
        grads["W2"] = np.roll(a1, 1, axis=0).T @ d2

    program = _dense(rng, activation=np.tanh, slope=lambda z: 1 - np.tanh(z) ** 2,
                     slip=slip)  # fmt: skip
    finding = gl.check(*program).findings[0]

    assert finding.where == "W2"
    assert finding.kind == "wrong_index"
    assert "stale_cache" in finding.doubts
    assert "array that it is multiplied with" in finding.evidence


@pytest.mark.parametrize("gain", [False, True])
def test_zeros_do_not_tell_which_array_they_were_multiplied_with(rng, gain):
    """Without b1 nothing comes to W2 where W1, or a gain, is zero: any array is right.

    Its gradient is that of its penalty alone.
    """
    x, y, keep = rng.normal(size=(8, 4)), rng.normal(size=(8, 3)), rng.random((8, 5))
    mask = (keep < 0.7) / 0.7

    def loss_and_grads(p):
        h = np.tanh(x @ p["W1"]) * p.get("g", 1.0)
        out = (h * mask) @ p["W2"] + p["b2"]
        d = (out - y) / 8
        t = np.tanh(x @ p["W1"])
        back = d @ p["W2"].T * mask
        grads = {"W1": x.T @ (back * p.get("g", 1.0) * (1 - t**2))}
        grads |= {"W2": h.T @ d + 0.1 * p["W2"], "b2": d.sum(axis=0)}
        if gain:
            grads["g"] = (back * t).sum(axis=0)
        return 4 * (d**2).sum() + 0.05 * (p["W2"] ** 2).sum(), grads

    params = {"W1": rng.normal(size=(4, 5)), "W2": rng.normal(size=(5, 3)),
              "b2": np.zeros(3)}  # fmt: skip
    if gain:
        params["g"] = rng.uniform(0.5, 1.5, 5)
    report = gl.check(loss_and_grads, params)

    assert report.culprits == ("W2",)
    assert not any("at zero" in f.evidence for f in report.findings)


def test_a_number_added_to_one_weight_is_no_mask():
    """It stays where all units are on: entries that are right say nothing of it."""
    rng = np.random.default_rng(7)
    x, labels = rng.normal(size=(32, 784)) / 10, np.eye(10)[rng.integers(0, 10, 32)]
    params = {"W1": rng.normal(size=(784, 64)) / 20, "b1": np.full(64, 0.01),
              "W2": rng.normal(size=(64, 10)) / 10, "b2": np.zeros(10)}  # fmt: skip

    def loss_and_grads(p):
        a = x @ p["W1"] + p["b1"]
        scores = np.maximum(a, 0) @ p["W2"] + p["b2"]
        logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        d = (np.exp(logs) - labels) / 32
        back = d @ p["W2"].T * (a > 0)
        grads = {"W1": x.T @ back, "W2": np.maximum(a, 0).T @ d}
        grads["W1"][13, 7] += 0.05
        sums = {"b1": back.sum(axis=0), "b2": d.sum(axis=0)}
        return -(labels * logs).sum() / 32, grads | sums

    report = gl.check(loss_and_grads, params)

    assert report.culprits == ("W1",)
    assert report.diagnosis != "wrong_mask"
    assert "switched on the gradient is right" not in str(report)


def test_a_bias_whose_steps_are_lost_goes_with_its_layer(rng):
    """A loop that assigns spoils both weights and the bias, for one and the same cause.

    The weight of states ends with the first step, whose state is zero.
    """
    xs, targets = rng.normal(size=(5, 3, 4)), rng.normal(size=(5, 3, 4))
    params = {"Wx": rng.normal(size=(4, 4)) / 2, "Wh": rng.normal(size=(4, 4)) / 2,
              "b": rng.normal(size=4) / 9}  # fmt: skip

    def loss_and_grads(p):
        states, loss, grads, back = [np.zeros((3, 4))], 0.0, {}, np.zeros((3, 4))
        for x, y in zip(xs, targets, strict=True):
            states.append(np.tanh(x @ p["Wx"] + states[-1] @ p["Wh"] + p["b"]))
            loss += 0.5 * ((states[-1] - y) ** 2).sum()
        for t in reversed(range(5)):
            d = (back + states[t + 1] - targets[t]) * (1 - states[t + 1] ** 2)
            grads = {"Wx": xs[t].T @ d, "Wh": states[t].T @ d, "b": d.sum(axis=0)}
            back = d @ p["Wh"].T
        return loss, grads

    report = gl.check(loss_and_grads, params)

    errors = [f for f in report.findings if f.severity == "error"]
    assert [f.kind for f in errors] == ["lost_accumulation"]
    assert set(errors[0].places) == {"Wx", "Wh", "b"}


def _rectified(rng, *, masked, strength=0.0, start=0.0):
    """A hidden layer of relu units whose mask in the backward is `masked`."""
    x, y = rng.normal(size=(7, 4)), rng.normal(size=(7, 2))
    params = {"W1": rng.normal(size=(4, 5)), "b1": np.full(5, start),
              "W2": rng.normal(size=(5, 2)), "b2": np.zeros(2)}  # fmt: skip

    def loss_and_grads(p):
        z = x @ p["W1"] + p["b1"]
        h = np.maximum(z, 0)
        d = h @ p["W2"] + p["b2"] - y
        back = d @ p["W2"].T * masked(z)
        grads = {"W1": x.T @ back + strength * p["W1"], "W2": h.T @ d}
        sums = {"b1": back.sum(axis=0), "b2": d.sum(axis=0)}
        return 0.5 * (d**2).sum() + 0.5 * strength * (p["W1"] ** 2).sum(), grads | sums

    return loss_and_grads, params


def test_a_mask_of_other_samples_is_not_left_out(rng):
    """With all units on it is right, and so with all off: samples are exchanged."""
    program = _rectified(rng, masked=lambda z: np.roll(z > 0, 1, axis=0), start=0.1)

    finding = gl.check(*program).findings[0]

    assert "where units are off it is not" not in finding.evidence
    assert "wrong_mask" in {finding.kind, *finding.doubts}


def test_a_signal_that_is_stopped_beside_a_penalty_is_no_sum(rng):
    """Of the weight the slope of its penalty is left: no error signal, of any axis."""
    program = _rectified(rng, masked=lambda z: z < 0, strength=0.1, start=20.0)

    report = gl.check(*program)

    assert report.diagnosis == "detached"
    assert set(report.culprits) == {"W1", "b1"}


def test_rows_that_are_used_twice_and_assigned(rng):
    """Leaves of a tree, of which the first and the second stand there twice."""
    tree, target = ((0, 1), ((1, 2), 0)), rng.normal(size=3)
    params = {"W": rng.normal(size=(3, 6)) / 2, "leaf": rng.normal(size=(3, 3))}

    def loss_and_grads(p, *, adds=True):
        grads = {name: np.zeros_like(value) for name, value in p.items()}

        def up(node):
            if isinstance(node, int):
                return p["leaf"][node], node, None
            sons = [up(son) for son in node]
            joined = np.concatenate([son[0] for son in sons])
            return np.tanh(p["W"] @ joined), sons, joined

        def down(node, signal):
            value, sons, joined = node
            if joined is None:
                grads["leaf"][sons] = signal + adds * grads["leaf"][sons]
                return
            inner = signal * (1 - value**2)
            grads["W"] += np.outer(inner, joined)
            for son, part in zip(sons, np.split(p["W"].T @ inner, 2), strict=True):
                down(son, part)

        root = up(tree)
        down(root, root[0] - target)
        return 0.5 * ((root[0] - target) ** 2).sum(), grads

    assert gl.check(loss_and_grads, params).ok
    report = gl.check(lambda p: loss_and_grads(p, adds=False), params)

    assert (report.diagnosis, report.culprits) == ("lost_accumulation", ("leaf",))
    assert "every row of leaf but rows 0 and 1" in report.findings[0].evidence
