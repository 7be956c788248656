"""Small NumPy pieces with a backward that can be made to slip: layers and functions.

Every builder takes a random generator and the name of a slip ("" for none) and returns
what `gradlab.check` takes. `planted.SLIPS` says which kind each slip is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.specimens.activations import sigmoid


@dataclasses.dataclass
class Program:
    """Arguments of one check."""

    fn: Callable[..., Any]
    inputs: tuple
    options: dict = dataclasses.field(default_factory=dict)


def sizes(rng, count, low=2, high=6):
    """Distinct lengths, so that axes cannot be confused by accident."""
    return [int(n) for n in rng.permutation(np.arange(low, high + 1))[:count]]


# ------------------------------------------------------------ single pieces
def linear(rng, slip):
    n, d, k = sizes(rng, 3)
    if slip in {"x by W", "bias by axis", "dW transposed"}:
        k = d
    if slip == "bias by axis":
        n = k

    def forward(x, W, b):
        return x @ W + b, (x, W)

    def backward(up, cache):
        x, W = cache
        dx, dW, db = up @ W.T, x.T @ up, up.sum(0)
        match slip:
            case "x by W":
                dx = up @ W
            case "dW transposed":
                dW = up.T @ x
            case "dW doubled":
                dW = 2 * dW
            case "dW negative":
                dW = -dW
            case "dW over n":
                dW = dW / n
            case "db mean":
                db = up.mean(0)
            case "db first":
                db = up[0]
            case "db last":
                db = up[-1]
            case "db unsummed":
                db = up
            case "bias by axis":
                db = up.sum(1)
            case "dW decay":
                dW = dW + 0.1 * W
            case "dx zero":
                dx = np.zeros_like(x)
            case "db none":
                db = None
            case "dW skips last row":
                dW[-1] = 0
            case "dx rolled":
                dx = np.roll(dx, 1, 0)
            case "dx reversed":
                dx = dx[::-1].copy()
            case "dW column negative":
                dW[:, 1] *= -1
            case "ignores":
                dx = np.ones_like(up) @ W.T
            case "db integer":
                db = (10 * db).astype(int)
            case "dW shape":
                dW = dW.T if d != k else dW.ravel()
            case "x stale":
                dW = np.maximum(x, 0).T @ up
        return dx, dW, db

    arrays = rng.normal(size=(n, d)), rng.normal(size=(d, k)), rng.normal(size=k)
    return Program(forward, arrays, {"backward": backward})


FUNCTIONS = {
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "sigmoid": (sigmoid, lambda x: sigmoid(x) * (1 - sigmoid(x))),
    "sin": (np.sin, np.cos),
    "exp": (np.exp, np.exp),
    "cube": (lambda x: x**3, lambda x: 3 * x**2),
    "softplus": (lambda x: np.log1p(np.exp(x)), sigmoid),
    "log1p2": (lambda x: np.log1p(x * x), lambda x: 2 * x / (1 + x * x)),
    "relu": (lambda x: np.maximum(x, 0), lambda x: (x > 0) * 1.0),
    "leaky": (lambda x: np.where(x > 0, x, 0.1 * x), lambda x: np.where(x > 0, 1, 0.1)),
    "swish": (
        lambda x: x * sigmoid(x),
        lambda x: sigmoid(x) * (1 + x * (1 - sigmoid(x))),
    ),
    "gelu": (
        lambda x: 0.5 * x * (1 + np.tanh(0.8 * x)),
        lambda x: 0.5 * (1 + np.tanh(0.8 * x)) + 0.4 * x * (1 - np.tanh(0.8 * x) ** 2),
    ),
}

WRONG = {
    "tanh": lambda x: 1 - np.tanh(x),
    "sigmoid": lambda x: sigmoid(x) * (1 + sigmoid(x)),
    "sin": lambda x: -np.sin(x),
    "exp": lambda x: 1 + x + x * x / 2,
    "cube": lambda x: 3 * x,
    "softplus": lambda x: sigmoid(x) * (1 - sigmoid(x)),
    "log1p2": lambda x: 1 / (1 + x * x),
    "leaky": lambda x: np.where(x > 0, 1, 0.3),
    "swish": lambda x: sigmoid(x) * (1 + x * (1 + sigmoid(x))),
    "gelu": lambda x: 0.5 * (1 + np.tanh(x)),
}


def elementwise(rng, slip):
    """``f(x)`` of a matrix; the slip is "what: function"."""
    what, _, name = slip.partition(": ")
    name = name or str(rng.choice(list(FUNCTIONS)))
    f, df = FUNCTIONS[name]
    shape = tuple(sizes(rng, 2))

    def forward(x):
        return f(x), x

    def backward(up, x):
        slope = df(x)
        match what:
            case "formula":
                slope = WRONG[name](x)
            case "stale output":
                slope = df(f(x))
            case "stale input":
                slope = {"tanh": 1 - x * x, "sigmoid": x * (1 - x), "exp": x}[name]
            case "first term":
                slope = f(x) / x
            case "second term":
                slope = df(x) - f(x) / x
            case "mask of upstream":
                slope = (up > 0) * 1.0
            case "mask of zero":
                slope = (x > 0.3) * 1.0
            case "mask flipped":
                slope = (x < 0) * 1.0
            case "no mask":
                slope = np.ones_like(x)
            case "factor":
                slope = 1.01 * slope
            case "sign":
                slope = -slope
            case "ignores":
                return slope
            case "clip":
                return np.clip(slope * up, -0.3, 0.3)
            case "every second":
                slope = slope.copy()
                slope[:, ::2] *= 2
            case "transposed upstream":
                return slope * np.flip(up, 0)
        return up * slope

    x = rng.normal(size=shape)
    x = np.where(np.abs(x) < 0.05, 0.4, x)
    if what == "clip":
        x *= 2
    return Program(forward, (x,), {"backward": backward})


def softmax(rng, slip):
    n, k = sizes(rng, 2, 3, 6)

    def forward(x):
        e = np.exp(x - x.max(1, keepdims=True))
        p = e / e.sum(1, keepdims=True)
        return p, p

    def backward(up, p):
        inner = (up * p).sum(1, keepdims=True)
        match slip:
            case "no sum":
                return up * p
            case "diagonal":
                return up * p * (1 - p)
            case "axis":
                return p * (up - (up * p).sum(0, keepdims=True))
            case "double":
                return 2 * p * (up - inner)
            case "plus":
                return p * (up + inner)
        return p * (up - inner)

    return Program(forward, (rng.normal(size=(n, k)),), {"backward": backward})


def layernorm(rng, slip):
    n, d = sizes(rng, 2, 3, 6)

    def forward(x, g, b):
        mean, var = x.mean(1, keepdims=True), x.var(1, keepdims=True)
        s = 1 / np.sqrt(var + 1e-5)
        h = (x - mean) * s
        return g * h + b, (h, s, g)

    def backward(up, cache):
        h, s, g = cache
        dh = up * g
        dg, db = (up * h).sum(0), up.sum(0)
        m1, m2 = dh.mean(1, keepdims=True), (dh * h).mean(1, keepdims=True)
        match slip:
            case "no variance term":
                m2 = 0
            case "no mean term":
                m1 = 0
            case "neither":
                m1 = m2 = 0
            case "axis":
                m1, m2 = dh.mean(0, keepdims=True), (dh * h).mean(0, keepdims=True)
            case "dg mean":
                dg = dg / n
            case "dg no h":
                dg = up.sum(0)
            case "db none":
                db = None
            case "dg unsummed":
                dg = up * h
            case "dx scale":
                return 0.5 * s * (dh - m1 - h * m2), dg, db
        return s * (dh - m1 - h * m2), dg, db

    arrays = rng.normal(size=(n, d)), rng.normal(size=d), rng.normal(size=d)
    return Program(forward, arrays, {"backward": backward})


def product(rng, slip):
    """``x * y`` with y broadcast over rows, or divided."""
    n, d = sizes(rng, 2, 3, 6)

    def forward(x, y):
        return x * y + x**2, (x, y)

    def backward(up, cache):
        x, y = cache
        dx, dy = up * (y + 2 * x), (up * x).sum(0)
        match slip:
            case "no square":
                dx = up * y
            case "no product":
                dx = up * 2 * x
            case "swapped":
                dx = up * (x + 2 * x)
            case "one row":
                dy = (up * x)[0]
            case "unsummed":
                dy = up * x
            case "mean":
                dy = (up * x).mean(0)
            case "none":
                dx = None
            case "negative":
                dy = -dy
            case "extra":
                dx = dx + up * np.cos(y)
        return dx, dy

    arrays = rng.normal(size=(n, d)), rng.normal(size=d)
    return Program(forward, arrays, {"backward": backward})
