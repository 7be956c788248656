"""One wrong input as detectors see it, and the measure that ranks explanations.

An explanation is a model of the analytic side made from the numeric one ("twice it",
"its transpose"). How good it is, is the share of the error that it accounts for.
"""

from __future__ import annotations

import dataclasses
import functools
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.diagnosis.finding import BugKind, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.diagnosis.evidence import Evidence, Part
    from gradlab.subject.subject import Variable

__all__ = [
    "EXACT",
    "NEARLY_RIGHT",
    "Case",
    "Clue",
    "cases_of",
    "fraction_words",
    "reaches",
    "vanishing_sums",
]

EXACT = 0.98  # share of the error above which an explanation is called exact
# what to do about a gradient that is off by very little
NEARLY_RIGHT = (
    "If the function iterates or integrates to a tolerance, make that smaller: where "
    "the difference shrinks with it the gradient is right. Else compare constants of "
    "forward and backward: an epsilon, a rounded coefficient, n for n - 1."
)
_QUICK = 1024  # entries
_SIMPLE = 1e-4  # relative: so close to a simple ratio a factor is that ratio
_ROUNDINGS = 1e3  # units of round-off of the analytic side


@dataclasses.dataclass(frozen=True, slots=True)
class Clue:
    """A finding about one input in the making: its place is filled in at the end."""

    kind: BugKind
    confidence: float
    evidence: str
    advice: str

    def finding(self, where: str) -> Finding:
        """Return it as an error of the input `where`."""
        bounded = float(min(max(self.confidence, 0.0), 1.0))
        return Finding(self.kind, "error", where, bounded, self.evidence, self.advice)


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """One input whose gradient is wrong.

    Matrices are in real coordinates, shape (rows, n): all outputs below each other.
    """

    evidence: Evidence
    part: Part

    @property
    def variable(self) -> Variable:
        """The input."""
        return self.evidence.subject.inputs[self.part.which]

    @property
    def name(self) -> str:
        """Name of the input."""
        return self.variable.name

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The outputs behind the rows."""
        return self.evidence.subject.outputs

    @property
    def scalar(self) -> bool:
        """Whether there is a single row: a loss."""
        return bool(self.part.numeric.shape[0] == 1)

    @functools.cached_property
    def usable(self) -> NDArray[np.bool_]:
        """Entries where both sides are numbers."""
        numbers = np.isfinite(self.part.analytic) & np.isfinite(self.part.numeric)
        return np.asarray(numbers)

    @functools.cached_property
    def analytic(self) -> NDArray[np.float64]:
        """Analytic side, 0 where it is no number."""
        return np.where(self.usable, self.part.analytic, 0.0)

    @functools.cached_property
    def numeric(self) -> NDArray[np.float64]:
        """Numeric side, 0 where it is no number."""
        return np.where(self.usable, self.part.numeric, 0.0)

    @functools.cached_property
    def wrong(self) -> NDArray[np.bool_]:
        """Entries that disagree and are numbers on both sides."""
        return self.part.wrong & self.usable

    @functools.cached_property
    def error(self) -> NDArray[np.float64]:
        """Analytic minus numeric where it is wrong, else 0."""
        return np.where(self.wrong, self.analytic - self.numeric, 0.0)

    @functools.cached_property
    def point(self) -> NDArray[np.float64]:
        """Real coordinates of the columns at the point."""
        return self.evidence.subject.point(self.part.which)[self.part.positions]

    @functools.cached_property
    def relative(self) -> float:
        """Relative round-off that the analytic side may have."""
        return max(1e-7, _ROUNDINGS * self.evidence.subject.epsilon)

    @functools.cached_property
    def tolerance(self) -> NDArray[np.float64]:
        """Residual that each entry of an exact explanation may have."""
        bar = np.where(np.isfinite(self.part.error), self.part.error, 0.0)
        size = np.maximum(np.abs(self.analytic), np.abs(self.numeric))
        row = size.max(axis=1, initial=0.0)[:, None]
        tiny = 1e-3 * self.relative * row
        result = SAFETY * bar + self.relative * size + tiny
        return np.asarray(np.minimum(result, 0.25 * np.maximum(size, tiny)))

    def share(
        self,
        model: NDArray[np.float64],
        where: NDArray[np.bool_] | None = None,
    ) -> float:
        """Return which part of the error a model of the analytic side accounts for.

        Parameters
        ----------
        model
            What the analytic side would be, shape (rows, n).
        where
            Entries to look at; default all. Entries that are right count too: a model
            must leave them alone.
        """
        mask = self.usable if where is None else self.usable & where
        if where is None:
            total = self.total
        else:
            total = float(np.linalg.norm((self.analytic - self.numeric)[mask]))
        if not total > 0:
            return 0.0
        left = _left_over(self.analytic, model, self.tolerance)[mask]
        return float(max(0.0, 1.0 - float(np.linalg.norm(left)) / total))

    def refutes(self, model: NDArray[np.float64]) -> bool:
        """Whether the entries with the largest errors alone rule a model out.

        Where it is False the model may still be wrong: only `share` tells. Where it is
        True the share is below `EXACT`, and that took a small part of the time.

        Parameters
        ----------
        model
            What the analytic side would be in the places `largest`.
        """
        sides = self.analytic, self.tolerance
        analytic, tolerance = (side.reshape(-1)[self.largest] for side in sides)
        left = float(np.linalg.norm(_left_over(analytic, model, tolerance)))
        return left > (1 - EXACT) * self.total

    @functools.cached_property
    def total(self) -> float:
        """Norm of the difference between the two sides."""
        return float(np.linalg.norm((self.analytic - self.numeric)[self.usable]))

    @functools.cached_property
    def largest(self) -> NDArray[np.intp]:
        """Where the two sides differ most: flat places, as many as are a quick look."""
        apart = np.abs(self.analytic - self.numeric).reshape(-1)
        if apart.size <= _QUICK:
            return np.flatnonzero(self.usable)
        places = np.argpartition(apart, -_QUICK)[-_QUICK:]
        return np.asarray(places[self.usable.reshape(-1)[places]])

    def grid(self, matrix: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Shape columns like the input: (rows, *shape); None if not all are there.

        A complex input has one more axis of length 2 at the end.
        """
        variable = self.variable
        if not self.part.complete or variable.support is not None:
            return None
        tail = (2,) if variable.is_complex else ()
        return matrix.reshape(len(matrix), *variable.shape, *tail)

    @property
    def parts_of_output(self) -> Iterator[tuple[Variable, slice]]:
        """Each output with its rows."""
        start = 0
        for output in self.outputs:
            yield output, slice(start, start + output.size)
            start += output.size

    @functools.cached_property
    def analytic_zero(self) -> NDArray[np.bool_]:
        """Entries of the analytic side that are zero as far as can be told."""
        return self._zero(self.analytic)

    @functools.cached_property
    def numeric_zero(self) -> NDArray[np.bool_]:
        """Entries of the numeric side that are zero as far as can be told."""
        return self._zero(self.numeric)

    def _zero(self, matrix: NDArray[np.float64]) -> NDArray[np.bool_]:
        size = np.maximum(np.abs(self.analytic), np.abs(self.numeric))
        row = size.max(axis=1, initial=0.0)[:, None]
        bar = np.where(np.isfinite(self.part.error), self.part.error, 0.0)
        limit = np.maximum(SAFETY * bar, 1e-9 * row)
        zero = np.abs(matrix) <= np.minimum(limit, 1e-4 * row)
        zero.flags.writeable = False  # every detector reads the same one
        return np.asarray(zero)


