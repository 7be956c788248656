"""What kinks leave alone: directions along which f is smooth for all that.

Where an entry stands at a kink every slope between both sides is accepted, and an error
of one percent with it. But kinks differ by few directions: those of the differences
between gradients of points beside. Across these f is smooth, all its generalised
gradients have the same slope there, and so must the gradient that is checked.

That holds whichever way the kinks bend. Where more points beside would show more
differences, the slopes along the direction itself tell, and those beside.

References
----------
F. H. Clarke, *Optimization and Nonsmooth Analysis* (1983), section 2.5: the generalised
gradient is the convex hull of limits of gradients. A. S. Lewis, *Active sets,
nonsmoothness, and sensitivity*, SIAM J. Optim. 13 (2002): f is smooth along a manifold.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.evaluation import line_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.subject.subject import Subject

__all__ = ["MOST", "Coordinates", "left_alone"]

MOST = 16  # coordinates that are looked at together
_AGAIN = 2  # points beside in a row that show no new difference
_SURE = 6  # points beside that must bear the direction out
_BESIDE = 1e-5  # of the sizes: how far beside the point, at least
_FARTHEST = 1e-3  # the same, at most
_NARROW = 30.0  # times the step of a slope there
_NOISE = 1e-4  # of the slopes: what rounding may do to them
_LOUD = 8.0  # times the rounding of f, over the step
_NEW = 3e-3  # of the slopes: a difference that is none of curvature
_OFF = 1e-3  # of the gradient: less of an error is not looked for


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Coordinates:
    """Some coordinates of several inputs, (k,) each.

    Attributes
    ----------
    which
        The input of each.
    position
        Its place in that input.
    unit
        By what it is moved.
    """

    which: NDArray[np.intp]
    position: NDArray[np.intp]
    unit: NDArray[np.float64]

    def line(
        self, subject: Subject, amounts: NDArray[np.float64]
    ) -> list[NDArray[np.float64] | None]:
        """Write moves in units of these coordinates as `line_rows` asks for them."""
        line: list[NDArray[np.float64] | None] = [None] * len(subject.inputs)
        for k in np.unique(self.which):
            mine = self.which == k
            direction = np.zeros(subject.inputs[k].coordinates)
            direction[self.position[mine]] = amounts[mine] * self.unit[mine]
            line[k] = direction
        return line


def left_alone(
    subject: Subject,
    coordinates: Coordinates,
    told: NDArray[np.float64],
    rows: NDArray[np.float64],
    meter: Meter,
    rng: np.random.Generator,
) -> NDArray[np.float64] | None:
    """Find the direction across all kinks along which the gradient is off most.

    Parameters
    ----------
    coordinates
        With kinks, 2 at least.
    told
        What the gradient says of each, in units of them, (k,).
    rows
        Weights of the outputs, (m,).
    meter
        Charged for k + 1 evaluations at every point beside, of which there are as many
        as kinks, and two.

    Returns
    -------
    ndarray or None
        (k,), the largest entry is 1; None if there is no such direction, or the
        gradient is not off.
    """
    count = len(told)
    size = float(np.linalg.norm(told))
    base = float(np.abs(rows) @ np.abs(_values(subject, coordinates, [None], meter)[0]))
    if not 0 < size < np.inf or not np.isfinite(base):
        return None
    step = max(_LOUD * subject.epsilon * base / (_NOISE * size), _BESIDE / _NARROW)
    if _NARROW * step > _FARTHEST:
        return None
    first: NDArray[np.float64] | None = None
    across = np.zeros((0, count))
    same = 0
    while same < _AGAIN and len(across) < count:
        where = _aside(count, step, rng), step
        slopes = _slopes(subject, coordinates, rows, where, meter)
        if not np.isfinite(slopes).all():
            return None
        if first is None:
            first = slopes
            continue
        apart = slopes - first
        rest = apart - across.T @ (across @ apart)
        same += 1
        if np.linalg.norm(rest) > _NEW * max(float(np.linalg.norm(slopes)), size):
            across = np.vstack([across, rest / np.linalg.norm(rest)])
            same = 0
    if first is None or len(across) == count:
        return None
    off = told - first
    off -= across.T @ (across @ off)
    if np.linalg.norm(off) <= _OFF * size:
        return None
    off /= np.abs(off).max()
    slope = float(first @ off)  # the same at other points, or they show what is new
    for _ in range(_SURE):
        aside = _aside(count, step, rng)
        ends = _values(subject, coordinates, [aside, aside + step * off], meter)
        again = float(rows @ (ends[1] - ends[0])) / step
        if not abs(again - slope) <= abs(float(told @ off) - slope) / 4:
            return None
    return np.asarray(off)


def _aside(count: int, step: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Choose a point beside, in units."""
    signs = rng.choice([-1.0, 1.0], count)
    return np.asarray(_NARROW * step * signs * rng.uniform(0.5, 1.5, count))


def _values(
    subject: Subject,
    coordinates: Coordinates,
    moves: list[NDArray[np.float64] | None],
    meter: Meter,
) -> list[NDArray[np.float64]]:
    """Evaluate f where some coordinates are moved, each move by itself."""
    still = np.zeros(len(coordinates.unit))
    found = []
    for move in moves:
        line = coordinates.line(subject, still if move is None else move)
        found.append(line_rows(subject, line, (1.0,), meter)[0])
    return found


def _slopes(
    subject: Subject,
    coordinates: Coordinates,
    rows: NDArray[np.float64],
    where: tuple[NDArray[np.float64], float],
    meter: Meter,
) -> NDArray[np.float64]:
    """Slopes of the weighted outputs beside the point, in units, (k,)."""
    aside, step = where
    moves = [aside, *(aside + step * axis for axis in np.eye(len(aside)))]
    base, *values = _values(subject, coordinates, list(moves), meter)
    with np.errstate(all="ignore"):
        return np.array([rows @ (value - base) / step for value in values])
