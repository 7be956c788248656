"""Rows of an analytic Jacobian that share no column, read out by one cotangent.

Reading a Jacobian out of a backward pass takes a cotangent for every row. Where most
entries are zero, as in an elementwise function, a row-wise softmax or a convolution,
rows that look at different coordinates can be asked for together: the compression of
Curtis, Powell and Reid (J. Inst. Maths Applics 13, 1974), by rows instead of columns
(Coleman and Verma, SIAM J. Sci. Comput. 19, 1998).

Which rows those are, the backward says itself. One random cotangent for every index
along each axis of an output shows which coordinates the slice there reaches; what
reaches a coordinate is bounded by a product of such slices. Nothing is assumed of the
function, which may be a wrong one: an entry in a place where none should be is in the
pattern as all others are. What is assumed is that the backward is linear in its
cotangent. One more, random in every row, has to give the combination of all entries;
where it does not, the rows are to be read one by one.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.sparse.colouring import smallest_period
from gradlab.differentiation.sparse.dependence import axes_of
from gradlab.differentiation.sparse.entries import Entries
from gradlab.differentiation.sparse.support import listed
from gradlab.subject.subject import (
    block_slices,
    input_columns,
    output_rows,
    side_by_side,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.sparse.support import Support
    from gradlab.subject.analytic_sides import Analytic, Problem
    from gradlab.subject.subject import Subject, Variable

    Digits = list[NDArray[np.intp]]  # of the rows of one output, each (size,)
    # by output and digit: which index reaches which coordinate, (size, n)
    Touched = list[list[NDArray[np.bool_]]]
    Periods = tuple[tuple[int, ...], ...]  # by output and digit

__all__ = ["grouped_rows"]

_FEWEST = 100_000  # entries of the matrices; with fewer, all rows are as quickly read
_LONG = 24  # indices: a longer axis is asked for by two digits
_TO_ASK = 0.3  # of the rows: most cotangents that finding the pattern may take
_WORTHWHILE = 0.6  # of the rows: most cotangents that everything may take
_SLACK = 256.0  # units of round-off of the terms: other orders of summation
_TIMED = 16  # cotangents between two looks at the clock, where seconds are counted


def grouped_rows(
    subject: Subject,
    most: int,
    *,
    memory: int | None = None,
    meter: Meter | None = None,
) -> tuple[tuple[Entries, ...], tuple[Problem, ...]] | None:
    """Read out a sparse analytic Jacobian, several rows by each cotangent.

    Parameters
    ----------
    subject
        With an analytic side that takes cotangents, and evaluated once.
    most
        Bytes that the cotangents and gradients of one batch may take.
    memory
        Bytes that all of them may take; None bounds nothing.
    meter
        Its budget of seconds holds here too; None bounds nothing.

    Returns
    -------
    entries, problems
        Of every input, its entries as single rows would have given them; and what was
        odd about the gradients. None where nothing is saved, or the backward is not a
        linear map: then rows are to be read one by one.

    Raises
    ------
    BudgetExhausted
        If the seconds are spent before all rows are there.

    Examples
    --------
    >>> import torch
    >>> from gradlab.building import Sides, build_subject
    >>> x = torch.linspace(0, 1, 400, dtype=torch.float64).reshape(20, 20)
    >>> subject = build_subject(torch.sin, (x.requires_grad_(),), Sides())
    >>> _ = subject.row()
    >>> (found,), _ = grouped_rows(subject, 2**20)
    >>> (
    ...     found.value.shape,
    ...     bool(np.allclose(found.value[:, 0], np.cos(x.detach().numpy()).ravel())),
    ... )
    ((400, 1), True)
    """
    rows = output_rows(subject.outputs)
    width = input_columns(subject.inputs)
    analytic = subject.analytic
    if analytic is None or rows * width < _FEWEST:
        return None
    if analytic.makes_whole:  # whatever it is asked for
        return None
    digits = [_digits_of(output) for output in subject.outputs]
    asked = int(sum(_sizes(own).sum() for own in digits))
    room = rows if memory is None else memory // (8 * (rows + width))
    if asked > min(_TO_ASK * rows, room):
        return None
    rng = np.random.default_rng([rows, width, 37])
    timed = meter is not None and meter.budget.seconds is not None
    chunk = max(1, min(most // (8 * (rows + width)), _TIMED if timed else rows))
    slices = _slices(subject, digits, rng)
    reached = _pulled(analytic, slices, chunk, meter)
    if reached is None:
        return None
    touched = [_by_digit(digits, value != 0) for value in reached[0]]
    left = min(int(_WORTHWHILE * rows) - asked, room) - 1
    grouping = _smallest(digits, touched, left)
    if grouping is None:
        return None
    cotangents = np.zeros((grouping.count + 1, rows))
    for group in grouping.groups:
        cotangents[group, np.arange(rows)] = 1.0
    cotangents[-1] = _random(rng, rows)
    answer = _pulled(analytic, cotangents, chunk, meter)
    if answer is None:
        return None
    found = []
    for reach, value, whose in zip(touched, answer[0], grouping.whose, strict=True):
        support = _support(digits, reach)
        picked = value[grouping.groups[whose][:, None], support.columns]
        picked = np.where(support.valid[:, :1], picked, 0.0)
        found.append(Entries(support, picked))
        expected, size = found[-1].combined(cotangents[-1])
        slack = _SLACK * subject.epsilon * size.max(initial=0.0)
        if not (np.abs(value[-1] - expected) <= slack).all():
            return None
    return tuple(found), answer[1]


def _slices(
    subject: Subject, digits: list[Digits], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Weigh all rows that have a digit in common, for every value of each digit."""
    found = []
    for own, there in zip(digits, block_slices(subject.outputs), strict=True):
        where = np.arange(there.start, there.stop)
        for digit, size in zip(own, _sizes(own), strict=True):
            weights = np.zeros((size, output_rows(subject.outputs)))
            weights[digit, where] = _random(rng, len(where))
            found.append(weights)
    return np.concatenate(found)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Grouping:
    """Group of every row; one numbering may serve several inputs."""

    groups: list[NDArray[np.intp]]  # each (rows,)
    whose: list[int]  # of each input
    count: int


