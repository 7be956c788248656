"""Blocks made by hand: two sides and their bars, as the steps of a check see them."""

from __future__ import annotations

import numpy as np

from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.blocks import Block


def block(analytic, value, error, **changes):
    """Return a block of smooth entries with scale one, none of them looked at again."""
    analytic, value, error = np.broadcast_arrays(
        *(np.atleast_2d(np.asarray(a, float)) for a in (analytic, value, error))
    )
    rows, n = analytic.shape
    scales = changes.get("scales", np.ones(n))
    fields = {
        "which": 0,
        "name": "x",
        "positions": np.arange(n),
        "scales": scales,
        "sizes": scales,
        "height": np.ones((rows, 1)),
        "analytic": analytic.copy(),
        "slack": np.zeros((rows, n)),
        "value": value.copy(),
        "error": error.copy(),
        "step": np.full((rows, n), 1e-5),
        "kinds": np.full((rows, n), Smoothness.SMOOTH, np.int8),
        "left": value.copy(),
        "right": value.copy(),
        "verdicts": np.zeros((rows, n), np.int8),
        "allowed": np.zeros((rows, n)),
        "accepted": np.zeros((rows, n), bool),
        "looked": np.zeros(n, bool),
        "still": np.full((rows, 1), 1e-9),
        "bend": np.zeros((rows, n)),
    }
    return Block(**fields | changes)
