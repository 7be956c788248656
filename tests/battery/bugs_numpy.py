"""Wrong NumPy gradients, as people write them: large, small, and well hidden."""

from __future__ import annotations

import copy

import numpy as np

from tests.battery.controls_programs import (
    affine_relu,
    affine_relu_backward,
    batchnorm,
    batchnorm_backward,
    conv,
    conv_backward,
    mlp,
    rnn,
    rnn_backward,
)
from tests.battery.shelf import Shelf
from tests.specimens.activations import sigmoid

BUGS = Shelf()
add = BUGS.add
rng = np.random.default_rng(21)
x = rng.normal(size=8)
A = rng.normal(size=(6, 8))


# --- small slips
for size in (1e-5, 1e-4, 1e-3):
    add(f"uniform {size:g}", lambda x: np.exp(x).sum(), x,
        grad=lambda x, e=size: np.exp(x) * (1 + e))  # fmt: skip
    add(f"matrix {size:g}", lambda x: np.tanh(A @ x), x,
        jac=lambda x, e=size: (1 + e) * (1 - np.tanh(A @ x) ** 2)[:, None] * A,
        )  # fmt: skip
one = np.zeros((30, 20))
one[17, 3] = 1
W = rng.normal(size=(30, 20))
add("one entry of 600 by 1e-3", lambda w: np.sin(w).sum(), W,
    grad=lambda w: np.cos(w) * (1 + 1e-3 * one))  # fmt: skip
add("one entry of 600 dropped", lambda w: np.sin(w).sum(), W,
    grad=lambda w: np.cos(w) * (1 - one))  # fmt: skip
add("one entry of 600 flipped", lambda w: np.sin(w).sum(), W,
    grad=lambda w: np.cos(w) * (1 - 2 * one))  # fmt: skip
add("sign at 1e-7", lambda x, y: np.sin(x).sum() + 1e-7 * np.sin(y).sum(), x, x + 1,
    grad=lambda x, y: (np.cos(x), -1e-7 * np.cos(y)))  # fmt: skip
add("dropped at 1e-6", lambda x: x[0] ** 3 + 1e-6 * np.exp(x[1]), x[:2],
    grad=lambda x: np.array([3 * x[0] ** 2, 0.0]))  # fmt: skip
add("a row that matters little", lambda x: np.array([1e6, 1e-6]) * np.sin(x[:2]), x,
    jac=lambda x: np.vstack([1e6 * np.cos(x[0]) * np.eye(8)[0],
                             1.001e-6 * np.cos(x[1]) * np.eye(8)[1]]))  # fmt: skip
add("weak input", lambda x, b: np.cos(x).sum() + 1e-5 * (b**2).sum(), x, x[:3],
    grad=lambda x, b: (-np.sin(x), 1e-5 * b))  # fmt: skip
# --- constants, scales, saturation
for c in (1e4, 1e8, 1e11):
    add(f"constant {c:g}, factor 2", lambda x, c=c: c + np.sin(x).sum(), x,
        grad=lambda x: 2 * np.cos(x))  # fmt: skip
add("constant 1e6, two percent", lambda x: 1e6 + np.sin(x).sum(), x,
    grad=lambda x: 1.02 * np.cos(x))  # fmt: skip
for s in (1e-12, 1e12):
    add(f"loss times {s:g}", lambda x, s=s: s * (x**4).sum(), x,
        grad=lambda x, s=s: 4 * s * x**3 * 1.001)  # fmt: skip
    add(f"input times {s:g}", lambda x, s=s: ((x / s) ** 4).sum(), x * s,
        grad=lambda x, s=s: 4 * (x / s) ** 3 / s * 1.001)  # fmt: skip
add("saturated, no upstream", lambda x: sigmoid(x).sum(), np.array([12.0, -15, 0.3]),
    grad=sigmoid)  # fmt: skip
add("tanh of 8, off by half", lambda x: np.tanh(x).sum(), np.full(3, 8.0),
    grad=lambda x: 0.5 * (1 - np.tanh(x) ** 2))  # fmt: skip
add("oscillating, one percent", lambda x: np.sin(300 * x).sum(), x,
    grad=lambda x: 303 * np.cos(300 * x))  # fmt: skip
add("float32 inside, 3 percent", lambda x: float(np.cos(x.astype("f4")).mean()), x,
    grad=lambda x: -1.03 * np.sin(x) / 8)  # fmt: skip
add("float32 input, 1 percent", lambda x: (x**3).sum(), x.astype("f4"),
    grad=lambda x: 3.03 * x**2)  # fmt: skip
add("noise 1e-8, 1 percent", lambda x: np.round(np.exp(x).sum(), 8), x,
    grad=lambda x: 1.01 * np.exp(x))  # fmt: skip
