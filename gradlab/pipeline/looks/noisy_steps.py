"""Noise of f beyond its rounding: wider bars, and longer steps where they pay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.effects import sensitivity
from gradlab.comparison.tolerance import SAFETY, is_rounding
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.finite_difference import seen_truncation
from gradlab.differentiation.method import Auto
from gradlab.differentiation.noise.hidden_noise import LAST_DIGITS, ROUGH
from gradlab.pipeline.sides.measuring import numeric_side
from gradlab.pipeline.suspects import suspicious

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.blocks import Block

__all__ = ["allow_for_noise"]

_NOISY = 3.0  # times the standard deviation of f: what its noise does to a difference
_LOUD = 1e6  # times what noise does to a slope: nothing is gained by less noise
_OF_NO_MATTER = 1e-8  # of the largest effect on an output: no longer steps for that


def allow_for_noise(
    reference: Origin,
    block: Block,
    noise: NDArray[np.float64],
    meter: Meter,
) -> bool:
    """Widen the bars by the noise of f, and take longer steps where that pays.

    Single precision hidden in a float64 function, or a solver that stops early, is
    noise far above the rounding that the first pass assumed.

    Returns
    -------
    bool
        Whether anything was written.
    """
    at, base = reference.subject, reference.base
    with np.errstate(all="ignore"):
        floor = _NOISY * noise[:, None] / np.abs(block.step)
        size = np.abs(base)
        heard = (size > 0) & (noise != LAST_DIGITS)
        relative = np.where(heard, noise / size, 0.0).max(initial=0.0)
    lost = (noise == LAST_DIGITS) | is_rounding(base, noise)
    if lost.any():
        block.widen(floor, lost[:, None])
    if not relative > ROUGH * at.epsilon:
        return bool(lost.any())
    block.widen(floor)
    mask = suspicious(block)
    mask &= ~block.looked
    columns = np.flatnonzero(mask.any(axis=0) & ~_told_in_noise(block, floor, mask))
    columns = columns[~_explained(block, floor, columns)]
    if not columns.size:
        return True
    again = numeric_side(
        reference,
        block.which,
        block.positions[columns],
        Auto(),
        meter,
        epsilon=min(float(relative), 1e-3),
    )
    with np.errstate(all="ignore"):
        error = np.fmax(again.error, _NOISY * noise[:, None] / np.abs(again.step))
        # more than the noise of the shorter step: the longer one truncates
        apart = np.abs(again.value - block.value[:, columns])
        error = np.where(apart > SAFETY * floor[:, columns], apart, error)
        # nor is a step a good part of the size without bending, whatever noise says
        sizes = block.sizes[columns]
        error = np.fmax(error, (again.step / sizes) ** 2 * np.abs(again.value) / 2)
        error = np.fmax(error, seen_truncation(again, sizes))
        better = error < block.error[:, columns]
    block.overwrite(
        columns,
        better,
        value=again.value,
        error=error,
        step=again.step,
        bend=again.bend,
    )
    return True


def _told_in_noise(
    block: Block, floor: NDArray[np.float64], suspects: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Columns whose entries are wrong by so much that noise cannot matter, or right.

    An output that is small by cancellation is noisy for its size, and no longer step
    makes a difference to entries that are off by a million times as much.
    """
    rows, columns = np.nonzero(suspects)
    with np.errstate(all="ignore"):
        gap = np.abs(block.analytic[rows, columns] - block.value[rows, columns])
        clear = (block.verdicts[rows, columns] == Verdict.DISAGREES.value) & (
            gap > _LOUD * floor[rows, columns]
        )
    told = np.ones(suspects.shape[1], dtype=bool)
    told[columns[~clear]] = False
    return told


def _explained(
    block: Block, floor: NDArray[np.float64], columns: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Columns whose accusations noise explains that matters to nobody."""
    right = block.verdicts[:, columns] == Verdict.AGREES.value
    effect = sensitivity(block.side, block.sizes)
    with np.errstate(all="ignore"):
        gap = np.abs(block.analytic[:, columns] - block.value[:, columns])
        within = gap <= SAFETY * floor[:, columns]
        bar = SAFETY * floor[:, columns] * block.latest_scales[columns]
        slight = within & (bar <= _OF_NO_MATTER * effect)
    return np.asarray((slight | right).all(axis=0) & ~right.all(axis=0))
