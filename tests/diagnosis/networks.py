"""Planted bugs in whole networks with a scalar loss and gradients by hand."""

from __future__ import annotations

import numpy as np

from tests.diagnosis.pieces import Program, sizes
from tests.specimens.activations import sigmoid, softmax


def _softmax_loss(scores, labels):
    p = softmax(scores)
    rows = np.arange(len(scores))
    delta = p.copy()
    delta[rows, labels] -= 1
    return -np.log(p[rows, labels]).mean(), delta / len(scores)


ACT = {
    "tanh": (np.tanh, lambda z, h: 1 - h * h),
    "sigmoid": (sigmoid, lambda z, h: h * (1 - h)),
    "relu": (lambda z: np.maximum(z, 0), lambda z, h: (z > 0) * 1.0),
}


def mlp(rng, slip):
    """Two hidden layers, softmax loss, parameters in a dict; slip "what/activation"."""
    what, _, act = slip.partition("/")
    act = act or str(rng.choice(list(ACT)))
    n, d, h, k = 7, *sizes(rng, 3, 3, 6)
    g = h if what in {"W2 by itself", "dW2 transposed"} else h + 1
    f, df = ACT[act]
    X, y = rng.normal(size=(n, d)), rng.integers(0, k, n)
    p = {
        "W1": rng.normal(size=(d, h)), "b1": 0.3 * rng.normal(size=h),
        "W2": rng.normal(size=(h, g)), "b2": 0.3 * rng.normal(size=g),
        "W3": rng.normal(size=(g, k)), "b3": 0.3 * rng.normal(size=k),
    }  # fmt: skip
    penalty = 0.03 if "penalty" in what else 0.0

    def loss(p):
        z1 = X @ p["W1"] + p["b1"]
        h1 = f(z1)
        z2 = h1 @ p["W2"] + p["b2"]
        h2 = f(z2)
        value, d3 = _softmax_loss(h2 @ p["W3"] + p["b3"], y)
        value += 0.5 * penalty * sum((p[f"W{i}"] ** 2).sum() for i in (1, 2, 3))
        if what == "no mean":
            d3 = d3 * n
        if what == "sign":
            d3 = -d3
        g = {"W3": h2.T @ d3, "b3": d3.sum(0)}
        d2 = d3 @ p["W3"].T
        slope2 = df(z2, h2)
        if what == "no slope 2":
            slope2 = 1.0
        if what == "slope of z":
            slope2 = df(z2, z2)
        if what == "mask of input":
            slope2 = (h1 @ np.abs(p["W2"]) > np.median(h1 @ np.abs(p["W2"]))) * 1.0
        if what == "plus":
            slope2 = h2 * (1 + h2) if act == "sigmoid" else 1 + h2 * h2
        d2 = d2 * slope2
        g |= {"W2": h1.T @ d2, "b2": d2.sum(0)}
        if what == "stale W2":
            g["W2"] = z1.T @ d2
        if what == "dW2 transposed":
            g["W2"] = d2.T @ h1
        d1 = d2 @ (p["W2"] if what == "W2 by itself" else p["W2"].T)
        if what != "no slope 1":
            d1 = d1 * df(z1, h1)
        g |= {"W1": X.T @ d1, "b1": d1.sum(0)}
        match what:
            case "W1 before slope":
                g["W1"] = X.T @ (d2 @ p["W2"].T)
            case "W2 before slope":
                g["W2"] = h1.T @ (d3 @ p["W3"].T)
            case "W1 of last":
                g["W1"] = np.outer(X[-1], d1[-1])
            case "b1 mean":
                g["b1"] = d1.mean(0)
            case "b2 first":
                g["b2"] = d2[0]
            case "W1 zero":
                g["W1"] = 0 * g["W1"]
            case "W2 twice":
                g["W2"] = 2 * g["W2"]
            case "W3 percent":
                g["W3"] = 1.01 * g["W3"]
            case "b3 negative":
                g["b3"] = -g["b3"]
            case "W1 over n":
                g["W1"] = g["W1"] / n
            case "one entry":
                g["W2"][1, 2] *= 1.5
            case "row of W1":
                g["W1"][2] = 0
            case "W1 rolled":
                g["W1"] = np.roll(g["W1"], 1, 0)
            case "rows swapped":
                g["W2"] = g["W2"][::-1].copy()
            case "label":
                e = np.zeros((n, k))
                e[np.arange(n), y] += 1 / n
                e[np.arange(n), (y + 1) % k] -= 1 / n
                g["b3"] = g["b3"] + e.sum(0)
                g["W3"] = g["W3"] + h2.T @ e
            case "penalty double":
                for i in (1, 2, 3):
                    g[f"W{i}"] = g[f"W{i}"] + 2 * penalty * p[f"W{i}"]
            case "decay in gradient":
                for i in (1, 2, 3):
                    g[f"W{i}"] = g[f"W{i}"] + 0.05 * p[f"W{i}"]
            case "norm":
                total = np.sqrt(sum((v * v).sum() for v in g.values()))
                g = {name: 0.05 * v / total for name, v in g.items()}
            case "bound":
                g = {name: np.clip(v, -0.02, 0.02) for name, v in g.items()}
        if penalty and what not in {"penalty missing", "penalty double"}:
            for i in (1, 2, 3):
                g[f"W{i}"] = g[f"W{i}"] + penalty * p[f"W{i}"]
        return value, g

    return Program(loss, (p,))


