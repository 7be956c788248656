"""What every cheap numeric method hands back: values, error bars, steps."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.late import Late

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.sparse.support import Support

__all__ = ["BENT", "Pattern", "Quotients"]

BENT = 1.5e-3  # one-sided slopes further apart than this, relative to the slope, kink


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Columns that each row may depend on, and what was measured there.

    Attributes
    ----------
    support
        These columns.
    outside
        Bar of the zeros elsewhere, times the scale of their coordinate; shape (rows,).
    value, error, bend
        Slope, its error bar, and slope to the right minus slope to the left, of these
        entries; (rows, k).
    scales
        Size of each coordinate, (n,).
    """

    support: Support
    outside: NDArray[np.float64]
    value: NDArray[np.float64]
    error: NDArray[np.float64]
    bend: NDArray[np.float64]
    scales: NDArray[np.float64]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the whole matrix."""
        return self.support.shape

    @property
    def worst_zero(self) -> float:
        """Bound on the error bars of the zeros."""
        widest = self.outside.max(initial=0.0)
        return float(widest / self.scales.min(initial=np.inf))

    def values(self) -> NDArray[np.float64]:
        """Make the matrix of all slopes, (rows, n)."""
        whole = np.zeros(self.shape)
        self.support.put(self.value, whole)
        return whole

    def errors(self) -> NDArray[np.float64]:
        """Make the matrix of all error bars, (rows, n)."""
        with np.errstate(all="ignore"):
            whole = np.multiply.outer(self.outside, 1 / self.scales)
        self.support.put(self.error, whole)
        return whole

    def bends(self) -> NDArray[np.float64]:
        """Make the matrix of all bends, (rows, n)."""
        whole = np.zeros(self.shape)
        self.support.put(self.bend, whole)
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
    through
        Entries of the product that was displaced instead of these coordinates
        (`differentiation.products`); 0 where they were themselves.
    """

    value: Late = Late()
    error: Late = Late()
    step: NDArray[np.float64]
    bend: NDArray[np.float64]
    pattern: Pattern | None = None
    through: int = 0
