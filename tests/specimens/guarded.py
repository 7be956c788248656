"""What a `StateGuard` watches over in its tests, and how its changes are read."""

from __future__ import annotations

import numpy as np


def names(guard):
    """Changes as pairs, which is what the engine's findings are made from."""
    return {(change.kind, change.where) for change in guard.changes()}


def bits(tensor):
    """Memory of a tensor, nan and -0.0 told apart."""
    return tensor.detach().clone().contiguous().numpy().tobytes()  # .numpy() pins


class Net:
    """A user's network: attributes, a cache, a class-level array."""

    shared = np.zeros(3)

    def __init__(self):
        self.params = {"W1": np.ones((2, 3)), "b1": np.zeros(3)}
        self.cache = None

    def loss(self, x):
        """Leave a cache behind, as a forward pass does."""
        self.cache = x @ self.params["W1"]
        return float(self.cache.sum())
