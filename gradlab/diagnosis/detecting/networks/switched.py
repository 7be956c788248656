"""Detector of a wrong slope behind a weight without a bias: its units near zero.

With its weights near zero a unit stands at the same pre-activation, zero, for every
sample, and all else stands still. A wrong slope of the activation is one factor there.
A relu switches: turning the weights round turns its mask round, and the slopes of both
sides together are those of a unit that is always on.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.layer_shapes import layer_of
from gradlab.diagnosis.measuring.measures import Case, Clue
from gradlab.diagnosis.measuring.moving import analytic_at, quadratic, slopes_at
from gradlab.diagnosis.measuring.proportions import ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["units_near_zero"]

# names of what no unit is made of
_DATA = re.compile(r"(x|xs|inputs?|data|images?|batch|tokens?|features?|points?)\d*")

_NEAR = 2e-4  # length of a unit's weights: without effect on the loss
_STEP = 1e-3 * _NEAR  # length of a step from there: hardly any sample switches in it
_CLOSE = 3e-3  # relative: how near two slopes are that differ by these two alone
_JUMP = 10 * _CLOSE  # relative: a change of slope that is a switch
_LITTLE = 1e-2  # of the length of a gradient: no wrong slope changes so little
_DIRECTIONS = 5  # along which the slopes of one unit are compared
_SHORTER = 0.37  # of that step: over it the largest slope is measured again
_UNITS = 2  # that have to say the same
_FEWEST = 3  # weights of a unit, of which no two slopes are parallel by chance


@dataclasses.dataclass(frozen=True, slots=True)
class _Unit:
    """Slopes along a few directions with one unit just on either side of zero."""

    numeric: NDArray[np.float64]  # shape (2, directions)
    analytic: NDArray[np.float64]

    @property
    def size(self) -> float:
        """Largest slope of the function."""
        return float(np.abs(self.numeric).max())

    def switches(self) -> bool:
        """Whether the function has a kink where the unit is zero."""
        return bool(np.abs(np.subtract(*self.numeric)).max() > _JUMP * self.size)

    def is_on(self) -> bool:
        """Whether both sides together are a slope: that of a unit which is always on.

        Those of a relu are; those of ``|w|``, or of a division by it, leave nothing.
        """
        return bool(np.abs(self.numeric.sum(axis=0)).max() > _JUMP * self.size)

    def sides_like(self, model: NDArray[np.float64]) -> int:
        """Count the sides of zero on which the analytic slopes are as a model says."""
        return int((self._apart(self.analytic - model) <= _CLOSE).sum())

    def stays(self) -> bool:
        """Whether the analytic slopes are the same on both sides."""
        return bool(self._apart(np.subtract(*self.analytic)[None]) <= _CLOSE)

    def _apart(self, difference: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.abs(difference).max(axis=1) / self.size)


def units_near_zero(case: Case) -> list[Clue]:
    """Detect a wrong mask or slope of the activation behind a weight with no bias."""
    variable = case.variable
    shape = variable.shape
    if len(shape) < 2 or variable.is_complex or variable.support is not None:
        return []
    if not case.part.complete or layer_of(case.evidence, case.part.which) is not None:
        return []
    if any(output.shape == shape for output in case.outputs):
        return []  # what is turned into an array of its own shape is rather no weight
    if _DATA.fullmatch(variable.name.rpartition(".")[2].lower()):
        return []
    wrong = case.wrong.any(axis=0).reshape(shape)
    for axis in (len(shape) - 1, 0):  # x @ W, then W @ x and convolutions
        if wrong.size < _FEWEST * shape[axis]:
            continue
        others = tuple(i for i in range(len(shape)) if i != axis)
        count = wrong.sum(axis=others)
        chosen = np.argsort(-count, kind="stable")[:_UNITS]
        if any(_one_factor(case, axis, int(k)) for k in chosen if count[k]):
            continue  # of the whole unit, wherever it stands: no slope
        found = [_near_zero(case, axis, int(k)) for k in chosen if count[k]]
        units = [unit for unit in found if unit is not None]
        if units and all(unit.switches() for unit in units):
            return _mask(case, units) if all(u.is_on() for u in units) else []
        clues = _slope(case, units) if len(units) == _UNITS else []
        if clues and all(
            _in_proportion(case, axis, int(k)) for k in chosen if count[k]
        ):
            return [_quadratic_term(case)]
        if clues:
            return clues
    return []


def _one_factor(case: Case, axis: int, unit: int) -> bool:
    """Whether the gradient of a unit is one multiple of what it should be."""
    ours, true = (
        np.take(side.reshape(-1, *case.variable.shape), unit, axis=axis + 1).ravel()
        for side in (case.analytic, case.numeric)
    )
    across = float(ours @ true) ** 2
    return across > (1 - _CLOSE**2) * float(ours @ ours) * float(true @ true) > 0


def _near_zero(case: Case, axis: int, unit: int) -> _Unit | None:
    """Measure both sides with the weights of one unit near zero, and turned round."""
    evidence, which = case.evidence, case.part.which
    at = np.zeros(case.variable.shape, dtype=bool)
    at[(slice(None),) * axis + (unit,)] = True
    places = np.flatnonzero(at)
    own = case.point[places]
    size = float(np.linalg.norm(own))
    if size == 0:
        return None
    step = _STEP / float(np.sqrt(case.point.size))
    directions = np.zeros((_DIRECTIONS, case.point.size))
    directions[:, places] = evidence.rng.normal(size=(_DIRECTIONS, len(places)))
    points, numeric, analytic = [], [], []
    for sign in (1, -1):
        moved = case.point.copy()
        moved[places] = sign * _NEAR / size * own
        points.append(moved)
        there = {which: moved}
        ours = analytic_at(evidence, there)
        if ours is None:
            return None
        analytic.append(directions @ ours[which])
        numeric.append(slopes_at(evidence, there, which, directions, step=step))
    found = _Unit(np.array(numeric), np.array(analytic))
    finite = np.isfinite(found.numeric).all() and np.isfinite(found.analytic).all()
    if not finite or found.size == 0:
        return None
    if found.switches():  # or has rounding inside made a step of so short a way?
        side, k = np.unravel_index(np.abs(found.numeric).argmax(), found.numeric.shape)
        at_largest, line = {which: points[side]}, directions[k : k + 1]
        again = slopes_at(evidence, at_largest, which, line, step=_SHORTER * step)
        if not abs(again[0] - found.numeric[side, k]) <= _CLOSE * found.size:
            return None
    return found


def _in_proportion(case: Case, axis: int, unit: int) -> bool:
    """Whether the error of a unit is half as large with weights half as large."""
    evidence, which, shape = case.evidence, case.part.which, case.variable.shape
    at = np.zeros(shape, dtype=bool)
    at[(slice(None),) * axis + (unit,)] = True
    directions = np.where(at.ravel(), evidence.rng.normal(size=(2, at.size)), 0.0)
    there = {which: np.where(at.ravel(), 0.5, 1.0) * case.point}
    ours = analytic_at(evidence, there)
    here = analytic_at(evidence, {})
    if ours is None or here is None:
        return False
    half = directions @ ours[which] - slopes_at(evidence, there, which, directions)
    whole = directions @ here[which] - slopes_at(evidence, {}, which, directions)
    size = float(np.abs(whole).max())
    return size > 0 and bool((np.abs(2 * half - whole) <= _CLOSE * size).all())


def _quadratic_term(case: Case) -> Clue:
    return Clue(
        BugKind.MISSING_TERM,
        0.86,
        f"The error of a slice of {case.name} (the weights of one unit, in a layer) is "
        f"in proportion to these weights: a term of the loss that is quadratic in what "
        f"{case.name} gives (a penalty on it, a divergence of means) is left out, or "
        f"has another sign or factor.",
        f"Look for a square of what {case.name} gives in the loss, and add its "
        f"derivative to the error signal that reaches {case.name}.",
        (BugKind.REGULARIZATION, BugKind.SIGN, BugKind.SCALE),
    )


def _mask(case: Case, units: list[_Unit]) -> list[Clue]:
    """Say which mask the analytic side has, if all units say the same.

    One side of each is enough: on the other a sample for which no other unit is on
    switches units of later layers as well.
    """
    lead = (
        f"Where the weights of one unit in {case.name}, near zero, change their sign "
        f"the unit switches between on and off"
    )
    if all(unit.sides_like(unit.numeric.sum(axis=0)) for unit in units):
        return [
            Clue(
                BugKind.WRONG_MASK,
                0.95,
                f"{lead}, and the analytic gradient does not: it is that of a unit "
                f"which is on for every sample.",
                f"Multiply the error signal by the mask of the units that are on "
                f"(pre-activation > 0) before it reaches {case.name}.",
            )
        ]
    if all(unit.sides_like(unit.numeric[::-1]) for unit in units):
        return [
            Clue(
                BugKind.WRONG_MASK,
                0.95,
                f"{lead}, and the analytic gradient is that of the other side: the "
                f"mask is the wrong way round.",
                "Turn the mask of the activation round: the error signal passes where "
                "the pre-activation is positive.",
            )
        ]
    if all(unit.sides_like(unit.numeric) == 2 for unit in units):
        return []  # what is wrong is no mask of these units
    if all(unit.stays() for unit in units):
        return [
            Clue(
                BugKind.WRONG_MASK,
                0.88,
                f"{lead}, and the analytic gradient stays the same: its mask is not "
                f"made from the pre-activation of these units.",
                f"Take the mask from the pre-activation behind {case.name} "
                f"(pre-activation > 0), not from the incoming gradient.",
            )
        ]
    return _two_slopes(units, lead)


def _two_slopes(units: list[_Unit], lead: str) -> list[Clue]:
    """Recognise other slopes for units that are on and for those that are off."""
    own, other, ours = (
        np.concatenate([side.ravel() for side in sides])
        for sides in zip(
            *((unit.numeric, unit.numeric[::-1], unit.analytic) for unit in units),
            strict=True,
        )
    )
    (on, off), *_ = np.linalg.lstsq(np.stack([own, other], axis=1), ours, rcond=None)
    models = [on * unit.numeric + off * unit.numeric[::-1] for unit in units]
    fits = [unit.sides_like(m) for unit, m in zip(units, models, strict=True)]
    if not all(fits) or abs(off) < _CLOSE:
        return []
    return [
        Clue(
            BugKind.WRONG_DERIVATIVE,
            0.9,
            f"{lead}; the analytic gradient is {on:.3g} x that of the function on the "
            f"same side plus {off:.3g} x that on the other: the slopes of the "
            f"activation are not those of the forward pass.",
            "Compare the slopes of the activation for positive and for negative "
            "pre-activations, forward and backward.",
        )
    ]


def _slope(case: Case, units: list[_Unit]) -> list[Clue]:
    """Recognise a slope that is wrong or missing: one factor at pre-activation zero."""
    if case.total < _LITTLE * float(np.linalg.norm(case.numeric)):
        return []  # a rounded constant rather than another slope
    factors = []
    for unit in units:
        ours, true = unit.analytic.ravel(), unit.numeric.ravel()
        c = ratio(ours, true)
        if unit.sides_like(c * unit.numeric) != 2 or abs(c) < _CLOSE:
            return []
        factors.append(c)
    if np.ptp(factors) > _CLOSE * max(map(abs, factors)):
        return []
    if quadratic(case.evidence, case.part.which):
        return []  # an activation bends it
    lead = (
        f"Where one slice of {case.name} (the weights of one unit, in a layer) is zero"
    )
    advice = (
        f"Check the slope of the activation behind {case.name}: that it multiplies the "
        f"error signal, and that it is written in the array it is given (input or "
        f"output of the activation)."
    )
    if abs(factors[0] - 1) <= _CLOSE:
        return [
            Clue(
                BugKind.UNKNOWN,
                0.72,  # samples that are left out would be missing there as well
                f"{lead} its gradient is right: what is wrong grows with its values, "
                f"as with a wrong slope of an activation.",
                advice,
                (BugKind.WRONG_DERIVATIVE, BugKind.STALE_CACHE),
            )
        ]
    return [
        Clue(
            BugKind.WRONG_DERIVATIVE,
            0.88,
            f"{lead} analytic = {factors[0]:.4g} x numeric; elsewhere it is no "
            f"multiple. In a layer all samples have the same pre-activation there, so "
            f"the factor is that of a slope of the activation.",
            advice,
            (BugKind.SCALE,),
        )
    ]
