"""Slopes of weights from those of the product that they enter.

Of ``x @ w`` the entries are fewer than those of `w` where the batch is small, and where
`w` enters a function nowhere else, its Jacobian is that of the product times `x`: the
chain rule for the one step of the function whose derivative is no matter of opinion.
So differences are taken of the product, and carried to the weight, to `x` and to a
bias, as their error bars are. A random direction in the space of all of these,
evaluated as any other point is, has to agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.differentiation.evaluation import displaced_sets
from gradlab.differentiation.finite_difference import (
    from_pairs,
    scales_of,
    step_sizes,
    two_sided,
    typical_sizes,
)
from gradlab.differentiation.noise import ULPS
from gradlab.differentiation.quotients import Quotients
from gradlab.differentiation.sparsity import affordable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.evaluation import Meter
    from gradlab.subject.subject import Subject

__all__ = ["ThroughProducts"]

_WORTHWHILE = 0.5  # of the evaluations that the inputs themselves would take
_FEWEST = 256  # entries of all inputs together; below, nothing is gained
_SLICE = 4096  # entries between two looks at the budget and the Stop button
_SAFETY = 8.0  # error bars by which a directional derivative may be off
_PART = 4  # of the memory: what values of f may take


class ThroughProducts:
    """Measures inputs by the products that they enter, each product once.

    Parameters
    ----------
    subject
        At its point; it is there again after every call.
    inputs
        Numbers of the inputs that may be asked for.
    base
        f at the point, shape (rows,).
    meter
        Charged for every evaluation.
    seed
        Of the directions that verify.
    """

    def __init__(
        self,
        subject: Subject,
        inputs: Sequence[int],
        base: NDArray[np.float64],
        meter: Meter,
        *,
        seed: int = 0,
    ) -> None:
        self._subject, self._inputs, self._base = subject, inputs, base
        self._meter, self._seed = meter, seed
        self._products: list[Any] | None = None
        self._slopes: dict[int, Quotients | None] = {}  # by place among the products

    def of(self, which: int) -> Quotients | None:
        """Differentiate with respect to all coordinates of one input.

        Returns
        -------
        Quotients or None
            As `central` gives them, up to the error bars; None where the input enters
            by more than a product, or one with too many entries.
        """
        if self._products is None:
            self._products = self._found()
        for place, product in enumerate(self._products):
            if which not in product.factors:
                continue
            if place not in self._slopes:
                self._slopes[place] = self._measured(product)
            slopes = self._slopes[place]
            return None if slopes is None else self._carried(product, which, slopes)
        return None

    def _found(self) -> list[Any]:
        """Find the products that have few enough entries."""
        find = getattr(self._subject, "products", None)
        sizes = {k: self._subject.inputs[k].coordinates for k in self._inputs}
        if find is None or sum(sizes.values()) < _FEWEST:
            return []
        if not np.isfinite(self._base).all():
            return []
        self._meter.spend(1)
        return [
            product
            for product in find(tuple(sizes))
            if len(product.point)
            <= _WORTHWHILE * sum(sizes[k] for k in product.factors)
        ]

    def _measured(self, product: Any) -> Quotients | None:
        """Take central differences of the entries of a product."""
        meter, rows, count = self._meter, len(self._base), 2 * len(product.point)
        if not np.isfinite(product.point).all() or not affordable(meter, count):
            return None
        if meter.memory is not None and 8 * count * rows > meter.memory // _PART:
            return None
        every = np.arange(len(product.point))
        steps = step_sizes(typical_sizes(product.point), self._subject.epsilon, 2)
        pairs, displacements = two_sided(every, steps)
        parts = []
        for start in range(0, count, _SLICE):
            part = slice(start, start + _SLICE)
            meter.spend(len(pairs[part]))
            try:
                with np.errstate(all="ignore"):
                    parts.append(product.rows(pairs[part], displacements[part]))
            except Exception:  # noqa: BLE001 - the user's code, far from anything usual
                return None
        values, taken = (np.concatenate(each) for each in zip(*parts, strict=True))
        slopes = from_pairs(values, taken, self._base, self._subject.epsilon)
        return slopes if self._holds(product, slopes) else None

    def _holds(self, product: Any, slopes: Quotients) -> bool:
        """Whether f moves along a random direction as the slopes say, and smoothly.

        All factors are displaced at once, to both sides, at full length and at half of
        it: the second difference has to shrink to a quarter, that of a kink to a half.
        """
        subject, base, inputs = self._subject, self._base, tuple(product.factors)
        rng = np.random.default_rng([self._seed, *inputs, 17])
        moves, directions = np.zeros(len(product.point)), []
        for which in inputs:
            direction = step_sizes(scales_of(subject, which), subject.epsilon, 2)
            direction *= rng.choice([-1.0, 1.0], len(direction))
            directions.append(direction)
            moves += product.push(which, direction)
        walks = np.multiply.outer([1.0, -1.0, 0.5, -0.5], np.concatenate(directions))
        ends = displaced_sets(subject, inputs, walks, self._meter)
        with np.errstate(all="ignore"):
            size = np.abs(ends).max(initial=0.0)
            slack = _SAFETY * ULPS * subject.epsilon * size
            off = np.abs((ends[0] - ends[1]) / 2 - slopes.value @ moves)
            holds = off <= _SAFETY * (slopes.error @ np.abs(moves)) + slack
            far, near = (ends[k] - base + (ends[k + 1] - base) for k in (0, 2))
            holds &= np.abs(far - 4 * near) <= 2 * slack
        return bool(holds.all())

    def _carried(self, product: Any, which: int, slopes: Quotients) -> Quotients:
        """Carry slopes to a factor, and their bars.

        Of these, round-off adds up like its squares, being another one at every entry
        of the product, and truncation, which may have one sign, as it is. One-sided
        slopes change sides with the sign of the other factor.
        """
        subject, root = self._subject, np.sqrt(self._subject.epsilon)
        own_steps = step_sizes(scales_of(subject, which), subject.epsilon, 2)

        def spread(squares: NDArray[np.float64]) -> NDArray[np.float64]:
            total: NDArray[np.float64] = product.pull(which, squares, np.square)
            return np.sqrt(total)

        with np.errstate(all="ignore"):
            truncation = np.abs(slopes.bend) * root
            noise = spread((slopes.error - truncation) ** 2)
            # a displacement that round-off of f would spoil as much
            step = np.minimum(1 / spread(slopes.step[:1] ** -2.0), own_steps)
            # and what a difference leaves open that does not move
            least = np.multiply.outer(
                np.abs(self._base), subject.epsilon / 2 / own_steps
            )
            error = np.maximum(noise, least) + product.pull(which, truncation, np.abs)
        return Quotients(
            value=product.pull(which, slopes.value),
            error=error,
            step=np.broadcast_to(step, error.shape),
            bend=product.pull(which, slopes.bend, np.abs),
            through=len(product.point),
        )
