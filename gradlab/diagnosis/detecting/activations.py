"""Detector of a wrong slope of an activation: all units of a layer at one level."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.layer_shapes import is_named, layer_of, layers_of
from gradlab.diagnosis.measuring.levels import (
    SAME_SLOPE,
    Level,
    known,
    level_at,
    spread,
)
from gradlab.diagnosis.measuring.measures import Case, Clue
from gradlab.diagnosis.measuring.sides import side_of, wrong_inputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gradlab.diagnosis.evidence import Evidence
    from gradlab.diagnosis.measuring.layer_shapes import Layer

__all__ = ["equal_units"]

_LEVELS = (-1.0, -0.4, 0.5, 1.1)  # pre-activations at which slopes are compared
_NOTHING = 1e-7  # relative: a gradient that is zero


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
    units = _gate(bias)
    entries = units[spread(len(units))]
    of = layer.bias, entries
    rows = known(level_at(evidence, layer, t, units, of) for t in _LEVELS)
    if not rows:
        return []
    names = evidence.subject.inputs
    early = _before_the_slope(bias, names[layer.weight].name, rows) if alone else []
    if early:
        return early
    where = f"the layer of {names[layer.weight].name} and {names[layer.bias].name}"
    if len(units) < signal.shape[1]:
        where = f"the gate of units {units[0]} to {units[-1]} in {where}"
    # of one unit any mistake is a factor at each t, one in the loss behind it too
    trust = 0.93 if len(units) > 1 or _same_of_weight(evidence, layer, rows) else 0.5
    clues = _reading(where, rows, trust, loops=layer.recurrent is not None)
    if alone or max((clue.confidence for clue in clues), default=0.0) >= trust:
        return clues
    return _of_another_layer(evidence, layer, where, of) or clues


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
    units = np.arange(evidence.subject.inputs[layer.bias].coordinates)
    others = [
        other
        for other in layers_of(evidence)  # without those behind it nothing would move
        if other.weight < layer.weight and other.recurrent is None
    ]
    if not others:
        return []

    def at(t: float, elsewhere: float) -> Level | None:
        return level_at(evidence, layer, t, units, of, dict.fromkeys(others, elsewhere))

    same = known(at(t, t) for t in _LEVELS)
    if len(same) < len(_LEVELS) or not all(
        row.true > 0 and row.parallel and abs(row.ratio - 1) < SAME_SLOPE
        for row in same
    ):
        return []
    apart = known(at(t, -t / 2) for t in _LEVELS)
    off = [row for row in apart if row.true > 0 and abs(row.ratio - 1) > SAME_SLOPE]
    if len(off) < 2 or not all(row.parallel for row in off):
        return []
    told = ", ".join(f"{r.ratio:.4g} at {r.t:g} and {-r.t / 2:g}" for r in off)
    return [
        Clue(
            BugKind.STALE_CACHE,
            0.94,
            f"With the units of {where} and of those before it at one pre-activation "
            f"the gradient is right; where those before stand at another it is wrong "
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
    chosen = (layer.weight, spread(inputs[layer.weight].coordinates))
    rows = known(level_at(evidence, layer, t, units, chosen) for t in _LEVELS)
    if len(units) < 2 or len(rows) < len(_LEVELS) or not all(r.parallel for r in rows):
        return []
    name = inputs[layer.weight].name
    clues = _reading(f"the layer of {name}", rows, 0.93, loops=False)
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
    for name, (f, slope) in _IN_OUTPUT.items():
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


def _gate(bias: Case) -> NDArray[np.intp]:
    """Units of the one gate that is wrong, where the others are right; else all."""
    size = bias.variable.coordinates
    every = np.arange(size)
    wrong = every[bias.wrong.any(axis=0)] if bias.part.complete else every
    for gates in (4, 3, 2):
        width = size // gates
        block = wrong[0] // width if width else 0
        if width > 1 and size == gates * width and (wrong // width == block).all():
            return every[block * width : (block + 1) * width]
    return every


def _reading(
    where: str,
    rows: list[Level],
    trust: float,
    *,
    loops: bool,
) -> list[Clue]:
    top = max(max(abs(row.ours), row.true) for row in rows)
    if top == 0:
        return []
    live = [row for row in rows if row.true >= _NOTHING * top]
    dead = [row for row in rows if row not in live]
    if dead and live:
        return _switching(where, live, dead, top)
    if not live or not all(row.parallel for row in live) or len(live) < 3:
        return []
    ratios = [row.ratio for row in live]
    lost = sum(abs(ratio) < _NOTHING for ratio in ratios)
    if loops and lost > 1:
        return []  # steps that are lost, not a slope
    if lost == len(live):
        return [_one_of_two_paths(where)]
    if np.ptp(ratios) < 1e-4 * max(map(abs, ratios)):
        return []
    apart = [abs(row.ours - row.true) for row in rows]
    if np.ptp(apart) < 1e-4 * max(apart):
        return []  # the same at every pre-activation: no slope, but a label, say
    told = ", ".join(f"{row.ratio:.4g} at {row.t:g}" for row in live)
    clue = Clue(
        BugKind.WRONG_DERIVATIVE,
        trust,
        f"With all units of {where} at one pre-activation t, analytic / numeric is one "
        f"factor that depends on t ({told}): the slope of the activation is wrong.",
        "Compare the derivative of that activation with the function it belongs to, "
        "and what it is evaluated at (input or output of the activation).",
    )
    return [*_stale(where, [(row.t, row.ratio) for row in live]), clue]


def _switching(
    where: str, live: list[Level], dead: list[Level], top: float
) -> list[Clue]:
    """Say which mask is wrong of units that stand still at some pre-activations."""
    if max(row.t for row in dead) >= 0:
        return [Clue(BugKind.WRONG_MASK, 0.4, "", "")]  # no more than a doubt
    if all(row.parallel and abs(row.ratio - 1) < 1e-4 for row in live):
        return [_mask(where)]
    if all(abs(row.ratio) < _NOTHING for row in live):
        return [_inverted(where)]
    # a penalty on the bias is not zero there either; that of the weight, at zero, is
    weight = _NOTHING * max(row.weight for row in live + dead)
    if all(abs(row.ours) > _NOTHING * top and row.weight > weight for row in dead):
        return [_not_its_own(where)]
    return [Clue(BugKind.WRONG_MASK, 0.4, "", "")]


def _not_its_own(where: str) -> Clue:
    return Clue(
        BugKind.WRONG_MASK,
        0.88,
        f"With all units of {where} switched off the function stands still, and the "
        f"analytic gradient is not zero; switched on it is wrong as well: its mask is "
        f"not made from the pre-activation of these units.",
        "Take the mask from the pre-activation of the same layer (pre-activation > 0), "
        "not from the incoming gradient or another layer.",
    )


def _one_of_two_paths(where: str) -> Clue:
    return Clue(
        BugKind.MISSING_TERM,
        0.9,
        f"With the weight of {where} at zero the function moves with it, and the "
        f"analytic gradient is zero, at every pre-activation: it has no term for a "
        f"second use of that weight, which is still there then.",
        "Add up the gradients of every use of the weight, as of tied weights: of "
        "h = x @ W and y = h @ W.T both.",
    )


def _mask(where: str) -> Clue:
    return Clue(
        BugKind.WRONG_MASK,
        0.94,
        f"With all units of {where} switched on the gradient is right; where units are "
        f"off it is not.",
        "Multiply the error signal by the mask of the units that are on, taken from "
        "the pre-activation of the same layer.",
    )


def _inverted(where: str) -> Clue:
    return Clue(
        BugKind.WRONG_MASK,
        0.95,
        f"With all units of {where} switched on the gradient is zero; where units are "
        f"off it is not: the mask is the wrong way round.",
        "Turn the mask of the activation round: the error signal passes where the "
        "pre-activation is positive.",
    )


def _sigmoid(t: float) -> float:
    return float(1 / (1 + np.exp(-t)))


# slope of an activation that is given in terms of its output y, at t in place of y
_IN_OUTPUT: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "tanh": (lambda t: float(np.tanh(t)), lambda y: 1 - y * y),
    "sigmoid": (_sigmoid, lambda y: y * (1 - y)),
}


def _stale(where: str, ratios: list[tuple[float, float]]) -> list[Clue]:
    """Recognise 1 - z**2 for 1 - tanh(z)**2, and the slope taken at the output."""
    for name, (f, slope) in _IN_OUTPUT.items():
        at_input = [slope(t) / slope(f(t)) for t, _ in ratios]
        at_output = [slope(f(f(t))) / slope(f(t)) for t, _ in ratios]
        for words, model in (("input", at_input), ("output", at_output)):
            if all(
                abs(r - m) < SAME_SLOPE * max(abs(m), 0.1)
                for (_, r), m in zip(ratios, model, strict=True)
            ):
                return [
                    Clue(
                        BugKind.STALE_CACHE,
                        0.96,
                        f"The slope of {name} in {where} is computed from the wrong "
                        f"array: the {words} of the activation where the other "
                        f"belongs.",
                        "Cache what the formula of the derivative is written in.",
                    )
                ]
    return []
