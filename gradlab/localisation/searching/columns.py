"""One coordinate with both its derivatives, and the weights that contract rows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.differentiation.sizes.magnitudes import magnitudes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from gradlab.differentiation.origin import Origin

__all__ = ["Column", "apart", "draw_cotangent", "right_at_kinks", "scale_of"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One coordinate, differentiated with care.

    Attributes
    ----------
    numeric, error, step
        For every real output row, shape (rows,).
    analytic
        Contracted with the cotangent, as is `expected`.
    expected, bar
        Numeric counterpart of `analytic` and its error bar.
    allowed
        What the tolerance forgives.
    means
        Where f has a kink, and `numeric` is the slope on the side nearest to the
        analytic one: the mean of both, (rows,), which central differences see.
    """

    numeric: NDArray[np.float64]
    error: NDArray[np.float64]
    step: NDArray[np.float64]
    analytic: float
    expected: float
    bar: float
    allowed: float
    means: NDArray[np.float64] | None = None

    @property
    def seen(self) -> NDArray[np.float64]:
        """Slopes as central differences see them, shape (rows,)."""
        return self.numeric if self.means is None else self.means

    def weighed(self, cotangent: NDArray[np.float64]) -> float:
        """Weigh these by a cotangent, shape (rows,); infinite ones say nothing."""
        slopes = np.nan_to_num(self.seen, posinf=0.0, neginf=0.0)
        return float(np.dot(cotangent, slopes))

    @property
    def corrected(self) -> bool:
        """Whether directions are to see it otherwise: wrong, or right at a kink."""
        return self.differs or self.means is not None

    @property
    def differs(self) -> bool:
        """Whether the two differ by more than the error bar explains."""
        return apart(self.analytic, self.expected, SAFETY * self.bar)

    @property
    def wrong(self) -> bool:
        """Whether they differ by more than the tolerance forgives as well."""
        return self.differs and apart(self.analytic, self.expected, self.allowed)

    @property
    def least(self) -> float:
        """Smallest error that would have been seen."""
        return max(self.allowed, SAFETY * self.bar)

    @property
    def told(self) -> bool:
        """Whether the error bar leaves anything of the derivative."""
        size = np.fmax(abs(self.analytic), abs(self.expected))
        return bool(SAFETY * self.bar <= size)


def apart(analytic: float, numeric: float, slack: float) -> bool:
    """Whether two values differ by more than `slack`; an analytic nan or inf does."""
    if np.isfinite(numeric) and not np.isfinite(analytic):
        return True
    return bool(abs(analytic - numeric) > slack)


def right_at_kinks(known: Mapping[tuple[int, int], Column]) -> dict[int, list[int]]:
    """List coordinates that are right by themselves where f has a kink, by input."""
    found: dict[int, list[int]] = {}
    for (which, position), column in known.items():
        if column.means is not None and not column.wrong:
            found.setdefault(which, []).append(position)
    return found


def scale_of(gradient: NDArray[np.float64]) -> float:
    """Return the second largest entry of a gradient; the only one where there is one.

    The second: one entry that is wrong by a factor of a million must not raise what is
    forgiven to itself.
    """
    size = magnitudes(gradient)
    return size.largest if len(gradient) < 2 else size.second


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
