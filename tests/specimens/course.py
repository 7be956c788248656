"""The two-layer network of the course, written anew: softmax loss, one wrong line."""

from __future__ import annotations

import numpy as np


class TwoLayerNet:
    """ReLU network with a hand-written backward; `slip` multiplies the gradient of W1.

    Sizes, seeds and scales are those of the course notebook, so its figures come out.
    """

    def __init__(self, slip: float = 2.0) -> None:
        random = np.random.RandomState(0)
        self.slip = slip
        self.params = {
            "W1": 0.1 * random.randn(4, 10),
            "b1": np.zeros(10),
            "W2": 0.1 * random.randn(10, 3),
            "b2": np.zeros(3),
        }

    def loss(self, inputs, labels):
        """Mean cross-entropy and its gradients."""
        p, count = self.params, len(inputs)
        rows = np.arange(count)
        hidden = np.maximum(inputs @ p["W1"] + p["b1"], 0.0)
        scores = hidden @ p["W2"] + p["b2"]
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities = weights / weights.sum(axis=1, keepdims=True)
        loss = -np.log(probabilities[rows, labels]).mean()
        delta = probabilities.copy()
        delta[rows, labels] -= 1.0
        delta /= count
        back = (delta @ p["W2"].T) * (hidden > 0)
        gradients = {
            "W1": self.slip * (inputs.T @ back),
            "b1": back.sum(axis=0),
            "W2": hidden.T @ delta,
            "b2": delta.sum(axis=0),
        }
        return loss, gradients


def data():
    """Five samples of four features, and their classes."""
    inputs = 10 * np.random.RandomState(1).randn(5, 4)
    return inputs, np.array([0, 1, 2, 2, 1])
