"""Follow f away from the point, coordinate by coordinate, until it jumps.

A quartic through five values foretells f at twice the distance. Where f departs from
what is foretold the place is cornered, by halving: a jump stays as high in a
thousand-millionth of the way, what is continuous does not. Where f is curved the way on
is in equal steps, as long as a quartic bears them.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.evaluation import displaced_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.blocks import Block

__all__ = ["Lanes", "nearest_jump", "next_jump"]

_SEEN = 1e-7  # of f: what a jump, or a departure from a smooth course, must exceed
_LOUD = 500.0  # rounding units of f, as well: the weights of the nodes add up to 129
_NODES = np.array([0.0, 0.25, -0.25, 0.5, -0.5])  # of the next step
# Of each node all others, and how far it is from them, (5, 4).
_OTHERS = np.array([np.delete(_NODES, k) for k in range(len(_NODES))])
_APART = _NODES[:, None] - _OTHERS
_PART = 0.05  # of the gap times the step: a jump of less explains nothing
_HALVINGS = 30
_LASTS = 1e-5  # of the departure; a continuous one has less within 2^-30 of the way
_BELOW = 512.0  # last digits jump in steps far shorter than those of a difference
_PATIENCE = 6  # departures from a smooth course that are looked at
_EXPLAINS = 0.25  # of the gap times the way: a jump that far away of less is no reason
_FIRST, _SHORTENED = 0.25, 16  # of the scale: the longest equal step; halvings of it
_WALKED = 48  # equal steps to either side
# the nodes half a step farther on, among those here and two ahead
_FORTH, _BACK = [3, 5, 1, 6, 0], [4, 2, 5, 0, 6]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """Columns of one block, each with the output that is looked at, shape (n,) each."""

    origin: Origin
    block: Block
    columns: NDArray[np.intp]
    rows: NDArray[np.intp]
    meter: Meter
    # what slopes are off by, (n,): jumps that explain less are not looked for
    gap: NDArray[np.float64] | None = None

    def some(self, which: NDArray[np.intp]) -> Lanes:
        """Return some of the lanes."""
        columns, rows = self.columns[which], self.rows[which]
        gap = None if self.gap is None else self.gap[which]
        return Lanes(self.origin, self.block, columns, rows, self.meter, gap)

    def at(self, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        """Evaluate all outputs, each lane at a step of its own: (n, rows)."""
        positions = self.block.positions[self.columns]
        at, which = self.origin.subject, self.block.which
        return displaced_rows(at, which, positions, steps, self.meter)[0]

    def seen(self, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        """Evaluate the output that is looked at, shape (n,)."""
        return self.pick(self.at(steps))

    def pick(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Pick the output that is looked at from (n, rows)."""
        return np.asarray(values[np.arange(len(self.rows)), self.rows])


