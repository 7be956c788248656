"""Detectors for networks: weight and bias of one layer, looked at together.

The gradients of a layer's weight and bias share one factor, the error signal. Both
wrong: the signal is. One right, one wrong: the mistake is in that line alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.layer_shapes import (
    is_after_a_gain,
    is_named,
    layer_of,
    layers_of,
    shift_of,
)
from gradlab.diagnosis.measuring.measures import EXACT, Case, Clue
from gradlab.diagnosis.measuring.places import index_words
from gradlab.diagnosis.measuring.sides import right_inputs, side_of, wrong_inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.diagnosis.evidence import Evidence
    from gradlab.diagnosis.measuring.layer_shapes import Layer

__all__ = ["siblings"]


def siblings(case: Case) -> list[Clue]:
    """Detect a mistake in one line: the other gradient of the layer is right."""
    layer = layer_of(case.evidence, case.part.which)
    if layer is None or not is_named(case.evidence, layer):
        return _gain(case) or _alone(case)
    if is_after_a_gain(case.evidence, layer):
        return _alone(case)
    wrong = wrong_inputs(case.evidence)
    inputs = case.evidence.subject.inputs
    mine = case.part.which
    members = {layer.weight, layer.bias}
    if layer.recurrent is not None:
        members.add(layer.recurrent)
    if wrong & members != {mine}:
        return []
    if not _moves(case.evidence, members - {mine}):
        return []  # of a bias in front of a normalisation, any signal makes zero
    if _is_few(case):
        return []
    others = " and ".join(inputs[j].name for j in sorted(members - {mine}))
    if mine == layer.weight and len(case.variable.shape) > 2:
        return [_over_places(case, others)]
    lead = (
        f"{others}, by name and shape of the same layer, "
        f"{'is' if len(members) == 2 else 'are'} right, so its error signal is; "
    )
    return [
        Clue(
            kind,
            trust,
            f"{lead}{told}.",
            advice,
            # of two uses one may as well be taken off as left out
            (BugKind.SIGN,) if kind == BugKind.MISSING_TERM else (),
        )
        for kind, trust, told, advice in _lines(case, layer)
    ]


def _is_few(case: Case) -> bool:
    """Whether so few entries are wrong that a line of code would spoil more."""
    return int(case.wrong.sum()) < max(2, 0.2 * case.numeric.size)


def _over_places(case: Case, bias: str) -> Clue:
    """Say what the bias of a convolution knows: the sum of the signal, no place."""
    return Clue(
        BugKind.UNKNOWN,
        0.62,
        f"{bias}, by name and shape of the same layer, is right, so the sum of its "
        f"error signal over positions and samples is; at which positions it stands, or "
        f"the array that it is multiplied with for {case.name}, is not.",
        f"Check what comes between {case.name} and the next weight (the mask of a "
        f"pooling, the order of a reshape), then that the gradient of {case.name} uses "
        f"the very array that entered the layer, with its stride and padding.",
        (BugKind.WRONG_MASK, BugKind.WRONG_INDEX, BugKind.STALE_CACHE),
    )


def _moves(evidence: Evidence, others: set[int]) -> bool:
    """Whether some gradient that vouches for a signal is more than rounding."""
    parts = [p for p in evidence.parts if p.which in others]
    sizes = [np.abs(p.numeric).max(initial=0.0) for p in evidence.parts]
    top = float(np.nanmax(sizes, initial=0.0))
    if not parts:  # seen along directions alone
        inputs = evidence.subject.inputs
        names = {inputs[which].name for which in others}
        return bool(names & set(right_inputs(evidence, min(names))))
    found = [np.nanmax(np.abs(p.numeric), initial=0.0) for p in parts]
    return float(max(found)) > 1e-7 * top


def _gain(case: Case) -> list[Clue]:
    """Detect a gain of a normalisation that is wrong where its shift is right."""
    shift = shift_of(case.evidence, case.part.which)
    if shift is None or shift in wrong_inputs(case.evidence):
        return []
    theirs = side_of(case.evidence, shift)
    if theirs is None or not _moves(case.evidence, {shift}):
        return []
    name = theirs.name
    if case.share(theirs.numeric) > EXACT:
        return [
            Clue(
                BugKind.MISSING_TERM,
                0.9,
                f"The gradient of {case.name} is that of {name}, by name and shape the "
                f"shift of the same normalisation: what {case.name} multiplies is left "
                f"out.",
                f"Multiply the error signal for {case.name} with the normalised array.",
                (BugKind.WRONG_DERIVATIVE, BugKind.WRONG_INDEX),
            )
        ]
    points = (case.evidence.subject.point(which) for which in (case.part.which, shift))
    gain, added = (np.asarray(point, dtype=np.float64) for point in points)
    if case.scalar and case.share(gain * case.numeric + added * theirs.numeric) > EXACT:
        return [
            Clue(
                BugKind.STALE_CACHE,
                0.96,
                f"analytic = {case.name} x numeric + {name} x the gradient of {name}: "
                f"the error signal is multiplied with what leaves the normalisation, "
                f"{case.name} and {name} included.",
                f"Multiply the error signal for {case.name} with the normalised array, "
                f"before {case.name} and {name}.",
                (BugKind.WRONG_DERIVATIVE,),
            )
        ]
    return [
        Clue(
            BugKind.STALE_CACHE,
            0.66,
            f"{name}, by name and shape the shift of the same normalisation, is right, "
            f"so its error signal is; what it is multiplied with for {case.name} is "
            f"not.",
            f"Multiply the error signal for {case.name} with the very array that "
            f"{case.name} multiplies: after the mean is taken off and divided by the "
            f"deviation.",
            (BugKind.MISSING_TERM, BugKind.WRONG_DERIVATIVE),
        )
    ]


def _alone(case: Case) -> list[Clue]:
    """Detect a mistake that touches one weight: all other gradients are right."""
    inputs, mine = case.evidence.subject.inputs, case.part.which
    others = [c for c in case.evidence.comparisons if c.input.name != case.name]
    right = all(c.verdict == Verdict.AGREES for c in others)
    # whatever is wrong behind the first weight touches nothing else either
    before = [v for v in inputs[:mine] if len(v.shape) > 1]
    if not (right and before and case.scalar and len(case.variable.shape) > 1):
        return []
    if _is_few(case):
        return []
    told = (
        f"All other gradients are right: the mistake touches {case.name} alone, most "
        f"simply in its own line."
    )
    advice = (
        f"Check that the gradient of {case.name} uses the very array that "
        f"{case.name} was multiplied with, each matrix the right way round (A.T, "
        f"not A), and adds up every use of it."
    )
    kinds = (
        BugKind.STALE_CACHE,
        BugKind.LOST_ACCUMULATION,
        BugKind.MISSING_TERM,
        BugKind.TRANSPOSE,
    )
    rows = _wrong_rows(case)
    if rows is not None:
        kinds = (*kinds[1:3], BugKind.WRONG_INDEX, BugKind.STALE_CACHE)
        told = (
            f"All other gradients are right, and so is every row of {case.name} but "
            f"{rows}: most simply, of rows that are used more than once not all uses "
            f"are added up."
        )
        advice = (
            f"Add (+=, np.add.at) to the row of {case.name} in the backward at every "
            f"place where the forward pass reads it; an assignment keeps the last."
        )
    pairs = zip(kinds, (0.59, 0.5, 0.49, 0.48), strict=True)
    return [Clue(kind, trust, told, advice) for kind, trust in pairs]


def _wrong_rows(case: Case) -> str | None:
    """Name the rows that are wrong as a whole, where others are right, and no zeros.

    None where they stand in one block, as those of a gate do.
    """
    numeric = case.grid(case.numeric)
    if numeric is None:
        return None
    lines = case.wrong[0].reshape(len(numeric[0]), -1)
    alive = (numeric[0] != 0).reshape(lines.shape).any(axis=1)
    whole, places = lines.all(axis=1), np.flatnonzero(lines.any(axis=1))
    if not np.array_equal(np.flatnonzero(whole), places) or not (alive & ~whole).any():
        return None
    count, block = len(lines), len(places)
    if block * 4 >= count and count % block == 0 and np.ptp(places) == block - 1:
        return None
    return index_words(places.tolist(), count, "row")


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
    array, turned, paths = _slips_of_a_product(name)
    order: tuple[tuple[BugKind, str, str], ...]
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
        first, order = 0.62, (paths, array, turned)
    else:
        first, order = 0.62, (array, turned)
    trusts = (first, 0.5, 0.48)
    return [
        (kind, trust, told, advice)
        for trust, (kind, told, advice) in zip(trusts, order, strict=False)
    ]


def _slips_of_a_product(name: str) -> tuple[tuple[BugKind, str, str], ...]:
    """Say what may be wrong in the product for a weight: array, order, another use."""
    array = (
        BugKind.STALE_CACHE,
        f"what it is multiplied with for {name} is not",
        (
            f"Check that the gradient of {name} uses the very array that entered the "
            f"layer: after the activation, before any overwriting, at the same step."
        ),
    )
    turned = (
        BugKind.TRANSPOSE,
        f"the product for {name} is not",
        (
            f"Check that {name} gets x.T @ g for x @ {name}, and g.T @ x for x @ "
            f"{name}.T, with no reshape in place of a transpose."
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
    return array, turned, paths


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
    weight = inputs[layer.weight]
    return len(weights) == 1 and weights[0] is weight and set(weight.shape) <= sizes
