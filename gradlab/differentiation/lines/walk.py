"""A subject moved along a direction, and put back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from gradlab.differentiation.evaluation import row_or_nan
from gradlab.subject.subject import is_torch_subject, output_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.lines.directions import Direction
    from gradlab.differentiation.lines.parts import Part
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.subject.subject import Subject

__all__ = ["Walk"]

# Directions up to this many coordinates are kept while a line is walked (32 MiB).
_KEEP = 1 << 22
# Of directions up to this many coordinates the random bytes are kept (64 MiB).
_KEEP_BYTES = 1 << 26


class Walk:
    """A subject walked along a direction; at the end of ``with`` it is at its point.

    Directions of up to four million coordinates are kept while the walk lasts, of
    longer ones a byte for each up to 64 million; beyond that they are generated at
    every step, a block at a time. Pooled ones are cut from their pool as they are
    needed, at no cost.

    Parameters
    ----------
    subject
        At its point.
    direction
        Where to.
    """

    def __init__(self, subject: Subject, direction: Direction) -> None:
        self._subject = subject
        self._parts: dict[int, list[Part]] = {}
        for part in direction.parts:
            self._parts.setdefault(part.which, []).append(part)
        self._direction = direction
        forget = subject.forget if is_torch_subject(subject) else None
        self._whole: dict[int, Callable[[int], None]] = {}
        for which, parts in self._parts.items():
            size = subject.inputs[which].coordinates
            if forget is not None and sum(part.size for part in parts) == size:
                self._whole[which] = forget
        self._kept: dict[Part, list[tuple[int, NDArray[np.float64]]]] = {}
        cheap = direction.pooled and not (
            direction.thinning or direction.weights is not None
        )
        if direction.size <= _KEEP and not cheap:
            self._kept = {p: list(direction.values(p)) for p in direction.parts}
        self._bytes: dict[tuple[int, int, int], NDArray[np.uint8]] | None = None
        if _KEEP < direction.size <= _KEEP_BYTES and not direction.pooled:
            self._bytes = {}

    def to(self, step: float) -> None:
        """Put the subject at ``point + step * direction``."""
        for which, parts in self._parts.items():
            if which in self._whole:
                self._whole[which](which)
            for start, values, factor in self._values(parts, step):
                self._subject.displace(which, start, values, factor)

    def row(
        self, step: float, meter: Meter, *, far: bool = False
    ) -> NDArray[np.float64]:
        """Evaluate all outputs there, (rows,); nan where f has no value."""
        meter.spend(1)
        width = output_rows(self._subject.outputs)
        with np.errstate(all="ignore"):
            self.to(step)
            return row_or_nan(self._subject, width, meter, far=lambda: far)

    def __enter__(self) -> Self:
        """Set out from the point."""
        return self

    def __exit__(self, *_: object) -> None:
        """Go back to it, whatever happened."""
        self.back()

    def back(self) -> None:
        """Put every input that was moved back to the point, bit for bit."""
        for which in self._parts:
            self._subject.place(which, None)

    def _values(
        self, parts: Sequence[Part], step: float
    ) -> Iterator[tuple[int, NDArray[np.float64], float]]:
        """Blocks of the displacements, and what they are to be multiplied by."""
        direction = self._direction
        for part in parts:
            if part in self._kept:
                for start, values in self._kept[part]:
                    yield start, values, step
            elif direction.pooled:
                yield from direction.pieces(part, scale=step)
            else:
                found = direction.values(part, scale=step, memory=self._bytes)
                for start, values in found:
                    yield start, values, 1.0