def _left_over(
    analytic: NDArray[np.float64],
    model: NDArray[np.float64],
    tolerance: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return what a model leaves of the analytic side, beyond its tolerance."""
    with np.errstate(all="ignore"):
        left = np.maximum(np.abs(analytic - model) - tolerance, 0.0)
    return np.nan_to_num(left, copy=False, nan=np.inf, posinf=np.inf)


def cases_of(evidence: Evidence) -> list[Case]:
    """Pick the inputs with entries that disagree and are numbers."""
    cases = [Case(evidence, part) for part in evidence.parts if part.is_wrong]
    return [case for case in cases if bool(case.wrong.any())]


def reaches(mask: NDArray[np.bool_], axis: int | tuple[int, ...]) -> NDArray[np.bool_]:
    """Reduce a mask over an axis: where anything is true along it."""
    return np.asarray(mask.any(axis=axis), dtype=np.bool_)


def vanishing_sums(grid: NDArray[np.float64]) -> set[int]:
    """Axes of an input along which a gradient sums to zero.

    Parameters
    ----------
    grid
        From `Case.grid`, shape (rows, *shape of the input).
    """
    size = np.abs(grid).sum()
    return {
        axis
        for axis, length in enumerate(grid.shape[1:])
        if length > 1 and np.abs(grid.sum(axis=axis + 1)).sum() < 1e-6 * size
    }


def fraction_words(value: float) -> str | None:
    """Name a simple ratio: "2", "1/2", "3/2"; None if it is none.

    Examples
    --------
    >>> fraction_words(0.5), fraction_words(1.001)
    ('1/2', None)
    """
    if not np.isfinite(value) or value == 0:
        return None
    simple = Fraction(value).limit_denominator(12)
    if simple.numerator == 0 or abs(simple.numerator) > 1000:
        return None
    over, under = abs(simple.numerator), simple.denominator
    if under > 1 and over > 12:  # 37/10 says less than 3.7
        return None
    return str(simple) if abs(float(simple) / value - 1) < _SIMPLE else None
