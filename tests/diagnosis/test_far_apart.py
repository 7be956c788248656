"""Sides that are hundreds of decades apart, or no numbers, stop no detector."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradlab as gl
from tests.specimens.activations import softmax


def _classifier(seed: int, n: int, d: int, h: int, c: int, size: float) -> Any:
    """Make a ReLU network with a softmax, and its parameters."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, d)), rng.integers(0, c, n)
    shapes = {"W1": (d, h), "b1": (h,), "W2": (h, c), "b2": (c,)}
    params = {name: size * rng.normal(size=shape) for name, shape in shapes.items()}

    def loss_and_grads(p: Any) -> Any:
        hidden = np.maximum(x @ p["W1"] + p["b1"], 0)
        scores = hidden @ p["W2"] + p["b2"]
        odds = softmax(scores)
        loss = -np.log(odds[np.arange(n), y]).mean() + 0.1 * (p["W1"] ** 2).sum()
        delta = odds.copy()
        delta[np.arange(n), y] -= 1
        delta /= n
        below = (delta @ p["W2"].T) * (hidden > 0)
        grads = {"W2": hidden.T @ delta, "b2": delta.sum(axis=0)}
        grads |= {"W1": x.T @ below + 0.2 * p["W1"], "b1": below.sum(axis=0)}
        return loss, grads

    return loss_and_grads, params


def _half(w: Any) -> Any:
    return np.where(np.arange(w.size).reshape(w.shape) % 2, w, 0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("sizes", "size", "slips"),
    [
        ((5, 1, 2, 4), 1.0, {"W2": _half, "b2": lambda b: b * np.nan}),
        ((5, 4, 4, 5), 1.0, {"W2": _half, "b2": lambda b: 1e200 * b}),
        (
            (1, 2, 3, 5),
            1e-160,
            {"W1": lambda w: 1e200 * w, "b2": lambda b: np.roll(b, 1)},
        ),
    ],
)
def test_every_slip_is_told(
    sizes: tuple[int, int, int, int], size: float, slips: Any, seed: int
) -> None:
    """Of an input that is wrong some finding speaks, and no detector fails."""
    right, params = _classifier(seed, *sizes, size)

    def wrong(p: Any) -> Any:
        loss, grads = right(p)
        return loss, grads | {name: slip(grads[name]) for name, slip in slips.items()}

    report = gl.check(wrong, params)

    told = {place for finding in report.findings for place in finding.places}
    assert {c.input.name for c in report.comparisons if c.verdict == 2} <= told
