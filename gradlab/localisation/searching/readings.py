"""What can be wrong with a gradient as a whole, as numbers to compare with.

Along a random direction a gradient has one derivative. That of another array is another
one, so whoever knows the true derivative along a few directions can tell, without one
more evaluation, whether the gradient is the true one transposed, or reversed, or has a
multiple of the parameter added to it.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ["Kind", "Place", "Reading", "added", "axes_of", "parts_of", "rearranged"]

Kind = Literal[
    "zero", "factor", "transposed", "moved", "added", "part", "slice", "lost", "none"
]


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Some indices along one axis of an input; one entry where there is no axis.

    Examples
    --------
    >>> Place(1, range(0, 3, 2)).inside((2, 3)).astype(int)
    array([1, 0, 1, 1, 0, 1])
    >>> np.flatnonzero(Place(None, (1, 2)).inside((2, 3)))
    array([5])
    """

    axis: int | None
    index: Sequence[int]

    def inside(self, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        """Coordinates of an input that are meant, flat."""
        chosen = np.zeros(shape, dtype=bool)
        if self.axis is None:
            chosen[tuple(self.index)] = True
        else:
            where: list[slice | list[int]] = [slice(None)] * len(shape)
            where[self.axis] = list(self.index)
            chosen[tuple(where)] = True
        return chosen.ravel()


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """What explains all that random directions see of a wrong gradient.

    Attributes
    ----------
    kind
        "zero": no gradient at all; "factor": one number; "transposed" and "moved": the
        right numbers in other places; "added": a multiple of something known;
        "part": one number, in every second slice or the like; "slice": wrong in one
        place along an axis only; "lost": wrong only where it is zero; "none": none of
        these.
    words
        The same as the end of a sentence on the gradient.
    share
        Fraction of the entries that are wrong; nan if that is not known.
    factor
        Analytic over numeric; of "added", what it is multiplied by; nan if there is
        none.
    place
        Of a slice or a part.
    lines
        Directions that it was held against.
    """

    kind: Kind
    words: str
    share: float = float("nan")
    factor: float = float("nan")
    place: Place | None = None
    lines: int = 0


def axes_of(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Two longest axes of a shape, each with the coordinates between two indices.

    Examples
    --------
    >>> axes_of((8, 100, 3, 3)), axes_of((7,)), axes_of((1, 1))
    ([(0, 900), (1, 9)], [(0, 1)], [])
    """
    strides = [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
    long = [axis for axis, length in enumerate(shape) if length > 1]
    long.sort(key=lambda axis: -shape[axis])
    return sorted((axis, strides[axis]) for axis in long[:2])


def rearranged(
    gradient: NDArray[np.float64], shape: tuple[int, ...]
) -> Iterator[tuple[Kind, str, NDArray[np.float64]]]:
    """Yield what the true gradient would be, had this one its numbers misplaced.

    Parameters
    ----------
    gradient
        Shape (coordinates,).
    shape
        Of the input.

    Yields
    ------
    kind
        Of a `Reading`.
    words
        What was done to the true one.
    true
        Flat.
    """
    grid = gradient.reshape(shape)
    if 1 < len(shape) < 5:
        for axes in itertools.permutations(range(len(shape))):
            if axes == tuple(range(len(shape))):
                continue
            turned = tuple(shape[k] for k in axes)
            back = np.argsort(axes)
            if turned == shape:
                yield "transposed", f"with axes {axes}", grid.transpose(back).ravel()
            elif axes == tuple(range(len(shape)))[::-1]:
                words = f"with axes {axes}, read in the wrong order"
                true = gradient.reshape(turned).transpose(back)
                yield "transposed", words, true.ravel()
    for axis, _ in axes_of(shape):
        length = shape[axis]
        yield "moved", f"with axis {axis} reversed", np.flip(grid, axis).ravel()
        shifts = (1, -1, *(length // k for k in (2, 3) if length % k == 0))
        for shift in dict.fromkeys(k for k in shifts if k % length):
            words = f"with axis {axis} rolled by {shift}"
            yield "moved", words, np.roll(grid, -shift, axis).ravel()


def parts_of(shape: tuple[int, ...]) -> Iterator[tuple[str, Place]]:
    """Yield every second or third slice, and both halves, along the longest axes."""
    for axis, _ in axes_of(shape):
        length, half = shape[axis], shape[axis] // 2
        slices = f"slices along axis {axis}"
        name = ("rows", "columns")[axis] if len(shape) == 2 else slices
        for step, ordinal in ((2, "second"), (3, "third")):
            for first in range(step if length >= 2 * step else 0):
                words = f"every {ordinal} of its {name}, from {first}"
                yield words, Place(axis, range(first, length, step))
        if length > 3:
            yield f"the first half of its {name}", Place(axis, range(half))
            yield f"the last half of its {name}", Place(axis, range(half, length))


def added(
    point: NDArray[np.float64], name: str
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield what may have been added to a gradient, or forgotten, up to a factor."""
    yield name, point
    yield f"the sign of {name}", np.sign(point)
    yield "1", np.ones(len(point))
