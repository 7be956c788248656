"""Half precision hidden inside: flat, or of another slope, at every cheap step.

A function that rounds to half precision on the way is piecewise smooth, with jumps a
thousandth apart. At small steps its slope is that between two jumps; the slope that
anyone means shows over many of them. Where the two contradict each other, and only
there, a jump is hunted down; a fine ripple has none, and its slope is what small steps
say. A quantiser has jumps as well, but evenly spaced: its spacing stays when all inputs
are multiplied by eight, that of floating-point numbers grows with them. Rounding on
purpose keeps its slope of zero.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.evaluation import base_row
from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.looks.closer import CLOSE_LOOKS, spread
from gradlab.pipeline.looks.step_heights import casts_seen, height_of_steps
from gradlab.pipeline.looks.wide_slopes import Wide, wide_slopes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.blocks import Block
    from gradlab.subject.subject import Subject


__all__ = ["see_through_steps"]

_LIKE = 0.25  # a gradient this close to the wide slope may be meant for it
_ROUGH = (Smoothness.STAIRCASE, Smoothness.NOISY)
# of the scale: more than a step of bfloat16; the same where all coordinates move
_LONG, _TOGETHER = 0.01, 0.005
_NEARER = 1 / 16  # of the reach
_COARSEST = 2.0**-8  # of a number: the rounding of bfloat16


@dataclasses.dataclass(frozen=True, slots=True)
class _Steps:
    """Steps that f was seen to make along one coordinate.

    Attributes
    ----------
    row
        Of which output.
    height
        How high they are.
    share
        That relative to how far the output goes over all of them.
    width
        How wide they are, in the scale of the coordinate.
    """

    row: int
    height: float
    share: float
    width: float


def see_through_steps(
    reference: Subject,
    block: Block,
    meter: Meter,
    *,
    nearer: bool = False,
) -> bool:
    """Give wrong entries the slope over many steps, where f is made of small steps.

    Parameters
    ----------
    nearer
        Whether to look for jumps close to the point as well, where there are none far
        out. That excuses more; for methods that cannot tell without.

    Returns
    -------
    bool
        Whether it is.
    """
    wrong = _between_steps(reference, block, meter)
    steps = _steps_seen(reference, block, wrong, meter, nearer=nearer)
    if steps is None:
        return False
    row, height, share = steps.row, steps.height, steps.share
    # what seems a kink there, or rests on longer steps, is as rough
    wrong[row] |= _wrong(block)[row]
    # and a slope over few steps is off by one of them, however smooth it looks
    least = _least_bars(block, steps)
    with np.errstate(all="ignore"):
        explained = np.abs(block.analytic - block.value) <= SAFETY * least
    explained &= _wrong(block)
    wrong |= explained
    columns = np.flatnonzero(wrong.any(axis=0))
    untold = _untold(block)
    chosen = spread(np.flatnonzero((wrong | untold).any(axis=0)), CLOSE_LOOKS)
    wide = wide_slopes(reference, block, chosen, meter)
    # another output has a step of its own, by its size: less is no movement
    sizes = np.abs(base_row(reference, meter))
    step_of = sizes * min(height / max(float(sizes[row]), 1e-300), _COARSEST)
    # there, small steps mean nothing to any entry of a rough output
    rough = np.isin(block.kinds[:, chosen], _ROUGH) | _mistaken(block, wide, chosen)
    moves = np.abs(block.value[:, chosen] * block.step[:, chosen])
    rough |= moves < step_of[:, None]
    rough[row] = True
    # six pairs of values are too few to know their scatter well: one step, at least
    bar = np.maximum(2 * wide.error, share * np.abs(wide.value))
    bar = np.fmax(bar, step_of[:, None] / wide.reach)
    bar[row] = np.maximum(bar[row], height / wide.reach)
    rough |= explained[:, chosen]
    meant = wrong[:, chosen] | (untold[:, chosen] & (wide.value != 0))
    meant &= rough & np.isfinite(wide.error)
    block.widen(least, explained)
    block.overwrite(chosen, meant, value=wide.value, error=bar)
    block.overwrite(chosen, meant, step=wide.reach, kinds=Smoothness.NOISY)
    rest = np.setdiff1d(columns, chosen)
    if rest.size and meant[wrong[:, chosen]].all():
        block.distrust(wrong[:, rest], rest)
    return True


def _steps_seen(
    reference: Subject,
    block: Block,
    wrong: NDArray[np.bool_],
    meter: Meter,
    *,
    nearer: bool,
) -> _Steps | None:
    """Look for steps along the coordinate with the largest contradiction."""
    if not wrong.any():
        return None
    gap = _moved(block, wrong)
    first = int(np.argmax(gap.max(axis=0)))
    wide = wide_slopes(reference, block, np.array([first]), meter)
    mistaken = _mistaken(block, wide, np.array([first])) & wrong[:, [first]]
    if not mistaken.any():
        return None
    row = int(np.argmax(np.where(mistaken[:, 0], gap[:, first], -1.0)))
    slope, reach = float(wide.value[row, 0]), float(wide.reach[0])
    shares = (1.0, _NEARER) if nearer else (1.0,)
    place, over = (row, first), (slope, reach)
    height = height_of_steps(reference, block, place, over, meter, shares)
    if height is None:
        return None
    width = height / max(abs(slope), 1e-300)
    scale = float(block.latest_scales[first])
    return _Steps(row, height, width / reach, width / scale)


def _least_bars(block: Block, steps: _Steps) -> NDArray[np.float64]:
    """Bar of a slope that is off by one step, (rows, n); inf where f stood still.

    Numbers of one size have spacings that differ by two.
    """
    width = 2 * steps.width * block.latest_scales
    with np.errstate(all="ignore"):
        bar = np.abs(block.value) * width / block.step
    return np.where((block.value == 0) | np.isnan(bar), np.inf, bar)


def _moved(block: Block, wrong: NDArray[np.bool_]) -> NDArray[np.float64]:
    """How far the sides are apart over the scales, (rows, n); -1 where not wrong."""
    with np.errstate(all="ignore"):
        gap = np.abs(block.analytic - block.value) * block.latest_scales
    return np.where(wrong, gap, -1.0)


def _wrong(block: Block) -> NDArray[np.bool_]:
    known = np.isfinite(block.value) & np.isfinite(block.analytic)
    return np.asarray(block.wrong & known)


def _untold(block: Block) -> NDArray[np.bool_]:
    """Entries left open, or zero on both sides, as all is between two steps."""
    still = (block.value == 0) & (block.analytic == 0)
    still &= block.verdicts == Verdict.AGREES
    open_ = (block.verdicts == Verdict.UNDECIDED) & np.isfinite(block.analytic)
    return np.asarray(still | open_)


def _between_steps(reference: Subject, block: Block, meter: Meter) -> NDArray[np.bool_]:
    """Wrong entries whose value rests on less than a step of bfloat16, or on noise.

    Or on any step, where f is seen to cast: a step of four spacings is off by percents.
    None where a line with the worst of them has been followed farther than that.
    """
    wrong = _wrong(block)
    if wrong.any() and casts_seen(reference, meter):
        return wrong
    with np.errstate(all="ignore"):
        short = ~(block.step > _LONG * block.latest_scales)
    usual = np.isin(block.kinds, (-1, Smoothness.SMOOTH))
    short |= block.value == 0  # stands still for longer
    between = np.asarray(wrong & (np.isin(block.kinds, _ROUGH) | (usual & short)))
    followed = np.asarray(block.walked > _TOGETHER * block.latest_scales)
    if followed.any() and followed[np.argmax(_moved(block, between).max(axis=0))]:
        between[:] = False
    return between


def _mistaken(block: Block, wide: Wide, columns: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Entries where both slopes contradict each other, and a gradient is the wide one.

    Or where the gradient is one with the wide slope, and f is noise on small steps.
    """
    value, error = block.value[:, columns], block.error[:, columns]
    with np.errstate(all="ignore"):
        apart = np.abs(wide.value - value) > 3 * wide.error + SAFETY * error
        near = np.abs(block.analytic[:, columns] - wide.value)
        like = near <= _LIKE * np.abs(wide.value) + SAFETY * wide.error
        noisy = block.kinds[:, columns] == Smoothness.NOISY
        excused = noisy & (near <= SAFETY * wide.error)
    return np.asarray(((apart & like) | excused) & np.isfinite(wide.error))
