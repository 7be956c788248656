"""Bars of cheap differences that agree, and lie many bars off: f rounds more than told.

A cheap difference takes the rounding of f from its size. A linear solve inside, or
terms that cancel, round by hundreds of times that; such entries agree by the tolerance
all the same, and nobody looks at them again. Beside a gap of fifty bars a bar is
not to be believed: what rounding does to f is measured, and the bar says so.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.noise.hidden_noise import LINE_COST, line_noise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.plan import Check

__all__ = ["widen_bars"]

_DEVIATIONS = 2.0  # of the noise of f, that both sides of a difference may have


def widen_bars(
    check: Check, blocks: Sequence[Block], looked: Sequence[Block] | None = None
) -> None:
    """Add to cheap bars what rounding does to f, where entries that agree stray.

    No verdict changes: it is the bars of what agrees that are told as they are. It
    takes six evaluations, or `LINE_COST` where they are silent, if a budget has these.

    Parameters
    ----------
    blocks
        With verdicts.
    looked
        Their entries laid side by side, where patterns are known; else the same.
    """
    pairs = list(zip(looked or blocks, blocks, strict=True))
    rows = [
        _astray(small) if check.plan.finds_steps(small.name) else None
        for small, _ in pairs
    ]
    if all(row is None for row in rows) or check.meter.left() < LINE_COST:
        return
    noise = line_noise(check.reference.subject, check.meter, check.plan.seed)
    for (small, block), row in zip(pairs, rows, strict=True):
        if row is not None:
            _widen(small, block, np.where(row, noise, 0.0))


def _astray(block: Block) -> NDArray[np.bool_] | None:
    """Rows with entries that agree, further apart than bars allow; None: there is none.

    Of those that had no second look.
    """
    with np.errstate(all="ignore"):
        apart = block.gap > SAFETY * block.error
    if not apart.any():
        return None
    rows = (apart & _cheap(block)).any(axis=1)
    return np.asarray(rows) if rows.any() else None


def _cheap(block: Block) -> NDArray[np.bool_]:
    """Entries that agree by their first difference, (rows, n)."""
    agrees = block.verdicts == Verdict.AGREES.value
    return np.asarray(agrees & ~block.looked)


def _widen(small: Block, block: Block, noise: NDArray[np.float64]) -> None:
    """Give the entries of a block wider bars, and its pattern, where it has one."""
    step, inside = block.step, None if small is block else block.pattern
    if inside is not None:
        step = np.take_along_axis(step, inside.support.columns, axis=1)
    with np.errstate(all="ignore"):
        wider = small.error + _DEVIATIONS * noise[:, None] / np.abs(step)
    wider = np.where(_cheap(small) & np.isfinite(wider), wider, small.error)
    if inside is not None:
        block.pattern = dataclasses.replace(inside, error=wider)
        block.error = block.pattern.errors
    else:
        block.error = wider
