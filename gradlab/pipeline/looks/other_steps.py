"""Accusations that rest on a few error bars, or on little: measured on other steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.kinks import Sides, told_apart
from gradlab.comparison.tolerance import CLEAR, SAFETY
from gradlab.differentiation.adaptive_columns import adaptive_columns
from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.looks.closer import first_looks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.blocks import Block

__all__ = ["distance", "hear_again"]

_SLIGHT = 1e-2  # relative: a smaller slip is measured twice
_GOLDEN = (5**0.5 - 1) / 2  # multiples of it, modulo 1, fill what is left evenly
_OTHER_STEPS = 0.29  # between powers of two, so that no step is taken twice


def distance(
    block: Block, rows: NDArray[np.intp], columns: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Distance between the sides; in short arithmetic, of the nearer analytic one.

    Of some entries, by row and column.
    """
    value = block.value[rows, columns]
    far = np.abs(block.analytic[rows, columns] - value)
    if block.precise is None:
        return np.asarray(far)
    return np.asarray(np.fmin(far, np.abs(block.precise[rows, columns] - value)))


def hear_again(
    reference: Origin,
    block: Block,
    noise: NDArray[np.float64],
    meter: Meter,
    at_once: int,
) -> bool:
    """Repeat, on other steps, what is accused by a few error bars or of a small slip.

    `at_once` columns at most between two looks at the result.

    Error bars are estimates, and among thousands of entries some are too small; where
    the second derivative jumps, extrapolation is off by a millionth. Two ladders that
    share no step are both wrong in the same way only if the gradient is.

    Returns
    -------
    bool
        Whether any was repeated.
    """
    close = block.wrong
    rows, places = np.nonzero(close)
    with np.errstate(all="ignore"):
        apart = distance(block, rows, places)
        near = apart < CLEAR * block.error[rows, places]
        near |= apart < _SLIGHT * np.abs(block.value[rows, places])
    kinds, error = block.kinds[rows, places], block.error[rows, places]
    sides = Sides(block.left[rows, places], block.right[rows, places])
    near &= ~((kinds == Smoothness.KINK) & told_apart(sides, error))
    near &= kinds != Smoothness.EDGE
    close[rows, places] = near
    far = np.zeros(close.shape)
    far[rows, places] = apart
    waiting = np.flatnonzero(close.any(axis=0))
    # whoever is heard first is spread over all of them
    waiting = waiting[np.argsort(_GOLDEN * np.arange(len(waiting)) % 1, kind="stable")]
    heard = 0
    while heard < len(waiting):
        quota = min(first_looks(block, again=True), at_once)
        columns = np.sort(waiting[heard : heard + quota])
        heard += len(columns)
        found = adaptive_columns(
            reference,
            block.which,
            block.positions[columns],
            meter,
            noise=noise,
            stretch=_OTHER_STEPS,
        )
        ours = close[:, columns]
        with np.errstate(all="ignore"):
            apart = np.abs(found.value - block.value[:, columns])
            error = block.error[:, columns]
            # bars that reach each other contradict nothing; half as much does where the
            # gradient is nearer to what is found now
            nearer = np.abs(block.formula[:, columns] - found.value) < apart
            reach = np.where(nearer, 1, 2) * (error + found.error)
            apart = np.where(apart > reach, apart, 0.0)
        wider = np.where(ours, np.fmax(error, apart), 0.0)
        block.widen(wider, columns=columns)
        if not (ours & (far[:, columns] <= SAFETY * wider)).any():
            break  # all upheld: so are the rest
    return bool(waiting.size)
