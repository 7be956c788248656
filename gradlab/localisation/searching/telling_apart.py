"""Which of many inputs a defect comes from: halving, weights, presumption."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.localisation.searching.group_testing import (
    LEGIBLE,
    Group,
    measured_again,
    split,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from gradlab.localisation.searching.bench import Bench

__all__ = ["FINE", "told_apart"]

FINE = 60.0  # error bars that a defect should be worth, to be told from others
_APART = 160  # evaluations spent on telling the inputs of a dear subject apart
_FEW = 4  # inputs that are halved rather than weighted


def told_apart(
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

    Where one after the other is suspected, the next are taken to be: as many as those,
    since each of them is measured by itself in any case.

    Returns
    -------
    suspects
        One for each such input, in their order, measured or inferred along one line,
        or presumed.
    untold
        Suspicious groups of a dear subject that were not taken apart: enough is known.
        Those nearest to the loss come first, which the others may owe their error to.
    """
    alone = _only_one(bench, line) if bench.dear and len(line.parts) > _FEW else None
    if alone is not None:
        return [alone], []
    stack, found, spent = [line], [], bench.meter.evaluations
    run = 0  # inputs suspected one after the other
    while stack:
        if bench.dear and bench.meter.evaluations - spent > _APART:
            break
        top = stack.pop()
        if not top.suspicious:
            run = 0
            continue
        inputs = {part.which for part in top.parts}
        if len(inputs) == 1:
            found.append(dataclasses.replace(top, parts=top.parts[:1]))
        elif len(inputs) <= run and not bench.dear:
            found += _presumed(top)
        else:
            stack += split(bench, top, ())
            continue
        run += len(inputs)
    untold = [top for top in stack if top.suspicious]
    return sorted(found, key=lambda line: line.parts[0].which), untold


def _presumed(group: Group) -> list[Group]:
    """Suspect each input of a group that holds a wrong one; no defect speaks for it."""
    parts = {part.which: part for part in reversed(group.parts)}.values()
    nothing = np.zeros(1)
    return [
        dataclasses.replace(group, parts=(part,), defects=nothing) for part in parts
    ]


def _only_one(bench: Bench, line: Group) -> Group | None:
    """Find the one input behind a defect, by weights; None if it is not one alone.

    With a weight for each input, the defect of a single one changes by the weight of
    that input: four evaluations tell which, and two that it is none.
    """
    first, blur = float(line.defects[0]), SAFETY * float(line.errors[0])
    if not abs(first) > FINE * blur:
        return None
    direction = bench.direction(line.parts, line.seeds[0])
    rng = np.random.default_rng([bench.new_seed(), 7])
    left = np.ones(len(line.parts), dtype=bool)
    for _ in range(2):
        weights = rng.integers(32, 64, len(bench.units)) / 64.0
        weights *= rng.choice([-1.0, 1.0], len(bench.units))
        units = tuple(float(w) * u for w, u in zip(weights, bench.units, strict=True))
        tilted = dataclasses.replace(direction, units=units)
        found = bench.measure(tilted, abs(first) / FINE, proven=True)
        slack = bench.slack(found.error, found.norm, line.parts) + blur
        own = np.array([weights[part.which] for part in line.parts])
        left &= np.abs(found.defect - own * first) <= slack
        if not left.any():
            return None
    if left.sum() != 1:
        return None
    part = line.parts[int(np.flatnonzero(left)[0])]
    return dataclasses.replace(line, parts=(part,))
