"""Gradients whose squares no float64 holds, counted in units in which it does.

Detectors compare sums of squares. Of gradients beyond 1e154 these overflow, of those
below 1e-162 they vanish, and causes are read from what is left. Whatever a detector
sees is linear in the outputs, so f and both sides may be counted in any unit.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.measures import cases_of
from gradlab.subject.analytic_sides import Pullback

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gradlab.diagnosis.evidence import Evidence, Part
    from gradlab.diagnosis.finding import Finding

__all__ = ["in_units", "unit_of", "with_unit"]

_LARGE = 1e100  # above it and below its inverse squares may be lost
_LEAST = 1e-300  # units: what is below has few digits itself
_RATIOS = {BugKind.SCALE, BugKind.SIGN}  # told by ratios, which have no unit


def unit_of(evidence: Evidence) -> float:
    """Return a power of ten that brings the largest wrong gradient near 1.

    1 where no square is in danger.
    """
    sides = [each for case in cases_of(evidence) for each in case.alive]
    top = max((float(np.abs(side).max(initial=0.0)) for side in sides), default=0.0)
    if top == 0 or 1 / _LARGE <= top <= _LARGE:
        return 1.0
    return max(10.0 ** math.floor(math.log10(top)), _LEAST)


def in_units(evidence: Evidence, unit: float) -> Evidence:
    """Count f and both sides in a unit; the same evidence where that is 1.

    Comparisons stay as the report shows them: what detectors read there is verdicts.
    """
    if unit == 1.0:
        return evidence
    reference = evidence.reference
    return dataclasses.replace(
        evidence,
        subject=_InUnits(evidence.subject, unit),
        base=evidence.base / unit,
        parts=tuple(_part(part, unit) for part in evidence.parts),
        reference=None if reference is None else _InUnits(reference, unit),
        kept={},
    )


def with_unit(finding: Finding, unit: float) -> Finding:
    """Say what the numbers in a sentence are counted in, where they have a unit."""
    if unit == 1.0 or finding.kind in _RATIOS:
        return finding
    told = (
        f"{finding.evidence} (Values of f and its slopes are in units of {unit:.0e}.)"
    )
    return dataclasses.replace(finding, evidence=told)


def _part(part: Part, unit: float) -> Part:
    return dataclasses.replace(
        part,
        analytic=part.analytic / unit,
        numeric=part.numeric / unit,
        error=part.error / unit,
        left=part.left / unit,
        right=part.right / unit,
        pattern=None,
    )


class _InUnits:
    """A subject whose outputs, and all slopes of these, are counted in a unit.

    What is set on it is set on the subject itself, such as a mode of torch.
    """

    def __init__(self, subject: Any, unit: float) -> None:
        side = subject.analytic
        own = {
            "_subject": subject,
            "_unit": unit,
            "analytic": None if side is None else _Side(side, unit),
        }
        vars(self).update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._subject, name, value)

    def row(self) -> Any:
        """Evaluate, see `Subject`."""
        return self._subject.row() / self._unit

    def rows(self, *moves: Any) -> Any:
        """Evaluate in a batch, see `Subject`."""
        values, taken = self._subject.rows(*moves)
        return values / self._unit, taken

    def moved(self, points: Any) -> Any:
        """Return the same function at another point, see `ArraySubject`."""
        twin = self._subject.moved(points)
        return None if twin is None else _InUnits(twin, self._unit)

    def first_rows(self, *moves: Any) -> Any:
        """Evaluate in a first batch, see `TorchSubject`."""
        done = self._subject.first_rows(*moves)
        return None if done is None else (done[0] / self._unit, done[1])

    def sets(self, *moves: Any) -> Any:
        """Evaluate with many coordinates displaced, see `TorchSubject`."""
        return self._subject.sets(*moves) / self._unit

    def evaluate(self, *arguments: Any) -> Any:
        """Call the program, see `TorchSubject`."""
        tensors = self._subject.evaluate(*arguments)
        return tuple(tensor / self._unit for tensor in tensors)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """The analytic side of such a subject."""

    _side: Any
    _unit: float

    def __getattr__(self, name: str) -> Any:
        return getattr(self._side, name)

    def pull(self, cotangents: NDArray[np.float64]) -> Pullback:
        """Vector-Jacobian products, see `Analytic`."""
        found = self._side.pull(cotangents)
        values = tuple(value / self._unit for value in found.values)
        return Pullback(values, found.problems)

    def stream(
        self,
        cotangent: NDArray[np.float64],
        chosen: Sequence[int],
        take: Callable[[int, NDArray[np.float64]], None],
    ) -> Any:
        """Hand over gradients one by one, see `ReverseMode`."""
        unit = self._unit
        return self._side.stream(cotangent, chosen, lambda k, g: take(k, g / unit))

    def asked_anew(self) -> _Side:
        """Return the same side without what it keeps of its last answer."""
        return _Side(self._side.asked_anew(), self._unit)

    def on(self, subject: Any) -> _Side:
        """Return the same mode of autograd for such a subject."""
        return _Side(self._side.on(subject._subject), self._unit)  # noqa: SLF001 - as above
