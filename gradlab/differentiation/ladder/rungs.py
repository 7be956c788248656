"""A ladder of steps: what has been evaluated, sorted by step size.

Rungs sit at ``scale * 2**-p`` with integer ``p``; a power of two keeps ``x + h`` exact
wherever ``h`` is not below the spacing of ``x``. Different coordinates may hold
different rungs; missing ones are padded with nan at the large end.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gradlab.differentiation.ladder.derivatives import Sampler

__all__ = ["Ladder", "Samples"]


def _dither(exponent: np.ndarray) -> np.ndarray:
    """Spoil the powers of two with factors between 0.85 and 1.15.

    On steps that are powers of two the roundings inside f at x + h, x and x - h can be
    equal and cancel from every difference: f would look free of noise, and smooth, with
    the wrong slope.
    """
    return np.asarray(0.85 + 0.3 * np.mod(exponent * 0.6180339887498949, 1.0))


@dataclasses.dataclass(slots=True, eq=False)
class Ladder:
    """Values of a function beside a point, for C coordinates and m outputs.

    Attributes
    ----------
    base
        f at the point, shape (m,); (C, m) where each coordinate has outputs of its own.
    points
        The coordinates, shape (C,).
    rungs
        Exponents p in ascending order of step, shape (L, C); nan where padded.
    right, left
        f at ``x + taken`` and ``x - taken``, shape (L, C, m); nan where not evaluated.
    ahead, behind
        The displacements really made, both positive, shape (L, C).
    """

    base: np.ndarray
    points: np.ndarray
    rungs: np.ndarray
    right: np.ndarray
    left: np.ndarray
    ahead: np.ndarray
    behind: np.ndarray

    @property
    def steps(self) -> np.ndarray:
        """Half the distance between the two points of each rung, shape (L, C)."""
        return np.asarray((self.ahead + self.behind) / 2)

    @property
    def slopes(self) -> np.ndarray:
        """Central slopes on each rung, of coordinates with one output, shape (L, C)."""
        rise = (self.right - self.left)[:, :, 0]
        return np.asarray(rise / (self.ahead + self.behind))

    @property
    def count(self) -> np.ndarray:
        """Rungs evaluated per coordinate, shape (C,)."""
        return np.asarray(np.isfinite(self.rungs).sum(axis=0))

    def typical_size(self) -> np.ndarray:
        """Return the largest size of f within the scale of each coordinate, (C, m)."""
        near = (self.rungs >= 0)[:, :, None]
        size = np.fmax(np.abs(self.right), np.abs(self.left))
        size = np.where(near & np.isfinite(size), size, 0.0).max(axis=0)
        return np.asarray(np.fmax(size, np.abs(self.base)))

    def entries(self, coordinates: np.ndarray, outputs: np.ndarray) -> Ladder:
        """Return the ladders of some entries, each as a coordinate with one output."""
        base = np.broadcast_to(self.base, self.right.shape[1:])
        return Ladder(
            base=base[coordinates, outputs][:, None],
            points=self.points[coordinates],
            rungs=self.rungs[:, coordinates],
            right=self.right[:, coordinates, outputs][:, :, None],
            left=self.left[:, coordinates, outputs][:, :, None],
            ahead=self.ahead[:, coordinates],
            behind=self.behind[:, coordinates],
        )


class Samples:
    """All values of f on the ladders of C coordinates, as they come in.

    Each evaluated rung is a row of its own, so that a coordinate that goes on alone
    costs no memory for the others.

    Parameters
    ----------
    base
        f at the point, shape (m,).
    points
        The coordinates, shape (C,).
    """

    def __init__(self, base: np.ndarray, points: np.ndarray) -> None:
        self.base = base
        self.points = points
        self.count = np.zeros(points.size, int)  # rungs evaluated per coordinate
        self.rungs = np.empty((0, points.size))
        self._ahead = np.empty((0, points.size))
        self._behind = np.empty((0, points.size))
        self._row = np.empty((0, points.size), int)
        self._used = 1  # the first row stands for what has not been evaluated
        self._right = np.full((1, base.size), np.nan)
        self._left = np.full((1, base.size), np.nan)

    @property
    def spent(self) -> np.ndarray:
        """Evaluations per coordinate, two for each rung, shape (C,)."""
        return 2 * self.count

    def extend(self, sample: Sampler, unit: np.ndarray, exponents: np.ndarray) -> None:
        """Evaluate new rungs and sort them in.

        Parameters
        ----------
        sample
            The function; see `gradlab.differentiation.adaptive.adaptive`.
        unit
            Step of exponent 0 for each coordinate, shape (C,), powers of two.
        exponents
            New exponents, shape (K, C); nan where a coordinate wants none.
        """
        level, which = np.nonzero(np.isfinite(exponents))
        exponent = exponents[level, which]
        step = unit[which] * np.exp2(-exponent) * _dither(exponent)
        twice = np.concatenate([which, which])
        both, taken = sample(twice, np.concatenate([step, -step]))
        half = which.size
        rows = self._reserve(half)
        self._right[rows], self._left[rows] = both[:half], both[half:]
        row = np.zeros(exponents.shape, int)
        ahead, behind = (np.full(exponents.shape, np.nan) for _ in range(2))
        row[level, which] = np.arange(rows.start, rows.stop)
        ahead[level, which], behind[level, which] = taken[:half], -taken[half:]
        self.count += np.isfinite(exponents).sum(axis=0)
        self.rungs = np.concatenate([self.rungs, exponents])
        self._row = np.concatenate([self._row, row])
        self._ahead = np.concatenate([self._ahead, ahead])
        self._behind = np.concatenate([self._behind, behind])
        self._sort()

    def moved(self) -> np.ndarray:
        """Say which outputs moved on the largest rung of each coordinate, (C, m)."""
        row = self._row[self.count - 1, np.arange(self.count.size)]
        right, left = self._right[row] != self.base, self._left[row] != self.base
        return np.asarray(right | left)

    def _reserve(self, count: int) -> slice:
        """Make room for some rows more."""
        rows = slice(self._used, self._used + count)
        self._used = rows.stop
        if rows.stop > len(self._right):
            # what is not written to yet costs nothing, what is copied does
            shape = (max(8 * count, 2 * rows.stop), self.base.size)
            for name in ("_right", "_left"):
                old, grown = getattr(self, name), np.empty(shape)
                grown[: len(old)] = old
                setattr(self, name, grown)
        return rows

    def _sort(self) -> None:
        """Order the rungs of every coordinate by step, padding last."""
        order = np.argsort(-self.rungs, axis=0)[: int(self.count.max())]
        columns = np.arange(self.count.size)
        for name in ("rungs", "_row", "_ahead", "_behind"):
            setattr(self, name, getattr(self, name)[order, columns])

    def depth(self, which: np.ndarray) -> int:
        """Count the rungs of the longest ladder of some coordinates."""
        return int(self.count[which].max(initial=0))

    def part(
        self, which: np.ndarray, outputs: slice | np.ndarray = slice(None)
    ) -> Ladder:
        """Return the ladder of some coordinates only, without idle rungs.

        Parameters
        ----------
        which
            The coordinates, (C,).
        outputs
            A slice of the outputs, or some for each coordinate, (C, m).
        """
        depth = self.depth(which)
        row = self._row[:depth, which]
        if isinstance(outputs, slice):
            right, left = self._right[row, outputs], self._left[row, outputs]
        else:
            right = self._right[row[:, :, None], outputs]
            left = self._left[row[:, :, None], outputs]
        return Ladder(
            base=self.base[outputs],
            points=self.points[which],
            rungs=self.rungs[:depth, which],
            right=right,
            left=left,
            ahead=self._ahead[:depth, which],
            behind=self._behind[:depth, which],
        )