def _smallest(
    digits: list[Digits], touched: list[Touched], most: int
) -> _Grouping | None:
    """Group the rows for each input by itself, or for all at once; None if too many."""
    best = _numbered(digits, [_periods(own) for own in touched])
    if best.count > most // 2 and len(touched) > 1:
        whole = [
            [np.concatenate(mays, axis=1) for mays in zip(*same, strict=True)]
            for same in zip(*touched, strict=True)
        ]
        together = _numbered(digits, [_periods(whole)] * len(touched))
        best = min(best, together, key=lambda grouping: grouping.count)
    return best if best.count <= most else None


def _by_digit(digits: list[Digits], touched: NDArray[np.bool_]) -> Touched:
    """Cut apart what was reached by the slices, (slices, n)."""
    sizes = np.concatenate([_sizes(own) for own in digits])
    parts = iter(np.split(touched, np.cumsum(sizes)[:-1]))
    return [[next(parts) for _ in own] for own in digits]


def _periods(touched: Touched) -> Periods:
    """Choose by output and digit what indices of one group are equal modulo of."""
    return tuple(tuple(map(smallest_period, mays)) for mays in touched)


def _numbered(digits: list[Digits], periods: list[Periods]) -> _Grouping:
    """Give every group a number; no group has rows of two outputs."""
    distinct = list(dict.fromkeys(periods))
    groups, count = [], 0
    for each in distinct:
        numbers = []
        for own, modulo in zip(digits, each, strict=True):
            group = np.zeros_like(own[0])
            for digit, period in zip(own, modulo, strict=True):
                group = group * period + digit % period
            used = np.bincount(group) > 0  # without those that are not used
            numbers.append(count + (np.cumsum(used) - 1)[group])
            count += int(used.sum())
        groups.append(np.concatenate(numbers))
    return _Grouping(groups, [distinct.index(each) for each in periods], count)


def _support(digits: list[Digits], touched: Touched) -> Support:
    """List the coordinates that may reach each row."""
    slots = side_by_side(len(own[0]) for own in digits)

    def pattern(band: slice) -> NDArray[np.bool_]:
        parts = []
        for slot, own, mays in zip(slots, digits, touched, strict=True):
            start, stop = max(band.start, slot.start), min(band.stop, slot.stop)
            some = slice(start - slot.start, max(start, stop) - slot.start)
            part = mays[0][own[0][some]]
            for digit, may in zip(own[1:], mays[1:], strict=True):
                part &= may[digit[some]]
            parts.append(part)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    return listed(pattern, slots[-1].stop, touched[0][0].shape[1])


def _sizes(digits: Digits) -> NDArray[np.intp]:
    """How many values each digit has."""
    return np.array([digit.max(initial=-1) + 1 for digit in digits], dtype=np.intp)


def _digits_of(output: Variable) -> Digits:
    """Write the number of every row of an output in digits: its indices, mostly."""
    if output.size < 2:
        return [np.zeros(output.size, dtype=np.intp)]
    found = []
    axes = axes_of(output.shape, output.size, is_complex=output.is_complex)
    for axis in axes:
        size = int(axis[-1]) + 1
        if size <= _LONG:
            found.append(axis)
            continue
        low = _near_root(size)
        found += [axis // low, axis % low]
    return found


def _near_root(size: int) -> int:
    """Divisor of a number near its root, or the root where there is none."""
    root = math.isqrt(size - 1) + 1
    near = (d for d in range(root, 2 * root) if size % d == 0)
    return next(near, root)


def _random(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    return np.asarray(rng.uniform(0.5, 1.5, count) * rng.choice([-1.0, 1.0], count))


def _pulled(
    analytic: Analytic,
    cotangents: NDArray[np.float64],
    chunk: int,
    meter: Meter | None,
) -> tuple[list[NDArray[np.float64]], tuple[Problem, ...]] | None:
    """Send cotangents backwards; None where an answer is no number."""
    parts: list[tuple[NDArray[np.float64], ...]] = []
    problems: dict[Problem, None] = {}
    for start in range(0, len(cotangents), chunk):
        if meter is not None:
            meter.in_time()
        with np.errstate(all="ignore"):
            pulled = analytic.pull(cotangents[start : start + chunk])
        if not all(np.isfinite(value).all() for value in pulled.values):
            return None
        problems.update(dict.fromkeys(pulled.problems))
        parts.append(pulled.values)
    values = [
        column[0] if len(column) == 1 else np.concatenate(column)
        for column in zip(*parts, strict=True)
    ]
    return values, tuple(problems)
