"""Wrong NumPy gradients written after the method was finished, to find its limits."""

from __future__ import annotations

import copy

import numpy as np
from scipy import special

from tests.battery.fresh_controls_programs import (
    Net,
    dropout,
    embedding,
    embedding_back,
    f4,
    layernorm,
    layernorm_back,
    maxpool,
    maxpool_back,
    relu_net,
)
from tests.battery.shelf import Shelf

BUGS = Shelf()
add = BUGS.add
rng = np.random.default_rng(41)
x = rng.normal(size=6)
A = rng.normal(size=(4, 6))
B = rng.normal(size=(12, 5))
expit = special.expit

# --- slips at every size
for e in (1e-5, -3e-5, 2e-4):
    add(f"logistic {e:g}", lambda w: np.logaddexp(0, B @ w).mean(), x[:5],
        grad=lambda w, e=e: (1 + e) * B.T @ expit(B @ w) / 12)  # fmt: skip
    add(f"second entry {e:g}", lambda x: np.sin(x).sum(), x,
        grad=lambda x, e=e: np.cos(x) * (1 + e * (np.arange(6) == 1)))  # fmt: skip
for s in (1e-8, 1e8):
    add(f"x of {s:g}, half", lambda w, s=s: np.logaddexp(0, B @ (w / s)).mean(),
        s * x[:5], grad=lambda w, s=s: 0.5 * B.T @ expit(B @ (w / s)) / (12 * s),
        )  # fmt: skip
    add(f"f of {s:g}, one percent", lambda x, s=s: s * np.tanh(A @ x), x,
        jac=lambda x, s=s: 1.01 * s * (1 - np.tanh(A @ x) ** 2)[:, None] * A,
        )  # fmt: skip
for c in (1e6, 1e9, 1e12):
    add(f"offset {c:g}, sign", lambda x, c=c: c + (x**3).sum(), 2 * x,
        grad=lambda x: -3 * x**2)  # fmt: skip
    add(f"offset {c:g}, half", lambda x, c=c: np.exp(x).sum() - c, x,
        grad=lambda x: 0.5 * np.exp(x))  # fmt: skip
    add(f"near {c:g}, factor 2 forgotten", lambda p, c=c: ((p - c) ** 2).sum(),
        c + np.array([1.5, -0.25, 3.0]), grad=lambda p, c=c: p - c)  # fmt: skip
rows = np.array([1e-8, 1.0, 1e8, 1e-3])
add("smallest row wrong", lambda x: rows * np.sin(A @ x), x,
    jac=lambda x: (rows * [0.9, 1, 1, 1] * np.cos(A @ x))[:, None] * A)  # fmt: skip
add("largest column wrong", lambda x: np.sin(A @ (x * np.logspace(-8, 7, 6))),
    x / np.logspace(-8, 7, 6),
    jac=lambda x: np.cos(A @ (x * np.logspace(-8, 7, 6)))[:, None] * A
    * np.logspace(-8, 7, 6) * [1, 1, 1, 1, 1, 1.001])  # fmt: skip
add("smallest column wrong", lambda x: np.sin(A @ (x * np.logspace(-8, 7, 6))),
    x / np.logspace(-8, 7, 6),
    jac=lambda x: np.cos(A @ (x * np.logspace(-8, 7, 6)))[:, None] * A
    * np.logspace(-8, 7, 6) * [1.001, 1, 1, 1, 1, 1])  # fmt: skip
add("minor term forgotten", lambda x: np.sin(x).sum() + 1e-5 * (x[0] * x[3]), x,
    grad=np.cos)  # fmt: skip
# --- oscillation, structure
for w in (700.0, 1e4, 1e5):
    add(f"product of sines {w:g}, one percent", lambda x, w=w: np.prod(np.sin(w * x)),
        x[:3], grad=lambda x, w=w: 1.01 * w * np.cos(w * x) * np.prod(np.sin(w * x))
        / np.sin(w * x))  # fmt: skip
add("fine ripple forgotten", lambda x: (np.exp(x) + 1e-4 * np.sin(1e4 * x)).sum(), x,
    grad=np.exp)  # fmt: skip
add("inner derivative forgotten", lambda x: np.sin(np.exp(x)).sum(), x,
    grad=lambda x: np.cos(np.exp(x)))  # fmt: skip
add("ndtr for its density", lambda z: (z * special.ndtr(z)).sum(), x,
    grad=lambda z: special.ndtr(z) + z * special.ndtr(z))  # fmt: skip
add("tanh approximation of gelu", lambda z: (z * special.ndtr(z)).sum(), x,
    grad=lambda z: expit(1.702 * z) * (1 + 1.702 * z * (1 - expit(1.702 * z))),
    )  # fmt: skip
