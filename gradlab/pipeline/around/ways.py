"""Where to go from a point without a derivative: to others beside it, and along what.

Of a symmetric matrix of which f reads one triangle a gradient tells what changes do
that keep it symmetric, so no others are made.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.differentiation.evaluation import line_rows
from gradlab.subject.mirrors import mirror_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.blocks import Block
    from gradlab.subject.subject import Subject

    _Shifts = list[NDArray[np.float64]]

__all__ = ["Ways"]

_IN_ORDER = {0: (1, False), 2: (-1, False), 4: (-1, True), 6: (1, True)}
_BESIDE = 1e-5  # of the sizes: where it is seen which triangle f reads


@dataclasses.dataclass(slots=True, eq=False)
class Ways:
    """Ways from the point, in the units of the coordinates, one unit long at most."""

    subject: Subject
    blocks: list[Block]
    meter: Meter
    rng: np.random.Generator
    # for each block: coordinates that f does not read, their mirror images and signs
    _unread: list[tuple[NDArray[np.intp], NDArray[np.intp], NDArray[Any]]] | None = None

    def sizes(self, block: Block) -> NDArray[np.float64]:
        """Sizes of all coordinates of an input, those not looked at as well."""
        sizes = np.abs(self.subject.point(block.which))
        own = (sizes > 0) & np.isfinite(sizes)
        sizes[~own] = np.median(block.units) if block.units.size else 1.0
        sizes[block.positions] = block.units
        return sizes

    def at(self, shifts: _Shifts) -> NDArray[np.float64]:
        """Evaluate f beside the point."""
        line: list[NDArray[np.float64] | None] = [None] * len(self.subject.inputs)
        for block, shift in zip(self.blocks, shifts, strict=True):
            line[block.which] = shift * self.sizes(block)
        return np.asarray(line_rows(self.subject, line, (1.0,), self.meter)[0])

    def along(self) -> _Shifts:
        """Take a random direction of the columns."""
        counts = [len(block.positions) for block in self.blocks]
        sign, size = self.rng.choice, self.rng.uniform
        ways = [sign([-1.0, 1.0], n) * size(0.5, 1.5, n) for n in counts]
        return self.of(ways)

    def of(self, amounts: _Shifts) -> _Shifts:
        """Take a direction of the columns, as far as f may be moved along it."""
        evened = self._evened(self._of_columns(amounts))
        pairs = zip(self.blocks, evened, strict=True)
        return [shift[block.positions] for block, shift in pairs]

    def aside(self, number: int, row: int) -> _Shifts:
        """Ties are broken by order, as sorts do it; then half up, half down; at random.

        Every second time, what the gradient of an output hangs on stays in the middle.

        Parameters
        ----------
        number
            Of the point.
        row
            The output.
        """
        shifts = []
        for block in self.blocks:
            count = self.subject.inputs[block.which].coordinates
            order = (np.arange(count) + 1.0) / max(count, 1)
            if number in _IN_ORDER:
                sign, back = _IN_ORDER[number]
                shifts.append(sign * (order[::-1] if back else order))
                continue
            free = np.ones(count, dtype=bool)
            if number % 2 and block.positions.size:
                free[block.positions[np.argmax(np.abs(block.formula[row]))]] = False
            shift = np.zeros(count)
            half = np.where(np.arange(int(free.sum())) % 2, 1.0, -1.0)
            shift[free] = self.rng.permutation(half) * self.rng.permutation(order[free])
            shifts.append(shift)
        return self._evened(shifts)

    def apart(self) -> list[_Shifts]:
        """Move along the gradients of all outputs, of each a little farther, or less.

        Where outputs are equal that sets them apart in the order in which they stand:
        of the eigenvalues of a multiple of the identity it is the only way to have one
        in the middle change by the gradient that it has.
        """
        rows = len(self.blocks[0].formula)
        typical = [
            float(np.median(b.units)) if b.units.size else 1.0 for b in self.blocks
        ]
        ways = []
        for weights in (np.arange(1.0, rows + 1), np.arange(rows, 0.0, -1)):
            with np.errstate(all="ignore"):
                pairs = zip(self.blocks, typical, strict=True)
                # as far for a small entry as for a large one
                sums = [(weights @ b.formula) * size for b, size in pairs]
            sums = [np.nan_to_num(each, posinf=0.0, neginf=0.0) for each in sums]
            most = max(float(np.abs(each).max(initial=0.0)) for each in sums) or 1.0
            steps = zip(self.blocks, sums, typical, strict=True)
            moves = [each / most * size / b.units for b, each, size in steps]
            ways.append(self._of_columns(moves))
        return ways if rows > 1 else []

    def _of_columns(self, amounts: _Shifts) -> _Shifts:
        """Move the columns that are looked at, and no other coordinates."""
        shifts = []
        for block, by in zip(self.blocks, amounts, strict=True):
            shift = np.zeros(self.subject.inputs[block.which].coordinates)
            shift[block.positions] = by
            shifts.append(shift)
        return shifts

    def _evened(self, shifts: _Shifts) -> _Shifts:
        """Move what f does not read of a symmetric matrix as its mirror image."""
        if self._unread is None:
            self._unread = [
                self._unread_of(k, block) for k, block in enumerate(self.blocks)
            ]
        for shift, (places, images, signs) in zip(shifts, self._unread, strict=True):
            shift[places] = signs * shift[images]
        return shifts

    def _unread_of(
        self, number: int, block: Block
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[Any]]:
        """Find the triangle of a symmetric matrix that f does not read, if any.

        Beside the point, where f reads the other one for certain.
        """
        nothing = np.zeros(0, dtype=np.intp)
        mirror = mirror_of(self.subject, block.which)
        if mirror is None:
            return nothing, nothing, nothing
        counts = [self.subject.inputs[b.which].coordinates for b in self.blocks]
        start = [_BESIDE * self.rng.uniform(-1, 1, count) for count in counts]
        base = self.at(start)
        off = mirror.place != np.arange(len(mirror.place))
        for triangle in (off & ~mirror.below, off & mirror.below):
            there = [shift.copy() for shift in start]
            there[number][triangle] *= -1
            if np.array_equal(self.at(there), base, equal_nan=True):
                places = np.flatnonzero(triangle)
                return places, mirror.place[places], mirror.sign[places]
        return nothing, nothing, nothing