def regression(rng, slip):
    """Linear regression with everything an input: ``mean((x w + b - t)**2)``."""
    n, d = sizes(rng, 2, 4, 7)
    t = rng.normal(size=n)

    def loss(x, w, b):
        return ((x @ w + b - t) ** 2).mean()

    def grad(x, w, b):
        r = x @ w + b - t
        c = 2 / n
        match slip:
            case "no two":
                c = 1 / n
            case "no mean":
                c = 2
            case "mean twice":
                c = 2 / n**2
            case "target minus output":
                r = -r
        dx, dw, db = c * np.outer(r, w), c * x.T @ r, c * r.sum()
        match slip:
            case "dx for one":
                dx[1:] = 0
            case "dw by r":
                dw = c * x.T @ np.sign(r)
            case "db times n":
                db = db * n
            case "dx flipped":
                dx = dx[::-1].copy()
            case "last column":
                dw[-1] = 0
        return dx, dw, db

    arrays = rng.normal(size=(n, d)), rng.normal(size=d), rng.normal()
    return Program(loss, arrays, {"grad": grad, "wrt": ["x", "w"]})


def recurrent(rng, slip):
    """Tanh recurrence over a batch, loss on the last state; gradients in a dict."""
    t, n, d, h = 4, 5, *sizes(rng, 2, 2, 4)
    X, target = rng.normal(size=(t, n, d)), rng.normal(size=(n, h))
    p = {
        "Wx": rng.normal(size=(d, h)),
        "Wh": rng.normal(size=(h, h)),
        "b": rng.normal(size=h),
    }

    def loss(p):
        states = [np.zeros((n, h)) + 0.3]
        for i in range(t):
            states.append(np.tanh(X[i] @ p["Wx"] + states[-1] @ p["Wh"] + p["b"]))
        r = states[-1] - target
        g = {name: np.zeros_like(v) for name, v in p.items()}
        dh = r / n
        for i in reversed(range(t)):
            da = dh * (1 - states[i + 1] ** 2)
            new = {
                "Wx": X[i].T @ da,
                "Wh": states[i].T @ da,
                "b": da.sum(0),
            }
            for name, value in new.items():
                if slip == f"assign {name}":
                    g[name] = value
                else:
                    g[name] = g[name] + value
            dh = da @ (p["Wh"] if slip == "carry by Wh" else p["Wh"].T)
            if slip == "truncated":
                break
        if slip == "Wh doubled":
            g["Wh"] *= 2
        if slip == "no mean":
            g = {name: n * v for name, v in g.items()}
        return 0.5 * (r * r).sum() / n, g

    return Program(loss, (p,))


def factors_(rng, slip):
    """Matrix factorisation with weights shared: ``|A B + A - M|^2 / 2``."""
    n, k = sizes(rng, 2, 3, 6)
    M = rng.normal(size=(n, k))

    def loss(A, B):
        r = A @ B + A - M
        dA, dB = r @ B.T + r, A.T @ r
        match slip:
            case "one use":
                dA = r @ B.T
            case "other use":
                dA = r
            case "twice":
                dA = r @ B.T + 2 * r
            case "B":
                dA = r @ B + r
            case "dB transposed":
                dB = r.T @ A
            case "half":
                dA, dB = 0.5 * dA, 0.5 * dB
        return 0.5 * (r * r).sum(), (dA, dB)

    return Program(loss, (rng.normal(size=(n, k)), rng.normal(size=(k, k))))


def conjugates(rng, slip):
    """Complex gradients of a real loss."""
    n = sizes(rng, 1)[0] + 2
    w = rng.normal(size=n) + 1j * rng.normal(size=n)

    def loss(z):
        return float(np.abs(z * z - w).sum() ** 2)

    def grad(z):
        u = z * z - w
        g = 2 * np.abs(u).sum() * (u / np.abs(u)) * np.conj(2 * z)
        match slip:
            case "conjugate":
                g = g.conj()
            case "holomorphic":
                g = 2 * np.abs(u).sum() * (u / np.abs(u)) * 2 * z
            case "half":
                g = g / 2
        return g

    z = rng.normal(size=n) + 1j * rng.normal(size=n)
    return Program(loss, (z,), {"grad": grad})


def accumulated(rng, slip):
    """Gradients handed over, added up over passes while the parameters drift."""
    d = 3 + sizes(rng, 1)[0]
    X, w = rng.normal(size=(20, d)), rng.normal(size=d)
    passes = int(rng.integers(3, 12))
    total = np.zeros(d)
    for _ in range(passes):
        gradient = np.tanh(X @ w) @ X / len(X)
        total = total + gradient if slip else gradient
        if slip == "while training":
            w = w - 1e-3 * gradient
    if slip == "while training":
        w = w + 1e-3 * gradient
    return Program(
        lambda w: float(np.log(np.cosh(X @ w)).sum()) / len(X), (w,), {"grad": total}
    )


