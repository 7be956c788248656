"""How far from the point the function raised."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Failure"]


class Failure(NamedTuple):
    """One evaluation that raised, by what had been moved."""

    away: float  # how far a coordinate was moved, at most, in parts of its size
    step: float = 0.0  # how far it was moved, in its own units, if it was one alone
    entry: tuple[int, int] | None = None  # that one: number of its input, coordinate
