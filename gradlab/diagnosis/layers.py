"""Detectors for networks: weight and bias of one layer, looked at together.

The gradients of a layer's weight and bias share one factor, the error signal. Both
wrong: the signal is. One right, one wrong: the mistake is in that line alone.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measures import Case, Clue
from gradlab.diagnosis.moving import analytic_at, slopes_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradlab.diagnosis.evidence import Evidence
    from gradlab.subject.subject import Variable

__all__ = ["equal_units", "siblings"]

_LEVELS = (-1.0, -0.4, 0.5, 1.1)  # pre-activations at which slopes are compared
_COORDINATES = 6  # entries of a bias that are varied at each


@dataclasses.dataclass(frozen=True, slots=True)
class Layer:
    """Numbers of the inputs that are a weight, its bias, and a recurrent weight."""

    weight: int
    bias: int
    recurrent: int | None = None


def layer_of(evidence: Evidence, which: int) -> Layer | None:
    """Find the layer that an input belongs to, by shapes and neighbourhood."""
    for layer in _layers(evidence):
        if which in {layer.weight, layer.bias, layer.recurrent}:
            return layer
    return None


def _layers(evidence: Evidence) -> list[Layer]:
    inputs = evidence.subject.inputs
    # an array shaped like an output is data rather than a weight
    data = {output.shape for output in evidence.subject.outputs}
    named = _by_name(evidence)
    if named:
        return named
    found: list[Layer] = []
    taken: set[int] = set()
    if sorted(len(v.shape) for v in inputs) == [0, 1]:  # x @ w + b, one output
        first = len(inputs[0].shape) == 0
        return [Layer(int(first), int(not first))]
    for i, bias in enumerate(inputs):
        if len([n for n in bias.shape if n > 1]) != 1 or len(bias.shape) > 2:
            continue
        fits = [
            j
            for j, weight in enumerate(inputs)
            if j not in taken and len(weight.shape) == 2
            if _fits(weight, bias) and weight.shape not in data
        ]
        if not fits:
            continue
        fits.sort(key=lambda j: (abs(i - j), j > i))
        near = fits[0]
        rest = [j for j in fits[1:] if abs(i - j) <= 2]
        square = [j for j in (near, *rest) if set(inputs[j].shape) == {bias.size}]
        alone = sum(v.size == bias.size and len(v.shape) == 1 for v in inputs) == 1
        if square and rest and alone:
            weight = next(j for j in (near, *rest) if j != square[0])
            found.append(Layer(weight, i, square[0]))
            taken |= {weight, square[0]}
        else:
            found.append(Layer(near, i))
            taken.add(near)
    return found


def _fits(weight: Variable, bias: Variable) -> bool:
    """Whether an array may be the bias of a weight: by its shape, and by its name.

    ``W2`` of shape (5,) or (5, 1) is the weight of one output, no bias of ``W1``. A
    column belongs to the rows of its weight, a row to the columns.
    """
    if min(weight.shape) < 2 or bias.size not in weight.shape:
        return False
    mine, theirs = (v.name.rpartition(".")[2].lower() for v in (bias, weight))
    if mine.startswith("w") and theirs.startswith("w"):
        return False
    if len(bias.shape) == 2:
        return bias.size == weight.shape[0 if bias.shape[1] == 1 else 1]
    return True


def _by_name(evidence: Evidence) -> list[Layer]:
    """Match weights to biases by what is left of their names: Wxh, Whh, bh; Why, by."""
    inputs = evidence.subject.inputs
    biases = [
        i for i, v in enumerate(inputs) if re.fullmatch(r"b[a-z]", v.name) and v.shape
    ]
    if len(biases) < 2:
        return []
    found = []
    for i in biases:
        fits = [
            j
            for j, v in enumerate(inputs)
            if re.fullmatch(r"[WU][a-z]*" + inputs[i].name[1:], v.name)
            and len(v.shape) == 2
            and inputs[i].size in v.shape
        ]
        square = [j for j in fits if len(set(inputs[j].shape)) == 1]
        if len(fits) == 1:
            found.append(Layer(fits[0], i))
        elif len(fits) == 2 and len(square) == 1:
            found.append(Layer(next(j for j in fits if j not in square), i, square[0]))
        else:
            return []
    return found


def siblings(case: Case) -> list[Clue]:
    """Detect a mistake in one line: the other gradient of the layer is right."""
    layer = layer_of(case.evidence, case.part.which)
    if layer is None:
        return []
    wrong = {p.which for p in case.evidence.parts if Case(case.evidence, p).wrong.any()}
    inputs = case.evidence.subject.inputs
    mine = case.part.which
    members = {layer.weight, layer.bias}
    if layer.recurrent is not None:
        members.add(layer.recurrent)
    if wrong & members != {mine}:
        return []
    if int(case.wrong.sum()) < max(2, 0.2 * case.numeric.size):
        return []  # a line of code would spoil more than a few entries
    others = " and ".join(inputs[j].name for j in sorted(members - {mine}))
    lead = (
        f"{others} of the same layer {'is' if len(members) == 2 else 'are'} right, so "
        f"the error signal of the layer is; "
    )
    return [
        Clue(kind, trust, f"{lead}{told}.", advice)
        for kind, trust, told, advice in _lines(case, layer)
    ]


def _lines(case: Case, layer: Layer) -> list[tuple[BugKind, float, str, str]]:
    """Say what may be wrong in that one line: kind, confidence, words, advice."""
    name, mine = case.name, case.part.which
    steps = (
        BugKind.LOST_ACCUMULATION,
        f"the sum for {name} is not: steps of it may be lost",
        f"Add every step to the gradient of {name} (+=).",
    )
    samples = (
        BugKind.BROADCAST_REDUCTION,
        f"the sum for {name} over samples is not",
        f"Sum the error signal over samples for {name}, all of them.",
    )
    array = (
        BugKind.STALE_CACHE,
        f"what it is multiplied with for {name} is not",
        (
            f"Check that the gradient of {name} uses the very array that entered the "
            f"layer: after the activation, before any overwriting."
        ),
    )
    paths = (
        BugKind.MISSING_TERM,
        (
            f"{name} fits a second bias as well and may be used twice (tied weights), "
            f"with one of two contributions wrong"
        ),
        f"Add up the contributions of every use of {name}.",
    )
    if mine == layer.bias:
        loops = any(one.recurrent is not None for one in _layers(case.evidence))
        # a matrix and a vector alone may as well be a product of the two
        first = 0.52 if len(case.evidence.subject.inputs) == 2 else 0.62
        order = (steps, samples) if loops else (samples, steps)
    elif layer.recurrent is not None:
        first = 0.61
        lost = mine != layer.recurrent or _poorer(case)
        order = (steps, array) if lost else (array, steps)
    elif _tied(case.evidence, layer):
        first, order = 0.62, (paths, array)
    else:
        first, order = 0.62, (array, array)
    trusts = (first, 0.5)
    return [
        (kind, trust, told, advice)
        for trust, (kind, told, advice) in zip(trusts, order, strict=False)
    ]


def _poorer(case: Case) -> bool:
    """Whether the analytic gradient has a lower rank: contributions got lost."""
    shape = case.variable.shape
    if len(shape) != 2 or not case.scalar or not case.part.complete:
        return True
    tolerance = 1e-6 * float(np.abs(case.numeric).max(initial=0.0))
    ours, true = (
        int(np.linalg.matrix_rank(side.reshape(shape), tol=tolerance))
        for side in (case.analytic, case.numeric)
    )
    return ours < true or true == min(shape)


def _tied(evidence: Evidence, layer: Layer) -> bool:
    """Whether the one weight has a bias on either side: x W + b, then z W.T + c."""
    inputs = evidence.subject.inputs
    weights = [v for v in inputs if len(v.shape) == 2 and min(v.shape) > 1]
    sizes = {v.size for v in inputs if len(v.shape) == 1}
    return len(weights) == 1 and set(inputs[layer.weight].shape) <= sizes


def equal_units(case: Case) -> list[Clue]:
    """Detect a wrong slope of an activation.

    With the weight of a layer at zero and its bias at t, all its units stand at the
    same pre-activation t. A wrong slope is then one factor for all of them, and shows
    as a function of t: constant 1 for t > 0 and none for t < 0 is a mask.
    """
    layer = layer_of(case.evidence, case.part.which)
    if layer is None or layer.recurrent is not None:
        return []
    evidence = case.evidence
    wrong = {p.which for p in evidence.parts if Case(evidence, p).wrong.any()}
    if layer.bias not in wrong or layer.weight not in wrong:
        return []
    signal = next(
        Case(evidence, p).error for p in evidence.parts if p.which == layer.bias
    )
    if abs(float(signal.sum())) < 1e-9 * np.abs(signal).max() and signal.size > 2:
        return []  # what sums to zero over units comes from a loss, not from a slope
    rows = [_ratio_at(evidence, layer, t) for t in _LEVELS]
    if all(row is None for row in rows):
        return []
    return _reading(case, layer, rows)


def _ratio_at(
    evidence: Evidence, layer: Layer, level: float
) -> tuple[float, float, bool] | None:
    """Sizes of both bias gradients with all units at one level; are they parallel."""
    size = evidence.subject.inputs[layer.bias].coordinates
    weight = np.zeros(evidence.subject.inputs[layer.weight].coordinates)
    points = {layer.weight: weight, layer.bias: np.full(size, level)}
    analytic = analytic_at(evidence, points)
    if analytic is None:
        return None
    chosen = np.unique(np.linspace(0, size - 1, _COORDINATES).astype(int))
    numeric = slopes_at(evidence, points, layer.bias, np.eye(size)[chosen])
    ours = analytic[layer.bias][chosen]
    if not np.isfinite(numeric).all() or not np.isfinite(ours).all():
        return None
    a, n = float(np.linalg.norm(ours)), float(np.linalg.norm(numeric))
    cosine = abs(float(ours @ numeric)) / (a * n) if a * n > 0 else 1.0
    return a * (np.sign(float(ours @ numeric)) or 1.0), n, cosine > 1 - 1e-8


def _reading(
    case: Case, layer: Layer, rows: list[tuple[float, float, bool] | None]
) -> list[Clue]:
    known = [(t, row) for t, row in zip(_LEVELS, rows, strict=True) if row is not None]
    top = max(max(abs(a), n) for _, (a, n, _) in known)
    if top == 0:
        return []
    dead = [t for t, (_, n, _) in known if n < 1e-7 * top]
    live = [(t, a / n, par) for t, (a, n, par) in known if n >= 1e-7 * top]
    names = case.evidence.subject.inputs
    where = f"the layer of {names[layer.weight].name} and {names[layer.bias].name}"
    if dead and live:
        right = all(par and abs(r - 1) < 1e-4 for _, r, par in live)
        if right and max(dead) < 0:
            return [_mask(where, 0.94)]
        turned = not all(par for *_, par in live)
        return [_mask(where, 0.6)] if turned else []
    if not live or not all(par for *_, par in live) or len(live) < 3:
        return []
    ratios = [r for _, r, _ in live]
    if np.ptp(ratios) < 1e-4 * max(map(abs, ratios)):
        return []
    told = ", ".join(f"{r:.4g} at {t:g}" for t, r, _ in live)
    clue = Clue(
        BugKind.WRONG_DERIVATIVE,
        0.93,
        f"With all units of {where} at one pre-activation t, analytic / numeric is one "
        f"factor that depends on t ({told}): the slope of the activation is wrong.",
        "Compare the derivative of that activation with the function it belongs to, "
        "and what it is evaluated at (input or output of the activation).",
    )
    return [*_stale(where, [(t, r) for t, r, _ in live]), clue]


def _mask(where: str, trust: float) -> Clue:
    return Clue(
        BugKind.WRONG_MASK,
        trust,
        f"With all units of {where} switched on the gradient is right; where units are "
        f"off it is not.",
        "Multiply the error signal by the mask of the units that are on, taken from "
        "the pre-activation of the same layer.",
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
                abs(r - m) < 1e-3 * max(abs(m), 0.1)
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
