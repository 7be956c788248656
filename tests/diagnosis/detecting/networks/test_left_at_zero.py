"""What is left with weights at zero, or the same both ways, tells what is wrong."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def network(rng, slip="", *, hidden=6, classes=2):
    """Two hidden layers of as many units and a last weight without a bias."""
    n, d = 6, 4
    x, target = rng.normal(size=(n, d)), rng.normal(size=(n, classes))
    params = {
        "W1": rng.normal(size=(d, hidden)),
        "b1": rng.normal(size=hidden) / 3,
        "W2": rng.normal(size=(hidden, hidden)) / 2,
        "b2": rng.normal(size=hidden) / 3,
        "W3": rng.normal(size=(hidden, classes)),
    }

    def loss_and_grads(p):
        z1 = x @ p["W1"] + p["b1"]
        h1 = np.tanh(z1)
        h2 = np.tanh(h1 @ p["W2"] + p["b2"])
        e = h2 @ p["W3"] - target
        d2 = e @ p["W3"].T * (1 - h2**2)
        slope = {"halved": 1 - h1**2 / 2, "of the next layer": 1 - h2**2}
        slope["of other samples"] = 1 - np.roll(h1, 1, axis=0) ** 2
        d1 = d2 @ p["W2"].T * slope.get(slip, 1 - h1**2)
        return 0.5 * (e * e).sum(), {
            "W1": x.T @ d1,
            "b1": d1.sum(axis=0),
            "W2": h1.T @ d2,
            "b2": d2.sum(axis=0),
            "W3": h2.T @ e,
        }

    return loss_and_grads, params


@pytest.mark.parametrize(("hidden", "classes"), [(6, 2), (8, 2), (5, 2)])
def test_a_last_weight_is_no_gate_of_the_layer_before_it(hidden, classes, rng):
    """A slope is told as well where there are three or four times as many units."""
    (told,) = gl.check(*network(rng, "halved", hidden=hidden, classes=classes)).findings

    assert (told.kind, told.places) == ("wrong_derivative", ("b1", "W1"))
    assert "one factor that depends on t" in told.evidence


def test_a_slope_at_the_units_of_the_next_layer(rng):
    """Right where the units of both layers stand at one pre-activation."""
    (told,) = gl.check(*network(rng, "of the next layer")).findings

    assert (told.kind, told.places) == ("stale_cache", ("b1", "W1"))
    assert "those of W2" in told.evidence


def test_slopes_of_other_samples_are_right_where_all_samples_are_alike(rng):
    """No kind is sure of it; that the slope itself is right is measured."""
    (told,) = gl.check(*network(rng, "of other samples")).findings

    assert (told.kind, told.where) == ("unknown", "b1")
    assert "at one pre-activation, the gradient is right" in told.evidence
    assert {"wrong_index", "stale_cache"} <= set(told.doubts)


@pytest.mark.parametrize("slip", ["as if observed", "sign"])
def test_a_scale_of_residuals_is_no_bias(rng, slip):
    """Of a censored regression: at beta = 0 that of log_s is right, of beta is not."""
    special = pytest.importorskip("scipy.special")
    x = np.column_stack([np.ones(40), rng.normal(size=(40, 2))])
    y = np.maximum(x @ [0.2, 1, -1] + rng.normal(size=40), 0)
    censored = y <= 0

    def loss_and_grads(p):
        z = (y - x @ p["beta"]) / np.exp(p["log_s"])
        logs = special.log_ndtr(z[censored])
        loss = (z[~censored] ** 2 / 2 + p["log_s"]).sum() - logs.sum()
        signal = z.copy()
        if slip == "sign":
            density = np.exp(-0.5 * z[censored] ** 2) / np.sqrt(2 * np.pi)
            signal[censored] = density / np.exp(logs)
        beta = -x.T @ signal / np.exp(p["log_s"])
        return loss, {"beta": beta, "log_s": (~censored).sum() - signal @ z}

    params = {"beta": np.array([0.1, 0.8, -0.7]), "log_s": np.array(0.2)}
    report = gl.check(loss_and_grads, params)

    assert set(report.culprits) == {"beta", "log_s"}
    assert "pre-activation" not in str(report)


def test_a_mask_that_the_loss_does_not_have(rng):
    """Right where scores are positive, and by no one factor where they are not."""
    x, counts = rng.normal(size=(7, 3)), rng.poisson(2, (7, 3))
    params = {"W": rng.normal(size=(3, 3)), "b": rng.normal(size=3)}

    def loss_and_grads(p):
        s = x @ p["W"] + p["b"]
        signal = (np.exp(s) * (s > 0) - counts) / 7
        grads = {"W": x.T @ signal, "b": signal.sum(axis=0)}
        return (np.exp(s) - counts * s).sum() / 7, grads

    (told,) = gl.check(loss_and_grads, params).findings

    assert (told.kind, set(told.places)) == ("wrong_mask", {"W", "b"})
    assert "right where that is above zero" in told.evidence


def blocks(rng, slip=""):
    """Three blocks with skip connections behind a projection."""
    n, d, h = 5, 3, 4
    x, target = rng.normal(size=(n, d)), rng.normal(size=n)
    params = {"P": rng.normal(size=(d, h))}
    for k in (1, 2, 3):
        params[f"W{k}"] = rng.normal(size=(h, h)) / 2
        params[f"b{k}"] = rng.normal(size=h) / 3
    params["w"] = rng.normal(size=h)

    def loss_and_grads(p):
        xs, hs = [x @ p["P"]], []
        for k in (1, 2, 3):
            hs.append(np.tanh(xs[-1] @ p[f"W{k}"] + p[f"b{k}"]))
            xs.append(xs[-1] + hs[-1])
        e = xs[-1] @ p["w"] - target
        grads, back = {"w": xs[-1].T @ e}, np.outer(e, p["w"])
        for k in (3, 2, 1):
            dz = back * (1 - hs[k - 1] ** 2)
            grads[f"W{k}"], grads[f"b{k}"] = xs[k - 1].T @ dz, dz.sum(axis=0)
            skip = {"lost": 0, "twice": 2}.get(slip, 1) if k == 2 else 1
            back = skip * back + dz @ p[f"W{k}"].T
        grads["P"] = x.T @ back
        return 0.5 * (e * e).sum(), grads

    return loss_and_grads, params


@pytest.mark.parametrize(
    ("slip", "kind"), [("lost", "missing_term"), ("twice", "extra_term")]
)
def test_a_skip_connection_is_what_is_left_around_a_weight(slip, kind, rng):
    """With the weight of its block at zero nothing else leads on."""
    (told,) = gl.check(*blocks(rng, slip)).findings

    assert (told.kind, told.places) == (kind, ("b1", "W1", "P"))
    assert "on a path around W2" in told.evidence
    assert gl.check(*blocks(rng)).findings == ()


def test_a_penalty_is_no_path_around_a_weight(rng):
    """U and V of a factorisation: the penalty of U is written with V."""
    target = rng.normal(size=(5, 5))
    params = {"U": rng.normal(size=(5, 2)), "V": rng.normal(size=(5, 2))}

    def loss_and_grads(p):
        e = p["U"] @ p["V"].T - target
        loss = 0.5 * (e * e).sum() + 0.05 * ((p["U"] ** 2).sum() + (p["V"] ** 2).sum())
        return loss, {
            "U": e @ p["V"] + 0.1 * p["V"],
            "V": e.T @ p["U"] + 0.1 * p["V"],
        }

    (told,) = gl.check(loss_and_grads, params).findings

    assert told.where == "U"
    assert "path around" not in told.evidence


def convolutions(rng, slip=""):
    """Two convolutions in one dimension, tanh between them, and a sum of squares."""
    x, target = rng.normal(size=(3, 2, 7)), rng.normal(size=(3, 2, 7))
    params = {
        "K1": rng.normal(size=(3, 2, 3)),
        "b1": rng.normal(size=3) / 3,
        "K2": rng.normal(size=(2, 3, 3)),
        "b2": rng.normal(size=2) / 3,
    }

    def windows(a):
        padded = np.pad(a, ((0, 0), (0, 0), (1, 1)))
        return np.stack([padded[..., k : k + 7] for k in range(3)])

    def loss_and_grads(p):
        h = np.tanh(np.einsum("kncs,fck->nfs", windows(x), p["K1"]) + p["b1"][:, None])
        out = np.einsum("kncs,fck->nfs", windows(h), p["K2"]) + p["b2"][:, None]
        e = out - target
        kernel = p["K2"] if slip else p["K2"][..., ::-1]
        back = np.einsum("knfs,fck->ncs", windows(e), kernel) * (1 - h**2)
        return 0.5 * (e * e).sum(), {
            "K1": np.einsum("nfs,kncs->fck", back, windows(x)),
            "b1": back.sum(axis=(0, 2)),
            "K2": np.einsum("nfs,kncs->fck", e, windows(h)),
            "b2": e.sum(axis=(0, 2)),
        }

    return loss_and_grads, params


def test_a_kernel_that_is_not_reversed_is_told_by_an_even_one(rng):
    """Of a loss alone; nothing is wrong where it is the same read backwards."""
    (told,) = gl.check(*convolutions(rng, "not reversed")).findings

    assert (told.kind, set(told.places)) == ("wrong_index", {"K1", "b1"})
    assert "K2 is replaced by a kernel that is the same read backwards" in told.evidence
    assert gl.check(*convolutions(rng)).findings == ()
