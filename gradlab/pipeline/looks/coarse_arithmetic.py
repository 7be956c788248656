"""Accusations where f computes in less than the precision of its numbers.

A kernel that takes float32 alone may multiply in TensorFloat-32, of which ten bits are
left: f is a staircase then, and every step of a ladder a number of stairs. Among
hundreds of entries some ladders agree with themselves by luck. The noise of f over
steps of half precision shows the stairs; and what is accused there has to be wrong over
many of them as well.

References
----------
NVIDIA, *A100 Tensor Core GPU Architecture* (2020): TensorFloat-32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.looks.closer import spread
from gradlab.pipeline.looks.wide_slopes import wide_slopes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.blocks import Block

__all__ = ["hear_over_stairs"]

_LOOKS = 8  # columns first: where all are upheld, so are the others
_SCATTERED = 2.0  # bars of a fit to six pairs, which are too few to know their scatter
_NOISY = 3.0  # times the standard deviation of f


def hear_over_stairs(
    origin: Origin, block: Block, stairs: NDArray[np.float64], meter: Meter
) -> bool:
    """Take back what a block is accused of, where a slope over many stairs is right.

    Parameters
    ----------
    origin
        What is evaluated.
    block
        Judged; entries that are taken back have the wide slope and its bar.
    stairs
        Of each output, from `coarse_noise`.
    meter
        Charged for twelve to 36 evaluations of each column that is looked at.

    Returns
    -------
    bool
        Whether any was.
    """
    accused = np.flatnonzero(block.wrong.any(axis=0))
    left = accused[np.argsort(-block.excess(accused), kind="stable")]
    looks, heard = _LOOKS, False
    while left.size:
        chosen = spread(left, looks)
        wide = wide_slopes(origin.subject, block, chosen, meter)
        with np.errstate(all="ignore"):
            error = np.fmax(
                _SCATTERED * wide.error, _NOISY * stairs[:, None] / wide.reach
            )
            gap = np.abs(block.analytic[:, chosen] - wide.value)
            right = block.wrong[:, chosen] & ~(gap > SAFETY * error)
        if not right.any():
            return heard
        block.overwrite(chosen, right, value=wide.value, error=error, step=wide.reach)
        block.overwrite(chosen, right, kinds=Smoothness.NOISY)
        heard, looks = True, 2 * looks
        left = left[~np.isin(left, chosen)]
    return heard
