"""Weights of a random direction: one for each index along an axis, or none at all.

What is wrong in one row only changes with the weight of that row, so two lines that
differ by their weights tell which row it is.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["AxisWeights", "MaskWeights", "Weights"]


class Weights(Protocol):
    """Numbers by which the values of a direction are multiplied."""

    def cut(self, start: int, stop: int) -> NDArray[np.float64]:
        """Weights of the coordinates ``start .. stop``."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AxisWeights:
    """One number for each index along an axis: `stride` coordinates lie between two.

    Examples
    --------
    >>> AxisWeights(np.array([1.0, -2.0]), 3).cut(2, 8)
    array([ 1., -2., -2., -2.,  1.,  1.])
    """

    numbers: NDArray[np.float64]
    stride: int

    def cut(self, start: int, stop: int) -> NDArray[np.float64]:
        """Weights of the coordinates ``start .. stop``."""
        indices = np.arange(start, stop) // self.stride % len(self.numbers)
        return np.asarray(self.numbers[indices])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class MaskWeights:
    """One for the coordinates that move, zero for those that stay."""

    moves: NDArray[np.bool_]

    def cut(self, start: int, stop: int) -> NDArray[np.float64]:
        """Weights of the coordinates ``start .. stop``."""
        return self.moves[start:stop].astype(np.float64)
