"""Steps of cheap differences that lead far beyond a coordinate's own size.

Steps go by the size of the whole input, so that an entry that happens to be tiny among
entries of size one is moved by a step of one's. Beside 4e6 an entry of 2e-3 is moved by
20, and ``sin(300 x)`` or ``exp(-x / 1e-3)`` averages to nothing on the way: a gradient
of zero would agree. Whether f goes as the differences say is asked of all such entries
together, along one direction and in units of their own sizes; four evaluations, where
there are any.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.differentiation.evaluation import line_of, line_rows
from gradlab.differentiation.finite_difference import central
from gradlab.differentiation.method import Auto

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.plan import Check

__all__ = ["distrust_far_steps"]

# Of its scale, by which every coordinate is moved: what is smaller is left behind.
_FAR = 6e-6
# Steps in units of a coordinate's own size, and how far f may be from where the
# differences lead, relative to how far they do. The short one sees effects that others
# outweigh a million times, the long one those that the digits of f outweigh: a
# logarithm is off by 1e-8 there, and by one percent.
_STEPS = ((1e-4, 1e-6), (0.1, 0.1))
_ROUNDING = 16.0  # units of f: its round-off, and that of f far out
_ALONE = 1e-3  # a difference over so much of the own size, of a single coordinate
_LIKE = 0.1  # relative: further apart, the two differences are of two slopes


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Small:
    """Coordinates of one block that are smaller than their steps."""

    block: Block
    columns: NDArray[np.intp]
    moves: NDArray[np.float64]  # their own sizes, with random signs and factors, (k,)

    @property
    def shifts(self) -> NDArray[np.float64]:
        """Moves of all columns of the block, (n,)."""
        whole = np.zeros(len(self.block.positions))
        whole[self.columns] = self.moves
        return whole

    def foretold(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return how far f goes by the differences, and by all of them in one sense."""
        pattern = self.block.pattern
        with np.errstate(all="ignore"):
            if pattern is None:
                parts = self.block.value[:, self.columns] * self.moves
                bars = self.block.error[:, self.columns] * np.abs(self.moves)
            else:
                there = self.shifts[pattern.support.columns]
                there = np.where(pattern.support.valid, there, 0.0)
                parts, bars = pattern.value * there, pattern.error * np.abs(there)
            return parts.sum(axis=1), (np.abs(parts) + SAFETY * bars).sum(axis=1)


def distrust_far_steps(check: Check, blocks: list[Block]) -> None:
    """Leave open what cheap differences say of entries that f does not bear out.

    Parameters
    ----------
    check
        Charged for four evaluations where there are such entries, and for two more of
        each where f contradicts. Who asks for a method or a step is left alone.
    blocks
        After the first pass; of entries that are not to be believed the error bar
        becomes inf, so that they are looked at closely.
    """
    reference, meter = check.reference, check.meter
    mixed = [block for block in blocks if _mixed(check, block)]
    if not mixed:
        return
    rng = np.random.default_rng([check.plan.seed, 17])
    found = [
        small for block in mixed if (small := _small(check, block, rng)) is not None
    ]
    if not found:
        return
    astray = _astray(reference, found, meter)
    if not astray.any():
        return
    for small in found:
        _leave_open(reference, small, astray, meter)


def _mixed(check: Check, block: Block) -> bool:
    """Whether some coordinates may be far smaller than the steps they are moved by."""
    if not isinstance(check.plan.method_of(block.name), Auto):
        return False
    return bool((block.sizes < _FAR * block.scales).any())


def _small(check: Check, block: Block, rng: np.random.Generator) -> _Small | None:
    """Find the coordinates that a step leaves far behind; None if there are none."""
    subject = check.reference.subject
    points = subject.point(block.which)[block.positions]
    few = (points != 0) & (np.abs(points) < _FAR * block.scales)
    columns = np.flatnonzero(few)
    if not columns.size:
        return None
    signs = rng.choice([-1.0, 1.0], len(columns))
    moves = signs * rng.uniform(0.5, 1.0, len(columns)) * np.abs(points[columns])
    return _Small(block, columns, moves)


def _astray(reference: Origin, found: list[_Small], meter: Meter) -> NDArray[np.bool_]:
    """Find outputs that do not go where the differences lead, (rows,)."""
    subject, base = reference.subject, reference.base
    told, most = np.zeros(len(base)), np.zeros(len(base))
    for small in found:
        parts, sizes = small.foretold()
        told, most = told + parts, most + sizes
    moves = [(one.block.which, one.block.positions, one.shifts) for one in found]
    reach = [sign * step for step, _ in _STEPS for sign in (1.0, -1.0)]
    values = line_rows(subject, line_of(subject, moves), reach, meter)
    astray = np.zeros(len(base), dtype=bool)
    for k, (step, share) in enumerate(_STEPS):
        up, down = values[2 * k], values[2 * k + 1]
        with np.errstate(all="ignore"):
            size = np.fmax(np.fmax(np.abs(up), np.abs(down)), np.abs(base))
            apart = np.abs((up - down) / 2 - step * told)
            room = share * step * most + _ROUNDING * subject.epsilon * size
            astray |= ~(apart <= room) & np.isfinite(up) & np.isfinite(down)
    return astray & np.isfinite(base)


def _leave_open(
    reference: Origin, small: _Small, astray: NDArray[np.bool_], meter: Meter
) -> None:
    """Take away the bars of single entries that a step of their own contradicts."""
    block, columns = small.block, small.columns
    if block.pattern is not None:  # a row of few entries: any of them may be meant
        support = block.pattern.support
        mine = np.isin(support.columns, columns) & support.valid & astray[:, None]
        block.pattern.error[mine] = np.inf
        return
    steps = _ALONE * np.abs(small.moves)
    positions = block.positions[columns]
    own = central(reference, block.which, positions, steps, meter)
    with np.errstate(all="ignore"):
        value, bar = block.value[:, columns], block.error[:, columns]
        apart = np.abs(own.value - value)
        room = _LIKE * np.fmax(np.abs(own.value), np.abs(value))
        room = np.fmax(room, SAFETY * (own.error + bar))
        other = ~(apart <= room) & astray[:, None]
    if other.any():
        block.distrust(other, columns)
