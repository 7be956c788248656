"""A wrong tensor of a function that is dear, described in few evaluations.

Its error is a matrix of which only products with directions can be measured, two
evaluations each. Each product rules out almost all that could be wrong, so the few that
accused the tensor are held against every simple mistake there is: that costs none. What
remains is asked of directions with weights: if the error sits in one row, doubling the
weight of that row doubles the product, and the ratio of two products tells which it is
(the one-sparse step of sublinear recovery, Gilbert and Indyk, Proc. IEEE 98, 2010).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.differentiation.lines.directions import AxisWeights, MaskWeights
from gradlab.localisation.searching.group_testing import decode, measured
from gradlab.localisation.searching.readings import (
    Place,
    Reading,
    added,
    axes_of,
    parts_of,
    rearranged,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.lines.directions import Direction, Weights
    from gradlab.differentiation.lines.parts import Part
    from gradlab.localisation.searching.bench import Bench
    from gradlab.localisation.searching.group_testing import Group

__all__ = ["read", "scattered"]

# Chance that something else looks like an explanation, above which none is believed.
_CHANCE = 1e-4
_MORE = 2  # further directions to make sure by
_CLEAR = 30.0  # defects this many times what round-off and noise explain tell anything
_WEIGHTS = 1 << 12  # different sizes of weights in [1/2, 1)


@dataclasses.dataclass(slots=True, eq=False)
class _Lines:
    """What was measured of one tensor along directions through all of it."""

    bench: Bench
    part: Part
    directions: list[Direction]
    numeric: list[float]
    defects: list[float]  # analytic minus numeric
    slack: list[float]

    @classmethod
    def of(cls, bench: Bench, group: Group) -> _Lines:
        (part,) = group.parts
        lines = cls(bench, part, [], [], [], [])
        for seed, probe in zip(group.seeds, group.probes, strict=True):
            lines._keep(bench.direction([part], seed), probe.numeric, probe.error)
        return lines

    def _keep(self, direction: Direction, numeric: float, error: float) -> None:
        analytic, norm = self.bench.gradients.along(direction)
        self.directions.append(direction)
        self.numeric.append(numeric)
        self.defects.append(analytic - numeric)
        self.slack.append(self.bench.slack(error, norm, [self.part]))

    def more(self) -> None:
        """Measure along one more direction."""
        line = self.bench.direction([self.part], self.bench.new_seed())
        self._keep(line, *self._measured(line))

    def weighted(self, weights: Weights) -> tuple[float, float]:
        """Defect along the first direction, weighted, and what is no defect."""
        line = dataclasses.replace(self.directions[0], weights=weights)
        numeric, error = self._measured(line)
        analytic, norm = self.bench.gradients.along(line)
        return analytic - numeric, self.bench.slack(error, norm, [self.part])

    def _measured(self, line: Direction) -> tuple[float, float]:
        fine = abs(self.defects[0]) / (2 * _CLEAR * SAFETY)
        probe = self.bench.measure(line, fine, proven=True)
        return probe.numeric, probe.error

    @property
    def clear(self) -> bool:
        """Whether the defects are large enough to tell anything."""
        return abs(self.defects[0]) > _CLEAR * self.slack[0]

    def fits(self, products: list[float], *, scaled: bool) -> float | None:
        """Whether products with the directions are the defects; None if they are not.

        Parameters
        ----------
        scaled
            Whether up to a factor, which is returned; it is 1 otherwise.
        """
        pairs = list(zip(products, self.defects, self.slack, strict=True))
        factor = 1.0
        if scaled:
            factor = self.defects[0] / products[0] if products[0] else np.nan
            pairs = pairs[1:]
        blur = self.slack[0] / abs(self.defects[0]) if scaled else 0.0
        same = all(
            abs(factor * product - defect) <= slack + blur * abs(defect)
            for product, defect, slack in pairs
        )
        return factor if same and np.isfinite(factor) else None

    def chance(self, guesses: int, *, scaled: bool) -> float:
        """Chance that one of some wrong guesses fits all the same."""
        sizes = [
            min(1.0, 2 * slack / max(abs(defect), slack))
            for defect, slack in zip(self.defects, self.slack, strict=True)
        ]
        return guesses * float(np.prod(sizes[1:] if scaled else sizes))

    def products(self, array: NDArray[np.float64]) -> list[float]:
        """Products of an array over the tensor with all directions so far."""
        return [line.along({self.part.which: array})[0] for line in self.directions]

    def holds(
        self, array: NDArray[np.float64], guesses: int, *, scaled: bool
    ) -> float | None:
        """Whether the error is this array, or a multiple of it; measures if in doubt.

        Returns
        -------
        float or None
            The multiple; None if it is not.
        """
        found = self._first_fit(array, scaled=scaled)
        for _ in range(_MORE):
            if found is None or self.chance(guesses, scaled=scaled) < _CHANCE:
                return found
            self.more()
            found = self.fits(self.products(array), scaled=scaled)
        sure = self.chance(guesses, scaled=scaled) < _CHANCE
        return found if sure else None

    def _first_fit(self, array: NDArray[np.float64], *, scaled: bool) -> float | None:
        if not scaled:  # most guesses fail along the first already
            product = self.directions[0].along({self.part.which: array})[0]
            if not abs(product - self.defects[0]) <= self.slack[0]:
                return None
        return self.fits(self.products(array), scaled=scaled)


def read(bench: Bench, group: Group, rng: np.random.Generator) -> Reading:
    """Find a simple mistake that explains all that was measured of one input.

    Parameters
    ----------
    group
        All of the input by itself, certainly wrong, along two directions or more.
    """
    lines = _Lines.of(bench, group)
    which = lines.part.which
    gradient = bench.gradients[which]
    if not np.isfinite(gradient).all() or not lines.clear:
        return Reading("none", "")
    found = _at_no_cost(lines, gradient)
    if found is None and 0 < np.count_nonzero(gradient) < gradient.size:
        found = _where_zero(lines, gradient)
        if found is not None and found.place is None:
            alone = _in_one_place(lines, gradient, rng)
            if alone is not None:  # among many that are zero on both sides
                words = alone.words.replace("wrong", "zero where the function moves,")
                found = dataclasses.replace(alone, kind="lost", words=words)
    if found is None:
        found = _in_one_place(lines, gradient, rng)
    found = found or Reading("none", "")
    return dataclasses.replace(found, lines=len(lines.directions))


def _at_no_cost(lines: _Lines, gradient: NDArray[np.float64]) -> Reading | None:
    """Hold what was measured already against mistakes of the whole tensor."""
    bench, which = lines.bench, lines.part.which
    variable = bench.subject.inputs[which]
    if not gradient.any():
        return Reading("zero", "is zero in every entry", 1.0, 0.0)
    factor = _factor(lines, gradient)
    if factor is not None:
        return Reading("factor", f"is {factor:.5g} times the true one", 1.0, factor)
    plain = not variable.is_complex and variable.support is None
    # one at a time: each is as large as the gradient
    for kind, words, true in rearranged(gradient, variable.shape) if plain else ():
        error = gradient - true
        if error.any() and lines.holds(error, 20, scaled=False) is not None:
            return Reading(kind, f"is the true one {words}", 1.0)
    point = np.asarray(bench.numeric.point(which), dtype=np.float64)
    for name, array in added(point, variable.name):
        times = lines.holds(array, 3, scaled=True) if array.any() else None
        if times is not None:
            words = f"is the true one plus {times:.4g} times {name}"
            return Reading("added", words, 1.0, times)
    for where, place in parts_of(variable.shape) if plain else ():
        array = np.where(place.inside(variable.shape), gradient, 0.0)
        factor = _factor(lines, array, 14)
        if factor is not None:
            words = f"is {factor:.5g} times the true one in {where}"
            share = np.count_nonzero(array) / array.size
            return Reading("part", words, share, factor, place)
    return None


def _factor(
    lines: _Lines, array: NDArray[np.float64], guesses: int = 1
) -> float | None:
    """Analytic over numeric, where one number explains what is wrong in this array."""
    slope = lines.holds(array, guesses, scaled=True) if array.any() else None
    if slope is None or abs(1 - slope) < 1e-9:  # the true one would be zero
        return None
    return 1 / (1 - slope)


def _where_zero(lines: _Lines, gradient: NDArray[np.float64]) -> Reading | None:
    """Look whether the tensor is right where its gradient is not zero."""
    defect, slack = lines.weighted(MaskWeights(gradient != 0))
    if abs(defect) > slack:
        return None
    share = 1 - np.count_nonzero(gradient) / gradient.size
    shape = lines.bench.subject.inputs[lines.part.which].shape
    place, words = (
        _empty_slices(gradient == 0, shape),
        "is zero where the function moves",
    )
    if place is not None:
        words += f", at {', '.join(map(str, place.index))} along axis {place.axis}"
    return Reading("lost", words, share, 0.0, place)


def _empty_slices(zero: NDArray[np.bool_], shape: tuple[int, ...]) -> Place | None:
    """Find the slices that are zero, if all that is zero is a few of them."""
    if zero.size != np.prod(shape):
        return None
    grid = zero.reshape(shape)
    for axis, _ in axes_of(shape):
        others = tuple(k for k in range(len(shape)) if k != axis)
        empty = np.flatnonzero(grid.all(axis=others))
        if 0 < len(empty) <= 4 and len(empty) * zero.size // shape[axis] == zero.sum():
            return Place(axis, tuple(empty.tolist()))
    return None


def _in_one_place(
    lines: _Lines, gradient: NDArray[np.float64], rng: np.random.Generator
) -> Reading | None:
    """Find the one index along an axis at which everything that is wrong is."""
    variable = lines.bench.subject.inputs[lines.part.which]
    if variable.is_complex or variable.support is not None:
        return None
    shape = variable.shape
    hits: dict[int, int] = {}
    for axis, stride in axes_of(shape):
        index = _index(lines, shape[axis], stride, rng)
        if index is not None:
            hits[axis] = index
    if not hits:
        return None
    if len(hits) == sum(length > 1 for length in shape):
        entry = tuple(hits.get(axis, 0) for axis in range(len(shape)))
        words = f"is wrong at {variable.name}[{', '.join(map(str, entry))}] alone"
        return Reading("slice", words, 1 / gradient.size, place=Place(None, entry))
    axis, index = max(hits.items(), key=lambda hit: shape[hit[0]])
    name = ("row", "column")[axis] if len(shape) == 2 else f"axis {axis}, index"
    words = f"is wrong in {name} {index} alone"
    place = Place(axis, (index,))
    factor = _factor(lines, np.where(place.inside(shape), gradient, 0.0))
    if factor is None:
        return Reading("slice", words, 1 / shape[axis], place=place)
    words += f", where it is {factor:.5g} times the true one"
    return Reading("slice", words, 1 / shape[axis], factor, place)


def _index(
    lines: _Lines, length: int, stride: int, rng: np.random.Generator
) -> int | None:
    """Index along one axis that alone explains the defect; None if none does."""
    first, blur = lines.defects[0], lines.slack[0]
    left, chance = np.ones(length, dtype=bool), float(length)
    for _ in range(1 + _MORE):
        numbers = (_WEIGHTS + rng.integers(0, _WEIGHTS, length)) / (2 * _WEIGHTS)
        numbers *= rng.choice([-1.0, 1.0], length)
        defect, slack = lines.weighted(AxisWeights(numbers, stride))
        slack += blur
        left &= np.abs(defect - numbers * first) <= slack
        chance *= min(1.0, 2 * slack / abs(first))
        found = np.flatnonzero(left)
        if not found.size:
            return None
        if found.size == 1 and chance < _CHANCE:
            return int(found[0])
    return None


def scattered(bench: Bench, group: Group) -> tuple[list[tuple[int, int]], float]:
    """Find one of the wrong entries of an input, where they are too few to meet.

    Of a random choice of one entry in ``2**k`` a defect shows as long as a wrong one is
    left. Where one or two are, the ratios of two defects tell which.

    Returns
    -------
    candidates
        Input and position of entries that explain what is left; empty if none does.
    share
        Estimated fraction of wrong entries; nan if none was found.
    """
    (part,) = group.parts
    choice, seed = bench.new_seed(), group.seeds[0]
    size = float(np.abs(group.defects[0]))
    low, high = 0, int(np.log2(part.size)) + 1

    def thinned(where: Part, thinning: int, *seeds: int) -> Group:
        fine = size * 2.0 ** (-thinning / 2) / _CLEAR
        return measured(
            bench, [where], seeds, resolution=fine, thinning=thinning, choice=choice,
            proven=True,
        )  # fmt: skip

    while high - low > 1:
        middle = (low + high) // 2
        if thinned(part, middle, seed).suspicious:
            low = middle
        else:
            high = middle
    if not low:
        return [], float("nan")
    share = min(1.0, 1.5 * 2.0**low / part.size)
    seeds = (seed, *group.seeds[1:2], bench.new_seed())
    for _ in range(1 + _MORE):
        left = thinned(part, low, *seeds)
        found = decode(bench, left) if left.legible else []
        if found:
            return found[:_MORE], share
        middle = (part.start + part.stop) // 2
        first = dataclasses.replace(part, stop=middle)
        second = dataclasses.replace(part, start=middle)
        part = first if thinned(first, low, seed).suspicious else second
    return [], share