# --- wrong at special points only visible elsewhere, kinks, edges
add("2x written x squared", lambda x: (x**2).sum(), np.array([0.0, 2.0, 0.5]),
    grad=lambda x: x**2)  # fmt: skip
add("beyond both slopes", lambda x: np.abs(x).sum(), np.array([0.0, 1.0]),
    grad=lambda x: np.array([1.2, 1.0]))  # fmt: skip
add("hinge never active", lambda x: np.maximum(0, 1 - x).sum(), x,
    grad=lambda x: 0 * x)  # fmt: skip
add("leaky slope forgotten", lambda x: np.where(x > 0, x, 0.01 * x).sum(), x,
    grad=lambda x: (x > 0) * 1.0)  # fmt: skip
add("mask of the wrong array", lambda x: np.maximum(x + 0.5, 0).sum(), x,
    grad=lambda x: (x > 0) * 1.0)  # fmt: skip
add("clip ignored", lambda x: np.clip(x, -0.5, 0.5).sum(), x,
    grad=lambda x: np.ones(8))  # fmt: skip
add("floor as identity", lambda x: np.floor(4 * x).sum() / 4, x,
    grad=lambda x: np.ones(8))  # fmt: skip
add("nan in one entry", lambda x: (x**2).sum(), x,
    grad=lambda x: np.where(np.arange(8) == 3, np.nan, 2 * x))  # fmt: skip
add("inf from a division", lambda x: np.sqrt(x**2 + 1).sum(), np.array([0.0, 1.0]),
    grad=lambda x: x / np.sqrt(x**2 + 1) / (x != 0))  # fmt: skip
add("log edge, half", lambda x: np.log(x).sum(), np.array([1e-9, 2.0]),
    grad=lambda x: 0.5 / x)  # fmt: skip
add("detached mean", lambda x: ((x - x.mean()) ** 3).sum(), x,
    grad=lambda x: 3 * (x - x.mean()) ** 2)  # fmt: skip
add("forgotten path", lambda x: (x * np.exp(-(x**2))).sum(), x,
    grad=lambda x: np.exp(-(x**2)))  # fmt: skip
add("transposed Jacobian", lambda x: A[:, :6] @ x, x[:6], jac=lambda x: A[:, :6].T)
add("columns permuted", lambda x: A @ x**2, x,
    jac=lambda x: (2 * A * x)[:, ::-1])  # fmt: skip
add("softmax without coupling", lambda z: np.exp(z) / np.exp(z).sum(), x,
    jac=lambda z: np.diag(np.exp(z) / np.exp(z).sum()))  # fmt: skip
add("conjugate forgotten", lambda z: (np.abs(z) ** 2).sum(), x[:4] + 1j * x[4:],
    grad=lambda z: 2 * z.conj())  # fmt: skip
add("degrees as radians", lambda x: np.sin(x * np.pi / 180).sum(), 90 * x,
    grad=lambda x: np.cos(x * np.pi / 180))  # fmt: skip
add("old point", lambda x: (x**3).sum(), x, grad=3 * (x + 1e-3) ** 2)
add("gradient of another loss", lambda w: ((A @ w - 1) ** 2).mean(), x,
    grad=lambda w: 2 * A.T @ (A @ w - 1))  # fmt: skip


# --- networks with gradients
def sabotage(change, **options):
    """A correct network whose gradients pass through `change`."""
    loss, params = mlp((5, 9, 3), **options)

    def wrong(p):
        value, grads = loss(p)
        grads = copy.deepcopy(grads)
        change(grads, p)
        return value, grads

    return wrong, params


def scale(name, factor):
    def change(grads, p):
        grads[name] = grads[name] * factor

    return change


def doubled(grads, p):
    for name in grads:
        grads[name] = 2 * grads[name]


def weight_decay(grads, p):
    grads["W1"] = grads["W1"] + 1e-3 * p["W1"]


def flipped_column(grads, p):
    grads["W2"][:, 1] *= -1


def summed(grads, p):
    for name in grads:
        grads[name] = grads[name] * 16


def bias_of_first_sample(grads, p):
    grads["b1"] = grads["b1"] / 16


def transposed_values(grads, p):
    grads["W1"] = grads["W1"].T.reshape(grads["W1"].shape)


def rolled(grads, p):
    grads["b2"] = np.roll(grads["b2"], 1)


def truncated(grads, p):
    grads["W1"] = grads["W1"].astype(np.float16).astype(float)


def clipped(grads, p):
    grads["W2"] = np.clip(grads["W2"], -0.02, 0.02)


for change in (doubled, weight_decay, flipped_column, summed, bias_of_first_sample,
               transposed_values, rolled, truncated, clipped):  # fmt: skip
    loss, params = sabotage(change)
    add(f"network: {change.__name__}", loss, params)
    loss, params = sabotage(change)
    add(f"network in place: {change.__name__}",
        lambda loss=loss, params=params: loss(params), params=params)  # fmt: skip