# --- kinks: beyond both slopes, wrong branch, lost sign
add("Huber beyond its threshold", lambda r: np.where(
    np.abs(r) <= 1, r * r / 2, np.abs(r) - 0.5).sum(), np.array([-3.0, 0.4, 2]),
    grad=lambda r: r)  # fmt: skip
add("quantile, sides swapped", lambda r: np.maximum(0.3 * r, -0.7 * r).sum(), x,
    grad=lambda r: np.where(r > 0, 0.7, -0.3))  # fmt: skip
add("L1 as L2", lambda r: np.abs(r).sum(), x, grad=lambda r: 2 * r)
add("elu, minus one forgotten", lambda z: np.where(
    z > 0, z, np.expm1(np.minimum(z, 0))).sum(), x,
    grad=lambda z: np.where(z > 0, 1.0, np.expm1(np.minimum(z, 0))))  # fmt: skip
for d in (1e-7, 1e-5):
    add(f"ReLU {d:g} from zero, doubled", lambda z: np.maximum(z, 0).sum(),
        np.array([d, 1.0, -1.0]), grad=lambda z: 2.0 * (z > 0))  # fmt: skip
    add(f"ReLU {d:g} below zero, minus one", lambda z: np.maximum(z, 0).sum(),
        np.array([-d, 1.0, -1.0]), grad=lambda z: np.where(z < 0, -1.0, 1))  # fmt: skip
add("max pool to all", maxpool, rng.normal(size=(4, 4)),
    backward=lambda d, w: (np.kron(d, np.ones((2, 2))),))  # fmt: skip
add("max pool to the first", maxpool, rng.normal(size=(4, 4)),
    backward=lambda d, w: maxpool_back(d, 0 * w))  # fmt: skip
add("sorting ignored", lambda x: np.sort(x) @ np.arange(6.0), x,
    grad=lambda x: np.arange(6.0))  # fmt: skip
# --- zeros
add("gradient of a constant", lambda x: np.sign(x).sum(), x, grad=np.ones_like)
add("dead, yet not zero", lambda x: np.minimum(x, 0).clip(0).sum() + x[0] ** 2, x,
    grad=lambda x: 2 * x * (np.arange(6) == 0) + 1e-3)  # fmt: skip
add("zero where f bends", lambda x: (x**2).sum(), np.array([1e-6, 1.0]),
    grad=lambda x: np.array([0.0, 2.0]))  # fmt: skip
add("normalised, projection forgotten", lambda v: v / np.linalg.norm(v), x[:3],
    jac=lambda v: np.eye(3) / np.linalg.norm(v))  # fmt: skip
add("product, division by zero", np.prod, np.array([2.0, 0.0, -3.0, 0.5]),
    grad=lambda x: np.prod(x) / x)  # fmt: skip
add("underflown tail", lambda x: np.exp(-(x**2)).sum(), np.array([4.0, 5.0, 0.5]),
    grad=lambda x: -2 * x * np.exp(-(x**2)) * (np.abs(x) < 3))  # fmt: skip
add("large class ignored", special.logsumexp, np.array([20.0, 0, 1]),
    grad=lambda z: special.softmax(z) * (z > 5))  # fmt: skip
add("temperature forgotten", lambda z: special.logsumexp(z / 0.1) * 0.1, x,
    grad=special.softmax)  # fmt: skip
# --- edges of the domain
add("log, clipped in the backward", lambda x: np.log(x).sum(), np.array([1e-9, 0.5]),
    grad=lambda x: 1 / np.maximum(x, 1e-6))  # fmt: skip
add("sqrt with eps in the backward", lambda x: np.sqrt(x).sum(),
    np.array([1e-8, 0.3]), grad=lambda x: 0.5 / np.sqrt(x + 1e-8))  # fmt: skip
add("arccos, sign", lambda x: np.arccos(x).sum(), np.array([1 - 1e-8, -0.3]),
    grad=lambda x: 1 / np.sqrt(1 - x * x))  # fmt: skip
add("cross entropy, eps in the log", lambda p: -np.log(p + 1e-3).sum(),
    np.array([0.01, 0.5]), grad=lambda p: -1 / p)  # fmt: skip
# --- precision
add("float32 inside, sign", lambda x: float((np.tanh(A @ x).astype(f4) ** 2).sum(
    dtype=f4)), x, grad=lambda x: -A.T @ (2 * np.tanh(A @ x) * (
        1 - np.tanh(A @ x) ** 2)))  # fmt: skip
add("float16 inside, factor 2", lambda x: float(np.exp(x.astype("f2")).sum()), x,
    grad=lambda x: 2 * np.exp(x))  # fmt: skip
