"""Which products are worth their entries, and those that belong together.

An input may enter by several products, as the weight of a recurrence does at every
step, and a product serves all of its factors. What hangs together this way is measured
and verified as one: displacing a weight moves all the products that it is part of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.subject import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["ProductGroup", "worthwhile"]

_WORTHWHILE = 0.5  # of the evaluations that the inputs themselves would take


class ProductGroup:
    """All products of some inputs, which share no others.

    Attributes
    ----------
    point
        Entries of all of them, side by side.
    factors
        Numbers of the inputs, in order.
    products
        In the order of their entries.
    """

    def __init__(self, products: Sequence[Any], factors: Iterable[int]) -> None:
        self.factors = tuple(sorted(factors))
        self.point = np.concatenate([product.point for product in products])
        self.products = tuple(products)
        self._slots = side_by_side([len(product.point) for product in products])

    @classmethod
    def united(cls, groups: Sequence[ProductGroup]) -> ProductGroup:
        """Take several groups as one, whose entries are theirs side by side."""
        if len(groups) == 1:
            return groups[0]
        products = [product for group in groups for product in group.products]
        return cls(products, (which for group in groups for which in group.factors))

    def transposed(
        self, weigh: Callable[[Any], Any] | None = None
    ) -> Callable[[NDArray[np.float64]], dict[int, NDArray[np.float64]]]:
        """Give what carries slopes of the entries to the factors.

        From (rows, entries) to (rows, coordinates) of each, by number. `weigh` is
        applied to the other factor: `abs` for what adds up whatever its sign, a square
        for the squares of what is independent.
        """
        first, *others = self.products
        transposed = first.transposed(self.factors, weigh, others)

        def pull(slopes: NDArray[np.float64]) -> dict[int, NDArray[np.float64]]:
            return dict(zip(self.factors, transposed(slopes), strict=True))

        return pull

    def push(self, which: int, moves: NDArray[np.float64]) -> NDArray[np.float64]:
        """Say how the entries move when one factor moves so; (entries,)."""
        there = np.zeros(len(self.point))
        for product, slot in zip(self.products, self._slots, strict=True):
            if which in product.factors:
                there[slot] = product.push(which, moves)
        return there

    def rows(
        self, positions: NDArray[np.intp], displacements: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Evaluate with one entry displaced at a time.

        Returns
        -------
        values
            Shape (count, rows).
        taken
            The displacements really made, (count,).
        """
        order, parts = [], []
        for product, slot in zip(self.products, self._slots, strict=True):
            (own,) = np.nonzero((slot.start <= positions) & (positions < slot.stop))
            if len(own):
                order.append(own)
                parts.append(
                    product.rows(positions[own] - slot.start, displacements[own])
                )
        back = np.argsort(np.concatenate(order))
        values, taken = (
            np.concatenate(each)[back] for each in zip(*parts, strict=True)
        )
        return values, taken


def worthwhile(products: Iterable[Any], sizes: Mapping[int, int]) -> list[ProductGroup]:
    """Choose inputs whose products have fewer entries than they have themselves.

    Parameters
    ----------
    products
        All of them; f depends on the inputs by nothing else.
    sizes
        How many coordinates an input has, by its number.

    Returns
    -------
    list of ProductGroup
        Of the inputs that are better measured by their products.
    """
    kept, left = list(products), set(sizes)
    dear = set[int]()
    while True:
        left -= dear
        kept = [product for product in kept if product.factors & left]
        alone = dict.fromkeys(left, 0)
        for product in kept:
            served = product.factors & left
            if len(served) == 1:
                alone[next(iter(served))] += len(product.point)
        dear = {which for which in left if alone[which] > _WORTHWHILE * sizes[which]}
        if not dear:
            break
    groups = [
        ProductGroup(each, frozenset.union(*(p.factors for p in each)) & left)
        for each in _hanging_together(kept, left)
    ]
    return [
        group
        for group in groups
        if 0 < len(group.point) <= _WORTHWHILE * sum(sizes[k] for k in group.factors)
    ]


def _hanging_together(products: Sequence[Any], inputs: set[int]) -> list[list[Any]]:
    """Sort products into those that have inputs in common, of some."""
    groups: list[tuple[set[int], list[Any]]] = []
    for product in products:
        factors, members = set(product.factors & inputs), [product]
        others = []
        for group in groups:
            if group[0] & factors:
                factors |= group[0]
                members = group[1] + members
            else:
                others.append(group)
        groups = [*others, (factors, members)]
    return [members for _, members in groups]
