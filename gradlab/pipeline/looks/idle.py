"""What does not move f is settled for all coordinates at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.evaluation import displaced_rows, line_of, line_rows
from gradlab.differentiation.noise.noise import rounding_of
from gradlab.pipeline.blocks import REACH, direction

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.blocks import Block

__all__ = ["settle_idle", "settle_still", "settle_zeros"]

_ALIKE = 0.4  # of a movement: two sides, or two slopes, that differ by less are one
_FARTHER = 3.0  # times the step: what has a slope there has it here
_SEVERAL = 3  # columns that move nothing: fewer have ladders of their own
_MOST = 48  # columns that are moved by the size of others


def settle_still(origin: Origin, blocks: list[Block], meter: Meter, seed: int) -> None:
    """Settle outputs that an input does not move: four evaluations instead of many.

    A difference of exactly 0 only says that f moved by less than its last digit. Moving
    every coordinate of the input together, by random amounts up to a third of their
    size, says it for steps a hundred thousand times as large. An analytic side that is
    not zero, but moves f by less than its last digit over as long a way, says the same:
    that of a softmax which has made up its mind. What does move then, on both sides and
    over another step alike, may have a slope that rounding inside f hides close by: its
    bar is as wide as that, which calls for a closer look. A unit that wakes up is on
    one side.
    """
    rng = np.random.default_rng([seed, 7])
    for block in blocks:
        with np.errstate(all="ignore"):
            moved = (np.abs(block.analytic) * block.scales).sum(axis=1)
            still = (block.value == 0).all(axis=1) & (moved <= _ulps(origin))
        if still.any() and block.positions.size:
            every = np.arange(len(block.positions))
            _settle(origin, block, still, every, rng, meter)


def settle_idle(
    origin: Origin, block: Block, suspects: NDArray[np.intp], meter: Meter, seed: int
) -> bool:
    """Settle suspects that move no output: rows of a table that no index names, say.

    Returns
    -------
    bool
        Whether there were any to move together.
    """
    with np.errstate(all="ignore"):
        moved = np.abs(block.analytic[:, suspects]) * block.scales[suspects]
        idle = (block.value[:, suspects] == 0) & (moved <= _ulps(origin)[:, None])
    columns = suspects[idle.all(axis=0)]
    if len(columns) < _SEVERAL:
        return False
    rng = np.random.default_rng([seed, 11])
    _settle(origin, block, np.ones(len(origin.base), dtype=bool), columns, rng, meter)
    return True


def settle_zeros(origin: Origin, block: Block, meter: Meter) -> bool:
    """Settle entries left open that are zero on both sides: two evaluations a column.

    In short arithmetic one bar of many thousands may come out too wide, or a coordinate
    that is small beside the others of its input was moved by a part of its own size,
    over which last digits of f hide a slope. Where f stands still over the usual size
    of the others, too, or is the same on both sides, as a cosine at 0, there is none.

    Returns
    -------
    bool
        Whether there were any to move.
    """
    zeros = (block.value == 0) & (block.analytic == 0)
    zeros &= block.verdicts == Verdict.UNDECIDED
    columns = np.flatnonzero(zeros.any(axis=0))[:_MOST]
    if not columns.size:
        return False
    usual = float(np.median(block.scales))
    which, positions = block.which, np.tile(block.positions[columns], 2)
    steps = np.repeat([usual, -usual], len(columns))
    values, taken = displaced_rows(origin.subject, which, positions, steps, meter)
    ulps = _ulps(origin)[:, None]
    shape = 2, len(columns), -1
    with np.errstate(all="ignore"):
        ahead, behind = values.reshape(shape)
        moved = np.abs(ahead - behind).T / 2
        bar = ulps / np.abs(taken).reshape(shape[:2]).min(axis=0)
    still = zeros[:, columns] & (moved <= ulps)
    block.narrow(bar, still, columns)
    return bool(still.any())


def _settle(
    origin: Origin,
    block: Block,
    rows: NDArray[np.bool_],
    columns: NDArray[np.intp],
    rng: np.random.Generator,
    meter: Meter,
) -> None:
    """Move some columns together; narrow their bars in rows that stand still."""
    subject = origin.subject
    known = block.walk if len(columns) == len(block.positions) else None
    amounts = direction(block.scales[columns], rng) if known is None else known[0]
    line = line_of(subject, [(block.which, block.positions[columns], amounts)])
    values = line_rows(subject, line, REACH, meter) if known is None else known[1]
    ulps = _ulps(origin)
    with np.errstate(all="ignore"):
        moved = values - origin.base
        quiet = rows & (np.abs(moved) <= ulps).all(axis=0)
        bar = ulps[:, None] / (max(REACH) * np.abs(amounts))
    block.narrow(bar, quiet[:, None], columns)
    slope, alike = _slope(moved[:2], REACH[0], ulps)
    if not (rows & alike).any():
        return
    farther = _FARTHER * REACH[0]
    more = line_rows(subject, line, (farther, -farther), meter) - origin.base
    same, also = _slope(more, farther, ulps)
    with np.errstate(all="ignore"):  # noise moves f as far over any step
        alike &= rows & also & (np.abs(slope - same) <= _ALIKE * np.abs(slope))
        least = np.abs(slope[:, None] / amounts)
    block.widen(least, alike[:, None], columns)


def _slope(
    moved: NDArray[np.float64], step: float, ulps: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Slope of what moved ahead and behind, and whether both sides have it, (rows,)."""
    with np.errstate(all="ignore"):
        far = np.abs(moved).max(axis=0)
        alike = np.abs(moved.sum(axis=0)) <= _ALIKE * far
        alike &= (far > ulps) & (far < np.inf)
        return (moved[0] - moved[1]) / (2 * step), alike


def _ulps(origin: Origin) -> NDArray[np.float64]:
    """How far outputs may move that stand still, (rows,)."""
    return 8 * rounding_of(origin.base, origin.subject.epsilon)
