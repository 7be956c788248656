"""The same subject at another point: both sides again, cheaply.

Many mistakes vanish at special points: a lost transpose where the matrix is symmetric,
a wrong mask where everything is positive. Looking there tells one from the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.analytic.gradients_elsewhere import gradients_at
from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.subject.subject import input_columns, unit_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from gradlab.diagnosis.evidence import Evidence
    from gradlab.diagnosis.measuring.measures import Case

    Points = Mapping[int, NDArray[np.float64]]

__all__ = [
    "affine",
    "agree_at",
    "analytic_at",
    "both_sides_at",
    "cotangent_of",
    "has_factor_elsewhere",
    "quadratic",
    "slightly_aside",
    "slopes_at",
    "stays",
]

_DIRECTIONS = 3  # along which both sides are compared elsewhere
_CLEARLY = 10.0  # times what is taken for agreement: an error that can vanish
_SAME = 1e-4  # relative change of an error that has not changed
_MOVED = 1e-2  # relative change of a slope that has
_LOOKS = 2  # other points at which a factor of few entries is looked for
_LARGE = 1_000_000  # coordinates beyond which no second point is looked at


def analytic_at(
    evidence: Evidence, points: Points
) -> tuple[NDArray[np.float64], ...] | None:
    """Ask the analytic side at another point, contracted with a fixed cotangent.

    Returns
    -------
    tuple of ndarray or None
        Per input, shape (coordinates,); None where it cannot be asked there.
    """
    subject = evidence.subject
    if input_columns(subject.inputs) > _LARGE:
        return None
    cotangent = cotangent_of(evidence)[None]
    evidence.meter.spend(2)
    try:
        found = gradients_at(subject, points, cotangent)
    except BudgetExhausted:
        raise
    except Exception:  # noqa: BLE001 - the user's code may not take this point
        return None
    return None if found is None else tuple(value[0] for value in found)


def cotangent_of(evidence: Evidence) -> NDArray[np.float64]:
    """Return fixed weights for the outputs; 1 for a loss."""
    rows = len(evidence.base)
    return np.ones(1) if rows == 1 else np.cos(1.0 + 1.7 * np.arange(rows))


def slopes_at(
    evidence: Evidence,
    points: Points,
    which: int,
    directions: NDArray[np.float64],
    *,
    step: float | None = None,
) -> NDArray[np.float64]:
    """Directional derivatives at another point, with respect to one input.

    Parameters
    ----------
    evidence
        Its meter is charged with two evaluations for each direction.
    points
        Where the inputs that move stand.
    which
        The input that is differentiated.
    directions
        Shape (count, coordinates).
    step
        Mean displacement of a coordinate, relative to the largest (at least 1); None
        balances truncation against rounding in the precision of what is evaluated.

    Returns
    -------
    ndarray
        Of the outputs contracted with the same weights as `analytic_at`; nan where
        the function raised.
    """
    subject, weights = evidence.reference or evidence.subject, cotangent_of(evidence)
    step = step or float(subject.epsilon ** (1 / 3))
    here = np.asarray(points.get(which, subject.point(which)), dtype=np.float64)
    slopes = np.full(len(directions), np.nan)
    try:
        for other, point in points.items():
            subject.place(other, point)
        for i, direction in enumerate(directions):
            length = float(np.linalg.norm(direction)) or 1.0
            h = step * max(1.0, float(np.abs(here).max(initial=0.0))) / length
            h *= float(np.sqrt(len(direction)))
            evidence.meter.spend(2)
            subject.place(which, here + h * direction)
            up = subject.row()
            subject.place(which, here - h * direction)
            slopes[i] = float(weights @ (up - subject.row())) / (2 * h)
    except BudgetExhausted:
        raise
    except Exception:  # noqa: BLE001 - the user's code may not take this point
        return slopes
    finally:
        for other in {*points, which}:
            subject.place(other, None)
    return slopes


def both_sides_at(
    evidence: Evidence, points: Points, which: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]] | None:
    """Ask both sides at another point along a few random directions of one input.

    Returns
    -------
    tuple of ndarray or None
        The directions, (count, coordinates), and the analytic and the numeric slopes
        along them, (count,). None where a side cannot be asked there.
    """
    analytic = analytic_at(evidence, points)
    if analytic is None:
        return None
    size = evidence.subject.inputs[which].coordinates
    directions = evidence.rng.normal(size=(_DIRECTIONS, size))
    slopes = slopes_at(evidence, points, which, directions)
    ours = directions @ analytic[which]
    told = np.isfinite(ours).all() and np.isfinite(slopes).all()
    return (directions, ours, slopes) if told else None


def slightly_aside(evidence: Evidence) -> dict[int, NDArray[np.float64]]:
    """Move all real inputs by some tenths of each entry: what is positive stays so."""
    points = {}
    for which, variable in enumerate(evidence.subject.inputs):
        if variable.support is not None or variable.is_complex:
            continue
        here = np.array(evidence.subject.point(which), dtype=np.float64)
        here *= evidence.rng.uniform(0.8, 1.3, size=here.shape)
        nothing = 0.1 * evidence.rng.normal(size=here.shape)
        points[which] = here + np.where(here == 0, nothing, 0.0)
    return points


def has_factor_elsewhere(case: Case, factor: float) -> bool | None:
    """Whether the wrong entries of a loss have one factor at other points as well.

    One number is some multiple of any other: only elsewhere is that a measurement.

    Returns
    -------
    bool or None
        None where it cannot be told: a side cannot be asked there, or the gradient
        does not move.
    """
    evidence, which = case.evidence, case.part.which
    if not case.scalar:
        return None
    chosen = case.part.positions[np.flatnonzero(case.wrong[0])]
    units = unit_vectors(case.variable.coordinates, chosen)
    before, moved = case.numeric[case.wrong], False
    for _ in range(_LOOKS):
        points = slightly_aside(evidence)
        analytic = analytic_at(evidence, points)
        if analytic is None:
            return None
        slopes = slopes_at(evidence, points, which, units)
        ours, size = analytic[which][chosen], float(np.abs(slopes).max())
        if not (np.isfinite(ours).all() and size > 0):
            return None
        if np.abs(ours - factor * slopes).max() > _SAME * max(abs(factor), 1.0) * size:
            return False
        moved |= bool(np.abs(slopes - before).max() > _MOVED * np.abs(before).max())
    return True if moved else None


def agree_at(case: Case, points: Points) -> bool | None:
    """Whether both sides of a gradient that is wrong agree at another point.

    Returns
    -------
    bool or None
        None where it cannot be told: a side cannot be asked there, nothing moves, or
        the error is so small that it would be taken for agreement here as well.
    """
    slack = max(1e-5, 1e4 * case.evidence.subject.epsilon)
    if case.relative_total <= _CLEARLY * slack:
        return None
    sides = both_sides_at(case.evidence, points, case.part.which)
    if sides is None:
        return None
    _, ours, slopes = sides
    scale = float(np.abs(slopes).max(initial=0.0))
    if scale < 1e-9:
        return None
    return bool((np.abs(ours - slopes) <= slack * scale).all())


def stays(case: Case, members: Sequence[int]) -> bool | None:
    """Whether the error of a gradient of a loss is the same at other values of inputs.

    Returns
    -------
    bool or None
        None where it cannot be told: a side cannot be asked there, or the gradient
        does not move.
    """
    evidence, which = case.evidence, case.part.which
    points = {}
    for member in members:
        here = np.asarray(evidence.subject.point(member), dtype=np.float64)
        size = float(np.abs(here).max(initial=0.0)) or 1.0
        points[member] = here + 0.7 * size * evidence.rng.normal(size=here.shape)
    sides = both_sides_at(evidence, points, which)
    if sides is None:
        return None
    directions, ours, slopes = sides
    error = directions @ (case.analytic - case.numeric)[0]
    there = ours - slopes
    size = float(np.abs(error).max())
    moved = float(np.abs(slopes - directions @ case.numeric[0]).max())
    if moved < _MOVED * size:
        return None
    return bool(np.abs(there - error).max() <= _SAME * size)


def affine(evidence: Evidence, which: int) -> bool | None:
    """Whether the function is a straight line in one input, near and far.

    Returns
    -------
    bool or None
        None where the function cannot be evaluated far from the point.
    """
    return _is_polynomial(evidence, which, (1.0, -2.0, 1.0))


def quadratic(evidence: Evidence, which: int) -> bool | None:
    """Whether it is of the second degree, or less; as `affine` is."""
    return _is_polynomial(evidence, which, (1.0, -3.0, 3.0, -1.0))


def _is_polynomial(
    evidence: Evidence, which: int, weights: tuple[float, ...]
) -> bool | None:
    """Whether weighted values at as many even steps add up to nothing."""
    subject = evidence.reference or evidence.subject
    here = np.asarray(subject.point(which), dtype=np.float64)
    size = float(np.abs(here).max(initial=0.0)) or 1.0
    slack = max(1e-9, 1e3 * subject.epsilon)
    try:
        for _ in range(2):
            step = 2 * size * evidence.rng.normal(size=len(here))
            evidence.meter.spend(len(weights))
            values = []
            for k in range(len(weights)):
                subject.place(which, here + (1 - k) * step)
                values.append(subject.row())
            bend = np.tensordot(weights, np.array(values), 1)
            if not np.isfinite(bend).all():
                return None
            if np.abs(bend).max() > slack * max(float(np.abs(values).max()), 1.0):
                return False
    except BudgetExhausted:
        raise
    except Exception:  # noqa: BLE001 - the user's code may not take this point
        return None
    finally:
        subject.place(which, None)
    return True
