"""A second step for the few entries that one step cannot tell: two evaluations each.

One central difference knows its round-off and guesses its truncation; where f curves
far more than its slope is high (``x**3`` near 0, a small entry of an inverse) the guess
is too small, or the curvature looks like a kink. Both show on a step four times as
long: truncation grows sixteenfold, the difference of the one-sided slopes fourfold, and
that of a kink stays (L. F. Richardson, Phil. Trans. R. Soc. A 210, 1911). What is not
explained that way keeps its numbers and climbs the adaptive ladder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.rule import NEGLIGIBLE
from gradlab.comparison.tolerance import SAFETY
from gradlab.differentiation.finite_difference import central

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.blocks import Block

__all__ = ["few_enough", "take_second_steps"]

_LONGER = 4.0
_FEW = 8  # suspects of an input that always get a second step
_SHARE = 0.05  # of the coordinates: more suspects than that are no accident
_SHARP = 1e-3  # of the entry: a bar any wider is left to the ladder


def few_enough(block: Block, suspects: NDArray[np.intp]) -> bool:
    """Whether so many columns are the few that get a second step."""
    return 0 < len(suspects) <= max(_FEW, int(_SHARE * len(block.positions)))


def take_second_steps(
    reference: Origin,
    block: Block,
    suspects: NDArray[np.intp],
    meter: Meter,
    *,
    effect: NDArray[np.float64] | None = None,
) -> bool:
    """Measure suspicious columns of one input with a longer step as well.

    Parameters
    ----------
    reference
        What the numeric side evaluates.
    block
        Written to where both steps together tell a number with a narrow bar.
    suspects
        Columns of the block; see `few_enough`.
    meter
        Charged for every evaluation.
    effect
        `sensitivity` of every output, (rows, 1), where the block is not all there is.

    Returns
    -------
    bool
        Whether anything was written.
    """
    steps = _LONGER * np.abs(block.step[0, suspects])
    if not np.isfinite(steps).all():
        return False
    positions = block.positions[suspects]
    long = central(reference, block.which, positions, steps, meter)
    with np.errstate(all="ignore"):
        value, bar = block.value[:, suspects], block.error[:, suspects]
        apart = np.abs(long.value - value)
        ratio = _LONGER**2
        better = (ratio * value - long.value) / (ratio - 1)
        # what was corrected bounds what is left: the next order is smaller again
        error = np.maximum(bar, long.error) + apart / (ratio - 1)
        kink = (_LONGER * block.bend[:, suspects] - long.bend) / (_LONGER - 1)
        if effect is None:
            effect = block.typical_effect
        floor = NEGLIGIBLE * effect / block.scales[suspects]
        narrow = SAFETY * error <= np.maximum(_SHARP * np.abs(value), floor)
        # an entry that both steps see alike needs no better number
        narrow |= apart <= bar
        moved = apart > bar
        # what would only pass by the wider bar is for the ladder to tell
        gap = np.abs(block.analytic[:, suspects] - np.where(moved, better, value))
        near = (gap > block.allowed[:, suspects]) & (gap <= 2 * SAFETY * error)
        told = narrow.all(axis=0) & ~near.any(axis=0) & np.isfinite(better).all(axis=0)
    columns = suspects[told]
    if not columns.size:
        return False
    new = {"value": better[:, told], "error": error[:, told]}
    block.overwrite(columns, moved[:, told], **new)
    block.bend[:, columns] = kink[:, told]
    return True
