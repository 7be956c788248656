"""Which inputs are wrong: what disagrees along all of them is taken apart."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.probe import Probe
from gradlab.localisation.dense import common_factor
from gradlab.localisation.group_testing import Group, measured, split

if TYPE_CHECKING:
    from gradlab.differentiation.directions import Part
    from gradlab.localisation.bench import Bench
    from gradlab.localisation.search import Search

__all__ = ["judge"]

_ROUNDS, _ROUNDS_DEAR = 6, 3
_APART = 160  # evaluations spent on telling the inputs of a dear subject apart
_CONFIRMED = 3  # inputs whose defects stayed at other steps, before one step will do
# Inputs whose differences were tolerable, before the same is taken of others.
_FORGIVEN = 3
# Inputs that are certainly wrong and searched for entries to name; the others are not.
_EXPLORED = 2


def judge(bench: Bench, search: Search, alone: dict[int, Group]) -> None:
    """Screen, take apart what disagrees, and screen the rest again until it is clean.

    Parameters
    ----------
    alone
        Filled with the inputs that are certainly wrong, each probed by itself.
    """
    rng = np.random.default_rng([bench.seed, 1])
    forgiven = 0
    search.prepare(rng)
    for _ in range(_ROUNDS_DEAR if bench.dear else _ROUNDS):
        groups = search.screen(bench.parts())
        search.pending = groups
        if not groups:
            return
        if bench.dear and _of_one_factor(bench, search, alone, groups[0]):
            continue
        lines, untold = _suspects(bench, groups[0])
        search.doubtful += untold
        for which in {part.which for group in untold for part in group.parts}:
            bench.settle(which)
        few = len(lines) <= _EXPLORED or not bench.dear
        plans = [
            (line, [bench.new_seed() for _ in range(3 if few and k < _EXPLORED else 1)])
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
            (part,) = line.parts
            explored = few and len(alone) < _EXPLORED
            if bench.dear and len(alone) >= _CONFIRMED:
                group = _inferred(bench, line)
            else:
                enough = search.resolution([part]) if bench.dear else np.inf
                wanted = seeds if explored or bench.dear else seeds[:1]
                group = measured(bench, [part], wanted, resolution=enough)
            certain = _certain(bench, group)
            if (
                not certain
                and _quiet(bench, group)
                and (forgiven >= _FORGIVEN or _all_forgiven(search, part, rng))
            ):
                forgiven += 1
                search.forgive(part.which)
                continue
            if certain:
                alone[part.which] = group
            if explored or not certain:
                search.explore(group, rng)
            if certain:
                bench.settle(part.which)


def _of_one_factor(
    bench: Bench, search: Search, alone: dict[int, Group], group: Group
) -> bool:
    """Whether one number explains a whole group; three directions tell."""
    factors = common_factor(bench, group) or {}
    if len(factors) < len({part.which for part in group.parts}):
        return False
    for which, ratio in factors.items():
        search.factor[which], search.share[which] = ratio, 1.0
        alone[which] = group
        bench.settle(which)
    return True


def _inferred(bench: Bench, line: Group) -> Group:
    """Give the line that accuses an input for a measurement of that input alone."""
    (seed,) = line.seeds
    analytic, norm = bench.gradients.along(bench.direction(line.parts, seed))
    defect, error = float(line.defects[0]), float(line.errors[0])
    found = Probe(analytic, analytic - defect, error, norm, np.nan, 0, 0)
    return dataclasses.replace(line, probes=(found,))


def _suspects(bench: Bench, group: Group) -> tuple[list[Group], list[Group]]:
    """Halve a group along its clearest direction down to single inputs.

    Returns
    -------
    suspects
        One for each such input, in their order, measured or inferred along one line.
    untold
        Suspicious groups of a dear subject that were not taken apart: enough is known.
        Those nearest to the loss come first, which the others may owe their error to.
    """
    with np.errstate(all="ignore"):
        clarity = np.nan_to_num(np.abs(group.defects) / group.thresholds, nan=np.inf)
    k = int(np.argmax(clarity))
    line = dataclasses.replace(
        group,
        seeds=(group.seeds[k],),
        defects=group.defects[[k]],
        errors=group.errors[[k]],
        thresholds=group.thresholds[[k]],
        probes=(),
    )
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


def _certain(bench: Bench, group: Group) -> bool:
    """Whether no set of tolerable errors could make up the defect of an input.

    The sum of independent signs times numbers exceeds six times their norm in one case
    of ten million (Hoeffding).
    """
    relative, absolute = _tolerable(bench, group)
    return any(
        abs(probe.defect) > max(6 * (relative * size + 2 * absolute), threshold)
        for probe, threshold in zip(group.probes, group.thresholds, strict=True)
        for size in (max(probe.norm, abs(probe.numeric)),)
    )


def _quiet(bench: Bench, group: Group) -> bool:
    """Whether errors within the tolerance, all over an input, explain its defects."""
    relative, absolute = _tolerable(bench, group)
    return all(
        abs(probe.defect) <= 2 * (relative * probe.norm + absolute)
        for probe in group.probes
    )


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
