"""The size of each coordinate, and the step of a difference that goes with it.

How far coordinates were moved, in parts of their size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.failures import Failure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from gradlab.subject.subject import Subject

__all__ = ["failed_along", "failed_with", "scales_of", "step_sizes", "typical_sizes"]


def scales_of(subject: Subject, which: int) -> NDArray[np.float64]:
    """Typical size of each coordinate of an input; see `typical_sizes`.

    Or the least scale of the input, where its own size is nothing to f.
    """
    typical = typical_sizes(subject.point(which))
    return np.maximum(typical, subject.least_scales.get(which, 0.0))


def typical_sizes(point: NDArray[np.float64]) -> NDArray[np.float64]:
    """Typical size of each coordinate of a point: the unit in which steps are chosen.

    The size of the coordinate itself, but not below the root mean square of its
    tensor: an entry that happens to be tiny among entries of size one still moves in
    units of one. An input that is zero everywhere is taken to be of size one.

    Returns
    -------
    ndarray
        Shape (coordinates,), positive.
    """
    size = np.abs(point)
    top = float(size.max(initial=0.0))
    finite = size if top < np.inf else size[np.isfinite(size)]  # nan is no less
    top = float(finite.max(initial=0.0))
    if top == 0.0:
        return np.ones_like(size)
    # scaled first, so that neither 1e-200 nor 1e200 leaves the range of the squares
    typical = top * float(np.sqrt(np.mean((finite / top) ** 2)))
    own = np.maximum(size, typical)
    return own if finite is size else np.where(np.isfinite(size), own, typical)


def step_sizes(
    scales: NDArray[np.float64], epsilon: float, order: int
) -> NDArray[np.float64]:
    """Balance truncation ``h**order`` against round-off ``eps / h``.

    Parameters
    ----------
    scales
        Unit of each coordinate.
    epsilon
        Round-off of the arithmetic.
    order
        2 for central, 1 for one-sided differences.

    Examples
    --------
    >>> step_sizes(np.ones(1), 2.2e-16, 2).round(8).tolist()
    [6.04e-06]
    """
    return np.asarray(scales * epsilon ** (1 / (order + 1)), dtype=np.float64)


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
