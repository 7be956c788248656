"""Training scripts as users write them: whole losses with their gradients."""

from __future__ import annotations

import numpy as np

from tests.diagnosis.pieces import Program


class TwoLayerNet:
    """Network of a course: parameters in a dict, loss(X, y) returns both."""

    def __init__(self, rng, slip):
        d, h, c = 4, 5, 3
        self.slip, self.reg = slip, 0.1 if "reg" in slip else 0.0
        self.params = {
            "W1": rng.normal(size=(d, h)), "b1": 0.2 * rng.normal(size=h),
            "W2": rng.normal(size=(h, c)), "b2": 0.2 * rng.normal(size=c),
        }  # fmt: skip
        self.grads = {name: np.zeros_like(v) for name, v in self.params.items()}

    def loss(self, X, y):
        p, n, slip = self.params, len(X), self.slip
        z = X @ p["W1"] + p["b1"]
        a = np.maximum(0, z)
        s = a @ p["W2"] + p["b2"]
        e = np.exp(s - s.max(1, keepdims=True))
        q = e / e.sum(1, keepdims=True)
        value = -np.log(q[np.arange(n), y]).mean()
        value += 0.5 * self.reg * ((p["W1"] ** 2).sum() + (p["W2"] ** 2).sum())
        q[np.arange(n), y] -= 1
        q = q if slip == "not divided" else q / n
        g = {"W2": a.T @ q, "b2": q.sum(0)}
        da = q @ p["W2"].T
        mask = {"no mask": 1.0, "mask of da": da > 0}.get(slip, z > 0)
        dz = da * mask
        g |= {"W1": X.T @ dz, "b1": dz.sum(0)}
        if self.reg and slip != "reg missing":
            k = 2 if slip == "reg factor" else 1
            for name in ("W1", "W2"):
                g[name] = g[name] + k * self.reg * p[name]
            if slip == "reg on bias":
                g["b1"] = g["b1"] + self.reg * p["b1"]
        match slip:
            case "b1 of first":
                g["b1"] = dz[0]
            case "b1 mean":
                g["b1"] = dz.mean(0)
            case "W2 of z":
                g["W2"] = z.T @ q
            case "b2 keepdims":
                g["b2"] = q.sum(0, keepdims=True)
            case "last row":
                g["W1"][-1] = 0
            case "single entry":
                g["W1"][2, 3] += 0.01
            case "class lost":
                g["W2"][:, 1] = 0
            case "last sample lost":
                g["W1"], g["b1"] = X[:-1].T @ dz[:-1], dz[:-1].sum(0)
            case "int":
                g["b2"] = np.round(g["b2"], 2)
            case "half":
                g["W1"] = g["W1"].astype(np.float16)
        if slip == "never zeroed":
            for name, v in g.items():
                self.grads[name] += v
            return value, {name: v.copy() for name, v in self.grads.items()}
        return value, g


def two_layer(rng, slip):
    net = TwoLayerNet(rng, slip)
    X, y = rng.normal(size=(7, 4)), rng.integers(0, 3, 7)
    return Program(lambda: net.loss(X, y), (), {"params": net.params})


def autoencoder(rng, slip):
    """Tied weights: x -> tanh(x W + b) W.T + c."""
    n, d, h = 6, 5, 3
    X = rng.normal(size=(n, d))

    def loss_and_grads(p):
        z = np.tanh(X @ p["W"] + p["b"])
        r = z @ p["W"].T + p["c"] - X
        dz = (r @ p["W"]) * (1 - z * z)
        enc, dec = X.T @ dz, r.T @ z
        dW = enc + dec
        match slip:
            case "decoder lost":
                dW = enc
            case "encoder lost":
                dW = dec
            case "decoder twice":
                dW = enc + 2 * dec
            case "tanh slope":
                dz = r @ p["W"]
                dW = X.T @ dz + dec
            case "subtracted":
                dW = enc - dec
        return 0.5 * (r * r).sum() / n, {
            "W": dW / n, "b": dz.sum(0) / n, "c": r.sum(0) / n,
        }  # fmt: skip

    p = {"W": rng.normal(size=(d, h)), "b": rng.normal(size=h), "c": rng.normal(size=d)}
    return Program(loss_and_grads, (p,))


