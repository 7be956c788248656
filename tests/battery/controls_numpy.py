"""Correct NumPy programs that are hard on a gradient checker."""

from __future__ import annotations

import numpy as np
from scipy import special

from tests.battery.shelf import Shelf
from tests.specimens.activations import softmax

CONTROLS = Shelf()
add = CONTROLS.add
rng = np.random.default_rng(11)
x = rng.normal(size=7)
A = rng.normal(size=(5, 7))
labels = np.array([0, 2, 1, 2])
rows = np.arange(4)


# --- sizes and offsets
for s in (1e-12, 1e-3, 1e6, 1e15):
    add(f"f times {s:g}", lambda x, s=s: s * np.exp(-x @ x), x,
        grad=lambda x, s=s: -2 * s * x * np.exp(-x @ x))  # fmt: skip
for s in (1e-30, 1e-8, 1e8, 1e30):
    add(f"x times {s:g}", lambda x, s=s: np.tanh(x / s).sum(), x * s,
        grad=lambda x, s=s: (1 - np.tanh(x / s) ** 2) / s)  # fmt: skip
for s in (1e3, 1e7, 1e10, -1e13):
    add(f"constant {s:g}", lambda x, s=s: s + np.sin(3 * x).sum(), x,
        grad=lambda x: 3 * np.cos(3 * x))  # fmt: skip
units = np.array([1e-9, 1e-4, 1.0, 1e4, 1e9, 1.0, 1e-2])
add("mixed units", lambda x: np.log1p((x / units) ** 2).sum(), x * units,
    grad=lambda x: 2 * x / units**2 / (1 + (x / units) ** 2))  # fmt: skip
add("date in seconds", lambda t: np.sin((t - 1.7e9) / 3600).sum(), 1.7e9 + 900 * x,
    grad=lambda t: np.cos((t - 1.7e9) / 3600) / 3600)  # fmt: skip
add("one entry of 1e12", lambda x: np.log(np.abs(x)).sum() + x[1] ** 3,
    np.array([1e12, 0.7, -2.0]),
    grad=lambda x: 1 / x + np.array([0, 3 * x[1] ** 2, 0]))  # fmt: skip
# --- oscillation and curvature
for w in (1e2, 1e3, 2e4, 1e5):
    add(f"sine of {w:g} x", lambda x, w=w: np.sin(w * x).mean(), x,
        grad=lambda x, w=w: w * np.cos(w * x) / 7)  # fmt: skip
add("Fourier features", lambda x: np.cos(np.outer(2.0 ** np.arange(12), x)).sum(), x,
    grad=lambda x: -(
        2.0 ** np.arange(12)[:, None] * np.sin(np.outer(2.0 ** np.arange(12), x))
    ).sum(0))  # fmt: skip
add("chirp", lambda x: np.sin(1 / x).sum(), np.array([0.003, 0.02, -0.11]),
    grad=lambda x: -np.cos(1 / x) / x**2)  # fmt: skip
add("narrow bell", lambda x: np.exp(-(((x - 0.5) / 1e-4) ** 2)).sum(),
    np.array([0.50003, 0.4999, 0.5]),
    grad=lambda x: -2 * (x - 0.5) / 1e-8 * np.exp(-(((x - 0.5) / 1e-4) ** 2)),
    )  # fmt: skip
add("pole near", lambda x: (1 / (x - 1)).sum(), np.array([1 + 1e-5, 1 - 3e-4, 4.0]),
    grad=lambda x: -1 / (x - 1) ** 2)  # fmt: skip
add("steep sigmoid", lambda x: special.expit(1e4 * x).sum(),
    np.array([1e-5, -2e-4, 0.3]),
    grad=lambda x: 1e4 * special.expit(1e4 * x) * special.expit(-1e4 * x),
    )  # fmt: skip
# --- zeros
add("softmax sums to one", lambda z: softmax(z).sum(), x, grad=lambda z: 0 * z)
add("unused input", lambda x, y: (x**2).sum(), x, x[:3],
    grad=lambda x, y: (2 * x, 0 * y))  # fmt: skip
add("at a minimum", lambda x: ((x - 3) ** 2).sum(), np.full(4, 3.0),
    grad=lambda x: 2 * (x - 3))  # fmt: skip
add("at a minimum, offset", lambda x: 1e6 + ((x - 3) ** 2).sum(), np.full(4, 3.0),
    grad=lambda x: 2 * (x - 3))  # fmt: skip
add("all zeros in", lambda x: np.cos(x).sum(), np.zeros(5), grad=lambda x: -np.sin(x))
add("centred data", lambda x: ((x - x.mean()) ** 2).sum(), x,
    grad=lambda x: 2 * (x - x.mean()))  # fmt: skip
add("shift invariance",
    lambda b: (((A @ x + b) - (A @ x + b).mean()) ** 3).sum(), np.array(0.3),
    grad=lambda b: 0 * b)  # fmt: skip
add("power six at zero", lambda x: (x**6).sum(), np.zeros(3), grad=lambda x: 6 * x**5)
add("quintic near zero", lambda x: (x**5).sum(), np.array([1e-3, -2e-4, 1.0]),
    grad=lambda x: 5 * x**4)  # fmt: skip
# --- saturation
add("tanh at 25", lambda x: np.tanh(x).sum(), np.array([25.0, -25, 1]),
    grad=lambda x: 1 - np.tanh(x) ** 2)  # fmt: skip
add("sigmoid at 60", lambda x: special.expit(x).sum(), np.array([60.0, -60, 0.2]),
    grad=lambda x: special.expit(x) * special.expit(-x))  # fmt: skip
