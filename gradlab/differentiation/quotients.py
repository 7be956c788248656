"""What every cheap numeric method hands back: values, error bars, steps."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Pattern", "Quotients"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Columns that each row may depend on.

    Attributes
    ----------
    columns
        Shape (rows, k); rows with fewer columns repeat one.
    valid
        False where a column is such a repetition, shape (rows, k).
    outside
        Bar of the zeros elsewhere, times the scale of their coordinate; shape (rows,).
    bend
        Slope to the right minus slope to the left of these entries, (rows, k).
    """

    columns: NDArray[np.intp]
    valid: NDArray[np.bool_]
    outside: NDArray[np.float64]
    bend: NDArray[np.float64]

    def spread(self, values: NDArray[np.float64], whole: NDArray[np.float64]) -> None:
        """Put values of the entries, (rows, k), into their places in a matrix."""
        rows = np.arange(len(whole))[:, None]
        # of rows that depend on nothing, whatever stands there stays
        some = np.where(self.valid[:, :1], values, whole[rows, self.columns])
        whole[rows, self.columns] = some


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Quotients:
    """Difference quotients of some coordinates of one input, all of shape (rows, n).

    Attributes
    ----------
    value, error
        Slope and its estimated absolute error, in units of output per input.
    step
        Displacement that was really made, in the units of the input.
    bend
        Slope to the right minus slope to the left; nan where it is not known, or
        where `pattern` holds it.
    pattern
        Where all but a few entries are known to be zero; None: nothing is known.
    """

    value: NDArray[np.float64]
    error: NDArray[np.float64]
    step: NDArray[np.float64]
    bend: NDArray[np.float64]
    pattern: Pattern | None = None