def char_rnn(rng, slip):
    """Language model that reads a word and predicts each next letter."""
    v, h = 4, 3
    text = [0, 2, 1, 3, 2]

    def loss_and_grads(p):
        s, ps, value = {-1: np.zeros(h)}, {}, 0.0
        for t in range(len(text) - 1):
            s[t] = np.tanh(p["Wxh"][:, text[t]] + p["Whh"] @ s[t - 1] + p["bh"])
            y = p["Why"] @ s[t] + p["by"]
            ps[t] = np.exp(y) / np.exp(y).sum()
            value -= np.log(ps[t][text[t + 1]])
        g = {name: np.zeros_like(a) for name, a in p.items()}
        carry = np.zeros(h)
        for t in reversed(range(len(text) - 1)):
            dy = ps[t].copy()
            dy[text[t] if slip == "label now" else text[t + 1]] -= 1
            g["Why"] += np.outer(dy, s[t])
            if slip == "by overwritten":
                g["by"] = dy
            else:
                g["by"] += dy
            ds = p["Why"].T @ dy + (0 if slip == "no carry" else carry)
            da = (1 - s[t] ** 2) * ds
            g["bh"] += da
            g["Whh"] += np.outer(da, s[t] if slip == "state now" else s[t - 1])
            g["Wxh"][:, text[t]] += da
            carry = (p["Whh"] if slip == "Whh untransposed" else p["Whh"].T) @ da
        if slip == "clipped":
            g = {name: np.clip(a, -0.5, 0.5) for name, a in g.items()}
        return value, g

    shapes = {"Wxh": (h, v), "Whh": (h, h), "Why": (v, h), "bh": (h,), "by": (v,)}
    return Program(
        loss_and_grads, ({n: rng.normal(size=s) for n, s in shapes.items()},)
    )


def ridge(rng, slip):
    n, d = 8, 4
    X, y = rng.normal(size=(n, d)), rng.normal(size=n)
    lam = 0.3

    def loss(w):
        return ((X @ w - y) ** 2).sum() / (2 * n) + 0.5 * lam * (w @ w)

    def grad(w):
        r = X @ w - y
        return {
            "no penalty": X.T @ r / n,
            "penalty twice": X.T @ r / n + 2 * lam * w,
            "penalty divided": X.T @ r / n + lam * w / n,
            "data not divided": X.T @ r + lam * w,
            "lasso": X.T @ r / n + lam * np.sign(w),
            "prediction only": X.T @ (X @ w) / n + lam * w,
        }.get(slip, X.T @ r / n + lam * w)

    return Program(loss, (rng.normal(size=d),), {"grad": grad})


def left_over(rng, slip):
    """Gradients as a training loop left them: a mapping, judged as it is."""
    n, d, k = 9, 4, 2
    X, Y = rng.normal(size=(n, d)), rng.normal(size=(n, k))
    p = {"W": rng.normal(size=(d, k)), "b": rng.normal(size=k)}

    def loss(p):
        return ((X @ p["W"] + p["b"] - Y) ** 2).mean()

    r = 2 * (X @ p["W"] + p["b"] - Y) / (n * k)
    g = {"W": X.T @ r, "b": r.sum(0)}
    match slip:
        case "three passes":
            g = {name: 3 * v for name, v in g.items()}
        case "halves averaged":
            g = {name: v / 2 for name, v in g.items()}
        case "clipped":
            total = np.sqrt(sum((v * v).sum() for v in g.values()))
            g = {name: v / total for name, v in g.items()}
        case "decayed":
            g = {name: v + 0.05 * p[name] for name, v in g.items()}
        case "b frozen":
            g["b"] = np.zeros(k)
        case "half batch":
            h = n // 2
            q = 2 * (X[:h] @ p["W"] + p["b"] - Y[:h]) / (h * k)
            g = {"W": X[:h].T @ q, "b": q.sum(0)}
    return Program(loss, (p,), {"grad": g})


