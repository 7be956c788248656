"""How far coordinates were moved, in parts of their size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.failures import Failure
from gradlab.differentiation.sizes.scales import scales_of, typical_sizes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from gradlab.subject.subject import Subject

__all__ = ["failed_along", "failed_with"]


def failed_with(subject: Subject, which: int, position: int, step: float) -> Failure:
    """Describe an evaluation that raised with one coordinate of an input displaced."""
    away = abs(step) / float(scales_of(subject, which)[position])
    return Failure(away, abs(step), (which, position))


def failed_along(
    moves: Iterable[tuple[int, NDArray[np.float64], NDArray[np.float64]]],
) -> Failure:
    """Describe one that raised with many displaced: input, point, move of each.

    Examples
    --------
    >>> failed_along([(0, np.array([2.0, 2.0]), np.array([0.0, -0.5]))]).away
    0.25
    """
    return Failure(
        max(
            float(np.max(np.abs(move) / typical_sizes(point), initial=0.0))
            for _, point, move in moves
        )
    )
