"""Which inputs are wrong: what disagrees along all of them is taken apart."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.differentiation.probe import Probe
from gradlab.localisation.searching.accused import describe, show
from gradlab.localisation.searching.dense import common_factor
from gradlab.localisation.searching.group_testing import (
    LEGIBLE,
    Group,
    joined,
    measured,
    measured_again,
    split,
)
from gradlab.localisation.searching.readings import Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from gradlab.differentiation.directions import Part
    from gradlab.localisation.searching.bench import Bench
    from gradlab.localisation.searching.search import Search

__all__ = ["judge"]

_ROUNDS, _ROUNDS_DEAR = 6, 3
_APART = 160  # evaluations spent on telling the inputs of a dear subject apart
_LINES = 3  # directions that one factor for everything has to explain
_FINE = 60.0  # error bars that a defect should be worth, to be told from others
_FEW = 4  # inputs that are halved rather than weighted
_CONFIRMED = 3  # inputs whose defects stayed at other steps, before one step will do
# Inputs whose differences were tolerable, before the same is taken of others.
_FORGIVEN = 3
# Inputs that are certainly wrong and searched for entries to name; the others are not.
_EXPLORED = 2


def judge(
    bench: Bench,
    search: Search,
    alone: dict[int, Group],
    handed: set[int],
    spoiled: Callable[[], Collection[str]],
) -> None:
    """Screen, take apart what disagrees, and screen the rest again until it is clean.

    Parameters
    ----------
    alone
        Filled with the inputs that are certainly wrong, each probed by itself.
    handed, spoiled
        The first is filled with the inputs that are known to be handed a wrong
        gradient, as the second says by name; it is asked once, if at all.
    """
    rng = np.random.default_rng([bench.seed, 1])
    forgiven, asked = 0, False
    search.prepare(rng)
    for _ in range(_ROUNDS_DEAR if bench.dear else _ROUNDS):
        groups = search.screen(bench.parts())
        search.pending = groups
        if not groups:
            return
        if bench.dear and _of_one_factor(bench, search, alone, groups[0]):
            continue
        if not (bench.dear or asked):
            handed |= _places(bench, spoiled())
        lines, untold = _told_apart(bench, groups[0], () if asked else handed)
        asked = True
        search.doubtful += untold
        for which in {part.which for group in untold for part in group.parts}:
            bench.settle(which)
        few = len(lines) <= _EXPLORED or not bench.dear
        if not few:  # the last are nearest to the outputs, hence to the cause
            lines.reverse()
        plans = [
            (line, _seeds(bench, line, several=k < (_EXPLORED if few else 1)))
            for k, line in enumerate(lines)
        ]
        told = _CONFIRMED if bench.dear else len(plans)
        bench.gradients.foresee(
            [
                bench.direction(line.parts, seed)
                for line, seeds in plans[:told]
                for seed in seeds
            ]
        )
        for line, seeds in plans:
            own = line.parts[0].which in handed  # no entry of it is at fault
            done = len(alone.keys() - handed)
            explored = not own and done < (_EXPLORED if few else 1)
            group = _by_itself(
                bench, search, line, seeds, explored=explored, known=len(alone)
            )
            if own and not group.suspicious:
                continue  # it is right all the same
            if not _certain(bench, group) and _quiet(bench, group):
                (part,) = line.parts
                if forgiven >= _FORGIVEN or _all_forgiven(search, part, rng):
                    forgiven += 1
                    search.forgive(part.which)
                    search.cleared[part.which] = group  # what it was forgiven upon
                    search.power[part.which] = _unforgiven(bench, group)
                    continue
            _conclude(bench, search, alone, group, rng, explored=explored)


def _by_itself(
    bench: Bench,
    search: Search,
    line: Group,
    seeds: list[int],
    *,
    explored: bool,
    known: int,
) -> Group:
    """Measure an accused input by itself; of dear ones after some, take the line."""
    if bench.dear and known >= _CONFIRMED:
        return _inferred(bench, line)
    if bench.dear:
        return _repeated(bench, line, seeds, search.resolution(line.parts))
    wanted = seeds if explored else seeds[:1]
    return measured(bench, line.parts, wanted, resolution=np.inf)


def _conclude(
    bench: Bench,
    search: Search,
    alone: dict[int, Group],
    group: Group,
    rng: np.random.Generator,
    *,
    explored: bool,
) -> None:
    """Accuse an input as a whole, or what entries of it are found wrong."""
    (part,) = group.parts
    certain = _certain(bench, group)
    if certain:
        alone[part.which] = group
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
    fine = float(np.abs(line.defects[0])) / _FINE
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
    fine = float(np.abs(group.defects).min()) / _FINE
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


def _told_apart(
    bench: Bench, group: Group, handed: Collection[int]
) -> tuple[list[Group], list[Group]]:
    """Take a group apart into single inputs; what is handed an error needs no search.

    Returns what `_suspects` does.
    """
    line = _clearest(bench, group)
    own = {part.which: part for part in reversed(group.parts) if part.which in handed}
    rest = tuple(part for part in group.parts if part.which not in own)
    found = [dataclasses.replace(line, parts=(part,)) for part in own.values()]
    untold: list[Group] = []
    if own and rest:
        fine = float(np.abs(line.defects[0])) / (2 * LEGIBLE)
        line = measured_again(
            bench, line, rest, line.seeds, resolution=fine, proven=True
        )
    if rest and line.suspicious:
        others, untold = _suspects(bench, line)
        found += others
    return sorted(found, key=lambda line: line.parts[0].which), untold


def _clearest(bench: Bench, group: Group) -> Group:
    """Give what a group shows along one direction, that of its clearest defect."""
    with np.errstate(all="ignore"):
        clarity = np.nan_to_num(np.abs(group.defects) / group.thresholds, nan=np.inf)
    if bench.dear:  # rather one along which the defect stayed at other steps
        stayed = np.array([probe.evaluations > 2 for probe in group.probes])
        if (clarity[stayed] > 1).any():
            clarity = np.where(stayed, clarity, 0.0)
    k = int(np.argmax(clarity))
    return dataclasses.replace(
        group,
        seeds=(group.seeds[k],),
        defects=group.defects[[k]],
        errors=group.errors[[k]],
        thresholds=group.thresholds[[k]],
        probes=(),
    )


def _suspects(bench: Bench, line: Group) -> tuple[list[Group], list[Group]]:
    """Halve a group along one direction down to single inputs.

    Returns
    -------
    suspects
        One for each such input, in their order, measured or inferred along one line.
    untold
        Suspicious groups of a dear subject that were not taken apart: enough is known.
        Those nearest to the loss come first, which the others may owe their error to.
    """
    alone = _only_one(bench, line) if bench.dear and len(line.parts) > _FEW else None
    if alone is not None:
        return [alone], []
    stack, found, spent = [line], [], bench.meter.evaluations
    while stack:
        if bench.dear and bench.meter.evaluations - spent > _APART:
            break
        top = stack.pop()
        if not top.suspicious:
            continue
        if len({part.which for part in top.parts}) == 1:
            found.append(dataclasses.replace(top, parts=top.parts[:1]))
        else:
            stack += split(bench, top, ())
    untold = [top for top in stack if top.suspicious]
    return sorted(found, key=lambda line: line.parts[0].which), untold


def _only_one(bench: Bench, line: Group) -> Group | None:
    """Find the one input behind a defect, by weights; None if it is not one alone.

    With a weight for each input, the defect of a single one changes by the weight of
    that input: four evaluations tell which, and two that it is none.
    """
    first, blur = float(line.defects[0]), SAFETY * float(line.errors[0])
    if not abs(first) > _FINE * blur:
        return None
    direction = bench.direction(line.parts, line.seeds[0])
    rng = np.random.default_rng([bench.new_seed(), 7])
    left = np.ones(len(line.parts), dtype=bool)
    for _ in range(2):
        weights = rng.integers(32, 64, len(bench.units)) / 64.0
        weights *= rng.choice([-1.0, 1.0], len(bench.units))
        units = tuple(float(w) * u for w, u in zip(weights, bench.units, strict=True))
        tilted = dataclasses.replace(direction, units=units)
        found = bench.measure(tilted, abs(first) / _FINE, proven=True)
        slack = bench.slack(found.error, found.norm, line.parts) + blur
        own = np.array([weights[part.which] for part in line.parts])
        left &= np.abs(found.defect - own * first) <= slack
        if not left.any():
            return None
    if left.sum() != 1:
        return None
    part = line.parts[int(np.flatnonzero(left)[0])]
    return dataclasses.replace(line, parts=(part,))


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
