"""Formulas with derivatives by hand, as jac=, grad= and vjp=, with slips."""

from __future__ import annotations

import numpy as np

from tests.diagnosis.pieces import Program


def arm(rng, slip):
    """Robot arm with three joints: position of the hand by angles, jac=."""
    lengths = np.array([1.0, 0.7, 0.4])

    def hand(q):
        a = np.cumsum(q)
        return np.array([lengths @ np.cos(a), lengths @ np.sin(a)])

    def jac(q):
        a = np.cumsum(q)
        c, s = lengths * np.cos(a), lengths * np.sin(a)
        J = np.array(
            [[-s[i:].sum() for i in range(3)], [c[i:].sum() for i in range(3)]]
        )
        match slip:
            case "own joint only":
                J = np.array([-s, c])
            case "angles not summed":
                c, s = lengths * np.cos(q), lengths * np.sin(q)
                J = np.array([[-s[i:].sum() for i in range(3)],
                              [c[i:].sum() for i in range(3)]])  # fmt: skip
            case "sign":
                J[0] *= -1
            case "rows exchanged":
                J = J[::-1]
            case "degrees":
                J = J * np.pi / 180
            case "transposed":
                J = J.T
            case "last joint":
                J[:, 2] = 0
        return J

    return Program(hand, (rng.normal(size=3),), {"jac": jac})


def quadratic(rng, slip):
    """x' A x with A not symmetric, plus b' x."""
    n = 4
    A, b = rng.normal(size=(n, n)), rng.normal(size=n)

    def grad(x):
        return {
            "2 A x": 2 * A @ x + b,
            "A x": A @ x + b,
            "A.T twice": 2 * A.T @ x + b,
            "no b": (A + A.T) @ x,
            "b twice": (A + A.T) @ x + 2 * b,
        }.get(slip, (A + A.T) @ x + b)

    return Program(lambda x: x @ A @ x + b @ x, (rng.normal(size=n),), {"grad": grad})


def matrix_functions(rng, slip):
    """log det, inverse and trace, as vjp=."""
    n = 3
    B = rng.normal(size=(n, n))

    def fn(X):
        inverse = np.linalg.inv(X)
        return inverse @ B, np.log(abs(np.linalg.det(X)))

    def vjp(up, X):
        first, second = up
        inv = np.linalg.inv(X)
        match slip:
            case "inv untransposed":
                return -inv.T @ first @ B.T @ inv.T + second * inv
            case "sign":
                return inv.T @ first @ B.T @ inv.T + second * inv.T
            case "log det lost":
                return -inv.T @ first @ B.T @ inv.T
            case "second ignored":
                return -inv.T @ first @ B.T @ inv.T + inv.T
            case "all untransposed":
                return -inv @ first @ B.T @ inv + second * inv.T
        return -inv.T @ first @ B.T @ inv.T + second * inv.T

    X = rng.normal(size=(n, n)) + 3 * np.eye(n)
    return Program(fn, (X,), {"vjp": vjp})


def kernel(rng, slip):
    """Gaussian kernel between two sets of points, vjp=."""
    n, m, d = 3, 4, 2

    def fn(x, y):
        return np.exp(-0.5 * ((x[:, None] - y[None]) ** 2).sum(-1))

    def vjp(up, x, y):
        k, diff = fn(x, y), x[:, None] - y[None]
        w = (up * k)[:, :, None] * diff
        match slip:
            case "no half":
                return -2 * w.sum(1), 2 * w.sum(0)
            case "dy sign":
                return -w.sum(1), -w.sum(0)
            case "k lost":
                return -(up[:, :, None] * diff).sum(1), w.sum(0)
            case "dx of first":
                return -w[:, 0], w.sum(0)
            case "up lost":
                return -(k[:, :, None] * diff).sum(1), w.sum(0)
            case "swapped":
                return w.sum(1), -w.sum(0)
        return -w.sum(1), w.sum(0)

    return Program(fn, (rng.normal(size=(n, d)), rng.normal(size=(m, d))), {"vjp": vjp})


def waves(rng, slip):
    """Complex amplitude with a real energy."""
    n = 5
    F = np.exp(-2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)
    t = rng.normal(size=n)

    def loss(z):
        return float((((np.abs(F @ z) ** 2) - t) ** 2).sum())

    def grad(z):
        y = F @ z
        r = np.abs(y) ** 2 - t
        g = 4 * F.conj().T @ (r * y)
        match slip:
            case "transpose for adjoint":
                g = 4 * F.T @ (r * y)
            case "conjugated":
                g = g.conj()
            case "half":
                g = g / 2
            case "no residual":
                g = 4 * F.conj().T @ y
            case "real part":
                g = g.real + 0j
        return g

    return Program(
        loss, (rng.normal(size=n) + 1j * rng.normal(size=n),), {"grad": grad}
    )


SLIPS = {
    (arm, "own joint only"): ("missing_term", (), ("q",)),
    (arm, "angles not summed"): ("wrong_derivative", ("stale_cache",), ("q",)),
    (arm, "sign"): ("sign", (), ("q",)),
    (arm, "rows exchanged"): ("wrong_index", (), ("q",)),
    (arm, "degrees"): ("scale", (), ("q",)),
    (arm, "transposed"): ("wrong_shape", ("transpose",), ("q",)),
    (arm, "last joint"): ("wrong_index", ("detached",), ("q",)),
    (quadratic, "2 A x"): ("transpose", ("wrong_derivative", "missing_term"), ("x",)),
    (quadratic, "A x"): ("missing_term", ("transpose",), ("x",)),
    (quadratic, "A.T twice"): (
        "transpose", ("wrong_derivative", "missing_term"), ("x",),
    ),
    (quadratic, "no b"): ("missing_term", (), ("x",)),
    (quadratic, "b twice"): ("extra_term", (), ("x",)),
    (matrix_functions, "inv untransposed"): ("transpose", (), ("X",)),
    (matrix_functions, "sign"): ("sign", (), ("X",)),
    (matrix_functions, "log det lost"): ("missing_term", ("detached",), ("X",)),
    (matrix_functions, "second ignored"): ("ignores_upstream", (), ("X",)),
    (matrix_functions, "all untransposed"): ("transpose", (), ("X",)),
    (kernel, "no half"): ("scale", (), ("x", "y")),
    (kernel, "dy sign"): ("sign", (), ("y",)),
    (kernel, "k lost"): ("missing_term", ("wrong_derivative",), ("x",)),
    (kernel, "dx of first"): ("broadcast_reduction", ("lost_accumulation",), ("x",)),
    (kernel, "up lost"): ("ignores_upstream", (), ("x",)),
    (kernel, "swapped"): ("sign", (), ("x", "y")),
    (waves, "transpose for adjoint"): ("conjugate", ("transpose",), ("z",)),
    (waves, "conjugated"): ("conjugate", (), ("z",)),
    (waves, "half"): ("scale", (), ("z",)),
    (waves, "no residual"): ("missing_term", ("wrong_derivative",), ("z",)),
    (waves, "real part"): ("missing_term", ("detached", "conjugate", "dtype"), ("z",)),
}  # fmt: skip

CONTROLS = (arm, quadratic, matrix_functions, kernel, waves)
