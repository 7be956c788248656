"""Slopes over a good part of the scale: small steps inside f average out there."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.evaluation import displaced_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.blocks import Block
    from gradlab.subject.subject import Subject

__all__ = ["Wide", "wide_slopes"]

# of the scale: over so much the slope of many steps is taken
_REACHES = (0.25, 0.06, 0.015)
_POINTS = np.array([0.19, 0.34, 0.52, 0.67, 0.81, 1.0])
_SHARP = 0.1  # relative bar above which a shorter reach is tried


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Wide:
    """Slopes over a quarter of the scale of each coordinate, (rows, n).

    Attributes
    ----------
    value, error
        Slope at the point of a cubic (its odd part) through twelve values, and its bar.
    reach
        Largest step, shape (n,).
    """

    value: NDArray[np.float64]
    error: NDArray[np.float64]
    reach: NDArray[np.float64]


def _over(
    subject: Subject,
    which: int,
    positions: NDArray[np.intp],
    reach: NDArray[np.float64],
    meter: Meter,
) -> Wide:
    """Fit slopes to values far from the point.

    Parameters
    ----------
    reach
        Largest step of each position, shape (n,).
    """
    n = len(positions)
    steps = (_POINTS[:, None] * reach).reshape(-1)
    where = np.tile(positions, 2 * len(_POINTS))
    values, taken = displaced_rows(
        subject, which, where, np.concatenate([steps, -steps]), meter
    )
    half = len(steps)
    odd = ((values[:half] - values[half:]) / 2).reshape(len(_POINTS), n, -1)
    t = ((taken[:half] - taken[half:]) / 2).reshape(len(_POINTS), n) / reach
    slope = np.full((odd.shape[2], n), np.nan)
    error = np.full_like(slope, np.inf)
    for j in range(n):
        if not np.isfinite(t[:, j]).all():
            continue
        cubic = np.stack([t[:, j], t[:, j] ** 3], axis=1)
        quintic = np.column_stack([cubic, t[:, j] ** 5])
        lever = np.linalg.pinv(cubic)
        with np.errstate(all="ignore"):  # far out f may be infinite, or no number
            fitted = lever @ odd[:, j]
            stray = np.sqrt(((cubic @ fitted - odd[:, j]) ** 2).sum(axis=0) / 4)
            finer = np.linalg.pinv(quintic) @ odd[:, j]
            slope[:, j] = fitted[0] / reach[j]
            bar = stray * np.linalg.norm(lever[0]) + 0.5 * np.abs(finer[0] - fitted[0])
            error[:, j] = np.where(np.isfinite(bar), bar / reach[j], np.inf)
    return Wide(slope, error, reach)


def wide_slopes(
    subject: Subject, block: Block, columns: NDArray[np.intp], meter: Meter
) -> Wide:
    """Slopes over a quarter of the scale, or over less where that is sharper."""
    positions, scales = block.positions[columns], block.latest_scales[columns]
    wide = _over(subject, block.which, positions, _REACHES[0] * scales, meter)
    for reach in _REACHES[1:]:
        with np.errstate(all="ignore"):
            vague = ~(wide.error <= _SHARP * np.abs(wide.value))
        if not vague.any():
            break
        near = _over(subject, block.which, positions, reach * scales, meter)
        better = near.error < wide.error
        wide = Wide(
            np.where(better, near.value, wide.value),
            np.where(better, near.error, wide.error),
            np.where(better.any(axis=0), near.reach, wide.reach),
        )
    return wide
