"""Sub-gradients that no point beside has by itself: mixtures of those that some have.

Where several kinks meet, code gives each of them a slope by convention: 0, 1, or a
half. One half of every ReLU is the mean of what two opposite points have; none of all
ReLUs is what one point has, of which there are many. Such a gradient lies in the convex
hull of gradients beside the point, and that is what a sub-gradient is, whichever way
the kinks bend.

The code itself is asked for those gradients, which it has to have right: at every point
that the mixture needs they foretell the slopes of f, and are the same nearer by. The
same mistake beside the point is no excuse for one at it, nor is what f bends by.

References
----------
F. H. Clarke, *Optimization and Nonsmooth Analysis* (1983), section 2.5: the generalised
gradient is the convex hull of limits of gradients. C. L. Lawson and R. J. Hanson,
*Solving Least Squares Problems* (1974), chapter 23: weights that are not negative.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.analytic.gradients_elsewhere import gradients_at
from gradlab.differentiation.evaluation import line_rows
from gradlab.subject.subject import DOUBLE, unit_vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.blocks import Block
    from gradlab.subject.subject import Subject

__all__ = ["between_points"]

_BESIDE = 1e-5  # of the sizes: how far beside the point
_SIZES = (1.0, 0.1, 0.01)  # of that: how far inputs are moved where it is not as far
_STEP = 1e-8  # the same, of a slope there
_NEARER = 16.0  # times as near: a point where the gradient is the same, but at a pole
_CURVED = 3.0  # times what a slope may be off by, so much may curvature change it
_FIRST, _BATCH, _MOST = 4, 32, 128  # points: to begin with, at a time, at all
_RIGHT = 2  # of the first, whose gradients must be right
_ROWS, _WIDTH = 16, 512  # outputs and coordinates that are looked at, at most
_DIRECTIONS = 3  # along which gradients must foretell slopes
_OFF = 1e-4  # of the gradients: so much may a mixture be off by, or a slope
_SHARE = 0.05  # of what is accused: the same
_LOUD = 100.0  # times the rounding of f, over the step


def between_points(
    subject: Subject,
    there: tuple[list[Block], NDArray[np.float64]],
    rows: NDArray[np.bool_],
    meter: Meter,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """Find rows whose gradient is a mixture of right ones beside the point.

    Parameters
    ----------
    subject
        Evaluated, and asked for gradients, of which there are 128 at most.
    there
        Judged, and f at the point.
    rows
        Which to look at, (rows,); of more than 16 the first.
    meter
        Charged for 12 evaluations where gradients beside the point are wrong, else for
        6 at every point that a mixture needs.
    rng
        Of the points.
    """
    found = np.zeros_like(rows)
    some = np.flatnonzero(rows)[:_ROWS]
    width = sum(len(block.positions) for block in there[0])
    analytic = subject.analytic
    if not some.size or width > _WIDTH or subject.epsilon > DOUBLE or analytic is None:
        return found
    if not analytic.takes_cotangents and len(rows) > 1:
        return found
    here = _Here(subject, *there, some, meter, rng)
    while len(here.points) < _MOST and not found[some].all():
        if not here.look(_BATCH if here.points else _FIRST):
            return found
        if len(here.points) == _FIRST and not here.any_right():
            return found
        for k in np.flatnonzero(~found[some]):
            found[some[k]] = here.is_mixture(int(k))
    return found


@dataclasses.dataclass(slots=True, eq=False)
class _Here:
    """Gradients beside the point, in units of the coordinates."""

    subject: Subject
    blocks: list[Block]
    base: NDArray[np.float64]
    rows: NDArray[np.intp]
    meter: Meter
    rng: np.random.Generator
    points: list[NDArray[np.float64]] = dataclasses.field(default_factory=list)
    # of their moves, input by input; and the gradients yet nearer, on the same ways
    sizes: list[NDArray[np.float64]] = dataclasses.field(default_factory=list)
    gradients: list[NDArray[np.float64]] = dataclasses.field(default_factory=list)
    right: dict[int, NDArray[np.bool_]] = dataclasses.field(default_factory=dict)

    def look(self, count: int) -> bool:
        """Ask for gradients at some more points, in opposite pairs; whether any came.

        What moves a coordinate is of one size everywhere, but not of one sign. Every
        second pair has one sign for each input, and a size: where all biases go down,
        farther than what they are added to, no ReLU of theirs is left, and of so many
        signs none drawn at random may be there.
        """
        width = sum(len(block.positions) for block in self.blocks)
        for _ in range(count // 2):
            aside, sizes = _BESIDE * self.rng.normal(size=width), np.ones(width)
            if len(self.points) % 4 == 0:
                sizes = self._by_input()
                aside = np.abs(aside) * sizes
            for point in (aside, -aside):
                gradients = self._gradients(point / _NEARER)
                if gradients is None:
                    return False
                self.points.append(point)
                self.sizes.append(np.abs(sizes))
                self.gradients.append(gradients)
        return True

    def _by_input(self) -> NDArray[np.float64]:
        """Give all coordinates of an input one factor; the first time that is 1."""
        counts = [len(block.positions) for block in self.blocks]
        if not self.points:
            return np.ones(sum(counts))
        sign = self.rng.choice([-1.0, 1.0], len(counts))
        return np.repeat(sign * self.rng.choice(_SIZES, len(counts)), counts)

    def _gradients(self, point: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Ask for the gradients of all rows at a point beside, in units."""
        cotangents = unit_vectors(len(self.base), self.rows)
        moved = {
            which: self.subject.point(which) + by
            for which, by in self._moves(point).items()
        }
        pulled = gradients_at(self.subject, moved, cotangents)
        if pulled is None:
            return None
        parts = [
            pulled[block.which][:, block.positions] * block.units
            for block in self.blocks
        ]
        return np.concatenate(parts, axis=1)

    def any_right(self) -> bool:
        """Whether two of the first gradients foretell slopes, of one row at least.

        Not of each of them: a kink may be as near as the step of a slope there.
        """
        told = np.zeros(len(self.rows), dtype=int)
        for number in range(_FIRST):
            told += self.foretells(number)
            if told.max() == _RIGHT or number - told.max() == _FIRST - _RIGHT:
                break
        return bool(told.max() == _RIGHT)

    def is_mixture(self, k: int) -> bool:
        """Whether one row at the point is a mixture of right ones beside it."""
        row = self.rows[k]
        told = np.concatenate([b.formula[row] * b.units for b in self.blocks])
        beside = np.array([gradient[k] for gradient in self.gradients])
        if not (np.isfinite(told).all() and np.isfinite(beside).all()):
            return False
        size = max(float(self._typical()[k]), float(np.abs(told).max()))
        off = min(_OFF * size, self._least(row))
        if not off:
            return False
        # one of each kind, of which the points are many
        _, first = np.unique(np.round(beside / off / 2), axis=0, return_index=True)
        weights = _weights(beside[first] / size, told / size)
        left = np.abs(weights @ beside[first] - told).max()
        if not left <= off or not abs(weights.sum() - 1) <= _OFF:
            return False
        return all(self.foretells(int(n))[k] for n in first[weights > _OFF])

    def foretells(self, number: int) -> NDArray[np.bool_]:
        """Rows of the gradient at one point that are the slopes of f there.

        And all the way to the point: between kinks a gradient hardly changes. One of a
        smooth f does, next to a pole by all of itself, and is no limit of anything.
        """
        if number in self.right:
            return self.right[number]
        point, nearer = self.points[number], self.gradients[number]
        noise = _LOUD * self.subject.epsilon * np.abs(self.base[self.rows]) / _STEP
        bound = np.minimum(_OFF * self._typical(), [self._least(r) for r in self.rows])
        right = np.asarray(noise <= bound)  # or no slip would show
        gradient = self._gradients(point)
        if gradient is None:
            return np.zeros(len(right), dtype=bool)
        with np.errstate(all="ignore"):
            apart = np.abs(nearer - gradient).max(axis=1)
        right &= apart <= _CURVED * bound
        for _ in range(_DIRECTIONS):
            sign, amount = self.rng.choice, self.rng.uniform
            along = sign([-1.0, 1.0], len(point)) * amount(0.5, 1.5, len(point))
            along *= self.sizes[number]  # or it leads past a kink
            up, down = (self._value(point + s * _STEP * along) for s in (1.0, -1.0))
            with np.errstate(all="ignore"):
                slope = (up - down) / (2 * _STEP)
                right &= np.abs(slope - gradient @ along) <= bound + noise
        self.right[number] = np.asarray(right)
        return self.right[number]

    def _typical(self) -> NDArray[np.float64]:
        """Size of gradients of each row, (k,): next to a pole one may be any size."""
        sizes = np.array([np.abs(other).max(axis=1) for other in self.gradients])
        middle = np.median(sizes, axis=0)
        return np.asarray(np.where(middle > 0, middle, sizes.max(axis=0)))

    def _least(self, row: int) -> float:
        """By how much a row may be off, where something of it is accused."""
        wrong = [block.apart(block.wrong)[row] for block in self.blocks]
        gaps = np.concatenate(wrong)
        return _SHARE * float(gaps[gaps > 0].min(initial=np.inf))

    def _value(self, moves: NDArray[np.float64]) -> NDArray[np.float64]:
        line: list[NDArray[np.float64] | None] = [None] * len(self.subject.inputs)
        for which, by in self._moves(moves).items():
            line[which] = by
        values = line_rows(self.subject, line, (1.0,), self.meter)[0]
        return np.asarray(values[self.rows])

    def _moves(self, amounts: NDArray[np.float64]) -> dict[int, NDArray[np.float64]]:
        """Write moves in units of the coordinates as moves of inputs."""
        moves, start = {}, 0
        for block in self.blocks:
            end = start + len(block.positions)
            by = np.zeros(self.subject.inputs[block.which].coordinates)
            by[block.positions] = amounts[start:end] * block.units
            moves[block.which], start = by, end
        return moves


def _weights(
    vectors: NDArray[np.float64], target: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mix some vectors, with weights that are not negative and sum to one, (k,)."""
    matrix = np.vstack([vectors.T, np.ones(len(vectors))])
    wanted = np.append(target, 1.0)
    weights = np.zeros(len(vectors))
    used = np.zeros(len(vectors), dtype=bool)
    for _ in range(3 * len(vectors)):
        slopes = matrix.T @ (wanted - matrix @ weights)
        slopes[used] = -np.inf
        best = int(np.argmax(slopes))
        if not slopes[best] > 1e-12:
            break
        used[best] = True
        while used.any():
            solved = np.zeros_like(weights)
            solved[used] = np.linalg.lstsq(matrix[:, used], wanted, rcond=None)[0]
            below = used & (solved <= 0)
            if not below.any():
                weights = solved
                break
            way = weights[below] / (weights[below] - solved[below] + 1e-300)
            weights = weights + way.min() * (solved - weights)
            used &= weights > 1e-15
            weights[~used] = 0.0
    return weights
