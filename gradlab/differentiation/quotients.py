"""What every cheap numeric method hands back: values, error bars, steps."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.late import Late

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Pattern", "Quotients"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Columns that each row may depend on, and what was measured there.

    Attributes
    ----------
    columns
        Shape (rows, k); rows with fewer columns repeat one.
    valid
        False where a column is such a repetition, shape (rows, k).
    outside
        Bar of the zeros elsewhere, times the scale of their coordinate; shape (rows,).
    value, error, bend
        Slope, its error bar, and slope to the right minus slope to the left, of these
        entries; (rows, k).
    scales
        Size of each coordinate, (n,).
    """

    columns: NDArray[np.intp]
    valid: NDArray[np.bool_]
    outside: NDArray[np.float64]
    value: NDArray[np.float64]
    error: NDArray[np.float64]
    bend: NDArray[np.float64]
    scales: NDArray[np.float64]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the whole matrix."""
        return len(self.columns), len(self.scales)

    @property
    def worst_zero(self) -> float:
        """Bound on the error bars of the zeros."""
        widest = self.outside.max(initial=0.0)
        return float(widest / self.scales.min(initial=np.inf))

    def spread(self, values: NDArray[np.float64], whole: NDArray[np.float64]) -> None:
        """Put values of the entries, (rows, k), into their places in a matrix."""
        rows = np.arange(len(whole))[:, None]
        # of rows that depend on nothing, whatever stands there stays
        some = np.where(self.valid[:, :1], values, whole[rows, self.columns])
        whole[rows, self.columns] = some

    def values(self) -> NDArray[np.float64]:
        """Make the matrix of all slopes, (rows, n)."""
        whole = np.zeros(self.shape)
        self.spread(self.value, whole)
        return whole

    def errors(self) -> NDArray[np.float64]:
        """Make the matrix of all error bars, (rows, n)."""
        with np.errstate(all="ignore"):
            whole = np.multiply.outer(self.outside, 1 / self.scales)
        self.spread(self.error, whole)
        return whole

    def bends(self) -> NDArray[np.float64]:
        """Make the matrix of all bends, (rows, n)."""
        whole = np.zeros(self.shape)
        self.spread(self.bend, whole)
        return whole


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Quotients:
    """Difference quotients of some coordinates of one input, all of shape (rows, n).

    Attributes
    ----------
    value, error
        Slope and its estimated absolute error, in units of output per input; made
        when asked for, where `pattern` holds them.
    step
        Displacement that was really made, in the units of the input.
    bend
        Slope to the right minus slope to the left; nan where it is not known, or
        where `pattern` holds it.
    pattern
        Where all but a few entries are known to be zero; None: nothing is known.
    """

    value: Late = Late()
    error: Late = Late()
    step: NDArray[np.float64]
    bend: NDArray[np.float64]
    pattern: Pattern | None = None
