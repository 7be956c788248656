"""Detectors for networks: weight and bias of one layer, looked at together.

The gradients of a layer's weight and bias share one factor, the error signal. Both
wrong: the signal is. One right, one wrong: the mistake is in that line alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.layer_shapes import (
    is_after_a_gain,
    is_named,
    layer_of,
    layers_of,
)
from gradlab.diagnosis.measures import Case, Clue, sides_of
from gradlab.diagnosis.moving import analytic_at, slopes_at, unit_directions

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gradlab.diagnosis.evidence import Evidence
    from gradlab.diagnosis.layer_shapes import Layer

__all__ = ["equal_units", "siblings"]

_LEVELS = (-1.0, -0.4, 0.5, 1.1)  # pre-activations at which slopes are compared
_SAME_SLOPE = 1e-3  # how near to one another two slopes are the same
_COORDINATES = 6  # entries of a bias that are varied at each


def siblings(case: Case) -> list[Clue]:
    """Detect a mistake in one line: the other gradient of the layer is right."""
    layer = layer_of(case.evidence, case.part.which)
    if layer is None or not is_named(case.evidence, layer):
        return _alone(case)
    if is_after_a_gain(case.evidence, layer):
        return _alone(case)
    wrong = {side.part.which for side in sides_of(case.evidence) if side.is_wrong}
    inputs = case.evidence.subject.inputs
    mine = case.part.which
    members = {layer.weight, layer.bias}
    if layer.recurrent is not None:
        members.add(layer.recurrent)
    if wrong & members != {mine}:
        return []
    if not _moves(case.evidence, members - {mine}):
        return []  # of a bias in front of a normalisation, any signal makes zero
    if int(case.wrong.sum()) < max(2, 0.2 * case.numeric.size):
        return []  # a line of code would spoil more than a few entries
    others = " and ".join(inputs[j].name for j in sorted(members - {mine}))
    lead = (
        f"{others}, by name and shape of the same layer, "
        f"{'is' if len(members) == 2 else 'are'} right, so its error signal is; "
    )
    return [
        Clue(kind, trust, f"{lead}{told}.", advice)
        for kind, trust, told, advice in _lines(case, layer)
    ]


def _moves(evidence: Evidence, others: set[int]) -> bool:
    """Whether some gradient that vouches for a signal is more than rounding."""
    parts = [p for p in evidence.parts if p.which in others]
    sizes = [np.abs(p.numeric).max(initial=0.0) for p in evidence.parts]
    top = float(np.nanmax(sizes, initial=0.0))
    found = [np.nanmax(np.abs(p.numeric), initial=0.0) for p in parts]
    return not parts or float(max(found)) > 1e-7 * top


def _alone(case: Case) -> list[Clue]:
    """Detect a mistake that touches one weight: all other gradients are right."""
    inputs, mine = case.evidence.subject.inputs, case.part.which
    others = [c for c in case.evidence.comparisons if c.input.name != case.name]
    right = all(c.verdict == Verdict.AGREES for c in others)
    # whatever is wrong behind the first weight touches nothing else either
    before = [v for v in inputs[:mine] if len(v.shape) > 1]
    if not (right and before and case.scalar and len(case.variable.shape) > 1):
        return []
    told = (
        f"All other gradients are right: the mistake touches {case.name} alone, most "
        f"simply in its own line."
    )
    advice = (
        f"Check that the gradient of {case.name} uses the very array that "
        f"{case.name} was multiplied with, and adds up every use of it."
    )
    kinds = ((BugKind.STALE_CACHE, 0.59), (BugKind.LOST_ACCUMULATION, 0.5))
    return [Clue(kind, trust, told, advice) for kind, trust in kinds]


def _lines(case: Case, layer: Layer) -> list[tuple[BugKind, float, str, str]]:
    """Say what may be wrong in that one line: kind, confidence, words, advice."""
    name, mine = case.name, case.part.which
    steps = (
        BugKind.LOST_ACCUMULATION,
        (
            f"the sum for {name} is not: steps of it may be lost, counted twice, or "
            f"multiplied with the array of another step"
        ),
        (
            f"Write out two steps of the loop by hand: each adds (+=) to the gradient "
            f"of {name} the product of arrays with the same step index."
        ),
    )
    samples = (
        BugKind.BROADCAST_REDUCTION,
        f"the sum for {name} over samples is not",
        (
            f"Sum for {name} over all samples, and the very error signal that the "
            f"weight of the layer gets: after the slope of the activation, not before."
        ),
    )
    array = (
        BugKind.STALE_CACHE,
        f"what it is multiplied with for {name} is not",
        (
            f"Check that the gradient of {name} uses the very array that entered the "
            f"layer: after the activation, before any overwriting, at the same step."
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
        loops = any(one.recurrent is not None for one in layers_of(case.evidence))
        # a matrix and a vector alone may as well be a product of the two
        first = 0.52 if len(case.evidence.subject.inputs) == 2 else 0.62
        order = (steps, samples) if loops else (samples, steps)
    elif layer.recurrent is not None:
        first = 0.61
        lost = _poorer(case)
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
    """Whether the analytic gradient may have a lower rank: contributions got lost.

    Each step of a loop adds a product of two vectors. Multiplied with the array of
    another step these are as many, and no fewer in any row of the Jacobian.
    """
    shape = case.variable.shape
    if len(shape) != 2 or not case.part.complete:
        return True
    ranks = [
        (_rank(ours, shape), _rank(true, shape))
        for ours, true in zip(case.analytic, case.numeric, strict=True)
    ]
    open_ = [(ours, true) for ours, true in ranks if 1 < true < min(shape)]
    return not open_ or any(ours < true for ours, true in open_)


def _rank(row: NDArray[np.float64], shape: tuple[int, ...]) -> int:
    tolerance = 1e-6 * float(np.abs(row).max(initial=0.0))
    return int(np.linalg.matrix_rank(row.reshape(shape), tol=tolerance))


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
    as a function of t: constant 1 for t > 0 and none for t < 0 is a mask. Where the
    units of one gate alone are wrong, these are the ones that are set.
    """
    layer = layer_of(case.evidence, case.part.which)
    if layer is None:
        return []
    evidence = case.evidence
    wrong = {side.part.which for side in sides_of(evidence) if side.is_wrong}
    alone = not wrong & {layer.weight, layer.recurrent}
    if layer.bias not in wrong or (alone and not is_named(evidence, layer)):
        return []
    bias = next(side for side in sides_of(evidence) if side.part.which == layer.bias)
    signal = bias.error
    if abs(float(signal.sum())) < 1e-9 * np.abs(signal).max() and signal.size > 2:
        return []  # what sums to zero over units comes from a loss, not from a slope
    units = _gate(bias)
    rows = [_ratio_at(evidence, layer, t, units) for t in _LEVELS]
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


def _ratio_at(
    evidence: Evidence, layer: Layer, level: float, units: NDArray[np.intp]
) -> tuple[float, float, bool] | None:
    """Sizes of both bias gradients with some units at one level; are they parallel."""
    inputs = evidence.subject.inputs
    size = inputs[layer.bias].coordinates
    points = {j: np.zeros(inputs[j].coordinates) for j in _gated(evidence, layer)}
    points[layer.bias] = np.array(evidence.subject.point(layer.bias), dtype=np.float64)
    points[layer.bias][units] = level
    analytic = analytic_at(evidence, points)
    if analytic is None:
        return None
    chosen = np.unique(np.linspace(0, len(units) - 1, _COORDINATES).astype(int))
    chosen = units[chosen]
    numeric = slopes_at(evidence, points, layer.bias, unit_directions(size, chosen))
    ours = analytic[layer.bias][chosen]
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