_ALL = ("W1", "b1", "W2", "b2", "W3", "b3")
_LAST = ("W2", "b2")
SLIPS = {
    (mlp, slip): (kind, also, roots)
    for slip, kind, also, roots in (
        ("no mean", "missing_reduction", (), _ALL),
        ("sign", "sign", (), _ALL),
        ("no slope 2/tanh", "wrong_derivative", ("missing_term",), _LAST),
        ("no slope 2/sigmoid", "wrong_derivative", ("missing_term",), _LAST),
        ("no slope 2/relu", "wrong_mask", ("missing_term",), _LAST),
        ("no slope 1/relu", "wrong_mask", ("missing_term",), ("W1", "b1")),
        ("no slope 1/tanh", "wrong_derivative", ("missing_term",), ("W1", "b1")),
        ("slope of z/tanh", "stale_cache", ("wrong_derivative",), _LAST),
        ("slope of z/sigmoid", "stale_cache", ("wrong_derivative",), _LAST),
        ("mask of input/relu", "wrong_mask", (), _LAST),
        ("plus/sigmoid", "wrong_derivative", (), _LAST),
        ("plus/tanh", "wrong_derivative", (), _LAST),
        ("stale W2/relu", "stale_cache", (), ("W2",)),
        ("stale W2/tanh", "stale_cache", (), ("W2",)),
        ("W2 by itself", "transpose", (), ("W1", "b1")),
        ("dW2 transposed", "transpose", (), ("W2",)),
        ("b1 mean", "missing_reduction", ("scale",), ("b1",)),
        ("b2 first", "broadcast_reduction", (), ("b2",)),
        ("W1 zero", "detached", (), ("W1",)),
        ("W2 twice", "scale", (), ("W2",)),
        ("W3 percent", "scale", (), ("W3",)),
        ("b3 negative", "sign", (), ("b3",)),
        ("W1 over n", "missing_reduction", (), ("W1",)),
        ("one entry", "scale", (), ("W2",)),
        ("row of W1", "detached", ("wrong_index", "wrong_mask"), ("W1",)),
        ("W1 rolled", "wrong_index", (), ("W1",)),
        ("rows swapped", "wrong_index", (), ("W2",)),
        ("label", "wrong_index", (), ("W3", "b3")),
        ("penalty missing", "regularization", (), ("W1", "W2", "W3")),
        ("penalty double", "regularization", (), ("W1", "W2", "W3")),
        ("decay in gradient", "regularization", (), ("W1", "W2", "W3")),
        ("norm", "surrogate", (), _ALL),
        ("bound", "surrogate", (), _ALL),
    )
} | {
    (regression, "no two"): ("scale", (), ("x", "w")),
    (regression, "no mean"): ("missing_reduction", (), ("x", "w")),
    (regression, "mean twice"): ("missing_reduction", (), ("x", "w")),
    (regression, "target minus output"): ("sign", (), ("x", "w")),
    (regression, "dx for one"): (
        "broadcast_reduction", ("detached", "wrong_mask"), ("x",),
    ),
    (regression, "dw by r"): ("wrong_derivative", ("missing_term",), ("w",)),
    (regression, "dx flipped"): ("wrong_index", (), ("x",)),
    (regression, "last column"): ("wrong_index", ("detached",), ("w",)),
    (recurrent, "assign Wx"): ("lost_accumulation", (), ("Wx",)),
    (recurrent, "assign Wh"): ("lost_accumulation", (), ("Wh",)),
    (recurrent, "assign b"): ("lost_accumulation", (), ("b",)),
    (recurrent, "truncated"): (
        "missing_term", ("lost_accumulation",), ("Wx", "Wh", "b"),
    ),
    (recurrent, "carry by Wh"): ("transpose", (), ("Wx", "Wh", "b")),
    (recurrent, "Wh doubled"): ("scale", (), ("Wh",)),
    (recurrent, "no mean"): ("missing_reduction", (), ("Wx", "Wh", "b")),
    (factors_, "one use"): ("missing_term", ("lost_accumulation",), ("A",)),
    (factors_, "other use"): ("missing_term", ("lost_accumulation",), ("A",)),
    (factors_, "twice"): ("extra_term", (), ("A",)),
    (factors_, "B"): ("transpose", (), ("A",)),
    (factors_, "dB transposed"): ("transpose", (), ("B",)),
    (factors_, "half"): ("scale", (), ("A", "B")),
    (conjugates, "conjugate"): ("conjugate", (), ("z",)),
    (conjugates, "holomorphic"): ("conjugate", (), ("z",)),
    (conjugates, "half"): ("scale", (), ("z",)),
    (accumulated, "while training"): ("accumulated_grad", (), ("w",)),
    (accumulated, "exactly"): ("accumulated_grad", (), ("w",)),
}  # fmt: skip

del SLIPS[factors_, "dB transposed"]  # B is square, A is not: nothing to transpose

CONTROLS = (mlp, regression, recurrent, factors_, conjugates, accumulated)
