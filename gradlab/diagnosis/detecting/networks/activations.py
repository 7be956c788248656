"""Detector of a wrong slope of an activation: all units of a layer at one level."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.layer_shapes import is_named, layer_of, layers_of
from gradlab.diagnosis.measuring.level_readings import IN_OUTPUT, read_levels
from gradlab.diagnosis.measuring.levels import (
    LEVELS,
    SAME_SLOPE,
    Level,
    known,
    level_at,
    spread,
)
from gradlab.diagnosis.measuring.measures import Case, Clue
from gradlab.diagnosis.measuring.sides import side_of, wrong_inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.diagnosis.evidence import Evidence
    from gradlab.diagnosis.measuring.layer_shapes import Layer

__all__ = ["equal_units"]

_PAIR = 2  # units that a gate has at least, and gates of a layer
_STILL = 1e-7  # of the largest gradient: units that are switched off


def equal_units(case: Case) -> list[Clue]:
    """Detect a wrong slope of an activation.

    With the weight of a layer at zero and its bias at t, all its units stand at the
    same pre-activation t. A wrong slope is then one factor for all of them, and shows
    as a function of t: constant 1 for t > 0 and none for t < 0 is a mask. Where the
    units of one gate alone are wrong, these are the ones that are set.
    """
    layer = layer_of(case.evidence, case.part.which)
    if layer is None:
        return []
    evidence = case.evidence
    wrong = wrong_inputs(evidence)
    alone = not wrong & {layer.weight, layer.recurrent}
    if wrong & {layer.weight, layer.bias} == {layer.weight}:
        return _of_weight_alone(case, layer)
    bias = side_of(evidence, layer.bias) if layer.bias in wrong else None
    if bias is None or (alone and not is_named(evidence, layer)):
        return []
    signal = bias.error
    if abs(float(signal.sum())) < 1e-9 * np.abs(signal).max() and signal.size > 2:
        return []  # what sums to zero over units comes from a loss, not from a slope
    units = _gate(bias, layer)
    entries = units[spread(len(units))]
    of = layer.bias, entries
    rows = known(level_at(evidence, layer, t, units, of) for t in LEVELS)
    if not rows:
        return []
    names = evidence.subject.inputs
    early = _before_the_slope(bias, names[layer.weight].name, rows) if alone else []
    if early:
        return early
    where = f"the layer of {names[layer.weight].name} and {names[layer.bias].name}"
    if len(units) < signal.shape[1]:
        where = f"the gate of units {units[0]} to {units[-1]} in {where}"
    # of one unit any mistake is a factor at each t, one in the loss behind it too; and
    # where the weight is right, a bias that lacks samples looks like another slope
    sure = len(units) > 1 or _same_of_weight(evidence, layer, rows)
    trust = 0.93 if sure and not alone else 0.5
    clues = read_levels(where, rows, trust, loops=layer.recurrent is not None)
    if alone or max((clue.confidence for clue in clues), default=0.0) >= trust:
        return clues
    clues += _of_another_layer(evidence, layer, where, of)
    if clues or layer.recurrent is not None:
        return clues
    return _where_alike(evidence, layer, where, rows)


def _where_alike(
    evidence: Evidence, layer: Layer, where: str, rows: list[Level]
) -> list[Clue]:
    """Say that gradients are right where all samples and units stand at one level.

    That of the weight too: where it is not, what is right of the bias says nothing of a
    slope, as of a scale by which residuals are divided, and which looks like a bias.
    """
    weight = evidence.subject.inputs[layer.weight].name
    top = max(row.true for row in rows)
    still = [row for row in rows if max(abs(row.ours), row.true) <= _STILL * top]
    right = [row for row in rows if row not in still and row.is_right()]
    if not right or len(right) + len(still) < len(LEVELS):
        return []
    units = np.arange(evidence.subject.inputs[layer.bias].coordinates)
    of = layer.weight, spread(evidence.subject.inputs[layer.weight].coordinates)
    other = level_at(evidence, layer, right[0].t, units, of)
    if other is not None and other.true > _STILL * top and not other.is_right():
        return []
    return [
        Clue(
            BugKind.UNKNOWN,
            0.7,
            f"With {weight} at zero, and so all units of {where} at one "
            f"pre-activation, the gradient is right, at any: the slope of the "
            f"activation is, and what is wrong shows only where {weight} takes part, "
            f"or samples or units differ.",
            "Look for an array that stands in another order, or is that of another "
            "sample, unit or layer, between this layer and the next (a mask, an index, "
            f"a saved output), for a term of a normalisation, or for {weight} itself, "
            f"turned or left out, where it feeds back.",
            (
                BugKind.WRONG_MASK,
                BugKind.WRONG_INDEX,
                BugKind.STALE_CACHE,
                BugKind.MISSING_TERM,
            ),
        )
    ]


def _same_of_weight(evidence: Evidence, layer: Layer, rows: list[Level]) -> bool:
    """Whether the gradient of the weight has the factors that the bias of it has.

    It weighs samples with their data: what is wrong of some alone turns it.
    """
    size = evidence.subject.inputs[layer.weight].coordinates
    units = np.arange(evidence.subject.inputs[layer.bias].coordinates)
    if size < 2:
        return False
    of = layer.weight, spread(size)
    weighed = [level_at(evidence, layer, row.t, units, of) for row in rows]
    pairs = zip(weighed, rows, strict=True)
    return all(w is not None and w.true > 0 and w.like(row) for w, row in pairs)


def _of_another_layer(
    evidence: Evidence, layer: Layer, where: str, of: tuple[int, NDArray[np.intp]]
) -> list[Clue]:
    """Recognise a slope that is taken where the units of another layer stand.

    With the units of all layers up to this at one pre-activation it is right then, and
    wrong by one factor where those of the others stand at another.
    """
    others = [
        other
        for other in layers_of(evidence)
        if other.weight != layer.weight and other.recurrent is None
    ]
    inputs = evidence.subject.inputs
    before = [other for other in others if other.weight < layer.weight]
    behind = [  # the last one gives what the loss takes
        other
        for other in others
        if other.weight > layer.weight
        and inputs[other.bias].coordinates == inputs[layer.bias].coordinates
    ]
    return _taken_elsewhere(evidence, layer, where, of, before) or _taken_elsewhere(
        evidence, layer, where, of, behind
    )


def _taken_elsewhere(
    evidence: Evidence,
    layer: Layer,
    where: str,
    of: tuple[int, NDArray[np.intp]],
    others: list[Layer],
) -> list[Clue]:
    units = np.arange(evidence.subject.inputs[layer.bias].coordinates)
    if not others:
        return []

    def at(t: float, elsewhere: float) -> Level | None:
        return level_at(evidence, layer, t, units, of, dict.fromkeys(others, elsewhere))

    same = known(at(t, t) for t in LEVELS)
    if len(same) < len(LEVELS) or not all(r.true > 0 and r.is_right() for r in same):
        return []
    apart = known(at(t, -t / 2) for t in LEVELS)
    off = [row for row in apart if row.true > 0 and abs(row.ratio - 1) > SAME_SLOPE]
    if len(off) < 2 or not all(row.parallel for row in off):
        return []
    told = ", ".join(f"{r.ratio:.4g} at {r.t:g} and {-r.t / 2:g}" for r in off)
    inputs = evidence.subject.inputs
    names = "those of " + " and ".join(inputs[other.weight].name for other in others)
    return [
        Clue(
            BugKind.STALE_CACHE,
            0.94,
            f"With the units of {where} and of {names} at one pre-activation "
            f"the gradient is right; where these stand at another it is wrong "
            f"by one factor ({told}): a slope is that of another layer's array.",
            "Take the slope of the activation from the output, or the pre-activation, "
            "of the very layer whose error signal it multiplies.",
        )
    ]


def _of_weight_alone(case: Case, layer: Layer) -> list[Clue]:
    """Recognise a weight that gets the error signal without its slope; the bias does.

    Its gradient is parallel to the true one wherever all units stand at one level.
    """
    if layer.recurrent is not None or case.part.which != layer.weight:
        return []
    evidence, inputs = case.evidence, case.evidence.subject.inputs
    units = np.arange(inputs[layer.bias].coordinates)
    # with some that are wrong here: what is right elsewhere tells nothing about them
    wrong = case.part.positions[case.wrong.any(axis=0)]
    some = np.union1d(
        spread(inputs[layer.weight].coordinates), wrong[spread(len(wrong))]
    )
    chosen = (layer.weight, some)
    rows = known(level_at(evidence, layer, t, units, chosen) for t in LEVELS)
    if len(units) < 2 or len(rows) < len(LEVELS) or not all(r.parallel for r in rows):
        return []
    name = inputs[layer.weight].name
    clues = read_levels(f"the layer of {name}", rows, 0.93, loops=False)
    bias = f"{inputs[layer.bias].name} is right, so {name} gets another error signal"
    return [
        dataclasses.replace(c, evidence=f"{c.evidence[:-1]}; {bias}.")
        for c in clues
        if c.evidence
    ]


def _before_the_slope(bias: Case, weight: str, rows: list[Level]) -> list[Clue]:
    """Recognise a bias that gets the error signal before the slope; its weight after.

    With all units at one pre-activation t, it is too large by 1 / slope(t).
    """
    seen = {row.t: row.ratio for row in rows if row.parallel and row.true > 0}
    for name, (f, slope) in IN_OUTPUT.items():
        lacks = [abs(r * slope(f(t)) - 1) < SAME_SLOPE for t, r in seen.items()]
        if len(lacks) > 2 and all(lacks):
            return [
                Clue(
                    BugKind.WRONG_DERIVATIVE,
                    0.95,
                    f"{weight} of the same layer is right; with all units at one "
                    f"pre-activation t the gradient of {bias.name} is too large by 1 / "
                    f"the slope of {name} at t: it sums the error signal before that "
                    f"slope.",
                    f"Sum for {bias.name} the very error signal that {weight} gets: "
                    f"after the slope of the activation.",
                )
            ]
    return []


def _gate(bias: Case, layer: Layer) -> NDArray[np.intp]:
    """Units of the one gate that is wrong, where the others are right; else all.

    What gates give enters another weight, or their own again. Where nothing is known
    to follow, half of all scores may be wrong by chance.
    """
    inputs = bias.evidence.subject.inputs
    own = () if layer.recurrent is None else (inputs[layer.recurrent],)
    behind = [v.shape for v in (*own, *inputs[layer.weight + 1 :]) if len(v.shape) > 1]
    size = bias.variable.coordinates
    every = np.arange(size)
    wrong = every[bias.wrong.any(axis=0)] if bias.part.complete else every
    if not wrong.size:
        return every  # nan, say: the weight alone has wrong numbers
    for gates in (4, 3, 2):
        width = size // gates
        block = wrong[0] // width if width else 0
        halves = gates == _PAIR and not any(width in shape for shape in behind)
        if width < _PAIR or halves:
            continue
        if size == gates * width and (wrong // width == block).all():
            return every[block * width : (block + 1) * width]
    return every
