"""Inputs no entry of which is told by itself: all of them are moved together.

A gradient of exactly zero claims nothing, and steps of a hundred-thousandth show
nothing either where an input moves f by a thousand-millionth of it. Most such inputs
are unused, or stand in front of a normalisation; they have to stay cheap, and right.
Four evaluations along one random direction, two of them over a third of the size of the
input, see what is more than rounding: noise is as loud over short steps as over long
ones, and a slope is not. Only then a ladder along that direction measures what all
slopes add up to. Where that is told, and the formula says otherwise, entries are looked
at (`pipeline.untold`), and the input agrees no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import CARE, SAFETY, tells
from gradlab.differentiation.adaptive_columns import adaptive_line
from gradlab.differentiation.evaluation import line_of, line_rows
from gradlab.differentiation.method import Adaptive, Auto
from gradlab.differentiation.noise.noise import rounding_of
from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.blocks import REACH, direction

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Outcome
    from gradlab.pipeline.plan import Check

__all__ = ["move_together"]

_LOUDER = 8.0  # times what moves f close by, and its last digit: no noise
_SEEN = 64.0  # roundings of f: a slope over the shorter of these steps
_ALIKE = 0.2  # of a movement: two sides that differ by less have one slope
_APART = 2.0  # times SAFETY bars of the ladder, and ...
_SLIGHT = 1e-2  # ... of the slope: nearer to the formula nothing is contradicted
_LINES = 2  # that a ladder climbs along, at most
_ROUNDINGS = 64.0  # of the terms that the formula adds up along the direction


def move_together(check: Check, outcome: Outcome) -> bool:
    """Mark outputs of inputs that move them otherwise than the formula says.

    Parameters
    ----------
    check
        Charged for four evaluations of each input no entry of which is told, and for a
        ladder where these show more than noise; where the budget has as many.
    outcome
        After the first pass. `walk` and `restless` of its blocks are set.

    Returns
    -------
    bool
        Whether any output was marked.
    """
    if outcome.known is not None or not np.isfinite(outcome.base).all():
        return False
    rng = np.random.default_rng([check.plan.seed, 7])
    for block in outcome.blocks:
        auto = isinstance(check.plan.method_of(block.name), Auto)
        if not auto or not block.positions.size or _is_told(block):
            continue
        if check.meter.left() < Adaptive.cost + len(REACH):
            break
        block.restless = _restless(check, block, rng)
    return any(b.restless is not None and b.restless.any() for b in outcome.blocks)


def _is_told(block: Block) -> bool:
    """Whether the first pass tells any entry to a tenth of its value."""
    side = block if block.pattern is None else block.pattern
    return bool(tells(side.value, side.error).any())


def _restless(
    check: Check, block: Block, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Find outputs whose slope along a line contradicts the formula, (rows,).

    Along another one, too, where slopes cancel so well along the first that the ladder
    does not tell what is left.
    """
    origin, meter = check.reference, check.meter
    amounts = direction(block.scales, rng)
    line = line_of(origin.subject, [(block.which, block.positions, amounts)])
    values = line_rows(origin.subject, line, REACH, meter)
    block.walk = amounts, values
    moved = values - origin.base
    digit = rounding_of(origin.base, origin.subject.epsilon)
    left = _is_no_noise(moved, digit)
    restless = np.zeros_like(left)
    for _ in range(_LINES):
        if not left.any() or meter.left() < Adaptive.cost:
            break
        told, hardly, apart = _contradicted(check, block, amounts)
        restless |= left & told & apart
        left &= hardly & ~told
        amounts = direction(block.scales, rng)
    return restless


def _contradicted(
    check: Check, block: Block, amounts: NDArray[np.float64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Climb along a direction: what is told, seen at all, not as foretold, (rows,)."""
    origin, meter = check.reference, check.meter
    meter.expect(Adaptive.cost)
    line = line_of(origin.subject, [(block.which, block.positions, amounts)])
    found = adaptive_line(origin, line, meter)
    value, error = found.value[:, 0], found.error[:, 0]
    with np.errstate(all="ignore"):
        told = found.kind[:, 0] == Smoothness.SMOOTH
        told &= SAFETY * error <= CARE * np.abs(value)
        terms = block.formula * amounts
        room = np.fmax(_APART * SAFETY * error, _SLIGHT * np.abs(value))
        room += _ROUNDINGS * check.subject.epsilon * np.abs(terms).sum(axis=1)
        apart = np.abs(terms.sum(axis=1) - value) > room
        return told, SAFETY * error <= np.abs(value), np.asarray(apart)


def _is_no_noise(
    moved: NDArray[np.float64], digit: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Find outputs that move both ways, and more the farther they are moved, (rows,).

    Units that wake up farther away move f on one side only.
    """
    with np.errstate(all="ignore"):
        close, far = np.abs(moved[:2]).max(axis=0), np.abs(moved[2:])
        least = np.minimum(far.min(axis=0), np.abs(moved[2] - moved[3]) / 2)
        louder = least > _LOUDER * (close + digit)
        even = np.abs(moved[0] + moved[1]) <= _ALIKE * close
        sloped = even & (close > _SEEN * digit) & (far.max(axis=0) > 2 * close)
        return np.asarray((louder | sloped) & np.isfinite(far).all(axis=0))
