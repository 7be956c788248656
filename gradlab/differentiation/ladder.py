"""A ladder of steps: what has been evaluated, sorted by step size.

Rungs sit at ``scale * 2**-p`` with integer ``p``; a power of two keeps ``x + h`` exact
wherever ``h`` is not below the spacing of ``x``. Different coordinates may hold
different rungs; missing ones are padded with nan at the large end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

__all__ = ["Ladder", "Sampler"]

Sampler = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


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
        f at the point, shape (m,).
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

    @classmethod
    def empty(cls, base: np.ndarray, points: np.ndarray) -> Ladder:
        """Make a ladder without rungs."""
        m, c = base.size, points.size
        return cls(
            base,
            points,
            np.empty((0, c)),
            np.empty((0, c, m)),
            np.empty((0, c, m)),
            np.empty((0, c)),
            np.empty((0, c)),
        )

    @property
    def steps(self) -> np.ndarray:
        """Half the distance between the two points of each rung, shape (L, C)."""
        return np.asarray((self.ahead + self.behind) / 2)

    @property
    def count(self) -> np.ndarray:
        """Rungs evaluated per coordinate, shape (C,)."""
        return np.asarray(np.isfinite(self.rungs).sum(axis=0))

    def extend(self, sample: Sampler, unit: np.ndarray, exponents: np.ndarray) -> int:
        """Evaluate new rungs and sort them in.

        Parameters
        ----------
        sample
            The function; see `gradlab.differentiation.adaptive.adaptive`.
        unit
            Step of exponent 0 for each coordinate, shape (C,), powers of two.
        exponents
            New exponents, shape (K, C); nan where a coordinate wants none.

        Returns
        -------
        int
            Number of evaluations made.
        """
        level, which = np.nonzero(np.isfinite(exponents))
        if which.size == 0:
            return 0
        exponent = exponents[level, which]
        step = unit[which] * np.exp2(-exponent) * _dither(exponent)
        both, taken = sample(np.tile(which, 2), np.concatenate([step, -step]))
        shape = (*exponents.shape, self.base.size)
        fresh = {
            name: np.full(shape[: 2 + (name in {"right", "left"})], np.nan)
            for name in ("right", "left", "ahead", "behind")
        }
        half = which.size
        fresh["right"][level, which] = both[:half]
        fresh["left"][level, which] = both[half:]
        fresh["ahead"][level, which] = taken[:half]
        fresh["behind"][level, which] = -taken[half:]
        for name, array in fresh.items():
            setattr(self, name, np.concatenate([getattr(self, name), array]))
        self.rungs = np.concatenate([self.rungs, exponents])
        self._sort()
        return 2 * half

    def _sort(self) -> None:
        """Order the rungs of every coordinate by step, padding last."""
        order = np.argsort(-np.where(np.isnan(self.rungs), -np.inf, self.rungs), axis=0)
        depth = int(self.count.max())
        order = order[:depth]
        for name in ("rungs", "ahead", "behind"):
            setattr(self, name, np.take_along_axis(getattr(self, name), order, axis=0))
        for name in ("right", "left"):
            array = getattr(self, name)
            setattr(self, name, np.take_along_axis(array, order[:, :, None], axis=0))

    def part(self, which: np.ndarray) -> Ladder:
        """Return the ladder of some coordinates only (a copy, without idle rungs)."""
        depth = int(self.count[which].max(initial=0))
        return Ladder(
            base=self.base,
            points=self.points[which],
            rungs=self.rungs[:depth, which],
            right=self.right[:depth, which],
            left=self.left[:depth, which],
            ahead=self.ahead[:depth, which],
            behind=self.behind[:depth, which],
        )
