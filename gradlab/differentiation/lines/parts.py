"""Ranges of coordinates: which of them a direction moves."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradlab.subject.subject import Subject

__all__ = ["Part", "whole", "without"]


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Coordinates ``start .. stop`` of one input."""

    which: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.stop - self.start


def whole(subject: Subject) -> tuple[Part, ...]:
    """All coordinates of all inputs."""
    return tuple(
        Part(which, 0, variable.coordinates)
        for which, variable in enumerate(subject.inputs)
        if variable.coordinates
    )


def without(part: Part, settled: Sequence[Part]) -> list[Part]:
    """Cut some ranges out of a part.

    Examples
    --------
    >>> without(Part(0, 0, 9), [Part(0, 2, 4), Part(1, 0, 9)])
    [Part(which=0, start=0, stop=2), Part(which=0, start=4, stop=9)]
    """
    left = [part]
    for hole in settled:
        pieces = []
        for p in left:
            if hole.which != p.which or hole.stop <= p.start or p.stop <= hole.start:
                pieces.append(p)
                continue
            before = Part(p.which, p.start, hole.start)
            after = Part(p.which, hole.stop, p.stop)
            pieces += [piece for piece in (before, after) if piece.size > 0]
        left = pieces
    return left
