"""Slices of a Jacobian in another order: rolled, shifted, reversed, permuted.

An order is a list of indices, so that a few of the numbers that it would move are found
without moving the others.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.diagnosis.measuring.measures import Case

    Matrix = NDArray[np.float64]

__all__ = ["Order", "orders_of"]

_WIDE = 65_536  # numbers in a block of axes, beyond which no other order is tried
_LONG = 256  # slices, beyond which nobody looks for the order of single ones
_LISTED = 12  # numbers of an order in one line


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Order:
    """Slices of some rows of a Jacobian, taken in another order.

    Attributes
    ----------
    part
        The rows.
    shape
        Of these rows: how many numbers are before, along and after the axis.
    order
        Which slice is taken, (length,); -1 for those of `border`.
    border
        What comes in from outside, (rows, n); None for zeros.
    """

    part: slice
    shape: tuple[int, int, int]
    order: NDArray[np.intp]
    border: Matrix | None = None

    @property
    def keeps(self) -> bool:
        """Whether no slice is taken twice, and nothing unknown comes in."""
        taken = self.order[self.order >= 0]
        return self.border is None and len(np.unique(taken)) == len(taken)

    def inside(self, matrix: Matrix) -> Matrix:
        """Put zeros where something comes in from outside."""
        return dataclasses.replace(
            self,
            order=np.where(self.order < 0, -1, np.arange(len(self.order))),
            border=None,
        ).whole(matrix)

    def whole(self, matrix: Matrix) -> Matrix:
        """Take all of a matrix, (rows, n)."""
        moved = matrix.copy()
        part = moved[self.part].reshape(self.shape)
        part[:] = matrix[self.part].reshape(self.shape)[:, self.order]
        part[:, self.order < 0] = 0.0
        if self.border is not None:
            new = self.border[self.part].reshape(self.shape)
            part[:, self.order < 0] = new[:, self.order < 0]
        return moved

    def at(self, matrix: Matrix, places: NDArray[np.intp]) -> Matrix:
        """Take some numbers of `whole` only, by their places in the flat matrix."""
        _, length, after = self.shape
        start = self.part.start * matrix.shape[1]
        inside = (places >= start) & (places < self.part.stop * matrix.shape[1])
        index = (places - start) // after % length
        taken = self.order[index]
        source = np.where(inside, places + (taken - index) * after, places)
        # the slice before the first may be before the first number: it is not taken
        values = matrix.reshape(-1)[np.maximum(source, 0)]
        border = 0.0 if self.border is None else self.border.reshape(-1)[places]
        return np.where(inside & (taken < 0), border, values)


def orders_of(case: Case) -> Iterator[tuple[str, Order]]:
    """Orders of slices, along every axis of the input and of the outputs."""
    numeric, analytic = case.numeric, case.analytic
    rows, columns = numeric.shape
    if case.grid(numeric) is not None and case.variable.shape:
        whole = slice(0, rows)
        for axis, shape in _axes((rows, *case.variable.shape), 1):
            where = f"axis {axis} of {case.name}"
            for words, order, known in _along(numeric, analytic, shape):
                border = None if known else analytic
                yield f"{where} {words}", Order(whole, shape, order, border)
        for words, turned in _turned(case.variable.shape, rows):
            yield f"{words} of {case.name} reversed", turned
        for words, turned in _reshaped(case.variable.shape, rows):
            told = "in the order of a reshape where a transpose belongs"
            yield f"{words} of {case.name} {told}, or the other way round", turned
    for output, part in case.parts_of_output:
        if output.size < 2:
            continue
        for axis, shape in _axes((*output.shape, columns), 0):
            if axis == len(output.shape):
                break
            where = f"axis {axis} of {output.name}"
            for words, order, known in _along(numeric[part], analytic[part], shape):
                border = None if known else analytic
                yield f"{where} {words}", Order(part, shape, order, border)


def _turned(shape: tuple[int, ...], rows: int) -> Iterator[tuple[str, Order]]:
    """Several last axes reversed at once: a kernel turned by half a turn."""
    for first in range(len(shape) - 1):
        kernel = math.prod(shape[first:])
        lines = rows * math.prod(shape[:first])
        order = Order(slice(0, rows), (lines, kernel, 1), np.arange(kernel)[::-1])
        yield f"axes {first} to {len(shape) - 1}", order


def _reshaped(shape: tuple[int, ...], rows: int) -> Iterator[tuple[str, Order]]:
    """Two axes exchanged by a reshape, which keeps the numbers in their order."""
    for first in range(len(shape) - 1):
        for last in range(first + 1, len(shape)):
            block = shape[first : last + 1]
            size = math.prod(block)
            if block[0] == block[-1] or min(block[0], block[-1]) < 2 or size > _WIDE:
                continue
            lines, after = rows * math.prod(shape[:first]), math.prod(shape[last + 1 :])
            for sizes in ((block[-1], *block[1:-1], block[0]), block):
                read = np.arange(size).reshape(sizes).swapaxes(0, -1).reshape(-1)
                order = Order(slice(0, rows), (lines, size, after), read)
                yield f"axes {first} and {last}", order


def _axes(
    shape: tuple[int, ...], first: int
) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """List the axes from `first` on: numbers before, along and after each."""
    for axis in range(first, len(shape)):
        before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        yield axis - first, (before, shape[axis], after)


def _along(
    n: Matrix, a: Matrix, shape: tuple[int, int, int]
) -> Iterator[tuple[str, NDArray[np.intp], bool]]:
    """List orders along an axis, and whether what comes in is known."""
    length = shape[1]
    if length < 2:
        return
    every = np.arange(length)
    for shift in sorted(range(1, length), key=lambda k: min(k, length - k))[:8]:
        signed = shift if shift <= length // 2 else shift - length
        yield f"rolled by {signed}", np.roll(every, shift), True
        source = every - signed
        order = np.where((source >= 0) & (source < length), source, -1)
        yield f"shifted by {signed} (zeros come in)", order, True
        if 4 * abs(signed) <= length:  # most of what is wrong is moved
            yield f"shifted by {signed}, apart from the border", order, False
    if length > 2:
        yield "reversed", every[::-1], True
    found = _assignment(n.reshape(shape), a.reshape(shape))
    if found is None:
        return
    if np.ptp(found) == 0:
        yield f"held at index {found[0]}: the index does not move", found, True
    else:
        yield f"in the order {_listed(found)}", found, True


def _listed(order: NDArray[np.intp]) -> str:
    """Write an order down, the beginning of a long one."""
    told = str(order.tolist()[:_LISTED])
    return told if len(order) <= _LISTED else f"{told[:-1]}, ...]"


def _assignment(n: Matrix, a: Matrix) -> NDArray[np.intp] | None:
    """Find the numeric slice that equals each analytic slice, where all have one."""
    length = n.shape[1]
    if length > _LONG:
        return None
    left, right = (side.swapaxes(0, 1).reshape(length, -1) for side in (a, n))
    squared = (left**2).sum(1)[:, None] + (right**2).sum(1)[None] - 2 * left @ right.T
    order = squared.argmin(axis=1)
    moved = order != np.arange(length)
    scale = float((right**2).sum(1).max(initial=0.0))
    there = np.flatnonzero((right**2).sum(1) > 1e-6 * scale)
    same = squared <= 1e-6 * scale
    if not moved.any() or not same.any(axis=1).all():
        return None
    # of slices that are alike, or of a number or two, none is taken for another
    own = bool((same[moved].sum(axis=1) == 1).all()) and left.shape[1] > 2
    return order if own or set(there.tolist()) <= set(order.tolist()) else None
