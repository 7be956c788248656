"""The analytic side of a check, read out: all of it, or the entries that it has."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.sparse.entries import Entries
from gradlab.differentiation.sparse.row_groups import grouped_rows
from gradlab.subject.subject import (
    analytic_of,
    input_columns,
    output_rows,
    unit_vectors,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.subject.analytic_sides import Problem
    from gradlab.subject.subject import Subject

__all__ = ["AnalyticSide", "analytic_side", "batch_bytes"]

_FIRST_PULL = 16  # cotangents in the first batch where seconds are counted
_PULL_SECONDS = 0.02  # a batch that took less may be followed by a larger one
_CHUNK_BYTES = 16_000_000  # of cotangents, and of gradients, in one batch


@dataclasses.dataclass(frozen=True, eq=False)
class AnalyticSide:
    """Analytic Jacobian, input by input.

    Attributes
    ----------
    sides
        A (rows, coordinates) matrix per input, or the entries that it has.
    problems
        What was odd about the gradients.
    """

    sides: tuple[NDArray[np.float64] | Entries, ...]
    problems: tuple[Problem, ...]
    _made: dict[int, NDArray[np.float64]] = dataclasses.field(
        default_factory=dict, init=False, repr=False
    )

    @property
    def values(self) -> tuple[NDArray[np.float64], ...]:
        """The matrices, (rows, coordinates) each; made when asked for."""
        return tuple(map(self.value, range(len(self.sides))))

    def value(self, which: int) -> NDArray[np.float64]:
        """Give the matrix of one input, (rows, coordinates); made when asked for."""
        side = self.sides[which]
        if not isinstance(side, Entries):
            return side
        if which not in self._made:
            self._made[which] = side.matrix()
        return self._made[which]

    def entries(self, which: int) -> Entries | None:
        """Give the entries of one input, where these are what is known."""
        side = self.sides[which]
        return side if isinstance(side, Entries) else None


def analytic_side(
    subject: Subject,
    columns: Sequence[NDArray[np.intp]] | None = None,
    meter: Meter | None = None,
) -> AnalyticSide:
    """Read out the analytic Jacobian in batches of cotangents.

    Rows that share no coordinate are read together, where all columns are kept.

    Parameters
    ----------
    subject
        With an analytic side, and evaluated once, so that its outputs are known.
    columns
        Coordinates to keep, one array per input, so that no more is held in memory;
        None keeps all.
    meter
        Its budget of seconds holds here too; None bounds nothing.

    Raises
    ------
    BudgetExhausted
        If the seconds are spent before all rows are there.
    """
    if meter is not None:  # without time for f, nothing would be made of it
        meter.in_time()
    analytic = analytic_of(subject)
    rows = output_rows(subject.outputs)
    width = max(1, input_columns(subject.inputs))
    most = batch_bytes(meter)
    if columns is None and analytic.takes_cotangents:
        grouped = grouped_rows(subject, most, meter=meter)
        if grouped is not None:
            return AnalyticSide(*grouped)
    if columns is not None:  # memory is scarce
        most //= 4
    chunk = max(1, most // (8 * max(width, rows, 1)))
    problems: dict[Problem, None] = {}
    whole: tuple[NDArray[np.float64], ...] = ()
    timed = meter is not None and meter.budget.seconds is not None
    size, start = min(chunk, _FIRST_PULL) if timed else chunk, 0
    while start < rows:
        stop = min(start + size, rows)
        began = time.perf_counter()
        cotangents = unit_vectors(rows, np.arange(start, stop))
        with np.errstate(all="ignore"):
            pulled = analytic.pull(cotangents)
        problems.update(dict.fromkeys(pulled.problems))
        values = pulled.values
        if columns is not None:
            values = tuple(v[:, c] for v, c in zip(values, columns, strict=True))
        if stop - start == rows:
            return AnalyticSide(values, tuple(problems))
        # filled in, because joining the pieces would take their memory once more
        whole = whole or tuple(np.empty((rows, v.shape[1])) for v in values)
        for matrix, part in zip(whole, values, strict=True):
            matrix[start:stop] = part
        start = stop
        if meter is not None and start < rows:
            meter.in_time()
            if timed and time.perf_counter() - began < _PULL_SECONDS:
                size = min(4 * size, chunk)
    if not rows:
        whole = tuple(np.zeros((0, v.coordinates)) for v in subject.inputs)
    return AnalyticSide(whole, tuple(problems))


def batch_bytes(meter: Meter | None) -> int:
    """Bytes that the cotangents and gradients of one batch may take."""
    return _CHUNK_BYTES if meter is None else meter.room(_CHUNK_BYTES)
