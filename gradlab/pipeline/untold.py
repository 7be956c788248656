"""Inputs of whose gradient nothing was seen: it is too little beside f.

What hardly moves f is forgiven an entry here and there (`comparison.rule`): its bar may
be as wide as its value. Where that is so for every entry of an input, nobody has seen
that its gradient has the right size, or the right sign: behind ten sigmoids, or a scale
of 1e-5 twice over. Agreement would be a word for not looking. A few of the largest are
measured with care; if those are not told either, the input is left open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import CARE, SAFETY, roundings, tells
from gradlab.differentiation.smoothness import Smoothness

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.pipeline.blocks import Block

__all__ = ["largest_untold", "untold"]

_CLAIM = 4.0  # times what rounding may leave of a gradient that is zero
_STILL = 1e-4  # of what counts as no movement: a gradient says nothing with less
_SEEN = (Smoothness.KINK, Smoothness.EDGE, Smoothness.JUMP)  # and what f does there
_FEW, _MORE = 4, 16  # entries that are measured again; where some of them are wrong


def untold(
    block: Block, own: NDArray[np.float64], epsilon: float
) -> NDArray[np.bool_] | None:
    """Entries that say more than rounding does, where no entry of the block was seen.

    Parameters
    ----------
    block
        With verdicts.
    own
        Largest `sensitivity` of each output to any input, (rows, 1).
    epsilon
        Round-off of `block.formula`.

    Returns
    -------
    ndarray or None
        Shape (rows, n), without those that disagree; None where the numeric side tells
        some entry to a tenth of its value, or the gradient is nothing but rounding.
    """
    value, error, scales = block.value, block.error, block.latest_scales
    if value.size and np.any(block.restless):
        return _restless(block)
    if not value.size or _is_told(value.reshape(-1), error.reshape(-1)):
        return None
    with np.errstate(all="ignore"):
        least = _CLAIM * np.maximum(roundings(epsilon) * own, _STILL * block.still)
        claimed = (np.abs(block.formula) * scales > least) & ~block.wrong
        if not claimed.any():
            return None
    told = tells(value, error) & ~block.wrong
    told |= np.isin(block.kinds, _SEEN)
    return None if told.any() else np.asarray(claimed)


def _restless(block: Block) -> NDArray[np.bool_] | None:
    """Entries not told by themselves, of outputs that go another way than the formula.

    Where some are wrong the input is, and the others are none the less.
    """
    if block.restless is None or block.accused:
        return None
    return ~tells(block.value, block.error) & block.restless[:, None]


def _is_told(value: NDArray[np.float64], error: NDArray[np.float64]) -> bool:
    """Whether the largest entry is known well: it spares most blocks all the rest."""
    top = int(np.abs(value).argmax())
    with np.errstate(all="ignore"):
        return bool(0 < SAFETY * error[top] <= CARE * abs(value[top]))


def largest_untold(block: Block) -> NDArray[np.bool_]:
    """Pick a few entries of `Block.untold`, worth a second look, (rows, n)."""
    mask = np.zeros(block.value.shape, dtype=bool)
    if block.untold is None:
        return mask
    with np.errstate(all="ignore"):
        claim = np.abs(block.formula) * block.latest_scales
        if np.any(block.restless):  # a formula of zeros claims nothing
            seen = np.abs(block.value) + block.error
            claim = np.fmax(claim, seen * block.latest_scales)
    claim = np.where(block.untold & ~block.looked, claim, 0.0)
    claim = np.nan_to_num(claim, posinf=0.0).reshape(-1)
    left = _MORE if block.accused else _FEW
    if np.any(block.restless):
        left = max(0, min(left, _MORE - int(np.count_nonzero(block.looked))))
    count = min(left, int(np.count_nonzero(claim)))
    if count:
        mask.reshape(-1)[np.argpartition(claim, -count)[-count:]] = True
    return mask