for name, factor in (("W1", 1.00003), ("b2", 0.0), ("W2", -1.0), ("b1", 1.01)):
    loss, params = sabotage(scale(name, factor))
    add(f"network: {name} times {factor}", loss, params)
for name, factor in (("W1", 1.01), ("b2", 0.0), ("W2", 0.9)):
    loss, params = sabotage(scale(name, factor), dtype=np.float32)
    add(f"float32 network: {name} times {factor}", loss, params)
    add(f"float32 network in place: {name} times {factor}",
        lambda loss=loss, params=params: loss(params), params=params)  # fmt: skip


# --- layers as pairs
def wrong(backward, change):
    def call(dout, cache):
        return change(dout, cache, backward(dout, cache))

    return call


pair_x, gamma, beta = rng.normal(size=(6, 3)), rng.normal(size=3), rng.normal(size=3)
add("batchnorm, mean detached", batchnorm, pair_x, gamma, beta,
    backward=lambda d, c: (d * c[1] / np.sqrt(c[2] + 1e-5), (d * c[0]).sum(0),
                           d.sum(0)))  # fmt: skip
add("batchnorm, wrong eps", batchnorm, pair_x, gamma, beta,
    backward=wrong(batchnorm_backward, lambda d, c, g: (
        g[0] * np.sqrt((c[2] + 1e-5) / (c[2] + 1e-3)), *g[1:])))  # fmt: skip
add("batchnorm, gamma forgotten", batchnorm, pair_x, gamma, beta,
    backward=lambda d, c: batchnorm_backward(d, (c[0], 1.0, c[2])))  # fmt: skip
layer = rng.normal(size=(5, 4)), rng.normal(size=(4, 3)), rng.normal(size=3)
for name, change in {
    "bias averaged": lambda d, c, g: (g[0], g[1], g[2] / 5),
    "bias not summed": lambda d, c, g: (g[0], g[1], d * (c[2] > 0)),
    "upstream ignored": lambda d, c, g: affine_relu_backward(np.ones_like(d), c),
    "relu forgotten": lambda d, c, g: (d @ c[1].T, c[0].T @ d, d.sum(0)),
    "None for x": lambda d, c, g: (None, g[1], g[2]),
    "last sample dropped": lambda d, c, g: (g[0] * (np.arange(5) < 4)[:, None], *g[1:]),
    "weights transposed": lambda d, c, g: (g[0], g[1].T, g[2]),
    "rounded to integers": lambda d, c, g: (g[0], g[1].astype(int), g[2]),
}.items():  # fmt: skip
    add(f"affine: {name}", affine_relu, *layer,
        backward=wrong(affine_relu_backward, change))  # fmt: skip
series = (rng.normal(size=(4, 2, 3)), rng.normal(size=(2, 4)),
          rng.normal(size=(3, 4)), rng.normal(size=(4, 4)))  # fmt: skip


def last_step_only(dout, cache):
    xs, hs, Wx, Wh = cache
    dx, dWx, dWh, dh = np.zeros_like(xs), 0, 0, 0
    for t in reversed(range(len(xs))):
        dz = (dout[t] + dh) * (1 - hs[t + 1] ** 2)
        dx[t], dh = dz @ Wx.T, dz @ Wh.T
        dWx, dWh = xs[t].T @ dz, hs[t].T @ dz  # overwrites
    return dx, dh, dWx, dWh


def truncated_in_time(dout, cache):
    xs, _hs, _Wx, _Wh = cache
    return rnn_backward(dout * (np.arange(len(xs)) > 1)[:, None, None], cache)


add("recurrent: overwrites", rnn, *series, backward=last_step_only)
add("recurrent: truncated", rnn, *series, backward=truncated_in_time)
add("recurrent: initial state", rnn, *series,
    backward=wrong(rnn_backward, lambda d, c, g: (g[0], 0 * g[1], *g[2:])))  # fmt: skip
add("convolution: kernel flipped", conv, rng.normal(size=(6, 5)),
    rng.normal(size=(3, 2)),
    backward=wrong(conv_backward, lambda d, c, g: (g[0], g[1][::-1, ::-1])),
    )  # fmt: skip
add("convolution: border lost", conv, rng.normal(size=(6, 5)), rng.normal(size=(3, 2)),
    backward=wrong(conv_backward, lambda d, c, g: (
        g[0] * (np.arange(6) > 0)[:, None], g[1])))  # fmt: skip
add("vjp ignores its cotangent", lambda x, w: x * w, x, x + 1,
    vjp=lambda c, x, w: (w, c * x))  # fmt: skip
add("vjp squares its cotangent", np.sin, x,
    vjp=lambda c, x: c**2 * np.cos(x) * np.sign(c) * 1.5)  # fmt: skip
