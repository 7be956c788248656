"""What deserves a second look: wrong, undecided, bent, or with too wide a bar."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.effects import scales_in
from gradlab.comparison.plain import agrees_plainly, close_bars
from gradlab.comparison.rule import Side, tolerated, unresolved
from gradlab.comparison.tiling import bands
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.quotients import BENT
from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.untold import largest_untold
from gradlab.subject.subject import EPSILON

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Known
    from gradlab.pipeline.plan import Plan
    from gradlab.subject.subject import Subject

_SLOPE = 10.0  # error bars; less is hardly a slope that another look could confirm

__all__ = [
    "accept",
    "close_calls",
    "is_beyond_doubt",
    "suspect_columns",
    "suspects_of",
    "suspicious",
]


def _bent_entries(block: Block, own: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Entries whose slopes to the left and to the right are those of a kink.

    A smooth function bends by a hundred-thousandth within one step. Agreement with the
    mean of two different slopes is luck, and worth a note. `own` is the `sensitivity`
    of each output, (rows, 1).
    """
    bent = np.zeros(block.value.shape, dtype=bool)
    for band in bands(block.value.shape):
        with np.errstate(all="ignore"):
            bend, error = np.abs(block.bend[band]), block.error[band]
            noise = error - bend * np.sqrt(EPSILON)  # the round-off part of the bar
            seen = (bend > BENT * np.abs(block.value[band])) & (bend > 10 * noise)
            if seen.any():
                seen &= bend * scales_in(block.scales, band) > 0.1 * BENT * own[band]
            bent[band] = seen
    return bent


def suspicious(
    block: Block, own: NDArray[np.float64] | None = None
) -> NDArray[np.bool_]:
    """Entries that need a second look, shape (rows, n).

    `own` is the `typical_effect` of the block, where that is known already.
    """
    wrong = block.wrong
    own = block.typical_effect if own is None else own
    least = block.noticed(own)
    blind = unresolved(block.side, block.analytic, block.scales, block.still, least)
    undecided = block.verdicts == Verdict.UNDECIDED.value
    found = wrong | blind | undecided | close_calls(block) | _bent_entries(block, own)
    if block.untold is not None:
        found |= largest_untold(block)
    return np.asarray(found)


def close_calls(
    block: Block, columns: NDArray[np.intp] | slice = slice(None)
) -> NDArray[np.bool_]:
    """Entries of columns that agree for their bar alone, and are off by much of it.

    Right gradients hardly ever are: another look costs them nothing. Not where f does
    not move: a gradient of zero is made of rounding, and a ladder there reads noise.
    """
    value, error = block.value[:, columns], block.error[:, columns]
    slack = block.slack if block.slack.shape[1] == 1 else block.slack[:, columns]
    with np.errstate(all="ignore"):
        gap = np.abs(block.formula[:, columns] - value) - slack
        bars = close_bars(value, error) * error
        close = gap > np.maximum(block.allowed[:, columns], bars)
        return np.asarray(close & (np.abs(value) > _SLOPE * error))


def suspect_columns(block: Block) -> NDArray[np.intp]:
    """Columns that need a second look, in order.

    Not those that had one, nor those that are upheld without.
    """
    left = ~block.looked if block.upheld is None else ~(block.looked | block.upheld)
    if not left.any():
        return np.zeros(0, dtype=np.intp)
    return np.flatnonzero(np.asarray(suspicious(block).any(axis=0)) & left)


def suspects_of(block: Block) -> NDArray[np.intp]:
    """Return the `suspect_columns`, most suspicious first."""
    columns = suspect_columns(block)
    if not columns.size:
        return columns
    every = len(columns) == len(block.looked)  # which needs no copies
    excess = block.excess() if every else block.excess(columns)
    return columns[np.argsort(-excess, kind="stable")]


def is_beyond_doubt(
    subject: Subject,
    block: Block,
    plan: Plan,
    own: NDArray[np.float64] | None = None,
) -> bool:
    """Whether every entry agrees, and none is `suspicious`: told in a few passes.

    Where f is finite. False where the verdicts have to tell. `own` is the
    `typical_effect` of the block, where that is known already.
    """
    if block.precise is not None or block.grain is not None:
        return False
    if (block.kinds == Smoothness.KINK.value).any():
        return False
    tolerance = plan.tolerance.of(block.name)
    plain = agrees_plainly(
        block.analytic,
        Side(block.value, block.error),
        relative=tolerance.relative(subject.epsilon),
    )
    if not plain:
        return False
    with np.errstate(all="ignore"):
        bent = np.abs(block.bend) > BENT * np.abs(block.value)
    if not bent.any():
        return True
    own = block.typical_effect if own is None else own
    return not _bent_entries(block, own).any()


def accept(subject: Subject, block: Block, plan: Plan, known: Known | None) -> None:
    """Give a block that `is_beyond_doubt` its verdicts, as judging it would."""
    block.verdicts = np.zeros(block.analytic.shape, dtype=np.int8)
    block.accepted = np.zeros(block.analytic.shape, dtype=bool)
    block.allowed = functools.partial(
        tolerated,
        block.analytic,
        block.value,
        block.sizes,
        block.latest_scales,
        plan.tolerance.of(block.name),
        subject.epsilon,
        None if known is None else known.tops.get(block.which),
    )