add("float16 inside, sign", lambda x: np.sin(x.astype("f2")).astype(float), x,
    jac=lambda x: -np.diag(np.cos(x)))  # fmt: skip
add("rounding to 0.1 as identity", lambda x: np.round(x, 1).sum(), x,
    grad=np.ones_like)  # fmt: skip
add("rounding to 0.01 as identity", lambda x: np.round(x, 2).sum(), x,
    grad=np.ones_like)  # fmt: skip
add("eight bits as identity", lambda x: (np.round(x * 127 / 3) * 3 / 127 * A[0]).sum(),
    x, grad=lambda x: A[0])  # fmt: skip
for dtype in ("f2", "f4"):
    add(f"softplus {dtype}, ten percent", lambda x: np.logaddexp(
        x.dtype.type(0), x).sum(), x.astype(dtype),
        grad=lambda x: x.dtype.type(1.1) * expit(x))  # fmt: skip


# --- networks in place
def slipped(change, dtype=np.float64, decay=1e-3):
    net = Net(dtype, decay)

    def loss():
        value, grads = net.loss()
        grads = copy.deepcopy(grads)
        change(grads, net)
        return value, grads

    return loss, net.params


def scaled(name, factor):
    def change(g, net):
        g[name] *= factor

    return change


def no_decay(g, net):
    for i, layer in enumerate(net.layers):
        g[f"W{i}"] -= 2 * net.decay * layer.W


def one_entry(g, net):
    g["W1"][2, 3] *= 1.02


def residual_lost(g, net):
    g["W0"] *= 0.7
    g["b0"] *= 0.7


for name, change in {
    "one percent": scaled("W2", 1.01), "bias zero": scaled("b1", 0.0),
    "sign": scaled("W0", -1.0), "no decay": no_decay, "one entry": one_entry,
    "residual lost": residual_lost,
}.items():  # fmt: skip
    for dtype in (np.float64, f4):
        loss, params = slipped(change, dtype)
        add(f"net in place, {name}, {dtype.__name__}", loss, params=params)
for dtype in (np.float64, f4):
    loss, p = relu_net(dtype)
    add(f"relu mask of h, {dtype.__name__}", lambda p, loss=loss: (
        loss(p)[0], {**loss(p)[1], "c": loss(p)[1]["c"] * 30}), p)  # fmt: skip
    add(f"stale by a step, {dtype.__name__}", lambda p, loss=loss: loss(p)[0], p,
        grad=loss({k: v - 0.01 for k, v in p.items()})[1])  # fmt: skip
# --- pairs
add("dropout, scale forgotten", dropout, rng.normal(size=(4, 5)),
    backward=lambda d, mask: (d * mask,))  # fmt: skip
add("dropout, another mask", dropout, rng.normal(size=(4, 5)),
    backward=lambda d, mask: (d * (np.random.default_rng(6).random(d.shape) > 0.4)
                              / 0.6,))  # fmt: skip
for name, change in {
    "mean detached": lambda d, c, g: (d * c[2] / c[1], *g[1:]),
    "gamma not summed": lambda d, c, g: (g[0], (d * c[0])[0], g[2]),
    "n minus one": lambda d, c, g: (g[0] * np.sqrt(4 / 5), *g[1:]),
}.items():  # fmt: skip
    add(f"layer norm, {name}", layernorm, rng.normal(size=(3, 5)), rng.normal(size=5),
        rng.normal(size=5),
        backward=lambda d, c, change=change: change(d, c, layernorm_back(d, c)),
        )  # fmt: skip


def overwriting(d, cache):
    out = np.zeros(cache[0])
    out[cache[1]] = d
    return (out,)


add("embedding, repeats overwrite", embedding, rng.normal(size=(5, 3)),
    np.array([1, 1, 4, 0]), backward=overwriting)  # fmt: skip
add("embedding, transposed", embedding, rng.normal(size=(3, 3)), np.array([1, 2, 0]),
    backward=lambda d, c: (embedding_back(d, c)[0].T,))  # fmt: skip
z = rng.normal(size=3) + 1j * rng.normal(size=3)
add("complex power, not conjugated", lambda z: (z**3).real, z,
    vjp=lambda c, z: c * 3 * z**2)  # fmt: skip
add("complex, imaginary part lost", lambda z: (np.abs(z - 1j) ** 2).sum(), z,
    grad=lambda z: 2 * (z - 1j).real + 0j)  # fmt: skip
add("complex64 modulus, half", lambda z: np.abs(z).sum(), z.astype(np.complex64),
    grad=lambda z: z / np.abs(z) / 2)  # fmt: skip
