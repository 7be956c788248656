"""More layers and losses by hand: embedding, losses, normalisations, plumbing."""

from __future__ import annotations

import numpy as np

from tests.diagnosis.pieces import Program
from tests.specimens.activations import sigmoid, softmax


def words(rng, slip):
    """Lookup of word vectors; words occur several times."""
    v, d = 6, 3
    ids = np.array([[0, 2, 2], [4, 0, 2]])

    def forward(table):
        return table[ids], None

    def backward(up, _):
        g = np.zeros((v, d))
        match slip:
            case "assign":
                g[ids] = up
            case "fancy add":
                g[ids] += up
            case "off by one":
                np.add.at(g, (ids + 1) % v, up)
            case "mean":
                np.add.at(g, ids, up / ids.size)
            case "first sentence":
                np.add.at(g, ids[0], up[0])
            case _:
                np.add.at(g, ids, up)
        return g

    return Program(forward, (rng.normal(size=(v, d)),), {"backward": backward})


def softmax_loss(rng, slip):
    n, k = 5, 4
    y = rng.integers(0, k, n)
    y[:2] = 0, 1

    def forward(scores):
        p = softmax(scores)
        return -np.log(p[np.arange(n), y]).mean(), p

    def backward(up, p):
        d = p.copy()
        match slip:
            case "next label":
                d[np.arange(n), (y + 1) % k] -= 1
            case "no label":
                pass
            case "label only":
                d = np.zeros_like(p)
                d[np.arange(n), y] -= 1
            case "all columns":
                d[:, y] -= 1
            case _:
                d[np.arange(n), y] -= 1
        match slip:
            case "not divided":
                return up * d
            case "by classes":
                return up * d / k
            case "negative":
                return -up * d / n
            case "twice divided":
                return up * d / n**2
        return up * d / n

    return Program(forward, (rng.normal(size=(n, k)),), {"backward": backward})


def svm_loss(rng, slip):
    n, k = 5, 4
    y = rng.integers(0, k, n)

    def loss(x):
        m = np.maximum(0, x - x[np.arange(n), y][:, None] + 1)
        m[np.arange(n), y] = 0
        return m.sum() / n

    def grad(x):
        m = (x - x[np.arange(n), y][:, None] + 1 > 0) * 1.0
        m[np.arange(n), y] = 0
        if slip == "mask without margin":
            m = (x - x[np.arange(n), y][:, None] > 1) * 1.0
            m[np.arange(n), y] = 0
        if slip != "true class lost":
            m[np.arange(n), y] = -m.sum(1)
        if slip == "minus one":
            m[np.arange(n), y] = -1
        return m if slip == "not divided" else m / n

    return Program(loss, (rng.normal(size=(n, k)) * 2,), {"grad": grad})


def logistic_loss(rng, slip):
    n = 6
    t = (rng.normal(size=n) > 0) * 1.0

    def loss(z):
        return (np.logaddexp(0, z) - t * z).mean()

    def grad(z):
        p = sigmoid(z)
        match slip:
            case "sigmoid slope":
                return (p - t) * p * (1 - p) / n
            case "logit for p":
                return (z - t) / n
            case "no target":
                return p / n
            case "reversed":
                return (t - p) / n
            case "sum":
                return p - t
        return (p - t) / n

    return Program(loss, (rng.normal(size=n),), {"grad": grad})


def huber(rng, slip):
    t = rng.normal(size=(4, 3))

    def loss(x):
        r = np.abs(x - t)
        return np.where(r < 1, 0.5 * r * r, r - 0.5).sum()

    def grad(x):
        r = x - t
        g = np.clip(r, -1, 1)
        match slip:
            case "quadratic":
                g = r
            case "linear":
                g = np.sign(r)
            case "wrong knee":
                g = np.where(np.abs(r) < 0.5, r, np.sign(r))
            case "no sign":
                g = np.abs(g)
        return g

    return Program(loss, (rng.normal(size=(4, 3)) * 2,), {"grad": grad})


def rmsnorm(rng, slip):
    n, d = 3, 5

    def forward(x, g):
        r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
        return x * r * g, (x, g, r)

    def backward(up, cache):
        x, g, r = cache
        u = up * g
        mean = (u * x).mean(-1, keepdims=True)
        dg = (up * x * r).sum(0)
        match slip:
            case "r constant":
                return u * r, dg
            case "power":
                return u * r - x * r**2 * mean, dg
            case "sum":
                return u * r - x * r**3 * mean * d, dg
            case "g lost":
                return (up - g * 0) * r - x * r**3 * mean, dg
            case "dg raw":
                return u * r - x * r**3 * mean, (up * x).sum(0)
            case "dg unsummed":
                return u * r - x * r**3 * mean, (up * x * r)[-1]
        return u * r - x * r**3 * mean, dg

    arrays = rng.normal(size=(n, d)), rng.normal(size=d)
    return Program(forward, arrays, {"backward": backward})


