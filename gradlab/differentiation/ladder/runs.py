"""Runs of neighbouring rungs, and the estimate that the best of them gives."""

from __future__ import annotations

import dataclasses

import numpy as np

__all__ = ["Estimate", "Pick", "Runs"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """The best extrapolated slope of every entry; all arrays (C, m).

    Attributes
    ----------
    value, truncation, rounding
        Slope and the two parts of its bar.
    noise
        Absolute noise of f that the rounding part rests on.
    bottom, top
        Indices of the smallest and the largest rung used.
    unexplained
        True where the smallest rung of all strays and nothing below it can tell
        whether that is noise or structure.
    known
        What plain rounding of f and of its argument would leave as noise.
    split
        Index of the rung above which one is missing to tell rounding inside f from
        fine structure; nan where none is.
    hidden
        Error that jumps too small to see directly may cause; 0 where none show.
    ledge
        The part of it that a seen ledge causes, and not a series that goes on oddly.
    """

    value: np.ndarray
    truncation: np.ndarray
    rounding: np.ndarray
    noise: np.ndarray
    bottom: np.ndarray
    top: np.ndarray
    unexplained: np.ndarray
    known: np.ndarray
    split: np.ndarray
    hidden: np.ndarray
    ledge: np.ndarray

    @property
    def error(self) -> np.ndarray:
        """Estimated absolute error."""
        return np.asarray(self.truncation + self.rounding)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Runs of neighbouring rungs; arrays (runs, C, m), indices (runs,)."""

    value: np.ndarray
    truncation: np.ndarray
    away: np.ndarray
    rounding: np.ndarray
    noise: np.ndarray
    lever: np.ndarray
    known: np.ndarray
    loud: np.ndarray
    bottom: np.ndarray
    top: np.ndarray


class Pick:
    """Takes from arrays (K, C, m) the layer that an index (C, m) names.

    Examples
    --------
    >>> Pick(np.array([[1, 0]]))(np.array([[[1.0, 2.0]], [[3.0, 4.0]]]))
    array([[3., 2.]])
    """

    def __init__(self, index: np.ndarray) -> None:
        self._shape = index.shape
        self._flat = index.ravel() * index.size + np.arange(index.size)

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """Take one layer of each entry, in the shape of the index."""
        return np.asarray(array.reshape(-1)[self._flat].reshape(self._shape))
