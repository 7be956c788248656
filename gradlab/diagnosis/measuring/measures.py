"""One wrong input as detectors see it, and the measure that ranks explanations.

An explanation is a model of the analytic side made from the numeric one ("twice it",
"its transpose"). How good it is, is the share of the error that it accounts for.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, cast

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.diagnosis.measuring.explaining import (
    EVEN,
    EXACT,
    REST,
    accounted,
    by_entries,
    left_over,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.diagnosis.evidence import Evidence, Part
    from gradlab.subject.subject import Variable

__all__ = [
    "EXACT",
    "Case",
    "Clue",
    "cases_of",
    "reaches",
    "sides_of",
]

_UNNAMED = 0.3  # confidence of a measurement that no kind is the name of
_QUICK = 1024  # entries
_ROUNDINGS = 1e3  # units of round-off of the analytic side
_NOTHING = 1e-9  # relative: what is no more than nothing beside another number
_NEVER = 1e-4  # relative: what is more, whatever error bars say
_FAINT = 1e-12  # relative: what cancels in a row leaves as much of its numbers
_ROUNDED = 10.0  # units of round-off of short arithmetic that it leaves


@dataclasses.dataclass(frozen=True, slots=True)
class Clue:
    """A finding about one input in the making: its place is filled in at the end."""

    kind: BugKind
    confidence: float
    evidence: str
    advice: str
    doubts: tuple[BugKind, ...] = ()  # that the measurement itself leaves open
    through: str = ""  # the input through which alone it is known to be wrong
    handed_on: bool = False  # whether it is the error signal that is known to be wrong
    of_each: bool = False  # or each finished gradient, by no signal

    def finding(self, where: str) -> Finding:
        """Return it as an error of the input `where`."""
        most = _UNNAMED if self.kind == BugKind.UNKNOWN else 1.0
        bounded = float(min(max(self.confidence, 0.0), most))
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
        both = np.isfinite(self.part.analytic) & np.isfinite(self.part.numeric)
        return np.asarray(both)

    @functools.cached_property
    def all_usable(self) -> bool:
        """Whether every entry is a number on both sides."""
        return bool(self.usable.all())

    @functools.cached_property
    def analytic(self) -> NDArray[np.float64]:
        """Analytic side, 0 where it is no number."""
        return self._numbers(self.part.analytic)

    @functools.cached_property
    def numeric(self) -> NDArray[np.float64]:
        """Numeric side, 0 where it is no number; at a kink the slope accepted there."""
        part, accepted = self.part, self.part.accepted
        side = np.where(accepted, part.analytic, part.numeric)
        return self._numbers(side if accepted.any() else part.numeric)

    def _numbers(self, side: NDArray[np.float64]) -> NDArray[np.float64]:
        """Put 0 where it is no number; every detector reads the same one."""
        view = side.view() if self.all_usable else np.where(self.usable, side, 0.0)
        view.flags.writeable = False
        return view

    @functools.cached_property
    def wrong(self) -> NDArray[np.bool_]:
        """Entries that disagree and are numbers on both sides."""
        return self.part.wrong & self.usable

    @functools.cached_property
    def is_wrong(self) -> bool:
        """Whether any entry disagrees in which both sides are numbers."""
        return bool(self.wrong.any())

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
        size = np.maximum(np.abs(self.analytic), np.abs(self.numeric))
        result = self.slack(size)
        np.maximum(size, self._tiny, out=size)
        # no part of an error is explained by being small beside other entries
        np.copyto(size, np.abs(self.error), where=self.wrong)
        size *= 0.25
        return np.asarray(np.minimum(result, size, out=result))

    def slack(self, size: NDArray[np.float64]) -> NDArray[np.float64]:
        """By how much entries of some sizes may be off for noise alone."""
        result = SAFETY * self._bar
        result += self.relative * size + self._tiny
        return np.asarray(result)

    @property
    def _tiny(self) -> NDArray[np.float64]:
        """What is nothing beside the largest entry of a row, (rows, 1)."""
        return np.asarray(1e-3 * self.relative * self._tops)

    @functools.cached_property
    def _bar(self) -> NDArray[np.float64]:
        """Error bar of the numeric side, 0 where there is none."""
        known = np.isfinite(self.part.error)
        return self.part.error if known.all() else np.where(known, self.part.error, 0.0)

    @functools.cached_property
    def is_noise(self) -> bool:
        """Whether all that is wrong is zero on the numeric side, up to its bar."""
        numeric, bar = self.numeric[self.wrong], self._bar[self.wrong]
        return bool((np.abs(numeric) <= SAFETY * bar).all())

    @functools.cached_property
    def _tops(self) -> NDArray[np.float64]:
        """Largest entry of each row on either side, (rows, 1)."""
        sides = self.analytic, self.numeric
        tops = [np.abs(side).max(axis=1, initial=0.0) for side in sides]
        return np.asarray(np.maximum(*tops)[:, None])

    def share(
        self,
        model: NDArray[np.float64],
        where: NDArray[np.bool_] | None = None,
        *,
        rest: float = REST,
    ) -> float:
        """Return which part of the error a model of the analytic side accounts for.

        0 where the entries with the largest errors alone rule it out: what is below
        `EXACT` explains nothing, however much below.

        Parameters
        ----------
        model
            What the analytic side would be, shape (rows, n).
        where
            Entries to look at; default all. Entries that are right count too: a model
            must leave them alone.
        rest
            What a model may leave of each entry, as a part of it.
        """
        if where is None:
            if not self.total > 0 or self.refutes(model[self._most]):
                return 0.0
            left = left_over(self.analytic, model, self.tolerance)
            left = left if self.all_usable else left[self.usable]
            share = accounted(left, self.told)
            return by_entries(self, share, model, self.usable, rest)
        mask = self.usable & where
        total = float(np.linalg.norm(self.error[mask]))
        if not total > 0:
            return 0.0
        left = left_over(self.analytic, model, self.tolerance)[mask]
        return by_entries(self, accounted(left, total), model, mask, rest)

    def share_of_factor(self, c: float) -> float:
        """Return the `share` of the model c * numeric, from what is not zero alone."""
        if not self.told > 0:
            return 0.0
        a, n = self.alive
        tolerance = self.tolerance.reshape(-1)[self._alive]
        share = accounted(left_over(a, c * n, tolerance), self.told)
        return by_entries(self, share, c * self.numeric, self.usable, EVEN)

    @functools.cached_property
    def _alive(self) -> NDArray[np.intp]:
        """Flat places where a side is not zero; both are numbers there."""
        return np.flatnonzero((self.analytic != 0) | (self.numeric != 0))

    @functools.cached_property
    def alive(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Analytic and numeric side where either is not zero, side by side."""
        sides = self.analytic, self.numeric
        a, n = (side.reshape(-1)[self._alive] for side in sides)
        return a, n

    @functools.cached_property
    def freedom(self) -> float:
        """Norm of what an exact explanation may leave."""
        tolerance = self.tolerance if self.all_usable else self.tolerance[self.usable]
        return float(np.linalg.norm(tolerance))

    @functools.cached_property
    def summed(self) -> NDArray[np.float64]:
        """Difference between the two sides, added up over all rows, (n,)."""
        return np.asarray((self.analytic - self.numeric).sum(axis=0))

    @functools.cached_property
    def growth(self) -> int:
        """Whether one side is larger than any order of the other could be.

        1: so is the analytic one, -1: the numeric one, 0: neither. Models that hold the
        same numbers in other places, or with other signs, have the same norm: where the
        norms of the two sides are further apart than what an exact explanation may
        leave, each of them has a `share` below `EXACT`.
        """
        a, n = (float(np.linalg.norm(side)) for side in self.alive)
        free = (1 - EXACT) * self.told + self.freedom
        return int(a - n > free) - int(n - a > free)

    def refutes(self, model: NDArray[np.float64]) -> bool:
        """Whether the entries with the largest errors alone rule a model out.

        Where it is False the model may still be wrong: only `share` tells. Where it is
        True the share is below `EXACT`, and that took a small part of the time.

        Parameters
        ----------
        model
            What the analytic side would be in the places `largest`.
        """
        analytic, tolerance = self.analytic[self._most], self.tolerance[self._most]
        left = float(np.linalg.norm(left_over(analytic, model, tolerance)))
        return not left <= (1 - EXACT) * self.told

    @functools.cached_property
    def total(self) -> float:
        """Norm of the error; of right entries the noise alone may be more."""
        return float(np.linalg.norm(self.error))

    @property
    def relative_total(self) -> float:
        """Norm of the error, of that of the numeric side; inf where that is zero."""
        size = float(np.linalg.norm(self.numeric))
        return self.total / size if size > 0 else np.inf

    @functools.cached_property
    def told(self) -> float:
        """Norm of the error, or of the analytic side where that is smaller."""
        return min(self.total, float(np.linalg.norm(self.alive[0]))) or self.total

    @functools.cached_property
    def largest(self) -> NDArray[np.intp]:
        """Where the two sides differ most: flat places, as many as are a quick look."""
        apart = np.abs(np.subtract(*self.alive))
        if apart.size <= _QUICK:
            return self._alive
        return np.asarray(self._alive[np.argpartition(apart, -_QUICK)[-_QUICK:]])

    @functools.cached_property
    def _most(self) -> tuple[NDArray[np.intp], ...]:
        return np.unravel_index(self.largest, self.usable.shape)

    def grid(self, matrix: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Shape columns like the input: (rows, *shape); None if not all are there.

        A complex input has one more axis of length 2 at the end.
        """
        variable = self.variable
        if not self.part.complete or variable.support is not None:
            return None
        tail = (2,) if variable.is_complex else ()
        return matrix.reshape(len(matrix), *variable.shape, *tail)

    def arrays(
        self, shape: tuple[int, ...]
    ) -> Iterator[tuple[str, NDArray[np.float64]]]:
        """Yield the real inputs that broadcast to a shape: name, and values, flat."""
        subject = self.evidence.subject
        for which, variable in enumerate(subject.inputs):
            if variable.is_complex or variable.support is not None:
                continue
            try:
                values = subject.point(which).reshape(variable.shape)
                yield variable.name, np.broadcast_to(values, shape).ravel()
            except ValueError:
                continue

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
        # of an error no bar of the other side hides it: it is nothing beside that
        return self._zero(self.analytic, _NOTHING * np.abs(self.numeric))

    @functools.cached_property
    def numeric_zero(self) -> NDArray[np.bool_]:
        """Entries of the numeric side that are zero as far as can be told."""
        return self._zero(self.numeric, SAFETY * self._bar)

    def _zero(
        self, matrix: NDArray[np.float64], own: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Compare a side with what is nothing; `own`: of entries that are wrong."""
        zero = np.abs(matrix) <= self._nothing
        if self.is_wrong:
            tops = np.abs(matrix).max(axis=1, initial=0.0)[:, None]
            rounded = max(_FAINT, _ROUNDED * self.evidence.subject.epsilon) * tops
            limit = np.minimum(np.maximum(own, rounded), _NEVER * self._tops)
            np.copyto(zero, np.abs(matrix) <= limit, where=self.wrong)
        zero.flags.writeable = False  # every detector reads the same one
        return np.asarray(zero)

    @functools.cached_property
    def _nothing(self) -> NDArray[np.float64]:
        """Size below which an entry that is right cannot be told from zero."""
        limit = SAFETY * self._bar
        np.maximum(limit, _NOTHING * self._tops, out=limit)
        return np.asarray(np.minimum(limit, _NEVER * self._tops, out=limit))


def cases_of(evidence: Evidence) -> list[Case]:
    """Pick the inputs with entries that disagree and are numbers."""
    return [c for c in sides_of(evidence) if c.part.is_wrong and c.is_wrong]


def sides_of(evidence: Evidence) -> list[Case]:
    """Make a case of every input, once: what one detector measures all may read."""
    if "sides" not in evidence.kept:
        evidence.kept["sides"] = [Case(evidence, part) for part in evidence.parts]
    return cast("list[Case]", evidence.kept["sides"])


def reaches(mask: NDArray[np.bool_], axis: int | tuple[int, ...]) -> NDArray[np.bool_]:
    """Reduce a mask over an axis: where anything is true along it."""
    return np.asarray(mask.any(axis=axis), dtype=np.bool_)
