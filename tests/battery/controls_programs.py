"""Correct NumPy programs of more than a line: pairs, dicts, in place, iterations."""

from __future__ import annotations

import itertools

import numpy as np
from scipy import linalg

from tests.battery.shelf import Shelf
from tests.specimens.activations import softmax

CONTROLS = Shelf()
add = CONTROLS.add
rng = np.random.default_rng(12)


def mlp(sizes, *, dtype=float, scale=1.0):
    """Dict of weights, and a loss with gradients of a ReLU network on fixed data."""
    params = {}
    for i, (m, n) in enumerate(itertools.pairwise(sizes), 1):
        params[f"W{i}"] = (rng.normal(size=(m, n)) / np.sqrt(m)).astype(dtype)
        params[f"b{i}"] = (0.1 * rng.normal(size=n)).astype(dtype)
    X = rng.normal(size=(16, sizes[0])).astype(dtype)
    y = rng.integers(0, sizes[-1], 16)
    depth = len(sizes) - 1

    def loss_and_grads(p):
        h, kept = X, []
        for i in range(1, depth + 1):
            z = h @ p[f"W{i}"] + p[f"b{i}"]
            kept.append((h, z))
            h = np.maximum(z, 0) if i < depth else z
        prob = softmax(h)
        loss = -np.log(prob[np.arange(16), y]).mean() * scale
        d = prob.copy()
        d[np.arange(16), y] -= 1
        d *= scale / 16
        grads = {}
        for i in range(depth, 0, -1):
            h, z = kept[i - 1]
            if i < depth:
                d *= z > 0
            grads[f"W{i}"], grads[f"b{i}"] = h.T @ d, d.sum(0)
            d = d @ p[f"W{i}"].T
        return loss, grads

    return loss_and_grads, params


for name, options in {
    "float64": {}, "float32": {"dtype": np.float32}, "scaled 1e-6": {"scale": 1e-6},
    "scaled 1e9": {"scale": 1e9},
}.items():  # fmt: skip
    loss, params = mlp((6, 12, 8, 3), **options)
    add(f"MLP {name}", loss, params)
    add(f"MLP {name} in place", lambda loss=loss, params=params: loss(params),
        params=params)  # fmt: skip
loss, params = mlp((4, 6, 2))
add("gradients held", lambda p, loss=loss: loss(p)[0], params, grad=loss(params)[1])


# --- layers as pairs
def batchnorm(x, gamma, beta):
    mu, var = x.mean(0), x.var(0)
    hat = (x - mu) / np.sqrt(var + 1e-5)
    return gamma * hat + beta, (hat, gamma, var)


def batchnorm_backward(dout, cache):
    hat, gamma, var = cache
    dhat = dout * gamma
    dx = dhat - dhat.mean(0) - hat * (dhat * hat).mean(0)
    return dx / np.sqrt(var + 1e-5), (dout * hat).sum(0), dout.sum(0)


add("batchnorm pair", batchnorm, rng.normal(size=(6, 3)), rng.normal(size=3),
    rng.normal(size=3), backward=batchnorm_backward)  # fmt: skip
add("batchnorm of constants", batchnorm, np.full((5, 2), 4.0), np.ones(2), np.ones(2),
    backward=batchnorm_backward)  # fmt: skip
add("batchnorm, large offset", batchnorm, 1e4 + rng.normal(size=(6, 2)), np.ones(2),
    np.zeros(2), backward=batchnorm_backward)  # fmt: skip


def affine_relu(x, w, b):
    z = x @ w + b
    return np.maximum(z, 0), (x, w, z)


def affine_relu_backward(dout, cache):
    x, w, z = cache
    d = dout * (z > 0)
    return d @ w.T, x.T @ d, d.sum(0)


add("affine relu pair", affine_relu, rng.normal(size=(5, 4)), rng.normal(size=(4, 3)),
    rng.normal(size=3), backward=affine_relu_backward)  # fmt: skip
add("affine relu, dead", affine_relu, rng.normal(size=(3, 4)), rng.normal(size=(4, 3)),
    np.full(3, -50.0), backward=affine_relu_backward)  # fmt: skip
add("affine relu, bias at kink", affine_relu, np.zeros((3, 4)),
    rng.normal(size=(4, 3)), np.zeros(3), backward=affine_relu_backward)  # fmt: skip
add("affine float32", affine_relu, rng.normal(size=(5, 4)).astype("f4"),
    rng.normal(size=(4, 3)).astype("f4"), rng.normal(size=3).astype("f4"),
    backward=affine_relu_backward)  # fmt: skip


def rnn(xs, h0, Wx, Wh):
    hs = [h0]
    for step in xs:
        hs.append(np.tanh(step @ Wx + hs[-1] @ Wh))
    return np.stack(hs[1:]), (xs, hs, Wx, Wh)


def rnn_backward(dout, cache):
    xs, hs, Wx, Wh = cache
    dx, dWx, dWh, dh = np.zeros_like(xs), np.zeros_like(Wx), np.zeros_like(Wh), 0
    for t in reversed(range(len(xs))):
        dz = (dout[t] + dh) * (1 - hs[t + 1] ** 2)
        dx[t], dh = dz @ Wx.T, dz @ Wh.T
        dWx += xs[t].T @ dz
        dWh += hs[t].T @ dz
    return dx, dh, dWx, dWh


add("recurrent pair", rnn, rng.normal(size=(4, 2, 3)), rng.normal(size=(2, 4)),
    rng.normal(size=(3, 4)), rng.normal(size=(4, 4)),
    backward=rnn_backward)  # fmt: skip