def prelu(rng, slip):
    n, c = 4, 3

    def forward(x, a):
        return np.where(x > 0, x, a * x), (x, a)

    def backward(up, cache):
        x, a = cache
        dx, da = up * np.where(x > 0, 1, a), (up * x * (x <= 0)).sum(0)
        match slip:
            case "da everywhere":
                da = (up * x).sum(0)
            case "dx relu":
                dx = up * (x > 0)
            case "swapped":
                dx = up * np.where(x > 0, a, 1)
            case "da total":
                da = np.full(c, (up * x * (x <= 0)).sum())
            case "da mean":
                da = da / n
        return dx, da

    return Program(
        forward, (rng.normal(size=(n, c)), rng.normal(size=c)), {"backward": backward}
    )


def dropout_layer(rng, slip):
    """Inverted dropout whose mask is drawn from a seeded generator."""
    p = 0.6

    def forward(x):
        mask = (np.random.default_rng(7).random(x.shape) < p) / p
        return x * mask, mask

    def backward(up, mask):
        match slip:
            case "new mask":
                return up * (np.random.default_rng(8).random(up.shape) < p) / p
            case "no rescale":
                return up * (mask > 0)
            case "identity":
                return up
            case "fresh":
                return up * (np.random.default_rng().random(up.shape) < p) / p
        return up * mask

    return Program(forward, (rng.normal(size=(4, 5)),), {"backward": backward})


def concat(rng, slip):
    """Two branches side by side."""
    a, b = 2, 4 if slip != "exchanged" else 2

    def forward(left, right):
        return np.concatenate([np.tanh(left), right], 1), (left, right)

    def backward(up, cache):
        left, right = cache
        slope = 1 - np.tanh(left) ** 2
        match slip:
            case "exchanged":
                return up[:, a:] * slope, up[:, :a]
            case "offset":
                return up[:, 1 : a + 1] * slope, up[:, a:]
            case "right lost":
                return up[:, :a] * slope, np.zeros_like(right)
        return up[:, :a] * slope, up[:, a:]

    arrays = rng.normal(size=(3, a)), rng.normal(size=(3, b))
    return Program(forward, arrays, {"backward": backward})


def gated(rng, slip):
    """SwiGLU: silu(x W) * (x V)."""
    n, d, h = 3, 3, 4

    def forward(x, W, V):
        z, u = x @ W, x @ V
        s = sigmoid(z)
        return z * s * u, (x, W, V, z, u, s)

    def backward(up, cache):
        x, W, V, z, u, s = cache
        dz, du = up * u * s * (1 + z * (1 - s)), up * z * s
        match slip:
            case "sigmoid for silu":
                dz = up * u * s * (1 - s)
            case "gate path lost":
                return du @ V.T, x.T @ dz, x.T @ du
            case "exchanged":
                return dz @ W.T + du @ V.T, x.T @ du, x.T @ dz
            case "du of z":
                du = up * z
            case "W for V":
                return dz @ W.T + du @ W.T, x.T @ dz, x.T @ du
        return dz @ W.T + du @ V.T, x.T @ dz, x.T @ du

    shapes = (n, d), (d, h), (d, h)
    arrays = tuple(rng.normal(size=shape) for shape in shapes)
    return Program(forward, arrays, {"backward": backward})


def upsample(rng, slip):
    def forward(x):
        return x.repeat(2, 1).repeat(2, 2), x.shape

    def backward(up, shape):
        n, h, w = shape
        t = up.reshape(n, h, 2, w, 2)
        match slip:
            case "mean":
                return t.mean((2, 4))
            case "corner":
                return t[:, :, 0, :, 0]
            case "strided wrong":
                return up.reshape(n, 2, h, 2, w).sum((1, 3))
        return t.sum((2, 4))

    return Program(forward, (rng.normal(size=(2, 3, 4)),), {"backward": backward})


