"""Slopes between two jumps of a solver that stops early.

An iteration that ends at a tolerance, an integrator that chooses its steps: from here
to there f takes the same number of steps and is smooth, and beyond it takes one more
and jumps back towards what is meant. The slope in between is off by what the jumps
make up for. A slight accusation counts only where f follows its numeric slope further
than the nearest jump could hide; a formula that is wrong by more than a percent, or by
more than a jump explains, stays wrong.

References
----------
J. Moré and S. Wild, *Estimating computational noise*, SIAM Journal on Scientific
Computing 33 (2011): deterministic noise of iterations that stop at a tolerance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.judge import tops_of
from gradlab.comparison.tolerance import SAFETY
from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.looks.following import Lanes, nearest_jump, next_jump

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.evaluation import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.blocks import Block

__all__ = ["SLIGHT", "WIDE", "accused_of_much", "widen_by_jumps"]

SLIGHT = 1e-2  # of the largest entry of the row: more is no matter of a tolerance
_MANY = 1.0  # times as many columns accused of more
_SAW = 30.0  # times what the slope is off by up to the jump: a higher one is another's
WIDE = 2.0  # jumps: how far f may be from what it is meant to be, on both ends
_LOOKS = 4  # columns that are followed before all are believed
_BELOW = 32.0  # jumps nearer than that part of a step are noise to differences
_FARTHEST = 2.0  # scales that steps grow to
_ON = 8.0  # scales that one column is followed on to, in equal steps


def widen_by_jumps(
    origin: Origin,
    block: Block,
    meter: Meter,
    spoiled: NDArray[np.bool_] | None,
) -> bool:
    """Widen the bars of slight accusations by the nearest jump of f.

    Parameters
    ----------
    origin
        What the numeric side of this block evaluates.
    block
        Judged. Its bars are widened, and it remembers a jump.
    meter
        Charged for every evaluation: none where nothing is slightly wrong, else about
        a hundred for each of at most four columns, and two hundred where none jumps
        and f is curved.
    spoiled
        Outputs that are accused of much with respect to another input, (rows,): what
        is wrong there is the formula. Gets those that were followed and did not jump.

    Returns
    -------
    bool
        Whether any bar was widened.
    """
    gap, slight = _slight(block)
    if spoiled is not None:
        slight[spoiled] = False
    if not slight.any():
        return False
    effect = np.where(slight, gap * block.latest_scales, 0.0)
    columns = np.flatnonzero(slight.any(axis=0))
    columns = columns[np.argsort(-effect[:, columns].max(axis=0), kind="stable")]
    now = columns[:_LOOKS]
    rows = effect[:, now].argmax(axis=0)
    least = np.where(slight, gap, 0.0)[rows, now]
    lanes = Lanes(origin, block, now, rows, meter, gap=least)
    height, away, curved = nearest_jump(lanes, farthest=_FARTHEST, below=_BELOW)
    followed = rows
    if curved[0] and np.isnan(away).all():
        now, rows = now[:1], rows[:1]
        height, away = next_jump(lanes.some(np.array([0])), farthest=_ON)
    if np.isnan(away).all():  # all upheld: so are the rest, and along other inputs
        if spoiled is not None:
            spoiled[followed] = True
        return False
    # along all axes the solver is off by as much, over as short a way
    highest, nearest = height.max(axis=1), np.nanmin(away / block.latest_scales[now])
    most = effect.max(axis=1)
    with np.errstate(all="ignore"):
        reach = np.fmax(nearest * block.latest_scales, np.abs(block.step))
        # slips that do not add up to a fair part of the jump: it is none of a tolerance
        tooth = highest[:, None] <= _SAW * most[:, None] * reach / block.latest_scales
        bar = np.where(tooth, WIDE * highest[:, None] / reach, 0.0)
    wider = slight & (bar > block.error)
    block.error = np.where(wider, bar, block.error)
    block.kinds[wider] = Smoothness.NOISY
    if wider.any():
        first = int(np.nanargmin(away))
        tall = float(height[rows[first], first])
        block.jump = (tall, float(away[first]), int(now[first]))
    return bool(wider.any())


def accused_of_much(blocks: list[Block]) -> NDArray[np.bool_]:
    """Return outputs with an entry wrong by more than a solver can be, (rows,)."""
    much = [(block.wrong & ~_slight(block)[1]).any(axis=1) for block in blocks]
    return np.asarray(np.any(much, axis=0))


def _slight(block: Block) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Distance between the sides, and where it is an accusation of little, (rows, n).

    Not in columns that are accused of much, and nowhere where those are far more. The
    distance is told of what is accused of little, and 0 elsewhere.
    """
    wrong = block.wrong
    gap, slight = np.zeros(wrong.shape), np.zeros(wrong.shape, dtype=bool)
    rows, columns = np.nonzero(wrong)
    if not rows.size:
        return gap, slight
    with np.errstate(all="ignore"):
        apart = np.abs(block.formula[rows, columns] - block.value[rows, columns])
        top = tops_of(block.value, block.sizes).effect[rows, 0]
        little = apart * block.latest_scales[columns] <= SLIGHT * top
        little &= apart > SAFETY * block.error[rows, columns]
    little &= ~np.isin(block.kinds[rows, columns], (Smoothness.KINK, Smoothness.EDGE))
    much = np.zeros(wrong.shape[1], dtype=bool)
    much[columns[~little]] = True
    little &= ~much[columns]
    if np.count_nonzero(much) > _MANY * len(np.unique(columns[little])):
        return gap, slight
    slight[rows, columns] = little
    gap[rows, columns] = np.where(little, apart, 0.0)
    return gap, slight
