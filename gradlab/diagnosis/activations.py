"""Detector of a wrong slope of an activation: all units of a layer at one level."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.layer_shapes import is_named, layer_of
from gradlab.diagnosis.measures import Case, Clue, sides_of
from gradlab.diagnosis.moving import analytic_at, slopes_at, unit_directions

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gradlab.diagnosis.evidence import Evidence
    from gradlab.diagnosis.layer_shapes import Layer

__all__ = ["equal_units"]

_LEVELS = (-1.0, -0.4, 0.5, 1.1)  # pre-activations at which slopes are compared
_SAME_SLOPE = 1e-3  # how near to one another two slopes are the same
_COORDINATES = 6  # entries of a bias or a weight that are varied at each


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
    wrong = {side.part.which for side in sides_of(evidence) if side.is_wrong}
    alone = not wrong & {layer.weight, layer.recurrent}
    if wrong & {layer.weight, layer.bias} == {layer.weight}:
        return _of_weight_alone(case, layer)
    if layer.bias not in wrong or (alone and not is_named(evidence, layer)):
        return []
    bias = next(side for side in sides_of(evidence) if side.part.which == layer.bias)
    signal = bias.error
    if abs(float(signal.sum())) < 1e-9 * np.abs(signal).max() and signal.size > 2:
        return []  # what sums to zero over units comes from a loss, not from a slope
    units = _gate(bias)
    entries = units[np.unique(np.linspace(0, len(units) - 1, _COORDINATES).astype(int))]
    rows = [
        _ratio_at(evidence, layer, t, units, (layer.bias, entries)) for t in _LEVELS
    ]
    if all(row is None for row in rows):
        return []
    names = evidence.subject.inputs
    early = _before_the_slope(bias, names[layer.weight].name, rows) if alone else []
    if early:
        return early
    where = f"the layer of {names[layer.weight].name} and {names[layer.bias].name}"
    if len(units) < signal.shape[1]:
        where = f"the gate of units {units[0]} to {units[-1]} in {where}"
    # of one unit any mistake is a factor at each t, one in the loss behind it too
    trust = 0.93 if len(units) > 1 else 0.5
    return _reading(where, rows, trust, loops=layer.recurrent is not None)


def _of_weight_alone(case: Case, layer: Layer) -> list[Clue]:
    """Recognise a weight that gets the error signal without its slope; the bias does.

    Its gradient is parallel to the true one wherever all units stand at one level.
    """
    if layer.recurrent is not None or case.part.which != layer.weight:
        return []
    evidence, inputs = case.evidence, case.evidence.subject.inputs
    units = np.arange(inputs[layer.bias].coordinates)
    chosen = (layer.weight, _spread(inputs[layer.weight].coordinates))
    rows = [_ratio_at(evidence, layer, t, units, chosen) for t in _LEVELS]
    if len(units) < 2 or not all(row is not None and row[2] for row in rows):
        return []
    name = inputs[layer.weight].name
    clues = _reading(f"the layer of {name}", rows, 0.93, loops=False)
    bias = f"{inputs[layer.bias].name} is right, so {name} gets another error signal"
    return [
        dataclasses.replace(c, evidence=f"{c.evidence[:-1]}; {bias}.")
        for c in clues
        if c.evidence
    ]


def _before_the_slope(
    bias: Case, weight: str, rows: list[tuple[float, float, bool] | None]
) -> list[Clue]:
    """Recognise a bias that gets the error signal before the slope; its weight after.

    With all units at one pre-activation t, it is too large by 1 / slope(t).
    """
    seen = {
        t: a / n
        for t, row in zip(_LEVELS, rows, strict=True)
        if row is not None and row[2] and row[1] > 0
        for a, n in [row[:2]]
    }
    for name, (f, slope) in _IN_OUTPUT.items():
        lacks = [abs(r * slope(f(t)) - 1) < _SAME_SLOPE for t, r in seen.items()]
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


def _gated(evidence: Evidence, layer: Layer) -> list[int]:
    """Weights of the same units: all that enter them, the recurrent ones too."""
    inputs = evidence.subject.inputs
    size = inputs[layer.bias].size
    several = [
        k
        for k, v in enumerate(inputs)
        if len(v.shape) == 2 and max(v.shape) == size and size / min(v.shape) in (3, 4)
    ]
    own = [layer.weight, *([] if layer.recurrent is None else [layer.recurrent])]
    return list(dict.fromkeys([*own, *several]))


def _spread(size: int) -> NDArray[np.intp]:
    """Choose a few of so many entries, evenly."""
    return np.unique(np.linspace(0, size - 1, _COORDINATES).astype(int))


def _ratio_at(
    evidence: Evidence,
    layer: Layer,
    level: float,
    units: NDArray[np.intp],
    of: tuple[int, NDArray[np.intp]],
) -> tuple[float, float, bool] | None:
    """Sizes of both gradients `of` entries of an input, and whether they are parallel.

    With some units of the layer at one level.
    """
    which, entries = of
    inputs = evidence.subject.inputs
    points = {j: np.zeros(inputs[j].coordinates) for j in _gated(evidence, layer)}
    points[layer.bias] = np.array(evidence.subject.point(layer.bias), dtype=np.float64)
    points[layer.bias][units] = level
    analytic = analytic_at(evidence, points)
    if analytic is None:
        return None
    directions = unit_directions(inputs[which].coordinates, entries)
    numeric = slopes_at(evidence, points, which, directions)
    ours = analytic[which][entries]
    if not np.isfinite(numeric).all() or not np.isfinite(ours).all():
        return None
    a, n = float(np.linalg.norm(ours)), float(np.linalg.norm(numeric))
    cosine = abs(float(ours @ numeric)) / (a * n) if a * n > 0 else 1.0
    return a * (np.sign(float(ours @ numeric)) or 1.0), n, cosine > 1 - 1e-8


def _reading(
    where: str,
    rows: list[tuple[float, float, bool] | None],
    trust: float,
    *,
    loops: bool,
) -> list[Clue]:
    known = [(t, row) for t, row in zip(_LEVELS, rows, strict=True) if row is not None]
    top = max(max(abs(a), n) for _, (a, n, _) in known)
    if top == 0:
        return []
    dead = [t for t, (_, n, _) in known if n < 1e-7 * top]
    live = [(t, a / n, par) for t, (a, n, par) in known if n >= 1e-7 * top]
    if dead and live:
        right = all(par and abs(r - 1) < 1e-4 for _, r, par in live)
        if right and max(dead) < 0:
            return [_mask(where)]
        if all(abs(r) < 1e-7 for _, r, _ in live) and max(dead) < 0:
            return [_inverted(where)]
        return [Clue(BugKind.WRONG_MASK, 0.4, "", "")]  # no more than a doubt
    if not live or not all(par for *_, par in live) or len(live) < 3:
        return []
    ratios = [r for _, r, _ in live]
    if loops and sum(abs(ratio) < 1e-7 for ratio in ratios) > 1:
        return []  # steps that are lost, not a slope
    if np.ptp(ratios) < 1e-4 * max(map(abs, ratios)):
        return []
    apart = [abs(a - n) for _, (a, n, _) in known]
    if np.ptp(apart) < 1e-4 * max(apart):
        return []  # the same at every pre-activation: no slope, but a label, say
    told = ", ".join(f"{r:.4g} at {t:g}" for t, r, _ in live)
    clue = Clue(
        BugKind.WRONG_DERIVATIVE,
        trust,
        f"With all units of {where} at one pre-activation t, analytic / numeric is one "
        f"factor that depends on t ({told}): the slope of the activation is wrong.",
        "Compare the derivative of that activation with the function it belongs to, "
        "and what it is evaluated at (input or output of the activation).",
    )
    return [*_stale(where, [(t, r) for t, r, _ in live]), clue]


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
                abs(r - m) < _SAME_SLOPE * max(abs(m), 0.1)
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
