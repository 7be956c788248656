"""Correct NumPy programs written after the method was finished, to find its limits."""

from __future__ import annotations

import numpy as np
from scipy import special

from tests.battery.shelf import Shelf

CONTROLS = Shelf()
add = CONTROLS.add
rng = np.random.default_rng(31)
x = rng.normal(size=6)
A = rng.normal(size=(4, 6))
B = rng.normal(size=(12, 5))


def expit(z):
    return special.expit(z)


# --- robust losses, penalties, economics: kinks that are met by chance or by design
r = np.array([-3.0, -1.0, -0.2, 0.0, 1.0, 5.0])
add("Huber at its threshold",
    lambda r: np.where(np.abs(r) <= 1, r * r / 2, np.abs(r) - 0.5).sum(), r,
    grad=lambda r: np.clip(r, -1, 1))  # fmt: skip
add("quantile loss", lambda r: np.maximum(0.3 * r, -0.7 * r).sum(), r[[0, 1, 2, 4]],
    grad=lambda r: np.where(r > 0, 0.3, -0.7))  # fmt: skip
add("quantile loss at zero", lambda r: np.maximum(0.3 * r, -0.7 * r).sum(), r,
    grad=lambda r: np.where(r > 0, 0.3, -0.7))  # fmt: skip
add("insensitive tube", lambda r: np.maximum(np.abs(r) - 0.2, 0).sum(), r,
    grad=lambda r: np.sign(r) * (np.abs(r) > 0.2))  # fmt: skip
add("log cosh", lambda r: np.log(np.cosh(r)).sum(), 3 * r, grad=np.tanh)
add("total variation, flat piece", lambda u: np.abs(np.diff(u)).sum(),
    np.array([1.0, 1.0, 2.0, 2.0, 0.5]),
    grad=lambda u: np.append(0, np.sign(np.diff(u)))
    - np.append(np.sign(np.diff(u)), 0))  # fmt: skip
add("group lasso at zero", lambda w: np.linalg.norm(w, axis=1).sum(),
    np.array([[0.0, 0, 0], [1, -2, 2]]),
    grad=lambda w: w / np.where(np.linalg.norm(w, axis=1, keepdims=True) == 0, 1,
                                np.linalg.norm(w, axis=1, keepdims=True)))  # fmt: skip
add("elu at zero", lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0))).sum(),
    np.array([0.0, 1e-7, -1e-7, -2, 3]),
    grad=lambda z: np.where(z > 0, 1.0, np.exp(np.minimum(z, 0))))  # fmt: skip
add("selu", lambda z: 1.0507 * np.where(z > 0, z, 1.67326 * np.expm1(
    np.minimum(z, 0))).sum(), x,
    grad=lambda z: 1.0507 * np.where(z > 0, 1.0, 1.67326 * np.exp(
        np.minimum(z, 0))))  # fmt: skip
add("gelu, far left", lambda z: (z * special.ndtr(z)).sum(),
    np.array([-6.0, -7.5, -1.0, 0.0, 5.0]),
    grad=lambda z: special.ndtr(z) + z * np.exp(-z * z / 2) / np.sqrt(2 * np.pi),
    )  # fmt: skip
add("mish", lambda z: (z * np.tanh(np.logaddexp(0, z))).sum(), 4 * x,
    grad=lambda z: np.tanh(np.logaddexp(0, z))
    + z * (1 - np.tanh(np.logaddexp(0, z)) ** 2) * expit(z))  # fmt: skip
add("hard sigmoid at both ends", lambda z: np.clip(z / 6 + 0.5, 0, 1).sum(),
    np.array([-3.0, 3.0, 0.1, 8]),
    grad=lambda z: (np.abs(z) < 3) / 6)  # fmt: skip
for d in (1e-9, 1e-7, 1e-6, 3e-6, 1e-5, 1e-4):
    add(f"ReLU {d:g} from zero", lambda z: (np.maximum(z, 0) ** 1 * [3, 1, 1]).sum(),
        np.array([d, 1.0, -1.0]), grad=lambda z: (z > 0) * [3.0, 1, 1])  # fmt: skip
    add(f"kink {d:g} away, offset", lambda z: 1e3 + np.abs(z - 2).sum(),
        np.array([2 + d, 2.5, -1.0]), grad=lambda z: np.sign(z - 2))  # fmt: skip