add("recurrent, exploding", rnn, rng.normal(size=(12, 1, 2)), rng.normal(size=(1, 3)),
    rng.normal(size=(2, 3)), 3 * rng.normal(size=(3, 3)),
    backward=rnn_backward)  # fmt: skip


def conv(x, w):
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape)
    return np.einsum("ijkl,kl->ij", windows, w), (x, w)


def conv_backward(dout, cache):
    x, w = cache
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape)
    dx = np.zeros_like(x)
    for i, j in np.ndindex(w.shape):
        dx[i : i + dout.shape[0], j : j + dout.shape[1]] += w[i, j] * dout
    return dx, np.einsum("ijkl,ij->kl", windows, dout)


add("convolution pair", conv, rng.normal(size=(6, 5)), rng.normal(size=(3, 2)),
    backward=conv_backward)  # fmt: skip
# --- linear algebra, vjp, jac
S = rng.normal(size=(4, 4)) + 4 * np.eye(4)
add("solve vjp", np.linalg.solve, S, rng.normal(size=4),
    vjp=lambda c, a, b: (
        -np.outer(np.linalg.solve(a.T, c), np.linalg.solve(a, b)),
        np.linalg.solve(a.T, c),
    ))  # fmt: skip
add("log determinant", lambda a: np.linalg.slogdet(a)[1], S,
    grad=lambda a: np.linalg.inv(a).T)  # fmt: skip
add("ill-conditioned inverse", np.linalg.inv, linalg.hilbert(5),
    vjp=lambda c, a: -np.linalg.inv(a).T @ c @ np.linalg.inv(a).T)  # fmt: skip
add("complex modulus", np.abs, rng.normal(size=4) + 1j,
    vjp=lambda c, z: c * z / np.abs(z))  # fmt: skip
add("jac of out + in shape", lambda x: np.outer(x, x), rng.normal(size=3),
    jac=lambda x: np.einsum("ik,j->ijk", np.eye(3), x)
    + np.einsum("i,jk->ijk", x, np.eye(3)))  # fmt: skip
add("Fortran order", lambda a: (a @ a.T).sum(), np.asfortranarray(S),
    grad=lambda a: 2 * np.ones((4, 4)) @ a)  # fmt: skip
add("every other row", lambda a: np.sin(a).sum(), rng.normal(size=(8, 3))[::2],
    grad=np.cos)  # fmt: skip
add("scalar float", lambda x: x**3 - x, 0.7, grad=lambda x: 3 * x**2 - 1)
add("0-d array", np.exp, np.array(1.3), grad=np.exp)
add("empty beside full", lambda x, e: (x**2).sum() + e.sum(), np.ones(3), np.zeros(0),
    grad=lambda x, e: (2 * x, np.ones(0)))  # fmt: skip
add("nested params",
    lambda p: ((p["a"]["w"] * p["b"][0]).sum(),
               {"a": {"w": p["b"][0]}, "b": [p["a"]["w"], None]})[:2],
    {"a": {"w": rng.normal(size=3)}, "b": [rng.normal(size=3), 3]})  # fmt: skip


# --- iterations inside
def newton_root(c):
    y = 1.0
    for _ in range(50):
        step = (y**3 + y - c) / (3 * y * y + 1)
        y -= step
        if abs(step) < 1e-6:
            break
    return y


add("Newton, loose stop", lambda c: sum(newton_root(v) for v in c), rng.normal(size=4),
    grad=lambda c: np.array([1 / (3 * newton_root(v) ** 2 + 1) for v in c]),
    )  # fmt: skip


def fixed_point(w):
    h = np.zeros(3)
    for _ in range(400):
        new = 0.5 * np.tanh(w @ h + 1)
        if np.abs(new - h).max() < 1e-10:
            break
        h = new
    return h


def fixed_point_jac(w):
    h = fixed_point(w)
    d = np.diag(0.5 * (1 - (2 * h) ** 2))
    back = np.linalg.inv(np.eye(3) - d @ w) @ d
    return np.einsum("ij,k->ijk", back, h)


add("fixed point", fixed_point, 0.4 * rng.normal(size=(3, 3)), jac=fixed_point_jac)


def euler(k):
    y = np.ones(2)
    for _ in range(200):
        y = y + 0.01 * np.array([-k[0] * y[0], k[0] * y[0] - k[1] * y[1]])
    return y


def euler_jac(k):
    y, dy = np.ones(2), np.zeros((2, 2))
    for _ in range(200):
        f = np.array([[-k[0], 0], [k[0], -k[1]]])
        direct = np.array([[-y[0], 0], [y[0], -y[1]]])
        dy = dy + 0.01 * (f @ dy + direct)
        y = y + 0.01 * np.array([-k[0] * y[0], k[0] * y[0] - k[1] * y[1]])
    return dy


add("Euler steps", euler, np.array([0.7, 2.3]), jac=euler_jac)
weights = {"w": rng.normal(size=(3, 2)), "step": np.array(7)}
add("integer beside", lambda p: ((p["w"] ** 3).sum() * p["step"],
                                 {"w": 3 * p["w"] ** 2 * p["step"]}),
    weights)  # fmt: skip
add("mutates its cache", lambda x: (np.square(x, out=x).sum(), None)[0], np.ones(3) * 2,
    grad=lambda x: 2 * x)  # fmt: skip
add("random but seeded",
    lambda x: float((x * np.random.default_rng(3).normal(size=3)).sum()), np.ones(3),
    grad=lambda x: np.random.default_rng(3).normal(size=3))  # fmt: skip
add("global random mask", lambda x: float((x**2 * (np.random.rand(4) > 0.3)).mean()),
    np.zeros(4), grad=lambda x: 0 * x)  # fmt: skip
