"""Layers written by hand under a loss: which line of their backward is wrong."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from tests.specimens.activations import sigmoid


def batch_norm(rng, slip):
    """A linear layer, a batch normalisation and a squared error, with gradients."""
    x, target = rng.normal(size=(8, 4)), rng.normal(size=(8, 3))
    params = {
        "W": rng.normal(size=(4, 3)),
        "gamma": rng.uniform(0.5, 2, 3),
        "beta": rng.normal(size=3),
    }

    def loss_and_grads(p):
        u = x @ p["W"]
        s = np.sqrt(u.var(axis=0) + 1e-5)
        hat = (u - u.mean(axis=0)) / s
        out = p["gamma"] * hat + p["beta"]
        d = 2 * (out - target)
        back = d if slip == "gain" else d * p["gamma"]
        mean = 0.0 if slip == "mean" else back.mean(axis=0)
        below = np.sqrt(u.var(axis=0) + 1e-3) if slip == "epsilon" else s
        du = (back - mean - hat * (back * hat).mean(axis=0)) / below
        if slip == "sample":
            du[2] = 0.0
        return (d**2).sum() / 4, {
            "W": x.T @ du,
            "gamma": (d * (out if slip == "output" else hat)).sum(axis=0),
            "beta": d.sum(axis=0),
        }

    return loss_and_grads, params


class TestBatchNorm:
    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize(
        ("slip", "kind", "words"),
        [
            ("mean", gl.BugKind.MISSING_TERM, "the mean of the normalisation is"),
            ("output", gl.BugKind.STALE_CACHE, "what leaves the normalisation"),
            ("gain", gl.BugKind.WRONG_DERIVATIVE, "the factor gamma is missing"),
            ("epsilon", gl.BugKind.UNKNOWN, "factors next to 1 (1 -"),
        ],
    )
    def test_slip(self, slip, kind, words, seed):
        report = gl.check(*batch_norm(np.random.default_rng(seed), slip))
        (told,) = report.findings
        assert told.kind == kind
        assert told.where == ("gamma" if slip == "output" else "W")
        assert words in told.evidence

    @pytest.mark.parametrize("seed", range(4))
    def test_right(self, seed):
        assert not gl.check(*batch_norm(np.random.default_rng(seed), "")).findings

    @pytest.mark.parametrize("seed", range(4))
    def test_a_lost_sample_is_no_mean(self, seed):
        """It is an outer product as well."""
        report = gl.check(*batch_norm(np.random.default_rng(seed), "sample"))
        assert report.findings
        assert all("the mean of" not in f.evidence for f in report.findings)


def lstm(rng, order=(0, 1, 2, 3)):
    """An LSTM by hand under a squared error; gates of the gradient in some order."""
    x, target = rng.normal(size=(4, 3)), rng.normal(size=4)
    params = {
        "W": 0.6 * rng.normal(size=(16, 3)),
        "U": 0.6 * rng.normal(size=(16, 4)),
        "b": 0.3 * rng.normal(size=16),
    }

    def loss_and_grads(p):
        h = c = np.zeros(4)
        steps = []
        for row in x:
            z = p["W"] @ row + p["U"] @ h + p["b"]
            i, f, o, g = (
                *(sigmoid(part) for part in np.split(z[:12], 3)),
                np.tanh(z[12:]),
            )
            before, c = (h, c), f * c + i * g
            h = o * np.tanh(c)
            steps.append((row, i, f, o, g, *before, c))
        grads = {name: np.zeros_like(value) for name, value in p.items()}
        dh, dc = 2 * (h - target), np.zeros(4)
        for row, i, f, o, g, h0, c0, c1 in reversed(steps):
            dc = dc + dh * o * (1 - np.tanh(c1) ** 2)
            gates = [
                dc * g * i * (1 - i),
                dc * c0 * f * (1 - f),
                dh * np.tanh(c1) * o * (1 - o),
                dc * i * (1 - g**2),
            ]
            dz = np.concatenate([gates[k] for k in order])
            grads["W"] += np.outer(dz, row)
            grads["U"] += np.outer(dz, h0)
            grads["b"] += dz
            dh, dc = p["U"].T @ dz, dc * f
        return ((h - target) ** 2).sum(), grads

    return loss_and_grads, params


class TestGates:
    @pytest.mark.parametrize("order", [(1, 0, 2, 3), (0, 2, 1, 3), (1, 2, 0, 3)])
    def test_in_another_order(self, order):
        report = gl.check(*lstm(np.random.default_rng(0), order))
        (told,) = report.findings
        assert told.kind == gl.BugKind.WRONG_INDEX
        assert "in another order: units" in told.evidence
        for k, gate in enumerate(order):
            if k != gate:
                said = f"{4 * k} to {4 * k + 3} have that of units {4 * gate} to"
                assert said in told.evidence

    def test_right(self):
        assert not gl.check(*lstm(np.random.default_rng(0))).findings


def convolution(rng, *, masked):
    """A convolution, relu and a squared error, by hand."""
    x, target = rng.normal(size=(2, 2, 6, 6)), rng.normal(size=(2, 3, 4, 4))
    params = {"K": rng.normal(size=(3, 2, 3, 3)), "b": rng.normal(size=3)}

    def loss_and_grads(p):
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
        out = np.einsum("ncijab,kcab->nkij", windows, p["K"]) + p["b"][:, None, None]
        error = np.maximum(out, 0) - target
        d = error * (out > 0) if masked else error
        return 0.5 * (error**2).sum(), {
            "K": np.einsum("ncijab,nkij->kcab", windows, d),
            "b": d.sum(axis=(0, 2, 3)),
        }

    return loss_and_grads, params


@pytest.mark.parametrize("seed", range(4))
def test_a_kernel_that_is_wrong_itself_is_not_read_backwards(seed):
    wrong = gl.check(*convolution(np.random.default_rng(seed), masked=False))
    assert all("read backwards" not in f.evidence for f in wrong.findings)
    assert not wrong.ok
    assert not gl.check(*convolution(np.random.default_rng(seed), masked=True)).findings


def autoencoder(rng, strength, sharp=1.0):
    """Means of a variational autoencoder and their divergence, without biases."""
    x = rng.normal(size=(6, 4))
    params = {"Wm": rng.normal(size=(4, 2)), "D": rng.normal(size=(2, 4))}

    def loss_and_grads(p):
        means = x @ p["Wm"]
        r = np.tanh(means @ p["D"])
        loss = ((r - x) ** 2).sum() + 0.5 * (means**2).sum()
        d = 2 * (r - x) * (1 - r * r) ** sharp
        return loss, {
            "Wm": x.T @ (d @ p["D"].T + strength * means),
            "D": means.T @ d,
        }

    return loss_and_grads, params


class TestDivergence:
    @pytest.mark.parametrize("strength", [0.0, 0.5, 2.0])
    def test_of_means_is_wrong(self, strength):
        report = gl.check(*autoencoder(np.random.default_rng(0), strength))
        (told,) = report.findings
        assert (told.kind, told.where) == (gl.BugKind.MISSING_TERM, "Wm")
        assert "quadratic in what Wm gives" in told.evidence

    def test_right(self):
        assert not gl.check(*autoencoder(np.random.default_rng(0), 1.0)).findings

    def test_another_slope_is_not_called_so(self):
        report = gl.check(*autoencoder(np.random.default_rng(0), 1.0, sharp=0.5))
        assert report.findings
        assert all("quadratic" not in f.evidence for f in report.findings)
