"""A closer look: cheap differences of some columns give way to the adaptive ladder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import CLEAR, SAFETY
from gradlab.differentiation.adaptive_columns import adaptive_columns
from gradlab.differentiation.lines.least_scales import UNSEEN
from gradlab.differentiation.noise.hidden_noise import LAST_DIGITS
from gradlab.differentiation.noise.noise import rounding_of
from gradlab.differentiation.sizes.small_coordinates import OWN_SCALE
from gradlab.differentiation.smoothness import Smoothness

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.ladder.derivatives import Derivatives
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.blocks import Block
    from gradlab.subject.subject import Subject

__all__ = ["CLOSE_LOOKS", "first_looks", "spread", "take_closer"]

CLOSE_LOOKS = 48  # suspects of one input that are certain to get a second look
_FEW_LOOKS = 8  # where most of an input is wrong, which is one mistake and not many
# The same of an input that random directions, or looks, have shown to be wrong.
_SHOWN = 3
_MOST = 0.5  # of the columns of an input: where more are wrong, all of it is
_SOFT = 32.0  # parts of its scale over which a slope may fall to nothing


def take_closer(
    reference: Origin,
    block: Block,
    chosen: NDArray[np.intp],
    noise: NDArray[np.float64],
    meter: Meter,
) -> None:
    """Replace the values of some columns by those of the adaptive ladder."""
    positions = block.positions[chosen]
    found = adaptive_columns(reference, block.which, positions, meter, noise=noise)
    with np.errstate(all="ignore"):
        better = (
            ~np.isfinite(block.value[:, chosen])
            | ~(found.error > block.error[:, chosen])
            | (
                np.abs(found.value - block.value[:, chosen])
                > SAFETY * block.error[:, chosen]
            )
        )
    better &= np.isfinite(found.value) | ~np.isfinite(block.value[:, chosen])
    # a step between two jumps of rounding agrees with itself
    with np.errstate(all="ignore"):
        vague = found.error > np.abs(found.value) / 10
    better |= (found.kind == Smoothness.NOISY) & vague
    better |= found.kind == Smoothness.KINK  # the mean of two slopes is no better
    # steps of f as small as the last digit of one are the rounding of 1 + small
    better |= (
        (found.kind == Smoothness.STAIRCASE)
        & (found.noise > 0)
        & (found.noise < LAST_DIGITS)
    )
    # where the ladder cannot tell, the cheap value is luck
    block.distrust(~np.isfinite(found.error), chosen)
    block.own_slopes()
    block.left[:, chosen], block.right[:, chosen] = found.left, found.right
    error = _softened(reference, block, chosen, found)
    better_ones = {"value": found.value, "error": error, "step": found.step}
    block.overwrite(chosen, better, **better_ones)
    if block.faint:
        _distrust_jumps(reference, block, chosen, found)
    _rescale(reference.subject, block, chosen, found)
    block.kinds[:, chosen] = found.kind
    block.looked[chosen] = True


def _softened(
    reference: Origin, block: Block, chosen: NDArray[np.intp], found: Derivatives
) -> NDArray[np.float64]:
    """Return bars that leave room for slopes of what 1 - small has lost.

    Where f stands still a slope may be there that falls to nothing within a small part
    of the scale, as beside a disc with a soft edge; the least digits do not show it.
    """
    base, epsilon = reference.base, reference.subject.epsilon
    digit = rounding_of(base, epsilon)
    lost = (digit > epsilon * np.abs(base))[:, None]
    lost = lost & (found.value == 0) & (block.analytic[:, chosen] != 0)
    room = _SOFT * digit[:, None] / block.scales[chosen]
    return np.where(lost, np.fmax(found.error, room), found.error)


def _distrust_jumps(
    reference: Origin, block: Block, chosen: NDArray[np.intp], found: Derivatives
) -> None:
    """Leave open what looks like noise over steps far longer than the coordinates.

    A jump of the slope within their own size does, and what comes out has the slope of
    neither side. So does what looks smooth, where f is known to bend on such steps.
    """
    subject = reference.subject
    seen = UNSEEN * subject.epsilon * np.abs(reference.base)[:, None]
    own = np.abs(subject.point(block.which)[block.positions[chosen]])
    with np.errstate(all="ignore"):
        jumps = (found.kind == Smoothness.NOISY) & (found.noise > seen)
        if subject.least_scales[block.which] == 0:
            apart = block.gap[:, chosen] > SAFETY * block.error[:, chosen]
            jumps |= (found.kind != Smoothness.KINK) & apart
        jumps &= np.abs(block.step[:, chosen]) > own
    block.distrust(jumps, chosen)


def _rescale(
    reference: Subject, block: Block, chosen: NDArray[np.intp], found: Derivatives
) -> None:
    """Give coordinates their own size as scale that turn out to live on it.

    Among entries of 1e8, one of 1e-7 is first taken for a small one of 1e8. Where its
    slopes rest on steps near its own size, round-off is measured by that.
    """
    size = np.abs(reference.point(block.which)[block.positions[chosen]])
    small = (size > 0) & np.isfinite(found.error).all(axis=0)
    small &= (found.kind == Smoothness.SMOOTH).all(axis=0)
    size = np.maximum(size, np.nanmax(found.step, axis=0, initial=0.0))
    small &= size < OWN_SCALE * block.scales[chosen]
    if small.any():
        block.own_scales = block.latest_scales.copy()
        block.own_scales[chosen[small]] = size[small]


def first_looks(
    block: Block, *, accused: bool = False, others: int = 0, again: bool = False
) -> int:
    """How many suspects of an input get a second look before the rest is believed.

    Where more than half of the columns disagree by many error bars the whole input is
    wrong, and eight of them (the worst, and a spread of the others) show it as surely
    as all: a layer that is wrong spoils everything before it. Where the input is
    `accused` as a whole already, three will do, and three of an input that is wrong as
    a whole when it is looked at `again`. `others` is the number of columns that are not
    here because they agree.
    """
    with np.errstate(all="ignore"):
        far = np.abs(block.analytic - block.value) > CLEAR * block.error
    wrong = (far & block.wrong).any(axis=0)
    many = np.count_nonzero(wrong) > _MOST * (wrong.size + others)
    if accused:
        return _SHOWN
    few = _SHOWN if again else _FEW_LOOKS
    return few if many else CLOSE_LOOKS


def spread(suspects: NDArray[np.intp], quota: int) -> NDArray[np.intp]:
    """Choose the worst of ranked suspects, and a spread of the others.

    Examples
    --------
    >>> spread(np.arange(100), 6).tolist()
    [0, 1, 2, 3, 4, 99]
    """
    if len(suspects) <= quota:
        return suspects
    worst = 2 * quota // 3
    rest = np.linspace(worst, len(suspects) - 1, quota - worst).astype(np.intp)
    return np.unique(np.concatenate([suspects[:worst], suspects[rest]]))
