"""One look at some outputs of some ladders: slopes, bars and doubts."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.differentiation.ladder.bent_sides import settles_like_the_step
from gradlab.differentiation.ladder.extrapolation import extrapolate_central
from gradlab.differentiation.ladder.suspicion import Suspicion, suspect
from gradlab.differentiation.ladder.tableau import layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.differentiation.ladder.derivatives import AdaptiveSettings, Rounding
    from gradlab.differentiation.ladder.rungs import Ladder, Samples
    from gradlab.differentiation.ladder.runs import Estimate

__all__ = ["Reading", "blocks", "read", "underrated"]

_RUNS = 4  # that most outputs of a coordinate can agree on
_CLEARLY = 2.0  # times what one coordinate saw, before it is told otherwise
_PIECE = 15_000  # comparisons that take as long as it takes to begin with a piece

Index = np.ndarray | slice


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What the central slopes of C coordinates and m outputs say.

    Attributes
    ----------
    base
        f at the point, (m,) or (C, m).
    estimate, doubt
        Slopes with their bars, and the suspected kind of point, (C, m).
    """

    base: np.ndarray
    estimate: Estimate
    doubt: Suspicion

    def part(self, rows: Index) -> Reading:
        """Return some coordinates of it."""
        base = self.base if self.base.ndim == 1 else self.base[rows]
        return Reading(
            base,
            _map(self.estimate, lambda array: array[rows]),
            _map(self.doubt, lambda array: array[rows]),
        )

    def outputs(self, columns: Index) -> Reading:
        """Return some outputs of it: a slice, or some for each coordinate, (C, K)."""

        def of(array: np.ndarray) -> np.ndarray:
            if isinstance(columns, slice):
                return array[..., columns]
            wide = array if array.ndim > 1 else array[None]
            wide = np.broadcast_to(wide, (len(columns), wide.shape[1]))
            return np.asarray(np.take_along_axis(wide, columns, axis=1))

        return Reading(of(self.base), _map(self.estimate, of), _map(self.doubt, of))

    def replace(self, rows: np.ndarray, columns: np.ndarray, other: Reading) -> None:
        """Write another reading of some outputs of some coordinates over this one."""
        pairs = ((self.estimate, other.estimate), (self.doubt, other.doubt))
        for mine, theirs in pairs:
            for field in dataclasses.fields(mine):
                array = getattr(mine, field.name)
                array[rows[:, None], columns] = getattr(theirs, field.name)


def _map(record: Any, change: Any) -> Any:
    """Apply the same to every array of a dataclass."""
    return type(record)(*(change(getattr(record, name)) for name in record.__slots__))


def read(
    samples: Samples,
    which: np.ndarray,
    outputs: Index,
    rounding: Rounding,
    settings: AdaptiveSettings,
    served: np.ndarray | None = None,
) -> Reading:
    """Read some outputs of some coordinates, in pieces that fit the processor's cache.

    Parameters
    ----------
    samples
        The ladders.
    which
        The coordinates, (C,).
    outputs
        A slice, or some for each coordinate, (C, K).
    rounding
        What is known of that of every output.
    settings
        Width of an extrapolation, size of a piece.
    served
        Smallest and largest rung of runs that were best for other outputs of each
        coordinate, (C, K, 2): only those that were often are judged. None for all.
    """
    floor, inherited = rounding.floor, rounding.inherited
    base = samples.base[outputs]
    shape = (which.size, base.shape[-1])
    whole: list[tuple[Index, slice, Estimate, Suspicion]] = []
    for rows, columns in _pieces(samples.count[which], shape[1], settings, served):
        own = outputs[rows, columns] if isinstance(outputs, np.ndarray) else columns
        ladder = samples.part(which[rows], own)
        only = None if served is None else _often(served[rows])
        known = rounding.noise[own], rounding.grain[own]
        estimate = extrapolate_central(ladder, floor, settings.width, known, only)
        doubt = suspect(ladder, floor, inherited[own])
        bent = _bent(ladder, floor, settings.tolerance, estimate, doubt)
        doubt = dataclasses.replace(doubt, bent=bent)
        whole.append((rows, columns, estimate, doubt))
    if len(whole) == 1:
        return Reading(base, *whole[0][2:])
    estimate, doubt = (
        _map(first, lambda array: np.empty(shape, array.dtype))
        for first in whole[0][2:]
    )
    for rows, columns, *parts in whole:
        for target, part in zip((estimate, doubt), parts, strict=True):
            for field in dataclasses.fields(target):
                getattr(target, field.name)[rows, columns] = getattr(part, field.name)
    return Reading(base, estimate, doubt)


