"""Detector of a factor, or a path, made from another input: right at a neutral value.

With a gain at one a factor that is forgotten is one; with a weight at zero what goes
through it is nothing. Where the gradient is right there and wrong elsewhere, the
backward leaves out, or does otherwise, what the function does with that input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.detecting.terms.parts import part_through
from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.layer_shapes import is_named, layer_of
from gradlab.diagnosis.measuring.measures import Case, Clue
from gradlab.diagnosis.measuring.moving import (
    agree_at,
    analytic_at,
    both_sides_at,
    slopes_at,
)
from gradlab.diagnosis.measuring.sides import wrong_inputs
from gradlab.subject.subject import DOUBLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["right_at_neutral"]

_MOST = 8  # other inputs that are tried
_BETWEEN = 0.6  # a value between and beside the neutral ones
_MATRIX = 2  # axes of a weight
_TWICE = 2
_MOVES = 1e-4  # of a gradient: slopes that are more than rounding
_SAME = 1e-4  # relative: two factors that are one


def right_at_neutral(case: Case) -> list[Clue]:
    """Detect a gradient that is right where another input is one, or zero, all over."""
    inputs = case.evidence.subject.inputs
    others = [
        which
        for which, variable in enumerate(inputs)
        if which != case.part.which
        and variable.support is None
        and not variable.is_complex
        and variable.coordinates
    ]
    # of several that it goes through, one that is wrong itself says more
    wrong = wrong_inputs(case.evidence)
    ordered = sorted(others, key=lambda which: which not in wrong)
    for which in ordered[:_MOST]:
        for neutral in (1.0, 0.0):
            if _agrees(case, which, neutral):
                clues = _read(case, which, neutral)
                if clues:
                    return clues
    return _around(case, others[:_MOST])


def _around(case: Case, others: list[int]) -> list[Clue]:
    """Recognise a path around a weight, as a skip connection is, lost or repeated.

    With the weight at zero nothing comes through it, and what goes around is left.
    """
    inputs, subject = case.evidence.subject.inputs, case.evidence.subject
    if subject.epsilon > DOUBLE and case.evidence.reference is None:
        return []  # slopes have too few digits to be told from none
    layer = layer_of(case.evidence, case.part.which)
    own = case.part.which if layer is None else layer.weight
    for which in others:
        if which <= own or len(inputs[which].shape) < _MATRIX:
            continue  # of what comes before it, or is no weight
        sides = both_sides_at(case.evidence, _filled(case, which, 0.0), case.part.which)
        if sides is None or _is_penalty(case, *sides):
            continue
        factor = _proportion(case, *sides[1:])
        name = inputs[which].name
        lead = f"With all of {name} at zero the function moves with {case.name}, on a "
        lead += f"path around {name}, "
        if layer is not None and layer.recurrent == which:
            return _own_step(case, name, factor)
        if factor is not None and abs(factor) <= _SAME:
            told = "and the analytic gradient is zero: that path is missing"
            advice = (
                f"Add the incoming gradient of a skip connection around {name} to what "
                f"comes back through it."
            )
            return [Clue(BugKind.MISSING_TERM, 0.9, f"{lead}{told}.", advice)]
        if factor is not None and abs(factor - _TWICE) <= _SAME:
            told = "and analytic = 2 x numeric: that path is counted twice"
            advice = (
                f"Add the incoming gradient of a skip connection around {name} once."
            )
            doubts = (BugKind.SCALE,)
            return [Clue(BugKind.EXTRA_TERM, 0.86, f"{lead}{told}.", advice, doubts)]
    return []


def _own_step(case: Case, states: str, factor: float | None) -> list[Clue]:
    """Tell a loop that keeps one step: without states the others add nothing to it."""
    if factor is None or abs(factor) > _SAME:
        return []
    return [
        Clue(
            BugKind.LOST_ACCUMULATION,
            0.9,
            f"With all of {states} at zero, and no step handing anything to the next, "
            f"the function moves with {case.name}, and the analytic gradient is zero: "
            f"what a step adds by itself is lost, as where a loop assigns and the last "
            f"round of it leaves nothing.",
            f"Add (+=) what each step gives to the gradient of {case.name} in place of "
            f"assigning it.",
            (BugKind.MISSING_TERM,),
        )
    ]


def _is_penalty(
    case: Case,
    directions: NDArray[np.float64],
    ours: NDArray[np.float64],
    slopes: NDArray[np.float64],
) -> bool:
    """Whether the function moves with the squares of an input, or the gradient does."""
    along = directions @ case.evidence.subject.point(case.part.which)
    for side in (ours, slopes):
        c = float(side @ along) / (float(along @ along) or 1.0)
        if side.any() and np.abs(side - c * along).max() <= _SAME * np.abs(side).max():
            return True
    return False


def _agrees(case: Case, which: int, value: float) -> bool | None:
    """Compare both sides with all entries of another input at one value."""
    return agree_at(case, _filled(case, which, value))


def _filled(case: Case, which: int, value: float) -> dict[int, NDArray[np.float64]]:
    """Give the point where all entries of an input have one value."""
    return {which: np.full(case.evidence.subject.inputs[which].coordinates, value)}


def _read(case: Case, which: int, neutral: float) -> list[Clue]:
    """Tell a factor that follows the other input from a path that goes through it."""
    other = case.evidence.subject.inputs[which].name
    factor = _factor(case, which, _BETWEEN)
    if factor is not None and abs(factor - 1) > _SAME:
        return [
            Clue(
                BugKind.WRONG_DERIVATIVE,
                0.87,
                f"With all of {other} at {neutral:g} the gradient of {case.name} is "
                f"right; at {_BETWEEN:g} analytic = {factor:.5g} x numeric: a "
                f"factor made of {other} is missing from it, or there too often.",
                f"Multiply by {other} on the way back to {case.name} exactly where the "
                f"forward pass does, or by what it makes of it (its exponential, say).",
                (BugKind.MISSING_TERM,),
            )
        ]
    if neutral or factor is not None or _agrees(case, which, 1.0) is not False:
        return []  # of a matrix that is one number all over even a transpose is right
    part = part_through(
        case, other, analytic_at(case.evidence, _filled(case, which, 0))
    )
    if part:
        return part
    layer = layer_of(case.evidence, case.part.which)
    carried = layer is not None and layer.recurrent == which
    if _has_right_signal(case):
        if not _still_comes(case, which):
            return []
        if _brings_in(case, which):
            return [_another_array(case, other)]
    return [
        Clue(
            BugKind.MISSING_TERM,
            0.84 if carried else 0.66,
            f"With all of {other} at zero the gradient of {case.name} is right: what "
            f"is missing, or wrong, is its part that goes through {other}.",
            f"Add what earlier steps get back through {other}: the error signal of a "
            f"state is that of its own output plus what the next step hands back."
            if carried
            else f"Go through {other} to the output, and back: is that part added, "
            f"with the same factors and in the same order?",
            () if carried else (BugKind.TRANSPOSE, BugKind.WRONG_DERIVATIVE),
            "" if carried else other,
        )
    ]


def _has_right_signal(case: Case) -> bool:
    """Whether this is a weight whose layer has a bias, which is right: so its signal.

    In a loop the bias says little: each step of it has a signal of its own.
    """
    layer = layer_of(case.evidence, case.part.which)
    if layer is None or not is_named(case.evidence, layer):
        return False
    own = {layer.weight, layer.bias}
    alone = wrong_inputs(case.evidence) & own == {case.part.which} == {layer.weight}
    return alone and layer.recurrent is None


def _brings_in(case: Case, which: int) -> bool:
    """Whether an input is a matrix that makes what a weight multiplies."""
    matrix = len(case.evidence.subject.inputs[which].shape) >= _MATRIX
    return matrix and which < case.part.which


def _still_comes(case: Case, which: int) -> bool:
    """Whether something but zeros comes to a weight where an input is zero.

    Its slopes move with the error signal then, and so with the bias of its layer; of
    zeros no gradient tells which array it was multiplied with.
    """
    evidence, layer = case.evidence, layer_of(case.evidence, case.part.which)
    if layer is None:
        return False
    directions = evidence.rng.normal(size=(1, case.variable.coordinates))
    points = _filled(case, which, 0.0)
    moved = points | {layer.bias: evidence.subject.point(layer.bias) + _BETWEEN}
    before, after = (
        float(slopes_at(evidence, at, case.part.which, directions)[0])
        for at in (points, moved)
    )
    return abs(after - before) > _MOVES * max(abs(before), abs(after))


def _another_array(case: Case, other: str) -> Clue:
    """Tell of a weight that is multiplied with what another sample or layer brings."""
    return Clue(
        BugKind.WRONG_INDEX,
        0.7,
        f"With all of {other} at zero, so that what comes to {case.name} is the same "
        f"for all samples, its gradient is right, and the bias of its layer is right "
        f"as it stands: the error signal is, and the array that it is multiplied with "
        f"for {case.name} is that of other samples, or of another place.",
        f"Check that the gradient of {case.name} uses the very array that entered the "
        f"layer, with samples and features in the same order as the error signal.",
        (BugKind.STALE_CACHE, BugKind.TRANSPOSE),
    )


def _factor(case: Case, which: int, value: float) -> float | None:
    """Return the one factor between both sides with another input at a value."""
    if case.variable.coordinates < 2:  # any two numbers are in some proportion
        return None
    sides = both_sides_at(case.evidence, _filled(case, which, value), case.part.which)
    if sides is None:
        return None
    return _proportion(case, *sides[1:])


def _proportion(
    case: Case, ours: NDArray[np.float64], slopes: NDArray[np.float64]
) -> float | None:
    """Return the one factor between both sides, None if there is none."""
    least = _MOVES * float(np.abs(case.numeric).max())
    if not np.abs(slopes).max() > least:
        return None  # of what does not move rounding is left
    factor = float(ours @ slopes) / float(slopes @ slopes)
    apart = np.abs(ours - factor * slopes).max()
    return factor if apart <= _SAME * np.abs(ours).max() else None