# --- sizes
for c in (1e8, 1e10, 1e12):
    add(f"coordinates near {c:g}", lambda p, c=c: ((p - c) ** 2).sum(),
        c + np.array([1.5, -0.25, 3.0]), grad=lambda p, c=c: 2 * (p - c))  # fmt: skip
    add(f"loss offset {c:g}", lambda x, c=c: c + (x**3).sum(), 2 * x,
        grad=lambda x: 3 * x**2)  # fmt: skip
    add(f"loss offset -{c:g}", lambda x, c=c: np.exp(x).sum() - c, x,
        grad=np.exp)  # fmt: skip
for s in (1e-8, 1e-6, 1e6, 1e8):
    add(f"logistic, x of {s:g}", lambda w, s=s: np.logaddexp(0, B @ (w / s)).mean(),
        s * rng.normal(size=5),
        grad=lambda w, s=s: B.T @ expit(B @ (w / s)) / (12 * s))  # fmt: skip
    add(f"Jacobian of scale {s:g}", lambda x, s=s: s * np.tanh(A @ x), x,
        jac=lambda x, s=s: s * (1 - np.tanh(A @ x) ** 2)[:, None] * A)  # fmt: skip
rows = np.array([1e-8, 1.0, 1e8, 1e-3])
add("rows of all sizes", lambda x: rows * np.sin(A @ x), x,
    jac=lambda x: (rows * np.cos(A @ x))[:, None] * A)  # fmt: skip
add("columns of all sizes", lambda x: np.sin(A @ (x * np.logspace(-8, 7, 6))),
    x / np.logspace(-8, 7, 6),
    jac=lambda x: np.cos(A @ (x * np.logspace(-8, 7, 6)))[:, None] * A
    * np.logspace(-8, 7, 6))  # fmt: skip
add("Rosenbrock, ill scaled", lambda x: 1e6 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2,
    np.array([1.0 + 1e-4, 1.0]),
    grad=lambda x: np.array([-4e6 * x[0] * (x[1] - x[0] ** 2) - 2 * (1 - x[0]),
                             2e6 * (x[1] - x[0] ** 2)]))  # fmt: skip
add("difference of large numbers", lambda x: ((1e6 + x) ** 2 - 1e12).sum() * 1e-6, x,
    grad=lambda x: 2 + 2e-6 * x)  # fmt: skip
add("variance, textbook formula", lambda x: (x**2).mean() - x.mean() ** 2, 1e5 + x,
    grad=lambda x: 2 * (x - x.mean()) / 6)  # fmt: skip
add("Gaussian likelihood", lambda m, s: (np.log(s) + (7.3 - m) ** 2 / (2 * s**2)).sum(),
    np.array([7.0, 1e3]), np.array([1e-3, 1e5]),
    grad=lambda m, s: ((m - 7.3) / s**2, 1 / s - (7.3 - m) ** 2 / s**3))  # fmt: skip
# --- oscillation, resonance
for w in (40.0, 700.0, 1e4, 3e5):
    add(f"product of sines, {w:g}", lambda x, w=w: np.prod(np.sin(w * x)), x[:3],
        grad=lambda x, w=w: w * np.cos(w * x) * np.prod(np.sin(w * x))
        / np.sin(w * x))  # fmt: skip
add("two scales", lambda x: (np.exp(x) + 1e-4 * np.sin(1e4 * x)).sum(), x,
    grad=lambda x: np.exp(x) + np.cos(1e4 * x))  # fmt: skip
add("positional encoding", lambda t: np.concatenate(
    [np.sin(t[:, None] / 1e4 ** (np.arange(4) / 4)),
     np.cos(t[:, None] / 1e4 ** (np.arange(4) / 4))], 1).sum(),
    np.array([3.0, 250.0, 9e3]),
    grad=lambda t: ((np.cos(t[:, None] / 1e4 ** (np.arange(4) / 4))
                     - np.sin(t[:, None] / 1e4 ** (np.arange(4) / 4)))
                    / 1e4 ** (np.arange(4) / 4)).sum(1))  # fmt: skip
