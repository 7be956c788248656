"""Inputs that are symmetric matrices, and which of their entries mirror each other."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.subject.subject import Subject

__all__ = ["Mirror", "mirror_of", "with_mirrored"]

_ROUNDED = 64.0  # units of round-off: a product of a matrix with its own transpose


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Mirror:
    """Where every coordinate of symmetric matrices is found again, (coordinates,) each.

    Attributes
    ----------
    place
        Of the mirror image; a coordinate of the diagonal is its own.
    sign
        -1 for imaginary parts, which are each other's opposite; else 1.
    below
        Whether it stands below the diagonal.
    """

    place: NDArray[np.intp]
    sign: NDArray[np.float64]
    below: NDArray[np.bool_]


def mirror_of(subject: Subject, which: int) -> Mirror | None:
    """Find the mirror images in an input of symmetric, or Hermitian, matrices.

    Along its last two axes, as all of linear algebra takes a stack of matrices.

    Returns
    -------
    Mirror or None
        None where it is no such input, or not symmetric at the point.
    """
    variable = subject.inputs[which]
    shape = variable.shape
    if variable.support is not None or len(shape) < 2 or variable.size < 2:
        return None
    if shape[-1] != shape[-2] or shape[-1] < 2:
        return None
    entries = np.arange(variable.size).reshape(shape)
    place = variable.coordinates_of(entries.swapaxes(-1, -2).ravel())
    sign = np.ones(len(place))
    if variable.is_complex:
        sign[1::2] = -1.0
    point = subject.point(which)
    size = np.abs(point).max()
    with np.errstate(invalid="ignore"):
        apart = np.abs(point - sign * point[place]).max()
    if not apart <= _ROUNDED * subject.epsilon * size < np.inf:
        return None
    row, column = np.indices(shape[-2:])
    below = np.broadcast_to(row > column, shape).ravel()
    return Mirror(place, sign, np.repeat(below, len(place) // len(below)))


def with_mirrored(
    subject: Subject, which: int, coordinates: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Add the mirror images of some coordinates of an input, where it has any.

    One alone does not tell whether a gradient is shared out between both.
    """
    mirror = mirror_of(subject, which) if len(coordinates) else None
    if mirror is None:
        return coordinates
    return np.union1d(coordinates, mirror.place[coordinates])
