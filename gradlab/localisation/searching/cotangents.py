"""Weights of the output rows, by which several outputs become one number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.origin import Origin

__all__ = ["draw_cotangent"]


def draw_cotangent(origin: Origin, rng: np.random.Generator) -> NDArray[np.float64]:
    """Random signs and sizes for the output rows, each output on its own scale.

    A single row gets 1. Rows that are not finite at the point get 0: nothing can be
    said about them.
    """
    base = origin.base
    finite = np.isfinite(base)
    if len(base) == 1:
        return finite.astype(np.float64)
    weights = rng.choice([-1.0, 1.0], len(base)) * rng.uniform(1.0, 2.0, len(base))
    start = 0
    for output in origin.subject.outputs:
        rows = slice(start, start + output.size)
        start += output.size
        size = np.abs(base[rows][finite[rows]])
        top = float(size.max(initial=0.0))
        if top > 0:
            typical = top * float(np.sqrt(np.mean((size / top) ** 2)))
            weights[rows] /= np.exp2(np.round(np.log2(typical)))
    return np.asarray(np.where(finite, weights, 0.0))
