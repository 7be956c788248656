"""A smooth two-layer network of which the gradient of W1 is doubled."""

from __future__ import annotations

import numpy as np


def doubled():
    """Return ``loss_and_grads`` and its params; W1 is wrong, the others are right."""
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(5, 4)), rng.normal(size=(5, 3))
    params = {
        "W1": rng.normal(size=(4, 10)),
        "b1": rng.normal(size=10),
        "W2": rng.normal(size=(10, 3)),
        "b2": rng.normal(size=3),
    }

    def loss_and_grads(p):
        h = np.tanh(X @ p["W1"] + p["b1"])
        d = (h @ p["W2"] + p["b2"] - Y) / 5
        dh = d @ p["W2"].T * (1 - h * h)
        grads = {"W1": 2 * X.T @ dh, "b1": dh.sum(0), "W2": h.T @ d, "b2": d.sum(0)}
        return 2.5 * (d * d).sum(), grads

    return loss_and_grads, params