add("cross entropy, certain",
    lambda z: -np.log(softmax(z)[rows, labels]).mean(),
    30 * np.eye(3)[labels] + 0.1 * rng.normal(size=(4, 3)),
    grad=lambda z: (softmax(z) - np.eye(3)[labels]) / 4)  # fmt: skip
add("cross entropy, wrong",
    lambda z: (special.logsumexp(z, axis=1) - z[rows, labels]).mean(),
    -40 * np.eye(3)[labels] + 0.1 * rng.normal(size=(4, 3)),
    grad=lambda z: (softmax(z) - np.eye(3)[labels]) / 4)  # fmt: skip
add("erf tail", lambda x: special.erf(x).sum(), np.array([5.5, -6.0, 0.4]),
    grad=lambda x: 2 / np.sqrt(np.pi) * np.exp(-(x**2)))  # fmt: skip
# --- single precision
f32 = x.astype(np.float32)
add("float32 quartic", lambda x: (x**4).mean(), f32, grad=lambda x: 4 * x**3 / 7)
add("float32 logistic", lambda w: np.logaddexp(0, A.astype(np.float32) @ w).sum(), f32,
    grad=lambda w: A.T.astype(np.float32) @ special.expit(A.astype(np.float32) @ w),
    )  # fmt: skip
add("float32 offset", lambda x: (np.float32(4096) + np.sin(x)).sum(), f32,
    grad=np.cos)  # fmt: skip
add("float16 sum of squares", lambda x: (x**2).sum(), x.astype(np.float16),
    grad=lambda x: 2 * x)  # fmt: skip
add("float32 inside, mean", lambda x: float(np.cos(x.astype("f4")).mean()), x,
    grad=lambda x: -np.sin(x) / 7)  # fmt: skip
add("float32 inside, matrix",
    lambda x: np.tanh(A.astype("f4") @ x.astype("f4")).astype(float), x,
    jac=lambda x: (1 - np.tanh(A @ x) ** 2)[:, None] * A)  # fmt: skip
add("float16 inside", lambda x: float((x.astype("f2") ** 2).sum()), x,
    grad=lambda x: 2 * x)  # fmt: skip
add("rounded output", lambda x: np.round(np.sin(x).sum(), 8), x,
    grad=np.cos)  # fmt: skip
# --- edges of the domain, special values
add("log at 1e-12", lambda x: np.log(x).sum(), np.array([1e-12, 3e-7, 2.0]),
    grad=lambda x: 1 / x)  # fmt: skip
add("x log x at 1e-9", lambda p: (p * np.log(p)).sum(), np.array([1e-9, 0.2, 0.8]),
    grad=lambda p: np.log(p) + 1)  # fmt: skip
add("arccos near one", lambda x: np.arccos(x).sum(), np.array([1 - 1e-8, -0.3]),
    grad=lambda x: -1 / np.sqrt(1 - x * x))  # fmt: skip
add("power 1.5 at zero", lambda x: (x**1.5).sum(), np.array([0.0, 0.5]),
    grad=lambda x: 1.5 * np.sqrt(x))  # fmt: skip


def strict_sqrt(x):
    if (x < 0).any():
        raise ValueError("negative")
    return np.sqrt(x).sum()


add("raises beyond its domain", strict_sqrt, np.array([1e-9, 0.3, 4.0]),
    grad=lambda x: 0.5 / np.sqrt(x))  # fmt: skip
add("where with nan beside",
    lambda x: np.where(x > 1e-6, np.sqrt(np.abs(x)), 0.0).sum(),
    np.array([1.1e-6, -2.0, 3.0]),
    grad=lambda x: np.where(x > 1e-6, 0.5 / np.sqrt(np.abs(x)), 0.0))  # fmt: skip
add("inf that does not matter", lambda x, c: (x**2).sum() + (0 * c[0]), x,
    np.array([1.0, np.inf]), wrt="x",
    grad=lambda x, c: 2 * x)  # fmt: skip
add("exp near overflow", lambda x: np.exp(x).sum(), np.array([700.0, 1.0]),
    grad=np.exp)  # fmt: skip
# --- kinks
for d in (0.0, 2e-6, 5e-6, 2e-5):
    add(f"hinge, {d:g} away", lambda w, d=d: np.maximum(0, 1 - w).sum(),
        np.array([1 + d, 0.2, 3.0]), grad=lambda w: -1.0 * (w < 1))  # fmt: skip
    add(f"L1, {d:g} away", lambda w: np.abs(w).sum() + (w**2).sum(),
        np.array([d, -0.2, 3.0]), grad=lambda w: np.sign(w) + 2 * w)  # fmt: skip
    add(f"max pool, {d:g} apart", lambda z: z.reshape(2, 2).max(1).sum(),
        np.array([1.0, 1 - d, 0.2, 3.0]),
        grad=lambda z: (np.eye(2)[z.reshape(2, 2).argmax(1)]).reshape(-1),
        )  # fmt: skip
    add(f"clip, {d:g} inside", lambda z: (np.clip(z, -1, 1) * 2).sum(),
        np.array([1 - d, 0.2, 3.0]), grad=lambda z: 2.0 * (np.abs(z) <= 1))  # fmt: skip
add("sorted weights", lambda x: np.sort(x) @ np.arange(7.0), x,
    grad=lambda x: np.argsort(np.argsort(x)) * 1.0)  # fmt: skip
add("fractional part", lambda x: (x % 1.0).sum(), np.array([0.25, 7.9, -0.6]),
    grad=lambda x: np.ones(3))  # fmt: skip
