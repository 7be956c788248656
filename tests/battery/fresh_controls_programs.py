"""Correct programs of several lines: networks in place, pairs, hidden precision."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from scipy import integrate, optimize, special

from tests.battery.shelf import Shelf

CONTROLS = Shelf()
add = CONTROLS.add
rng = np.random.default_rng(32)
f2, f4 = np.float16, np.float32
x = rng.normal(size=6)
A = rng.normal(size=(4, 6))


# --- networks that own their parameters
class Layer:
    """Affine and tanh; keeps weights as attributes, gradients in buffers."""

    def __init__(self, m, n, dtype):
        self.W = (rng.normal(size=(m, n)) / np.sqrt(m)).astype(dtype)
        self.b = np.zeros(n, dtype)
        self.dW, self.db = np.zeros_like(self.W), np.zeros_like(self.b)

    def forward(self, x):
        self.x, self.y = x, np.tanh(x @ self.W + self.b)
        return self.y

    def backward(self, d):
        d = d * (1 - self.y**2)
        self.dW[...], self.db[...] = self.x.T @ d, d.sum(0)
        return d @ self.W.T


class Net:
    """Layers in a list, a residual connection, squared loss, weight decay."""

    def __init__(self, dtype, decay=1e-3):
        self.layers = [Layer(5, 5, dtype) for _ in range(3)]
        self.X = rng.normal(size=(8, 5)).astype(dtype)
        self.t = rng.normal(size=(8, 5)).astype(dtype)
        self.decay = dtype(decay)

    @property
    def params(self):
        return {f"{k}{i}": getattr(layer, k) for i, layer in enumerate(self.layers)
                for k in ("W", "b")}  # fmt: skip

    def loss(self):
        h = self.X
        for layer in self.layers:
            h = h + layer.forward(h)
        loss = ((h - self.t) ** 2).mean()
        d = 2 * (h - self.t) / h.size
        for layer in reversed(self.layers):
            loss = loss + self.decay * (layer.W**2).sum()
            d = d + layer.backward(d)
            layer.dW += 2 * self.decay * layer.W
        return loss, {
            f"{k}{i}": getattr(layer, "d" + k)
            for i, layer in enumerate(self.layers)
            for k in ("W", "b")
        }


for dtype in (np.float64, f4):
    net = Net(dtype)
    add(f"residual net in place, {dtype.__name__}", net.loss, params=net.params)
    net = Net(dtype, decay=0)
    net.X *= 300
    add(f"saturated net in place, {dtype.__name__}", net.loss, params=net.params)


def relu_net(dtype, *, scale=1.0, n=40):
    """One hidden layer of ReLUs, logistic loss on {-1, 1}; weights in a dict."""
    X = (scale * rng.normal(size=(30, 7))).astype(dtype)
    t = np.sign(rng.normal(size=30)).astype(dtype)
    p = {
        "V": (rng.normal(size=(7, n)) / (3 * scale)).astype(dtype),
        "c": np.zeros(n, dtype),
        "u": (rng.normal(size=n) / n).astype(dtype),
    }

    def loss(p):
        z = X @ p["V"] + p["c"]
        h = np.maximum(z, 0)
        m = t * (h @ p["u"])
        d = -t * special.expit(-m) / dtype(30)
        dz = np.outer(d, p["u"]) * (z > 0)
        value = np.logaddexp(dtype(0), -m).mean()
        return value, {"V": X.T @ dz, "c": dz.sum(0), "u": h.T @ d}

    return loss, p


for dtype in (np.float64, f4):
    for scale in (1.0, 1e-4, 1e4):
        loss, p = relu_net(dtype, scale=scale)
        tag = f"{dtype.__name__}, data of {scale:g}"
        add(f"ReLU net {tag}", loss, p)
        add(f"ReLU net in place {tag}", lambda loss=loss, p=p: loss(p), params=p)


@dataclasses.dataclass
class Model:
    """Parameters as attributes of a data class, handed over as a list."""

    a: np.ndarray
    b: np.ndarray

    def loss(self, t):
        e = self.a @ t - self.b
        return 0.5 * (e * e).sum(), [np.outer(e, t), -e]


model = Model(rng.normal(size=(3, 4)).astype(f4), rng.normal(size=3).astype(f4))
t = rng.normal(size=4).astype(f4)
add("least squares of a data class", lambda: model.loss(t), params=[model.a, model.b])
flat = rng.normal(size=12).astype(f4)
views = {"W": flat[:9].reshape(3, 3), "b": flat[9:]}


def of_flat():
    W, b = flat[:9].reshape(3, 3), flat[9:]
    z = np.tanh(W @ t[:3] + b)
    d = z * (1 - z * z)
    return 0.5 * (z * z).sum(), {"W": np.outer(d, t[:3]), "b": d}


add("views of one vector, float32", of_flat, params=views)


# --- lower precision that can be seen, and that cannot
def stable(z):
    return np.log1p(np.exp(-np.abs(z))) + np.maximum(z, 0)


for dtype in (f2, f4):
    w = dtype.__name__
    add(f"mean of exp, {w}", lambda x: np.exp(x).mean(), x.astype(dtype),
        grad=lambda x: np.exp(x) / x.dtype.type(6))  # fmt: skip
    add(f"softplus, {w}", lambda x: stable(x).sum(), 3 * x.astype(dtype),
        grad=special.expit)  # fmt: skip
    add(f"matrix product, {w}", lambda a, b: a @ b, A.astype(dtype), x.astype(dtype),
        vjp=lambda c, a, b: (np.outer(c, b), a.T @ c))  # fmt: skip
    add(f"distance to a far point, {w}", lambda x: ((x - 50) ** 2).sum(),
        x.astype(dtype), grad=lambda x: 2 * (x - 50))  # fmt: skip
    add(f"tanh, saturated, {w}", np.tanh, 4 * x.astype(dtype),
        jac=lambda x: np.diag(1 - np.tanh(x) ** 2))  # fmt: skip
    add(f"hinge at the kink, {w}", lambda w: np.maximum(0, 1 - w).sum(),
        np.array([1, 0.5, 2], dtype), grad=lambda w: -(w < 1).astype(w.dtype),
        )  # fmt: skip
add("float32 in the middle", lambda x: float(
    (np.tanh(A @ x).astype(f4) ** 2).sum(dtype=f4)), x,
    grad=lambda x: A.T @ (2 * np.tanh(A @ x) * (1 - np.tanh(A @ x) ** 2)),
    )  # fmt: skip
add("float32 at the end", lambda x: f4(np.exp(x).sum()), x, grad=np.exp)
add("float16 weights inside", lambda x: float(
    (A.astype(f2) @ x.astype(f2)).astype(float).sum()), x,
    grad=lambda x: A.astype(f2).astype(float).sum(0))  # fmt: skip
add("float16 inside, exponential", lambda x: float(np.exp(x.astype(f2)).sum()), x,
    grad=np.exp)  # fmt: skip
add("float16 inside, Jacobian", lambda x: np.sin(x.astype(f2)).astype(float), x,
    jac=lambda x: np.diag(np.cos(x)))  # fmt: skip
add("float32 cache, pair", lambda x, w: ((x.astype(f4) @ w.astype(f4)).astype(float),
                                         (x, w)),
    rng.normal(size=(3, 4)), rng.normal(size=(4, 2)),
    backward=lambda d, c: (d @ c[1].T, c[0].T @ d))  # fmt: skip
add("table lookup, interpolated", lambda x: float(np.interp(
    x, np.linspace(-4, 4, 33), np.sin(np.linspace(-4, 4, 33))).sum()), x,
    grad=lambda x: np.diff(np.sin(np.linspace(-4, 4, 33)))[
        np.floor((x + 4) * 4).astype(int)] * 4)  # fmt: skip


# --- solvers and integrators inside
def root(c):
    return optimize.brentq(lambda y: y**3 + y - c, -10, 10, xtol=1e-9)


add("root by bracketing", lambda c: root(c[0]), np.array([1.3]),
    grad=lambda c: np.array([1 / (3 * root(c[0]) ** 2 + 1)]))  # fmt: skip


def quadrature(weight, wave):
    """Integrate weight(s) exp(-p0 s) wave(p1 s) from 0 to 2."""
    return lambda p: integrate.quad(
        lambda s: weight(s) * math.exp(-p[0] * s) * wave(p[1] * s), 0, 2, epsabs=1e-8
    )[0]


add("adaptive quadrature", quadrature(lambda s: 1, math.cos), np.array([0.7, 3.0]),
    grad=lambda p: np.array([quadrature(lambda s: -s, wave)(p)
                             for wave in (math.cos, math.sin)]))  # fmt: skip


def decay(k):
    return integrate.solve_ivp(lambda t, y: -k[0] * y, (0, 1), [k[1]], rtol=1e-6,
                               atol=1e-9).y[0, -1]  # fmt: skip


add("adaptive Runge-Kutta", decay, np.array([1.1, 2.0]),
    grad=lambda k: np.array([-k[1] * np.exp(-k[0]), np.exp(-k[0])]), rtol=1e-4,
    )  # fmt: skip


def power_method(m):
    v = np.ones(3)
    for _ in range(60):
        v = m @ v
        v /= np.linalg.norm(v)
    return v @ m @ v


M = np.diag([5.0, 1.0, 0.5]) + 0.1
vec = np.linalg.eigh(M)[1][:, 2]
add("power method", lambda m: power_method((m + m.T) / 2), M,
    grad=lambda m: np.outer(vec, vec))  # fmt: skip


def bisected(c):
    lo, hi = 0.0, 4.0
    for _ in range(30):
        mid = (lo + hi) / 2
        lo, hi = (mid, hi) if mid * mid < c else (lo, mid)
    return lo


add("thirty bisections", lambda c: sum(bisected(v) for v in c), np.array([2.0, 7.0]),
    grad=lambda c: 0.5 / np.sqrt(c))  # fmt: skip


# --- pairs
def dropout(x, seed=5):
    mask = np.random.default_rng(seed).random(x.shape) > 0.4
    return x * mask / 0.6, mask


add("dropout pair, seeded", dropout, rng.normal(size=(4, 5)),
    backward=lambda d, mask: (d * mask / 0.6,))  # fmt: skip


def dropout_global(x):
    mask = np.random.rand(*x.shape) > 0.4
    return x * mask / 0.6, mask


add("dropout pair, global draws", dropout_global, rng.normal(size=(4, 5)),
    backward=lambda d, m: (d * m / 0.6,))  # fmt: skip


def maxpool(x):
    blocks = x.reshape(2, 2, 2, 2).transpose(0, 2, 1, 3).reshape(2, 2, 4)
    return blocks.max(-1), blocks.argmax(-1)


def maxpool_back(d, which):
    out = np.zeros((2, 2, 4))
    np.put_along_axis(out, which[..., None], d[..., None], -1)
    return (out.reshape(2, 2, 2, 2).transpose(0, 2, 1, 3).reshape(4, 4),)


add("max pool pair", maxpool, rng.normal(size=(4, 4)), backward=maxpool_back)
add("max pool of ties", maxpool, np.ones((4, 4)), backward=maxpool_back)


def layernorm(x, g, b):
    s = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    h = (x - x.mean(-1, keepdims=True)) / s
    return g * h + b, (h, s, g)


def layernorm_back(d, cache):
    h, s, g = cache
    e = d * g
    dx = (e - e.mean(-1, keepdims=True) - h * (e * h).mean(-1, keepdims=True)) / s
    return dx, (d * h).sum(0), d.sum(0)


for dtype in (np.float64, f4):
    for offset in (0.0, 1e3):
        add(f"layer norm pair, offset {offset:g}, {dtype.__name__}", layernorm,
            (offset + rng.normal(size=(3, 5))).astype(dtype),
            rng.normal(size=5).astype(dtype), rng.normal(size=5).astype(dtype),
            backward=layernorm_back)  # fmt: skip


def embedding(table, ids):
    return table[ids], (table.shape, ids)


def embedding_back(d, cache):
    out = np.zeros(cache[0])
    np.add.at(out, cache[1], d)
    return (out,)


add("embedding pair, repeats", embedding, rng.normal(size=(5, 3)),
    np.array([1, 1, 4, 0]), backward=embedding_back)  # fmt: skip
z = rng.normal(size=3) + 1j * rng.normal(size=3)
add("complex power, vjp", lambda z: (z**3).real, z,
    vjp=lambda c, z: c * 3 * (z**2).conj())  # fmt: skip
add("complex least squares", lambda z: (np.abs(z - 1j) ** 2).sum(), z,
    grad=lambda z: 2 * (z - 1j))  # fmt: skip
add("complex64 modulus", lambda z: np.abs(z).sum(), z.astype(np.complex64),
    grad=lambda z: z / np.abs(z))  # fmt: skip
