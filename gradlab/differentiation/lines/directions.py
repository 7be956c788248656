"""Random directions over millions of coordinates, regenerated from a seed.

Every coordinate gets a sign and a size between one and two, so that no entry is ever
diluted away and two equal errors do not cancel but by rare accident. Nothing is stored:
the byte behind each coordinate comes from a generator seeded by (seed, input, block),
and a part of a direction is the same numbers wherever it is cut.

Weights of a random direction: one for each index along an axis, or none at all. What is
wrong in one row only changes with the weight of that row, so two lines that differ by
their weights tell which row it is.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Protocol

import numpy as np

from gradlab.differentiation.lines.parts import Part
from gradlab.differentiation.sizes.magnitudes import looked_at, magnitudes
from gradlab.subject.tensors.walk import keep_on_devices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.sizes.magnitudes import Magnitudes
    from gradlab.subject.subject import Subject

__all__ = ["AxisWeights", "Direction", "MaskWeights", "Weights", "unit_from", "unit_of"]

# Coordinates that share a generator; 512 KiB of float64 stay in a core's own cache.
_BLOCK = 1 << 16
# Byte -> signed size: seven bits of size in [1, 2), one of sign. With 2**-k steps the
# displacements have few bits, so that x + h is exact for all but odd x.
_SIZES = (1 + np.arange(128) / 128)[:, None] * np.array([1.0, -1.0])
_TABLE = np.ascontiguousarray(_SIZES.reshape(-1))
# Values that pooled directions are made of (8 MiB), and from what seed.
_POOL = 1 << 20
_POOL_SEED = 2_718_281_828
# Squares below this have lost digits to the end of the range.
_LEAST = 1e-280
# Powers of two that a unit may be, so that neither steps nor twice the unit leave it.
_FARTHEST = 1000


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Direction:
    """Signed sizes along some coordinates, zero elsewhere.

    Parameters
    ----------
    seed
        Two directions with different seeds are independent.
    parts
        The coordinates that move; disjoint, at most a few per input.
    units
        For each input of the subject, what one unit of the direction means there; a
        power of two near the typical size of the input, from `unit_of`.
    thinning
        Moves one coordinate in ``2**thinning``, chosen at random, and leaves the rest.
    choice
        Seed of the choice of those; directions that share it move the same ones.
    pooled
        Takes its values from one pool of random numbers, at a random place and with a
        random sign for each block of 65,536 coordinates: five times as fast, for
        directions over many millions. Blocks still have independent signs, and within
        a block all entries do.
    weights
        Multiply the values of a pooled direction, whose parts are of one input then.
    still
        By input: coordinates that do not move after all, in order. Not if pooled.
    """

    seed: int
    parts: tuple[Part, ...]
    units: tuple[float, ...]
    thinning: int = 0
    choice: int = 0
    pooled: bool = False
    weights: Weights | None = None
    still: Mapping[int, NDArray[np.intp]] | None = None

    @property
    def size(self) -> int:
        """Number of coordinates of its parts, thinned ones included."""
        return sum(part.size for part in self.parts)

    @property
    def reach(self) -> float:
        """Logarithm to base 2 of its length, in units."""
        return (float(np.log2(max(self.size, 1))) - self.thinning) / 2

    def values(
        self,
        part: Part,
        *,
        scale: float = 1.0,
        memory: dict[tuple[int, int, int], NDArray[np.uint8]] | None = None,
    ) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Generate the direction over a part, a block at a time.

        Parameters
        ----------
        scale
            Factor on all values.
        memory
            Keeps the random bytes, one per coordinate, for the next time.

        Yields
        ------
        start
            Coordinate of the first value.
        values
            In the units of the input, shape (up to 65536,).
        """
        if self.pooled:
            for start, values, factor in self.pieces(part, scale=scale):
                yield start, factor * values
            return
        table = scale * (_TABLE * self.units[part.which])
        for block in range(part.start // _BLOCK, -(-part.stop // _BLOCK)):
            first = block * _BLOCK
            start, stop = max(part.start, first), min(part.stop, first + _BLOCK)
            inside = slice(start - first, stop - first)
            key = part.which, block, stop - first
            bits = None if memory is None else memory.get(key)
            if bits is None:
                bits = _bytes(self.seed, *key)
                if memory is not None:
                    memory[key] = bits
            values = table.take(bits[inside])
            if self.thinning:
                values *= self._kept(part.which, block, stop - first)[inside]
            if self.still and part.which in self.still:
                places = self.still[part.which] - start
                values[places[(places >= 0) & (places < len(values))]] = 0.0
            yield start, values

    def pieces(
        self, part: Part, *, scale: float = 1.0
    ) -> Iterator[tuple[int, NDArray[np.float64], float]]:
        """Generate a pooled direction a block at a time, unscaled and without copies.

        Yields
        ------
        start
            Coordinate of the first value.
        values
            Part of the pool, not to be written to, shape (up to 65536,).
        factor
            What they are to be multiplied by.
        """
        pool, factor = _pool(), scale * self.units[part.which]
        count = -(-part.stop // _BLOCK)
        draw = np.random.Generator(np.random.SFC64([self.seed, part.which, 2]))
        drawn = np.frombuffer(draw.bytes(8 * count), dtype=np.uint64)
        places = (drawn % np.uint64(_POOL)).tolist()
        signs = np.where(drawn >> np.uint64(63), factor, -factor).tolist()
        for block in range(part.start // _BLOCK, count):
            first = block * _BLOCK
            start, stop = max(part.start, first), min(part.stop, first + _BLOCK)
            at = places[block] - first
            values = pool[at + start : at + stop]
            if self.thinning:
                inside = slice(start - first, stop - first)
                values = values * self._kept(part.which, block, stop - first)[inside]
            if self.weights is not None:
                values = values * self.weights.cut(start, stop)
            yield start, values, signs[block]

    def _blocks(self, part: Part) -> Iterator[tuple[int, NDArray[np.float64], float]]:
        """Generate the direction over a part, with what it is to be multiplied by."""
        if self.pooled:
            yield from self.pieces(part)
        else:
            yield from ((start, values, 1.0) for start, values in self.values(part))

    def _kept(self, which: int, block: int, count: int) -> NDArray[np.bool_]:
        """Choose one coordinate in 2**thinning; a deeper thinning is a subset."""
        bits = _bytes(self.choice, which, block, 4 * count, salt=1).view(np.uint32)
        return np.asarray(bits < np.uint64(1 << (32 - self.thinning)))

    def at(self, which: int, position: int) -> float:
        """Value at one coordinate, whether it is in a part or not."""
        return float(next(self.values(Part(which, position, position + 1)))[1][0])

    def along(
        self,
        gradients: Sequence[NDArray[np.float64]] | Mapping[int, NDArray[np.float64]],
    ) -> tuple[float, float]:
        """Analytic derivative along the direction, and the norm of its terms.

        Parameters
        ----------
        gradients
            One per input that moves, shape (coordinates,).

        Returns
        -------
        derivative
            Sum of gradient times direction.
        norm
            Square root of the sum of squares: the typical size of such a sum under
            random signs, whatever the signs.
        """
        total, squares, norm = 0.0, 0.0, 0.0
        with np.errstate(all="ignore"):
            for part in self.parts:
                for start, values, factor in self._blocks(part):
                    terms = values * gradients[part.which][start : start + len(values)]
                    # pairwise: dot would not be; the factor is a power of two: exact
                    total += factor * float(terms.sum())
                    square = factor * factor * float(np.dot(terms, terms))
                    if _LEAST < square < np.inf or not terms.any():
                        squares += square
                    else:  # of 1e200 and of 1e-200 the square is not in range
                        norm = float(np.hypot(norm, abs(factor) * _norm(terms)))
        return total, float(np.hypot(norm, np.sqrt(squares)))


def _norm(terms: NDArray[np.float64]) -> float:
    top = float(np.abs(terms).max())
    return top * float(np.linalg.norm(terms / top)) if np.isfinite(top) else top


@functools.cache
def _pool() -> NDArray[np.float64]:
    """Signed sizes to cut pooled directions from, the same in every process."""
    generator = np.random.Generator(np.random.SFC64(_POOL_SEED))
    bits = np.frombuffer(generator.bytes(_POOL + _BLOCK), dtype=np.uint8)
    pool = _TABLE.take(bits)
    keep_on_devices(pool)
    return pool


def _bytes(
    seed: int, which: int, block: int, count: int, salt: int = 0
) -> NDArray[np.uint8]:
    generator = np.random.Generator(np.random.SFC64([seed, which, block, salt]))
    return np.frombuffer(generator.bytes(count), dtype=np.uint8)


def unit_of(subject: Subject, which: int) -> float:
    """Power of two nearest to the root mean square of an input; 1 where that is 0.

    Not below its least scale. One unit for a whole tensor, not one per entry: an
    entry's error then shows in proportion to its size, wherever it is.
    """
    size = magnitudes(looked_at(subject, which))
    unit = unit_from(size, subject.inputs[which].coordinates)
    return max(unit, subject.least_scales.get(which, 0.0))


def unit_from(size: Magnitudes, count: int) -> float:
    """Return the unit of an input of `count` coordinates of which `size` is known."""
    if size.largest == 0.0:
        return 1.0
    # no overflow: of 1e200 the square would not be in range
    typical = float(np.hypot(size.largest, size.rest)) / float(np.sqrt(count))
    if not np.isfinite(typical) or typical == 0.0:
        typical = size.largest
    return float(np.exp2(np.clip(np.round(np.log2(typical)), -_FARTHEST, _FARTHEST)))


class Weights(Protocol):
    """Numbers by which the values of a direction are multiplied."""

    def cut(self, start: int, stop: int) -> NDArray[np.float64]:
        """Weights of the coordinates ``start .. stop``."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AxisWeights:
    """One number for each index along an axis: `stride` coordinates lie between two.

    Examples
    --------
    >>> AxisWeights(np.array([1.0, -2.0]), 3).cut(2, 8)
    array([ 1., -2., -2., -2.,  1.,  1.])
    """

    numbers: NDArray[np.float64]
    stride: int

    def cut(self, start: int, stop: int) -> NDArray[np.float64]:
        """Weights of the coordinates ``start .. stop``."""
        indices = np.arange(start, stop) // self.stride % len(self.numbers)
        return np.asarray(self.numbers[indices])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class MaskWeights:
    """One for the coordinates that move, zero for those that stay."""

    moves: NDArray[np.bool_]

    def cut(self, start: int, stop: int) -> NDArray[np.float64]:
        """Weights of the coordinates ``start .. stop``."""
        return self.moves[start:stop].astype(np.float64)
