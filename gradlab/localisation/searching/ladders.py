"""Ladders of single coordinates: what a search knows of one before it accuses."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.kinks import Sides, nearest_slope
from gradlab.comparison.rule import Side
from gradlab.differentiation.adaptive_columns import adaptive_columns
from gradlab.differentiation.finite_difference import stairs
from gradlab.differentiation.noise.hidden_noise import (
    HALF_SPACING,
    LAST_DIGITS,
    ROUGH,
    may_be_rough,
    noise_level,
)
from gradlab.differentiation.smoothness import Smoothness
from gradlab.subject.subject import unit_vectors

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin

__all__ = ["Ladder", "beyond_rounding", "ladders_of"]


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
    near
        Where steps within the size of an input tell that f hardly notices.
    """

    value: NDArray[np.float64]
    error: NDArray[np.float64]
    step: NDArray[np.float64]
    left: NDArray[np.float64]
    right: NDArray[np.float64]
    kink: NDArray[np.bool_]
    near: NDArray[np.bool_]

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
        each = unit_vectors(len(self.value), torn)
        analytic, at = self.value.copy(), np.zeros(len(self.value), dtype=bool)
        analytic[torn], at[torn] = told(each), True
        return nearest_slope(analytic, measured, Sides(self.left, self.right), at)


def beyond_rounding(origin: Origin, meter: Meter, seed: int) -> NDArray[np.float64]:
    """Noise of every output that is more than its rounding, (rows,); else 0.

    Single precision inside stands still over the steps at which rounding is measured,
    and half precision over those at which single precision shows.
    """
    subject, base = origin.subject, origin.base
    if not may_be_rough(subject, meter, seed):
        return np.zeros(len(base))
    noise = noise_level(origin, meter, seed)
    still = noise == LAST_DIGITS  # what moves a little is no staircase, but may bend
    if still.any():
        wide = noise_level(origin, meter, seed, spacing=HALF_SPACING)
        noise = np.where(still, wide, noise)
    with np.errstate(all="ignore"):
        more = (noise > ROUGH * subject.epsilon * np.abs(base)) & (noise > LAST_DIGITS)
    return np.where(more, noise, 0.0)


def ladders_of(
    origin: Origin,
    which: int,
    positions: NDArray[np.intp],
    unit: float,
    meter: Meter,
    noise: NDArray[np.float64] | None,
) -> list[Ladder]:
    """Climb the ladders of some coordinates of one input together.

    Parameters
    ----------
    unit
        Size of the input: no coordinate is taken to be smaller, unless it shows
        another slope on its own scale.
    noise
        Of every output beyond its rounding, (rows,), where there is any.
    """
    if noise is not None and not noise.any():
        noise = None
    scales = np.maximum(np.abs(origin.subject.point(which)[positions]), unit)
    found = adaptive_columns(
        origin, which, positions, meter, noise=noise, scales=scales
    )
    error = found.error
    # half precision inside stands still over all but the longest steps
    still = np.flatnonzero((found.value == 0).any(axis=0))
    slope, _ = stairs(origin, which, positions[still], meter)
    error[:, still] = np.where(
        found.value[:, still] == 0, np.fmax(error[:, still], slope), error[:, still]
    )
    kink = (found.kind == Smoothness.KINK) & np.isfinite(found.left)
    kink &= np.isfinite(found.right)
    near = np.zeros(kink.shape, dtype=bool)
    if which in origin.subject.least_scales:
        near = found.step < np.abs(origin.subject.point(which)[positions])
    parts = (found.value, error, found.step, found.left, found.right, kink, near)
    return [Ladder(*(part[:, k] for part in parts)) for k in range(len(positions))]