def _bent(
    ladder: Ladder,
    floor: float,
    tolerance: float,
    estimate: Estimate,
    doubt: Suspicion,
) -> np.ndarray:
    """Say which slopes settle in proportion to the step, (C, m).

    Of those that truncation keeps off: of others nothing is left to settle.
    """
    with np.errstate(all="ignore"):
        slow = np.isfinite(estimate.error) & ~doubt.kink & ~doubt.jump
        slow &= estimate.error > tolerance * np.abs(estimate.value)
        slow &= estimate.truncation > estimate.rounding
        place = np.nonzero(slow)
        if place[0].size:
            slow[place] = settles_like_the_step(ladder.entries(*place), floor)
    return np.asarray(slow)


def _often(served: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Choose the runs that were best most often, at most so many."""
    rungs = int(served.max()) + 1
    # as numbers: to rank pairs takes NumPy as long as a tenth of a reading
    runs, counts = np.unique(served @ (rungs, 1), return_counts=True)
    most = np.sort(np.argsort(-counts, kind="stable")[:_RUNS])
    return tuple(divmod(run, rungs) for run in runs[most].tolist())


def _pieces(
    counts: np.ndarray,
    outputs: int,
    settings: AdaptiveSettings,
    served: np.ndarray | None,
) -> Iterator[tuple[Index, slice]]:
    """Cut ladders with so many rungs into pieces; apart where padding costs more.

    Comparisons grow with the square of the rungs: beside one ladder of twenty rungs,
    each of seven would cost as much. What is `served` is in order already.
    """
    parts: list[Index] = [slice(None)]
    if served is None and counts.min() < counts.max():
        depths, many = np.unique(counts, return_counts=True)
        costs = [_comparisons(int(depth), settings.width, None) for depth in depths]
        sizes = _apart(outputs * np.array(costs), many)
        if len(sizes) > 1:
            order = np.argsort(counts, kind="stable")
            parts = [*np.split(order, np.cumsum(sizes)[:-1])]
    for part in parts:
        own = counts[part]
        each = _comparisons(int(own.max(initial=0)), settings.width, served)
        for rows, columns in blocks((own.size, outputs), each, settings.block):
            yield rows if isinstance(part, slice) else part[rows], columns


def _apart(costs: np.ndarray, many: np.ndarray) -> list[int]:
    """Cut ladders, in order of what each costs, where that saves more than a piece.

    Examples
    --------
    >>> _apart(np.array([1_000, 1_100, 9_000]), np.array([9, 4, 1]))  # so many of each
    [13, 1]
    """
    ends = np.cumsum(many)
    saved = ends[:-1] * (costs[-1] - costs[:-1])
    if saved.max(initial=0) <= _PIECE:
        return [int(ends[-1])]
    cut = int(np.argmax(saved)) + 1
    return _apart(costs[:cut], many[:cut]) + _apart(costs[cut:], many[cut:])


def _comparisons(depth: int, width: int, served: np.ndarray | None) -> int:
    """Count the comparisons made for each entry of ladders of so many rungs."""
    where = layout(max(depth, 2), width)
    if served is None:
        return where.run.size
    return max(_RUNS * depth, where.bottom.size)


def blocks(
    shape: tuple[int, int], each: int, size: int
) -> Iterator[tuple[slice, slice]]:
    """Cut coordinates and outputs into pieces that fit the processor's cache.

    Parameters
    ----------
    shape
        Coordinates and outputs.
    each
        Numbers held for each entry.
    size
        Numbers that a piece may hold.
    """
    entries = max(1, size // max(1, each))
    rows = max(1, entries // max(1, shape[1]))
    columns = max(1, entries if rows == 1 else shape[1])
    for start in range(0, shape[0], rows):
        for left in range(0, shape[1], columns):
            yield slice(start, start + rows), slice(left, left + columns)


def underrated(reading: Reading, noise: np.ndarray) -> np.ndarray:
    """Say which entries rest on less noise than their output has, (C, m)."""
    estimate = reading.estimate
    with np.errstate(all="ignore"):
        seen = np.fmax(estimate.noise, estimate.known)
        return np.asarray((noise > _CLEARLY * seen) & (estimate.value != 0))