_HIDDEN = ("W1", "b1")
SLIPS = {
    (two_layer, "not divided"): ("missing_reduction", (), ("W1", "b1", "W2", "b2")),
    (two_layer, "no mask"): ("wrong_mask", (), _HIDDEN),
    (two_layer, "mask of da"): ("wrong_mask", (), _HIDDEN),
    (two_layer, "reg missing"): ("regularization", (), ("W1", "W2")),
    (two_layer, "reg factor"): ("regularization", (), ("W1", "W2")),
    (two_layer, "reg on bias"): ("regularization", (), ("b1",)),
    (two_layer, "b1 of first"): ("broadcast_reduction", (), ("b1",)),
    (two_layer, "b1 mean"): ("missing_reduction", (), ("b1",)),
    (two_layer, "W2 of z"): ("stale_cache", (), ("W2",)),
    (two_layer, "b2 keepdims"): ("wrong_shape", ("broadcast_reduction",), ("b2",)),
    (two_layer, "last row"): ("wrong_index", ("detached",), ("W1",)),
    (two_layer, "single entry"): (
        "extra_term", ("wrong_index", "unknown", "scale"), ("W1",),
    ),
    (two_layer, "class lost"): ("detached", ("wrong_index", "wrong_mask"), ("W2",)),
    (two_layer, "last sample lost"): (
        "missing_term", ("lost_accumulation", "wrong_index"), _HIDDEN,
    ),
    (two_layer, "half"): ("dtype", (), ("W1",)),
    (two_layer, "never zeroed"): ("accumulated_grad", (), ("W1", "b1", "W2", "b2")),
    (autoencoder, "decoder lost"): ("missing_term", ("lost_accumulation",), ("W",)),
    (autoencoder, "encoder lost"): ("missing_term", ("lost_accumulation",), ("W",)),
    (autoencoder, "decoder twice"): ("extra_term", (), ("W",)),
    (autoencoder, "tanh slope"): ("wrong_derivative", ("missing_term",), ("W", "b")),
    (autoencoder, "subtracted"): ("sign", ("missing_term", "wrong_derivative"), ("W",)),
    (char_rnn, "label now"): ("wrong_index", (), ("Why", "by")),
    (char_rnn, "by overwritten"): ("lost_accumulation", (), ("by",)),
    (char_rnn, "no carry"): ("missing_term", (), ("Wxh", "Whh", "bh")),
    (char_rnn, "state now"): ("stale_cache", ("wrong_index",), ("Whh",)),
    (char_rnn, "Whh untransposed"): ("transpose", (), ("Wxh", "Whh", "bh")),
    (char_rnn, "clipped"): ("surrogate", (), ("Why", "by", "Wxh", "Whh", "bh")),
    (ridge, "no penalty"): ("regularization", (), ("w",)),
    (ridge, "penalty twice"): ("regularization", (), ("w",)),
    (ridge, "penalty divided"): ("regularization", (), ("w",)),
    (ridge, "data not divided"): ("missing_reduction", (), ("w",)),
    (ridge, "lasso"): ("regularization", ("wrong_derivative",), ("w",)),
    (ridge, "prediction only"): ("missing_term", (), ("w",)),
    (left_over, "three passes"): ("accumulated_grad", (), ("W", "b")),
    (left_over, "halves averaged"): ("scale", ("missing_reduction",), ("W", "b")),
    (left_over, "clipped"): ("surrogate", (), ("W", "b")),
    (left_over, "decayed"): ("regularization", (), ("W", "b")),
    (left_over, "b frozen"): ("detached", (), ("b",)),
    (left_over, "half batch"): (
        "missing_term", ("missing_reduction", "wrong_derivative", "unknown"),
        ("W", "b"),
    ),
}  # fmt: skip

CONTROLS = (two_layer, autoencoder, char_rnn, ridge, left_over)
