"""Ladders of single coordinates: what a search knows of one before it accuses."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.judge import Side
from gradlab.comparison.kinks import Sides, nearest_slope
from gradlab.differentiation.adaptive import adaptive
from gradlab.differentiation.evaluation import displaced_rows
from gradlab.differentiation.own_scales import merged, on_their_own
from gradlab.differentiation.smoothness import Smoothness

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gradlab.differentiation.adaptive import Derivatives
    from gradlab.differentiation.evaluation import Meter
    from gradlab.subject.subject import Subject

__all__ = ["Ladder", "ladders_of"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Ladder:
    """Slopes of every output along one coordinate, all of shape (rows,).

    Attributes
    ----------
    value, error, step
        At a kink the mean of both slopes, and a bar that covers both.
    left, right
        One-sided slopes at a kink.
    kink
        Where there is one.
    """

    value: NDArray[np.float64]
    error: NDArray[np.float64]
    step: NDArray[np.float64]
    left: NDArray[np.float64]
    right: NDArray[np.float64]
    kink: NDArray[np.bool_]

    def held_against(
        self,
        told: Callable[[NDArray[np.float64]], NDArray[np.float64]],
        torn: NDArray[np.intp],
    ) -> Side:
        """Return what the analytic side is judged by, (rows,).

        Parameters
        ----------
        told
            Analytic derivatives of some combinations of rows, (k, rows) to (k,).
        torn
            Rows at a kink that matter.
        """
        measured = Side(self.value, self.error)
        if not torn.size:
            return measured
        each = np.zeros((len(torn), len(self.value)))
        each[np.arange(len(torn)), torn] = 1.0
        analytic, at = self.value.copy(), np.zeros(len(self.value), dtype=bool)
        analytic[torn], at[torn] = told(each), True
        return nearest_slope(analytic, measured, Sides(self.left, self.right), at)


def ladders_of(
    subject: Subject,
    which: int,
    positions: NDArray[np.intp],
    base: NDArray[np.float64],
    unit: float,
    meter: Meter,
) -> list[Ladder]:
    """Climb the ladders of some coordinates of one input together.

    Parameters
    ----------
    unit
        Size of the input: no coordinate is taken to be smaller, unless it shows
        another slope on its own scale.
    """
    points = subject.point(which)[positions].astype(np.float64)
    scales = np.maximum(np.abs(points), unit)

    def climbed(some: NDArray[np.intp], sizes: NDArray[np.float64]) -> Derivatives:
        def sample(
            columns: NDArray[np.intp], displacements: NDArray[np.float64]
        ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            moved = positions[some[columns]]
            return displaced_rows(subject, which, moved, displacements, meter)

        return adaptive(
            sample, points=points[some], scales=sizes, base=base, floor=subject.epsilon
        )

    found = climbed(np.arange(len(points)), scales)
    own = on_their_own(found, points, scales)
    if own.size:
        found = merged(found, climbed(own, np.abs(points[own])), own)
    kink = (found.kind == Smoothness.KINK) & np.isfinite(found.left + found.right)
    parts = (found.value, found.error, found.step, found.left, found.right, kink)
    return [Ladder(*(part[:, k] for part in parts)) for k in range(len(points))]