SLIPS = {
    (words, "assign"): ("lost_accumulation", (), ("table",)),
    (words, "fancy add"): ("lost_accumulation", (), ("table",)),
    (words, "off by one"): ("wrong_index", (), ("table",)),
    (words, "mean"): ("missing_reduction", ("scale",), ("table",)),
    (words, "first sentence"): (
        "lost_accumulation", ("detached", "wrong_index", "broadcast_reduction"),
        ("table",),
    ),
    (softmax_loss, "next label"): ("wrong_index", (), ("scores",)),
    (softmax_loss, "no label"): ("missing_term", (), ("scores",)),
    (softmax_loss, "label only"): ("missing_term", (), ("scores",)),
    (softmax_loss, "all columns"): ("wrong_index", ("extra_term",), ("scores",)),
    (softmax_loss, "not divided"): ("missing_reduction", (), ("scores",)),
    (softmax_loss, "by classes"): (
        "missing_reduction", ("scale", "wrong_axis"), ("scores",),
    ),
    (softmax_loss, "negative"): ("sign", (), ("scores",)),
    (softmax_loss, "twice divided"): ("missing_reduction", (), ("scores",)),
    (svm_loss, "mask without margin"): ("wrong_mask", (), ("x",)),
    (svm_loss, "true class lost"): ("missing_term", (), ("x",)),
    (svm_loss, "minus one"): (
        "wrong_mask", ("missing_term", "wrong_derivative", "missing_reduction"), ("x",),
    ),
    (svm_loss, "not divided"): ("missing_reduction", (), ("x",)),
    (logistic_loss, "sigmoid slope"): ("wrong_derivative", ("extra_term",), ("z",)),
    (logistic_loss, "logit for p"): ("stale_cache", ("wrong_derivative",), ("z",)),
    (logistic_loss, "no target"): ("missing_term", (), ("z",)),
    (logistic_loss, "reversed"): ("sign", (), ("z",)),
    (logistic_loss, "sum"): ("missing_reduction", (), ("z",)),
    (huber, "quadratic"): ("wrong_mask", ("wrong_derivative",), ("x",)),
    (huber, "linear"): ("wrong_mask", ("wrong_derivative",), ("x",)),
    (huber, "wrong knee"): ("wrong_mask", ("wrong_derivative",), ("x",)),
    (huber, "no sign"): ("sign", (), ("x",)),
    (rmsnorm, "r constant"): ("missing_term", (), ("x",)),
    (rmsnorm, "power"): (
        "wrong_derivative", ("extra_term", "missing_term"), ("x",),
    ),
    (rmsnorm, "sum"): ("missing_reduction", ("extra_term", "wrong_derivative"), ("x",)),
    (rmsnorm, "g lost"): ("missing_term", ("wrong_derivative",), ("x",)),
    (rmsnorm, "dg raw"): ("stale_cache", ("missing_term", "wrong_derivative"), ("g",)),
    (rmsnorm, "dg unsummed"): ("broadcast_reduction", (), ("g",)),
    (prelu, "da everywhere"): ("wrong_mask", (), ("a",)),
    (prelu, "dx relu"): ("wrong_mask", ("wrong_derivative", "missing_term"), ("x",)),
    (prelu, "swapped"): ("wrong_mask", ("wrong_derivative", "wrong_index"), ("x",)),
    (prelu, "da total"): ("broadcast_reduction", ("wrong_axis",), ("a",)),
    (prelu, "da mean"): ("missing_reduction", (), ("a",)),
    (dropout_layer, "new mask"): ("wrong_mask", (), ("x",)),
    (dropout_layer, "no rescale"): ("scale", (), ("x",)),
    (dropout_layer, "identity"): ("wrong_mask", (), ("x",)),
    (dropout_layer, "fresh"): ("nondeterministic", ("wrong_mask",), ("x",)),
    (concat, "exchanged"): ("wrong_index", (), ("left", "right")),
    (concat, "offset"): ("wrong_index", (), ("left",)),
    (concat, "right lost"): ("detached", (), ("right",)),
    (gated, "sigmoid for silu"): ("wrong_derivative", ("missing_term",), ("W", "x")),
    (gated, "gate path lost"): ("missing_term", (), ("x",)),
    (gated, "exchanged"): ("wrong_index", (), ("W", "V")),
    (gated, "du of z"): (
        "stale_cache", ("wrong_derivative", "missing_term"), ("V", "x"),
    ),
    (gated, "W for V"): ("wrong_derivative", ("stale_cache", "wrong_index"), ("x",)),
    (upsample, "mean"): ("missing_reduction", ("scale",), ("x",)),
    (upsample, "corner"): (
        "broadcast_reduction", ("lost_accumulation", "detached"), ("x",),
    ),
    (upsample, "strided wrong"): ("wrong_index", ("wrong_axis",), ("x",)),
}  # fmt: skip

CONTROLS = (
    words, softmax_loss, svm_loss, logistic_loss, huber, rmsnorm, prelu, dropout_layer,
    concat, gated, upsample,
)  # fmt: skip
