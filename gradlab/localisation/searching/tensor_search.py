"""Which inputs are wrong: what disagrees along all of them is judged one by one."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.differentiation.lines.probe import Probe
from gradlab.differentiation.metering.bar import foreseen
from gradlab.localisation.searching.accused import describe, show
from gradlab.localisation.searching.dense import common_factor
from gradlab.localisation.searching.group_testing import (
    Group,
    joined,
    measured,
)
from gradlab.localisation.searching.readings import Reading
from gradlab.localisation.searching.telling_apart import FINE, told_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from gradlab.differentiation.lines.parts import Part
    from gradlab.localisation.searching.bench import Bench
    from gradlab.localisation.searching.search import Search

__all__ = ["Judged", "judge", "unexplained"]

_ROUNDS, _ROUNDS_DEAR = 6, 3
_LINES = 3  # directions that one factor for everything has to explain
_CONFIRMED = 3  # inputs whose defects stayed at other steps, before one step will do
# Inputs whose differences were tolerable, before the same is taken of others.
_FORGIVEN = 3
# Inputs that are certainly wrong and searched for entries to name; the others are not.
_EXPLORED = 2
# What an accusation leads to: entries, second looks, causes. In evaluations, about.
_AFTER = 200
_EACH = 6  # evaluations of an input by itself, about


@dataclasses.dataclass(slots=True, eq=False)
class Judged:
    """What is known of whole inputs, as far as a search has come.

    Attributes
    ----------
    alone
        Inputs that are certainly wrong, each probed by itself.
    handed
        Those that are known to be handed a wrong gradient.
    forgiven
        How many differed within the tolerance.
    """

    alone: dict[int, Group] = dataclasses.field(default_factory=dict)
    handed: set[int] = dataclasses.field(default_factory=set)
    forgiven: int = 0


def judge(
    bench: Bench,
    search: Search,
    judged: Judged,
    spoiled: Callable[[], Collection[str]],
) -> None:
    """Screen, take apart what disagrees, and screen the rest again until it is clean.

    Parameters
    ----------
    judged
        Filled in the course of it.
    spoiled
        Says by name which inputs are handed a wrong gradient; asked once, if at all.
    """
    rng = np.random.default_rng([bench.seed, 1])
    asked = False
    search.prepare(rng)
    for _ in range(_ROUNDS_DEAR if bench.dear else _ROUNDS):
        groups = search.screen(bench.parts())
        search.pending = groups
        if not groups:
            search.doubtful += unexplained(bench, search, judged)
            return
        bench.meter.bar.expect_at_least(_AFTER)
        if bench.dear and _of_one_factor(bench, search, judged.alone, groups[0]):
            continue
        if not (bench.dear or asked):
            judged.handed |= _places(bench, spoiled())
        known = () if asked else judged.handed
        lines, untold = told_apart(bench, groups[0], known)
        asked = True
        search.shown += lines
        search.doubtful += untold
        for which in {part.which for group in untold for part in group.parts}:
            bench.settle(which)
        _judge_each(bench, search, judged, lines, rng)


def unexplained(bench: Bench, search: Search, judged: Judged) -> list[Group]:
    """List groups that showed a defect, of which nothing came, and which hides now.

    What shows no defect any more, though one of that size would, is right.
    """
    found = {which for which, _ in search.wrong} | set(search.share) | set(judged.alone)
    left = []
    for group in search.shown:
        inputs = {part.which for part in group.parts}
        settled = inputs & found or any(map(bench.patience.tolerated, inputs))
        if settled or not group.suspicious:
            continue
        defect = float(np.nanmax(np.abs(group.defects), initial=0.0))
        if not _least(bench, search, group) < defect:
            left.append(group)
    return left


def _least(bench: Bench, search: Search, group: Group) -> float:
    """Smallest defect of a group that would have shown where it was cleared."""
    cleared = (search.cleared.get(part.which) for part in group.parts)
    probes = [() if each is None else each.probes for each in cleared]
    told = (
        min((bench.threshold(probe, group.parts) for probe in each), default=np.inf)
        for each in probes
    )
    return max(told)


def _judge_each(
    bench: Bench,
    search: Search,
    judged: Judged,
    lines: list[Group],
    rng: np.random.Generator,
) -> None:
    """Measure suspected inputs by themselves, and look for wrong entries in the first.

    Parameters
    ----------
    lines
        What accuses each of them; one that shows no defect is presumed to be wrong,
        and right as long as it does not show one by itself.
    """
    few = len(lines) <= _EXPLORED or not bench.dear
    most = _EXPLORED if few else 1
    if not few:  # the last are nearest to the outputs, hence to the cause
        lines.reverse()
    plans = [
        (line, _seeds(bench, line, several=k < most)) for k, line in enumerate(lines)
    ]
    told = _CONFIRMED if bench.dear else len(plans)
    bench.gradients.foresee(
        [
            bench.direction(line.parts, seed)
            for line, seeds in plans[:told]
            for seed in seeds
        ]
    )
    with foreseen(bench.meter, _EACH, len(plans)) as course:
        for k, (line, seeds) in enumerate(plans):
            own = line.parts[0].which in judged.handed  # no entry of it is at fault
            explored = not own and len(judged.alone.keys() - judged.handed) < most
            wanted = seeds if explored or bench.dear else seeds[:1]
            known = len(judged.alone)
            group = _by_itself(bench, search, line, wanted, known=known)
            # what shows no defect is right all the same, if none spoke against it alone
            if group.suspicious or (line.suspicious and not own):
                _conclude(bench, search, judged, group, rng, explored=explored)
            course.goes_on(len(plans) - k - 1, typical=not explored)


def _forgiven(
    bench: Bench,
    search: Search,
    judged: Judged,
    group: Group,
    rng: np.random.Generator,
) -> bool:
    """Whether all that an input is off by is within the tolerance; it is settled then.

    Of a few, entries are asked; after those it is taken for granted.
    """
    if _certain(bench, group) or not _quiet(bench, group):
        return False
    (part,) = group.parts
    several = judged.forgiven >= _FORGIVEN
    if not (several or _all_forgiven(search, part, rng)):
        return False
    judged.forgiven += 1
    search.forgive(part.which)
    search.cleared[part.which] = group  # what it was forgiven upon
    search.power[part.which] = _unforgiven(bench, group)
    return True


def _by_itself(
    bench: Bench,
    search: Search,
    line: Group,
    seeds: list[int],
    *,
    known: int,
) -> Group:
    """Measure an accused input by itself; of dear ones after some, take the line."""
    if bench.dear and known >= _CONFIRMED:
        return _inferred(bench, line)
    if bench.dear:
        return _repeated(bench, line, seeds, search.resolution(line.parts))
    told = float(np.abs(line.defects[0])) / FINE
    return measured(bench, line.parts, seeds, resolution=told or np.inf)


def _conclude(
    bench: Bench,
    search: Search,
    judged: Judged,
    group: Group,
    rng: np.random.Generator,
    *,
    explored: bool,
) -> None:
    """Forgive an input, accuse it as a whole, or what entries of it are found wrong."""
    if _forgiven(bench, search, judged, group, rng):
        return
    (part,) = group.parts
    certain = _certain(bench, group)
    if certain:
        judged.alone[part.which] = group
    wanted = explored or not certain
    if wanted and not (certain and bench.dear and describe(bench, search, group, rng)):
        search.explore(group, rng)
    if certain:
        bench.settle(part.which)


def _seeds(bench: Bench, line: Group, *, several: bool) -> list[int]:
    """Directions along which an accused input is looked at by itself."""
    if bench.dear:  # one of them is known with others: what it says must be the same
        return [*line.seeds, *([bench.new_seed()] if several else [])]
    return [bench.new_seed() for _ in range(3 if several else 1)]


def _repeated(bench: Bench, line: Group, seeds: Sequence[int], enough: float) -> Group:
    """Measure an accused input by itself; its share of a defect was confirmed.

    One step is enough where it gives the very defect that others gave together with it,
    and the other directions are like it then.
    """
    fine = float(np.abs(line.defects[0])) / FINE
    one = measured(bench, line.parts, seeds[:1], resolution=fine, proven=True)
    apart = abs(one.defects[0] - line.defects[0])
    same = apart <= SAFETY * (one.errors[0] + line.errors[0])
    if not same:
        one = measured(bench, line.parts, seeds[:1], resolution=min(fine, enough))
    if len(seeds) < 2:
        return one
    sure = same or one.suspicious
    other = measured(bench, line.parts, seeds[1:], resolution=fine, proven=sure)
    both = joined(one, other)
    if one.suspicious == other.suspicious:
        return both
    # rare for what is wrong, but not for stairs: a third direction decides
    third = measured(
        bench, line.parts, [bench.new_seed()], resolution=min(fine, enough)
    )
    return joined(both, third)


def _of_one_factor(
    bench: Bench, search: Search, alone: dict[int, Group], group: Group
) -> bool:
    """Whether one number explains a whole group; three directions tell."""
    if not common_factor(bench, group, least=2):
        return False
    more = [bench.new_seed() for _ in range(_LINES - len(group.seeds))]
    fine = float(np.abs(group.defects).min()) / FINE
    if more:
        other = measured(bench, group.parts, more, resolution=fine, proven=True)
        group = joined(group, other)
    factors = common_factor(bench, group) or {}
    if len(factors) < len({part.which for part in group.parts}):
        return False
    for which, ratio in factors.items():
        search.factor[which], search.share[which] = ratio, 1.0
        alone[which] = group
        bench.settle(which)
    nearest = max(factors)  # to the outputs, hence to the cause
    words = f"is {factors[nearest]:.5g} times the true one"
    search.readings[nearest] = Reading("factor", words, 1.0, factors[nearest])
    show(bench, search, nearest, np.random.default_rng([bench.seed, 8]))
    return True


def _inferred(bench: Bench, line: Group) -> Group:
    """Give the line that accuses an input for a measurement of that input alone."""
    (seed,) = line.seeds
    analytic, norm = bench.gradients.along(bench.direction(line.parts, seed))
    defect, error = float(line.defects[0]), float(line.errors[0])
    found = Probe(analytic, analytic - defect, error, norm, np.nan, 0, 0)
    return dataclasses.replace(line, probes=(found,))


def _places(bench: Bench, names: Collection[str]) -> set[int]:
    return {k for k, each in enumerate(bench.subject.inputs) if each.name in names}


def _certain(bench: Bench, group: Group) -> bool:
    """Whether no set of tolerable errors could make up the defect of an input.

    The sum of independent signs times numbers exceeds six times their norm in one case
    of ten million (Hoeffding).
    """
    relative, absolute = _tolerable(bench, group)
    shown = [
        abs(probe.defect) > max(6 * (relative * size + 2 * absolute), threshold)
        for probe, threshold in zip(group.probes, group.thresholds, strict=True)
        for size in (max(probe.norm, abs(probe.numeric)),)
    ]
    # of a dear one a few steps were taken, and stairs show one direction a slope
    return bool(sum(shown) >= (min(2, len(shown)) if bench.dear else 1))


def _quiet(bench: Bench, group: Group) -> bool:
    """Whether errors within the tolerance, all over an input, explain its defects."""
    bounds = _bounds(bench, group)
    found = zip(group.probes, bounds, strict=True)
    return all(abs(probe.defect) <= bound for probe, bound in found)


def _unforgiven(bench: Bench, group: Group) -> float:
    """Error of one more entry that takes a quiet input beyond what explains it."""
    found = zip(group.probes, _bounds(bench, group), strict=True)
    least = min(bound + abs(probe.defect) for probe, bound in found)
    return least / bench.units[group.parts[0].which]


def _bounds(bench: Bench, group: Group) -> list[float]:
    """Largest defect, by direction, that errors within the tolerance account for."""
    relative, absolute = _tolerable(bench, group)
    return [2 * (relative * probe.norm + absolute) for probe in group.probes]


def _tolerable(bench: Bench, group: Group) -> tuple[float, float]:
    """Errors that all entries of an input may have: relative, and norm of the rest."""
    which = group.parts[0].which
    own = bench.tolerance.of(bench.subject.inputs[which].name)
    absolute = bench.forgiven(which) * bench.units[which] * group.size**0.5
    return own.relative(bench.analytic_epsilon(which)), absolute


def _all_forgiven(search: Search, part: Part, rng: np.random.Generator) -> bool:
    """Whether some entries drawn at random all differ, and all within the tolerance."""
    drawn = sorted(set(rng.integers(part.start, part.stop, 3).tolist()))
    columns = [search.examine(part.which, position) for position in drawn]
    return all(column.differs and not column.wrong for column in columns)
