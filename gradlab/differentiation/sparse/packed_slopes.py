"""Central differences of many columns at a time, of entries that a pattern names."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.noise.noise import ULPS
from gradlab.differentiation.quotients import Pattern, Quotients
from gradlab.differentiation.sizes.scales import step_sizes
from gradlab.differentiation.sparse.support import Support
from gradlab.subject.subject import side_by_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.sparse.colouring import Colouring
    from gradlab.differentiation.sparse.dependence import Case

__all__ = ["Slopes", "differences", "spread_out"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Slopes:
    """Of the columns that each row may depend on, side by side; shape (rows, k).

    Attributes
    ----------
    support
        Which columns, those of one input behind those of another.
    parts
        Which of the k belong to each input.
    """

    support: Support
    value: NDArray[np.float64]
    error: NDArray[np.float64]
    bend: NDArray[np.float64]
    step: NDArray[np.float64]  # of every coordinate, (n,)
    parts: list[slice]

    def along(
        self, direction: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the derivative along a direction, and the bars of its parts.

        Returns
        -------
        derivative
            What the coordinates of each input contribute, (rows, inputs).
        bars
            Of every entry, times its share of the direction, (rows, k).
        """
        there, valid = direction[self.support.columns], self.support.valid
        moved = np.where(valid, self.value * there, 0.0)
        return self.each(np.add, moved), np.where(
            valid, self.error * np.abs(there), 0.0
        )

    def each(
        self, reduce: np.ufunc, values: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Reduce what belongs to each input, from (rows, k) to (rows, inputs)."""
        if len(self.parts) == 1:
            return np.asarray(reduce.reduce(values, axis=1, keepdims=True))
        starts = [part.start for part in self.parts]
        return np.asarray(reduce.reduceat(values, starts, axis=1))


def differences(
    case: Case, colourings: Sequence[Colouring], more: NDArray[np.float64]
) -> tuple[Slopes, NDArray[np.float64]]:
    """Displace all columns of a colour together; hand each row to its own column.

    Parameters
    ----------
    colourings
        Of every input of the case; no colour serves two of them.
    more
        Displacements to evaluate in the same batch, shape (count, n).

    Returns
    -------
    slopes
        Of the entries of the pattern.
    ends
        Values of f for the other displacements, shape (count, rows).
    """
    steps = step_sizes(case.scales, case.epsilon, 2)
    counts = [colouring.count for colouring in colourings]
    colours = np.concatenate(
        [
            own.colours + before
            for own, before in zip(
                colourings, itertools.accumulate(counts, initial=0), strict=False
            )
        ]
    )
    ahead = 2 * sum(counts)
    moves = np.zeros((ahead + len(more), len(steps)))
    moves[2 * colours, np.arange(len(steps))] = steps
    moves[2 * colours + 1, np.arange(len(steps))] = -steps
    moves[ahead:] = more
    values = case.values(moves)
    point = np.concatenate([case.subject.point(which) for which in case.inputs])
    dtype = case.subject.inputs[case.inputs[0]].dtype
    right, left = (_taken(point, sign * steps, dtype) for sign in (1.0, -1.0))
    support, parts = _entries(colourings, case.slots)
    j = support.columns
    width = right - left
    rows = len(case.base)
    places = 2 * rows * colours[j] + np.arange(rows)[:, None]
    up, down = values.take(places), values.take(places + rows)
    base = case.base[:, None]
    with np.errstate(all="ignore"):
        bend = (up - base) / right[j] - (down - base) / left[j]
        there = case.epsilon * np.maximum(np.abs(up), np.abs(down))
        rounding = np.maximum(there, case.digits[:, None])
        bars = ULPS * rounding / np.abs(width[j]) * 2
        bars += np.abs(bend) * np.sqrt(case.epsilon)
        value = (up - down) / width[j]
    slopes = Slopes(support, value, bars, bend, width / 2, parts)
    return slopes, values[ahead:]


def spread_out(
    case: Case, slopes: Slopes, outside: NDArray[np.float64]
) -> list[Quotients]:
    """Hand over the entries, the bar of the zeros, and how to make a matrix of both.

    Parameters
    ----------
    outside
        Bar of the zeros times the scale of their coordinate, (rows, inputs).
    """
    found = []
    for k, (part, slot) in enumerate(zip(slopes.parts, case.slots, strict=True)):
        support = Support(
            slopes.support.columns[:, part] - slot.start,
            slopes.support.valid[:, part],
            slot.stop - slot.start,
        )
        pattern = Pattern(
            support,
            outside[:, k],
            slopes.value[:, part],
            slopes.error[:, part],
            slopes.bend[:, part],
            case.scales[slot],
        )
        # no memory before it is needed
        step, bend = (
            np.broadcast_to(each, support.shape) for each in (slopes.step[slot], np.nan)
        )
        made = Quotients(
            value=pattern.values,
            error=pattern.errors,
            step=step,
            bend=bend,
            pattern=pattern,
        )
        found.append(made)
    return found


def _entries(
    colourings: Sequence[Colouring], slots: list[slice]
) -> tuple[Support, list[slice]]:
    """List the columns of every row, input by input; and which of them are whose."""
    each = [colouring.support for colouring in colourings]
    parts = side_by_side(own.columns.shape[1] for own in each)
    if len(each) == 1:
        return each[0], parts
    columns = np.concatenate(
        [own.columns + slot.start for own, slot in zip(each, slots, strict=True)],
        axis=1,
    )
    valid = np.concatenate([own.valid for own in each], axis=1)
    return Support(columns, valid, slots[-1].stop), parts


def _taken(
    point: NDArray[np.float64], steps: NDArray[np.float64], dtype: str
) -> NDArray[np.float64]:
    """Displacements as the arithmetic of the input makes them."""
    kinds = {"float32": np.float32, "float16": np.float16, "complex64": np.float32}
    kind = kinds.get(dtype, np.float64)
    there = (point + steps).astype(kind).astype(np.float64)
    return np.asarray(there - point)
