"""Inputs of a dear function that are wrong: told how, shown in a few entries."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.differentiation.lines.parts import Part
from gradlab.localisation.searching.columns import Column
from gradlab.localisation.searching.quick_lines import quick_slope
from gradlab.localisation.searching.readings import Reading
from gradlab.localisation.searching.sketches import read, scattered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.localisation.searching.bench import Bench
    from gradlab.localisation.searching.group_testing import Group
    from gradlab.localisation.searching.search import Search

__all__ = ["VISIBLE", "describe", "show"]

_SHOWN, _DRAWN = 2, 3  # entries: that should be wrong; drawn, where none is known
_BESIDE = 1  # entries where nothing should
_STEADY = 1e-2  # relative error bar over two steps
VISIBLE = 1e-3  # relative error bar of an entry that is shown


def describe(
    bench: Bench, search: Search, group: Group, rng: np.random.Generator
) -> bool:
    """Tell what is wrong with one input as a whole, and measure some of its entries.

    Parameters
    ----------
    group
        All of the input by itself, certainly wrong.

    Returns
    -------
    bool
        Whether entries that are wrong were met, or everything is explained.
    """
    (part,) = group.parts
    which = part.which
    reading = read(bench, group, rng)
    search.readings[which] = reading
    if len(bench.base) > 1:
        return reading.kind != "none"
    shown = show(bench, search, which, rng)
    wrong = [column.wrong for column in shown]
    if reading.kind != "none":
        # named entries that stand alone are few; whole slices are told as a share
        if reading.share * part.size > len(shown):
            search.share[which] = reading.share
        if reading.kind == "factor":
            search.factor[which] = reading.factor
        return True
    words = f"{sum(wrong)} of {len(wrong)} entries drawn at random are wrong"
    share = sum(wrong) / len(wrong)
    if not any(wrong):
        found, share = scattered(bench, group)
        for _, position in found:
            _shown(bench, search, which, position, twice=True)
        count = float(f"{share * part.size:.0e}") if np.isfinite(share) else 0.0
        words += f", about {count:,.0f} of {part.size:,} are" if count else ""
    if np.isfinite(share):
        search.share[which] = share
    search.readings[which] = dataclasses.replace(reading, words=words, share=share)
    return True


def show(
    bench: Bench, search: Search, which: int, rng: np.random.Generator
) -> list[Column]:
    """Measure some entries of a wrong input, where its reading says it is wrong."""
    if len(bench.base) > 1:
        return []
    reading = search.readings.get(which, Reading("factor", ""))
    shown: list[Column] = []
    for position in _entries_of(bench, which, reading, rng):
        # one step is enough for the others where two say the same
        twice = not (shown and _steady(bench, which, shown[0]))
        shown.append(_shown(bench, search, which, position, twice=twice))
    return shown


def _steady(bench: Bench, which: int, column: Column) -> bool:
    """Whether two steps gave one slope of an entry."""
    size = max(abs(column.expected), abs(column.analytic), bench.sizes(which)[0])
    return SAFETY * column.bar <= _STEADY * size


def _shown(
    bench: Bench, search: Search, which: int, position: int, *, twice: bool
) -> Column:
    """Measure one entry of an input that is wrong; accuse it if it is."""
    column = _quick_column(bench, which, position, twice=twice)
    search.looked[which, position] = column
    if column.wrong and len(search.wrong) < search.limit:
        search.wrong[which, position] = column
    return column


def _quick_column(bench: Bench, which: int, position: int, *, twice: bool) -> Column:
    """Differentiate along one coordinate in two or four evaluations; one output row.

    An error bar that is too large for a verdict stays so: the tensor has one.
    """
    direction = bench.direction((Part(which, position, position + 1),), 1)
    along = direction.at(which, position)
    analytic = float(bench.gradients[which][position])
    scale = bench.sizes(which)[1]
    allowed = bench.allowed(which, analytic, analytic, scale)
    size = max(abs(analytic), bench.sizes(which)[0])
    enough = max(allowed, VISIBLE * size) / (2 * SAFETY)
    slope, bar, step = quick_slope(
        bench.line(direction),
        enough=abs(along) * enough,
        share=VISIBLE / (2 * SAFETY),
        twice=twice,
    )
    expected, bar = slope / along, bar / abs(along)
    return Column(
        np.array([expected]),
        np.array([bar]),
        np.array([step * abs(along)]),
        analytic,
        expected,
        bar,
        bench.allowed(which, analytic, expected, scale),
    )


def _entries_of(
    bench: Bench, which: int, reading: Reading, rng: np.random.Generator
) -> list[int]:
    """Draw entries where something should be wrong, and behind them where not."""
    gradient, place = bench.gradients[which], reading.place
    shape = bench.subject.inputs[which].shape
    size = gradient.size
    if place is not None:
        inside = place.inside(shape)
    elif reading.kind == "lost":
        inside = gradient == 0
    else:
        inside = np.ones(size, dtype=bool)
    live = inside & (gradient != 0)
    if reading.kind != "lost" and live.any():  # where both are zero nothing shows
        inside = live
    count = _DRAWN if reading.kind in {"none", "factor"} else _SHOWN
    return _drawn(inside, count, rng) + _drawn(~inside, _BESIDE, rng)


def _drawn(
    inside: NDArray[np.bool_], count: int, rng: np.random.Generator
) -> list[int]:
    places = np.flatnonzero(inside)
    few = rng.choice(places, min(count, len(places)), replace=False)
    return [int(position) for position in few]