def nearest_jump(
    lanes: Lanes, *, farthest: float = 16.0, below: float = _BELOW
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Follow f away from the point, on both sides, until it jumps.

    Parameters
    ----------
    lanes
        What is followed.
    farthest
        Steps beyond so many scales are not taken.
    below
        The first step is that much smaller than the one that was taken.

    Returns
    -------
    height
        Of the jump in every output, 0 where there is none; (rows, n).
    away
        Signed distance from the point, (n,); nan where there is none.
    curved
        Whether f left its smooth course on the way, by jumps or not, (n,): where it did
        not, equal steps see no more.
    """
    count = len(lanes.columns)
    subject, base = lanes.origin.subject, lanes.origin.base
    height, away = np.zeros((len(base), count)), np.full(count, np.nan)
    size = np.abs(subject.point(lanes.block.which))
    size = size[lanes.block.positions[lanes.columns]]
    step = np.abs(lanes.block.step[lanes.rows, lanes.columns])
    step = np.fmax(step / below, 16 * subject.epsilon * size)
    start = [base[lanes.rows]]
    start += [lanes.seen(node * step) for node in _NODES[1:]]
    nodes = np.stack(start)
    busy, looks = np.arange(count), np.zeros(count, int)
    ends_at = farthest * lanes.block.latest_scales[lanes.columns]
    while busy.size:
        some = lanes.some(busy)
        ends = np.stack([some.seen(step[busy]), some.seen(-step[busy])])
        with np.errstate(all="ignore"):
            away_by = np.abs(
                ends - _foretold(nodes[:, busy], np.array([[1.0], [-1.0]]))
            )
        for sign, departure in ((1.0, away_by[0]), (-1.0, away_by[1])):
            values = np.concatenate([nodes[:, busy], ends])
            left = departure > _least(some, values, step[busy])
            which = busy[left & np.isnan(away[busy])]
            if which.size:
                end = ends[0 if sign > 0 else 1, np.isin(busy, which)]
                found = _cornered(
                    lanes.some(which), nodes[:, which], sign * step[which], end
                )
                height[:, which], away[which] = found
                looks[which] += 1
        # the outer nodes of the next step are the ends and the outer nodes of this one
        nodes[:, busy] = np.concatenate(
            [nodes[:1, busy], nodes[3:, busy], ends], axis=0
        )
        step = 2 * step
        going = np.isnan(away[busy]) & np.isfinite(ends).all(axis=0)
        going &= (step[busy] <= ends_at[busy]) & (looks[busy] < _PATIENCE)
        busy = busy[going]
    return height, away, looks > 0


def next_jump(
    lanes: Lanes, *, farthest: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Follow f in equal steps, on both sides, until it jumps by what explains the gap.

    Parameters
    ----------
    lanes
        What is followed, with what slopes are off by.
    farthest
        Steps beyond so many scales are not taken, nor are more than 48.

    Returns
    -------
    height, away
        As those of `nearest_jump`.
    """
    count = len(lanes.columns)
    height = np.zeros((len(lanes.origin.base), count))
    away = np.full(count, np.nan)
    for k in range(count):
        lane = lanes.some(np.array([k]))
        scale = float(lanes.block.latest_scales[lanes.columns[k]])
        smooth = _equal_step(lane, _FIRST * scale)
        if smooth is None:
            continue
        step, nodes = smooth
        for sign in (1.0, -1.0):
            found = _walked(lane, nodes, sign * step, farthest * scale)
            if found is not None and not abs(found[1]) >= abs(away[k]):
                height[:, k], away[k] = found
    return height, away


def _equal_step(lane: Lanes, step: float) -> tuple[float, NDArray[np.float64]] | None:
    """Find the longest step that a quartic bears; and f at its nodes, (5, 1).

    None where f bends within the shortest one: equal steps would lead nowhere.
    """
    for _ in range(_SHORTENED):
        nodes = np.stack([lane.seen(np.array([node * step])) for node in _NODES])
        ends = [lane.seen(np.array([end])) for end in (step, -step)]
        with np.errstate(all="ignore"):
            stray = np.abs(ends - _foretold(nodes, np.array([[1.0], [-1.0]])))
            if (stray <= _telling(lane, nodes, step)).all():
                return step, nodes
        step /= 2
    return None


def _walked(
    lane: Lanes, nodes: NDArray[np.float64], step: float, farthest: float
) -> tuple[NDArray[np.float64], float] | None:
    """Walk by half a step at a time; return height and distance of a jump, if any.

    Steps become shorter where f turns out to be more curved.
    """
    centre, looks = 0.0, 0
    for _ in range(_WALKED):
        if not abs(centre + step) <= farthest:
            return None
        ahead = [lane.seen(np.array([centre + part * step])) for part in (0.75, 1.0)]
        if not np.isfinite(ahead).all():
            return None
        stray = np.abs(ahead[1] - _foretold(nodes, np.sign([[step]])))
        if (stray > _telling(lane, nodes, abs(centre + step))).any():
            height, away = _cornered(lane, nodes, np.array([step]), ahead[1], centre)
            looks += 1
            if looks == _PATIENCE or not np.isnan(away[0]):
                return None if np.isnan(away[0]) else (height[:, 0], float(away[0]))
            step /= 2
            inner = [
                lane.seen(np.array([centre + abs(step) * u])) for u in (0.25, -0.25)
            ]
            nodes = np.stack([nodes[0], *inner, *nodes[1:3]])
            continue
        known = np.stack([*nodes, *ahead])
        nodes = known[_FORTH if step > 0 else _BACK]
        centre += step / 2
    return None


def _telling(
    lane: Lanes, nodes: NDArray[np.float64], way: float
) -> NDArray[np.float64]:
    """Say by what f must leave its course so far away to explain the gap, (1,)."""
    noise = _LOUD * lane.origin.subject.epsilon * np.abs(nodes).max(axis=0)
    return np.asarray(np.fmax(noise, _EXPLAINS * np.asarray(lane.gap) * way))


def _foretold(
    nodes: NDArray[np.float64], place: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Continue the polynomial through the nodes (5, n) to places in steps."""
    spread = (..., *(None,) * place.ndim)
    weights = np.multiply.reduce((place - _OTHERS[spread]) / _APART[spread], axis=1)
    return np.asarray(sum(map(np.multiply, weights, nodes)))


def _least(
    lanes: Lanes, values: NDArray[np.float64], step: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return what a jump of values like these (k, ..., n) must exceed, (..., n)."""
    size = np.fmax.reduce(np.abs(values), axis=0)
    noise = _LOUD * lanes.origin.subject.epsilon * size
    if lanes.gap is None:
        return np.asarray(np.fmax(_SEEN * size, noise))
    told = np.fmin(_SEEN * size, _PART * lanes.gap * np.abs(step))
    return np.asarray(np.fmax(told, noise))


def _cornered(
    lanes: Lanes,
    nodes: NDArray[np.float64],
    step: NDArray[np.float64],
    end: NDArray[np.float64],
    centre: float = 0.0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Corner where f leaves its smooth course between half a step and a whole one.

    Parameters
    ----------
    nodes
        f at `_NODES` of a step, forward and back from the centre, (5, n).
    step
        Signed, (n,).
    end
        f at a whole step, (n,).
    centre
        Distance from the point.

    Returns
    -------
    height, away
        As of `nearest_jump`; nan as distance where f leaves it without a jump.
    """
    sign, size = np.sign(step), np.abs(nodes).max(axis=0)
    low, high = 0.5 * np.ones(len(step)), np.ones(len(step))
    with np.errstate(all="ignore"):
        above = end - _foretold(nodes, sign)
    below, whole = np.zeros(len(step)), np.abs(above)
    busy = np.arange(len(step))
    for _ in range(_HALVINGS):
        middle = (low[busy] + high[busy]) / 2
        there = lanes.some(busy).seen(centre + middle * step[busy])
        with np.errstate(all="ignore"):
            off = there - _foretold(nodes[:, busy], sign[busy] * middle)
            beyond = ~(np.abs(off) <= whole[busy] / 2)
        far, near = busy[beyond], busy[~beyond]
        high[far], above[far] = middle[beyond], off[beyond]
        low[near], below[near] = middle[~beyond], off[~beyond]
        with np.errstate(all="ignore"):  # too little is left of it for a jump
            least = _least(lanes, np.stack([size, end]), step)
            left = np.abs(above - below) <= np.fmax(_LASTS * whole, least)
        busy = busy[~left[busy]]
        if not busy.size:
            break
    height = np.zeros((len(lanes.origin.base), len(step)))
    away = np.full(len(step), np.nan)
    if busy.size:
        some, ends = lanes.some(busy), (low[busy], high[busy])
        height[:, busy] = _heights(some, *(centre + part * step[busy] for part in ends))
        jumps = height[lanes.rows[busy], busy] > 0
        away[busy[jumps]] = (centre + low * step)[busy[jumps]]
        height[:, np.isnan(away)] = 0.0
    return height, away


def _heights(
    lanes: Lanes, low: NDArray[np.float64], high: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Measure jumps between two places of each lane, (rows, n); 0 where none is."""
    f_low, f_high = lanes.at(low).T, lanes.at(high).T
    with np.errstate(all="ignore"):
        height = np.abs(f_high - f_low)
        # what jumps together is one jump, however little some of it explains
        least = _least(lanes, np.stack([f_high, f_low]), np.zeros(len(low)))
        return np.where(np.isfinite(height) & (height > least), height, 0.0)
