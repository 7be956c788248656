"""Accusations no larger than what a gradient that agrees is off by.

The solution of a quadratic program does not depend on a bound that it keeps away from.
An interior-point method says that it does, a little: its gradients are as exact as its
last iterate, those of what matters too. These agree, for a billionth of a slope is
nothing; next to a slope of zero it is everything, and no mistake in a formula either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.rule import NEGLIGIBLE
from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.pipeline.verdicts import matters_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Judged

__all__ = ["excuse_inexact"]

_LIKE = 4.0  # times what others of the same output are off by


def excuse_inexact(judged: Judged) -> list[Finding]:
    """Leave open what is off by no more than what agrees, and matters to no output."""
    outcome, wrong = judged.outcome, judged.wrong
    if not wrong:
        return []
    matters = matters_of(outcome.blocks, outcome.known).own
    off = [_effects(block, Verdict.DISAGREES) for block in wrong]
    if not all((each <= NEGLIGIBLE * matters).all() for each in off):
        return []  # something else is the matter
    right = [block for block in outcome.blocks if not block.accused]
    if not right:
        return []  # what agrees of a wrong gradient is off by as much for that reason
    shown = np.max([_shown(block) for block in right], axis=0)
    excused = [
        block
        for block, each in zip(wrong, off, strict=True)
        if (each <= _LIKE * shown).all()
    ]
    for block in excused:
        block.leave_open(block.wrong)
    with np.errstate(all="ignore"):
        share = float(np.nanmax(shown / matters, initial=0.0))
    return [_told(block, share) for block in excused]


def _effects(block: Block, verdict: Verdict) -> NDArray[np.float64]:
    """How far gaps of entries with a verdict move the outputs, (rows, n); else 0."""
    with np.errstate(all="ignore"):
        gap = np.where(block.verdicts == verdict, block.gap, 0.0)
        return np.asarray(np.nan_to_num(gap * block.latest_scales, nan=np.inf))


def _shown(block: Block) -> NDArray[np.float64]:
    """How far the analytic side is off for certain where it agrees, (rows, 1)."""
    off = _effects(block, Verdict.AGREES)
    with np.errstate(all="ignore"):
        sure = block.gap > SAFETY * block.error
    told = sure & ~block.accepted
    return np.asarray(np.max(off, axis=1, keepdims=True, initial=0.0, where=told))


def _told(block: Block, share: float) -> Finding:
    return Finding(
        BugKind.LOW_PRECISION,
        "warning",
        block.name,
        0.8,
        f"What is wrong is less than {NEGLIGIBLE:g} of what matters to the output, and "
        f"gradients that agree are off by as much ({share:.1g} of it): the analytic "
        f"side has no more digits than that.",
        "Where gradients are computed by iteration, ask for a tighter tolerance there "
        "and check again.",
    )
