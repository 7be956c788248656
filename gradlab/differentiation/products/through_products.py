"""Slopes of weights from those of the product that they enter.

Of ``x @ w`` the entries are fewer than those of `w` where the batch is small, and where
`w` enters a function nowhere else, its Jacobian is that of the product times `x`: the
chain rule for the one step of the function whose derivative is no matter of opinion.
So differences are taken of the product, and carried to the weight, to `x` and to a
bias, as their error bars are. A random direction in the space of all of these,
evaluated as any other point is, has to agree.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.differentiation.evaluation import displaced_sets
from gradlab.differentiation.finite_difference import from_pairs, two_sided
from gradlab.differentiation.noise.noise import ULPS, difference_noise
from gradlab.differentiation.products.product_groups import ProductGroup, worthwhile
from gradlab.differentiation.quotients import BENT, Quotients
from gradlab.differentiation.sizes.scales import scales_of, step_sizes, typical_sizes
from gradlab.differentiation.sparse.compression import affordable
from gradlab.subject.subject import is_torch_subject, side_by_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.subject.subject import Subject

__all__ = ["ThroughProducts"]

_FEWEST = 256  # entries of all inputs together; below, nothing is gained
_SLICE = 4096  # entries between two looks at the budget and the Stop button
_THIRDS = np.array([-3, -2, -1, 1, 2, 3]) / 3  # of the length of a walk
_DEVIATIONS = 4.0  # of its noise, by which a difference may be off
_LIKE = 0.2  # of a second difference: how near to linear that of a kink shrinks
_SAFETY = 8.0  # error bars by which a directional derivative may be off
_ROUNDED = 1e3  # units of round-off that sums of products may differ by
_PART = 4  # of the memory: what values of f may take


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Slopes:
    """Differences of the entries of a product, (rows, entries) each."""

    value: NDArray[np.float64]
    noise: NDArray[np.float64]  # of the bar, what is another one at every entry
    truncation: NDArray[np.float64]  # and what may have the same sign everywhere
    bend: NDArray[np.float64]
    step: NDArray[np.float64]

    @classmethod
    def of(cls, found: Quotients, base: NDArray[np.float64], epsilon: float) -> _Slopes:
        """Split the bars of differences into noise and truncation.

        The truncation is a sixth of the third derivative times ``h**2``. Seen is the
        second times `h`; over which length that changes is told by the slopes of the
        same output, their mean square.
        """
        with np.errstate(all="ignore"):
            bend = np.abs(found.bend)
            small = bend * np.sqrt(epsilon)
            typical = np.sqrt(np.mean(found.value**2, axis=1, keepdims=True))
            shorter = np.where(typical > 0, bend / typical, 0.0)
            truncation = np.maximum(small, bend * np.minimum(shorter, 1.0) / 2)
            # where f did not move, less than its last digit is hidden; that the point
            # itself is a digit away comes of its evaluation alone, and not in a batch
            digit = np.abs(base)[:, None] * epsilon / np.abs(found.step)
            moved = (found.value != 0) | (bend > ULPS * digit)
            noise = np.where(moved, found.error - small, digit / 2)
        return cls(found.value, noise, truncation, found.bend, found.step)

    def part(self, slot: slice) -> _Slopes:
        """Keep some of the entries."""
        fields = dataclasses.fields(self)
        return _Slopes(*(getattr(self, field.name)[:, slot] for field in fields))

    def along(self, moves: NDArray[np.float64]) -> tuple[Any, Any]:
        """How far outputs move when the entries do, and the bar of that, (rows,)."""
        bars = (self.noise + self.truncation) @ np.abs(moves)
        return self.value @ moves, bars


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Leg:
    """What one factor adds to a random walk."""

    which: int
    direction: NDArray[np.float64]  # of the factor, as far as it is displaced
    moves: NDArray[np.float64]  # of the entries of the product

    @classmethod
    def random(
        cls,
        product: ProductGroup,
        which: int,
        subject: Subject,
        rng: np.random.Generator,
    ) -> _Leg:
        """Displace every coordinate of a factor by its step, to one side or other."""
        direction = step_sizes(scales_of(subject, which), subject.epsilon, 2)
        direction *= rng.choice([-1.0, 1.0], len(direction))
        return cls(which, direction, product.push(which, direction))

    def carried_back(
        self,
        value: NDArray[np.float64],
        slopes: _Slopes,
        terms: NDArray[np.float64],
        epsilon: float,
    ) -> bool:
        """Whether slopes give the same along it, carried to the factor or not."""
        off = np.abs(value @ self.direction - slopes.value @ self.moves)
        return bool(
            (off <= _ROUNDED * epsilon * (terms @ np.abs(self.direction))).all()
        )


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
        self._groups: list[list[ProductGroup]] | None = None
        self._carried: dict[int, Quotients] = {}  # to inputs not yet asked for

    def of(self, which: int) -> Quotients | None:
        """Differentiate with respect to all coordinates of one input.

        Returns
        -------
        Quotients or None
            As `central` gives them, up to the error bars; None where the input enters
            by more than a product, or one with too many entries.
        """
        if self._groups is None:
            self._groups = _few_together(self._found())
        for place, groups in enumerate(self._groups):
            if any(which in group.factors for group in groups):
                del self._groups[place]
                self._carried |= self._through(groups)
                break
        return self._carried.pop(which, None)

    def _through(
        self, groups: Sequence[ProductGroup], slopes: _Slopes | None = None
    ) -> dict[int, Quotients]:
        """Measure groups as one; those that do not pass together, one by one."""
        whole = ProductGroup.united(groups)
        slopes = slopes or self._measured(whole)
        if slopes is not None:
            carried = self._verified(whole, slopes)
            if carried is not None:
                return carried
        found: dict[int, Quotients] = {}
        if len(groups) > 1:
            slots = side_by_side([len(group.point) for group in groups])
            for group, slot in zip(groups, slots, strict=True):
                own = None if slopes is None else slopes.part(slot)
                found |= self._through([group], own)
        return found

    def _found(self) -> list[ProductGroup]:
        """Find the products that have few enough entries, in groups."""
        subject = self._subject
        sizes = {k: subject.inputs[k].coordinates for k in self._inputs}
        if not is_torch_subject(subject) or sum(sizes.values()) < _FEWEST:
            return []
        if not np.isfinite(self._base).all():
            return []
        self._meter.spend(1)
        return worthwhile(subject.products(tuple(sizes)), sizes)

    def _measured(self, product: ProductGroup) -> _Slopes | None:
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
        epsilon = self._subject.epsilon
        found = from_pairs(values, taken, self._base, epsilon)
        return _Slopes.of(found, self._base, epsilon)

    def _verified(
        self, product: ProductGroup, slopes: _Slopes
    ) -> dict[int, Quotients] | None:
        """Carry slopes to all factors, if f moves as they say along a random walk."""
        rng = np.random.default_rng([self._seed, *product.factors, 17])
        walk = [
            _Leg.random(product, which, self._subject, rng) for which in product.factors
        ]
        heard = self._confirmed(slopes, walk)
        return None if heard is None else self._carry(product, heard, walk)

    def _confirmed(self, slopes: _Slopes, walk: Sequence[_Leg]) -> _Slopes | None:
        """Walk along a direction: None if f does not move as the slopes say.

        All factors are displaced at once, to both sides, in thirds of the length. A
        second difference that shrinks like it, and not like its square, is that of a
        kink, and no noise; what the seven values are noisy by widens the bars.
        """
        subject, inputs = self._subject, tuple(leg.which for leg in walk)
        moves = np.sum([leg.moves for leg in walk], axis=0)
        direction = np.concatenate([leg.direction for leg in walk])
        walks = np.multiply.outer(_THIRDS, direction)
        found = displaced_sets(subject, inputs, walks, self._meter)
        values = np.insert(found, len(_THIRDS) // 2, self._base, axis=0)
        with np.errstate(all="ignore"):
            least = ULPS * subject.epsilon * np.abs(values).max(initial=0.0)
            bars = _SAFETY * (slopes.noise @ np.abs(moves) + least)
            far, middle, near = values[:-4:-1] + values[:3] - 2 * self._base
            linear = np.maximum(np.abs(far - 3 * near), np.abs(far - 1.5 * middle))
            torn = (np.abs(far) > bars) & (linear < _LIKE * np.abs(far))
            noise = np.where(torn, 0.0, np.nan_to_num(difference_noise(values)))
            heard = _DEVIATIONS * noise[:, None] / (2 * np.abs(slopes.step))
            slopes = dataclasses.replace(slopes, noise=np.maximum(slopes.noise, heard))
            expected, bars = slopes.along(moves)
            bars = _SAFETY * (bars + least)
            off = np.abs((values[-1] - values[0]) / 2 - expected)
            # a kink that an entry of the product shows by itself is in its bar
            holds = (off <= bars) & (np.abs(far - 9 * near) <= 4 * bars)
            holds &= ~torn | (np.abs(far) <= 2 * bars)
        return slopes if holds.all() else None

    def _carry(
        self, product: ProductGroup, slopes: _Slopes, walk: Sequence[_Leg]
    ) -> dict[int, Quotients] | None:
        """Carry slopes to all factors, and their bars.

        Of these, round-off adds up like its squares, being another one at every entry
        of the product, and truncation, which may have one sign, as it is. One-sided
        slopes change sides with the sign of the other factor; what curvature leaves of
        their difference is none, also where the slopes themselves cancel. None at all
        if what carries them is not the transpose of the product, as it is evaluated.
        """
        epsilon, rows = self._subject.epsilon, len(self._base)
        with np.errstate(all="ignore"):
            values = product.transposed()(slopes.value)
            spread = slopes.noise**2, slopes.step[:1] ** -2.0
            squares = product.transposed(_square)(np.concatenate(spread))
            added = slopes.truncation, slopes.bend, np.abs(slopes.value)
            sizes = product.transposed(abs)(np.concatenate(added))
            carried: dict[int, Quotients] = {}
            for leg in walk:
                value, noise = values[leg.which], np.sqrt(squares[leg.which][:rows])
                truncation, bend, terms = np.split(sizes[leg.which], 3)
                if not leg.carried_back(value, slopes, terms, epsilon):
                    return None
                own_steps = np.abs(leg.direction)
                # a displacement that round-off of f would spoil as much
                step = np.minimum(1 / np.sqrt(squares[leg.which][rows:]), own_steps)
                # what enters times zero has the bar of a difference that does not move
                least = np.multiply.outer(np.abs(self._base), epsilon / 2 / own_steps)
                error = np.where(noise > 0, noise, least) + truncation
                carried[leg.which] = Quotients(
                    value=value,
                    error=error,
                    step=np.broadcast_to(step, error.shape),
                    bend=np.where(np.abs(bend) > BENT * terms, bend, 0.0),
                    through=len(product.point),
                )
        return carried


def _few_together(groups: Sequence[ProductGroup]) -> list[list[ProductGroup]]:
    """Put groups together that are measured between two looks at the Stop button."""
    together: list[list[ProductGroup]] = []
    left = 0
    for group in groups:
        count = 2 * len(group.point)
        if together and count <= left:
            together[-1].append(group)
            left -= count
        else:
            together.append([group])
            left = _SLICE - count
    return together


def _square(factor: Any) -> Any:
    return factor * factor