add("Lorentz peak", lambda f: (1 / ((f - 440) ** 2 + 1e-4)).sum(),
    np.array([440.001, 439.9, 500.0]),
    grad=lambda f: -2 * (f - 440) / ((f - 440) ** 2 + 1e-4) ** 2)  # fmt: skip
# --- exact zeros and flat directions
add("dead by clipping", lambda x: np.minimum(x, 0).clip(0).sum() + x[0] ** 2, x,
    grad=lambda x: 2 * x * (np.arange(6) == 0))  # fmt: skip
add("softmax Jacobian", lambda z: np.exp(z) / np.exp(z).sum(), 5 * x,
    jac=lambda z: np.diag(np.exp(z) / np.exp(z).sum())
    - np.outer(np.exp(z), np.exp(z)) / np.exp(z).sum() ** 2)  # fmt: skip
add("softmax, one winner", lambda z: np.exp(z - z.max()) / np.exp(z - z.max()).sum(),
    np.array([40.0, 0, -3]),
    jac=lambda z: np.diag(special.softmax(z))
    - np.outer(special.softmax(z), special.softmax(z)))  # fmt: skip
add("rotation invariance", lambda v: (v @ v) ** 2, np.array([0.0, 3.0]),
    grad=lambda v: 4 * v * (v @ v))  # fmt: skip
add("normalised, along itself", lambda v: v / np.linalg.norm(v), np.array([0.0, 0, 2]),
    jac=lambda v: (np.eye(3) - np.outer(v, v) / (v @ v))
    / np.linalg.norm(v))  # fmt: skip
add("product with a zero", np.prod, np.array([2.0, 0.0, -3.0, 0.5]),
    grad=lambda x: np.array([0.0, -3.0, 0, 0]))  # fmt: skip
add("saddle", lambda p: p[0] ** 2 - p[1] ** 2 + p[0] ** 3, np.zeros(2),
    grad=lambda p: np.zeros(2))  # fmt: skip
add("quartic bowl at its bottom, offset", lambda x: 5.0 + (x**4).sum(), np.zeros(3),
    grad=lambda x: 4 * x**3)  # fmt: skip
add("underflow", lambda x: np.exp(-(x**2)).sum(), np.array([30.0, 27.0, 0.5]),
    grad=lambda x: -2 * x * np.exp(-(x**2)))  # fmt: skip
add("identity", lambda x: x, x, jac=lambda x: np.eye(6))
add("elementwise exp", np.exp, 30 * x[:4], jac=lambda x: np.diag(np.exp(x)))
# --- edges
add("entropy with a zero", lambda p: -special.xlogy(p, p).sum(),
    np.array([0.5, 1e-15, 0.5]),
    grad=lambda p: -np.log(p) - 1)  # fmt: skip
add("sqrt at 1e-30", lambda x: np.sqrt(x).sum(), np.array([1e-30, 1.0]),
    grad=lambda x: 0.5 / np.sqrt(x))  # fmt: skip
add("arcsin at 1 - 1e-12", lambda x: np.arcsin(x).sum(), np.array([1 - 1e-12, 0.0]),
    grad=lambda x: 1 / np.sqrt((1 - x) * (1 + x)))  # fmt: skip
add("logit near both ends", lambda p: special.logit(p).sum(),
    np.array([1e-10, 0.5, 1 - 1e-9]), grad=lambda p: 1 / (p * (1 - p)))  # fmt: skip
add("cube root near zero", lambda x: np.cbrt(x).sum(), np.array([1e-9, -8.0]),
    grad=lambda x: np.cbrt(x) / (3 * x))  # fmt: skip
add("power with variable base", lambda x: (x**2.5).sum(), np.array([1e-8, 0.3]),
    grad=lambda x: 2.5 * x**1.5)  # fmt: skip
add("log1p at the edge", lambda x: np.log1p(x).sum(), np.array([-1 + 1e-10, 0.0]),
    grad=lambda x: 1 / (1 + x))  # fmt: skip
add("nan in an unused output", lambda x: np.array([np.sin(x[0]), np.nan]), x[:2],
    jac=lambda x: np.array([[np.cos(x[0]), 0], [np.nan, np.nan]]))  # fmt: skip
add("gamma near a pole", lambda x: special.gamma(x).sum(), np.array([-1 + 1e-6, 0.3]),
    grad=lambda x: special.gamma(x) * special.digamma(x))  # fmt: skip
