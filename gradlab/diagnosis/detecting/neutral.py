"""Detector of a factor, or a path, made from another input: right at a neutral value.

With a gain at one a factor that is forgotten is one; with a weight at zero what goes
through it is nothing. Where the gradient is right there and wrong elsewhere, the
backward leaves out, or does otherwise, what the function does with that input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.layer_shapes import layer_of
from gradlab.diagnosis.measuring.measures import Case, Clue, fraction_words
from gradlab.diagnosis.measuring.moving import agree_at, both_sides_at
from gradlab.subject.subject import DOUBLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["right_at_neutral"]

_MOST = 8  # other inputs that are tried
_BETWEEN = 0.6  # a value between and beside the neutral ones
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
    for which in others[:_MOST]:
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
    inputs = case.evidence.subject.inputs
    short = case.evidence.subject.epsilon > DOUBLE
    if short and case.evidence.reference is None:
        return []  # slopes have too few digits to be told from none
    for which in others:
        if len(inputs[which].shape) < 2:
            continue
        factor = _factor(case, which, 0.0)
        if factor is None or abs(factor - 1) <= _SAME:
            continue
        lead = f"With all of {inputs[which].name} at zero the function moves with "
        lead += f"{case.name}, on a path around it, "
        if abs(factor) <= _SAME:
            return [
                Clue(
                    BugKind.MISSING_TERM,
                    0.9,
                    f"{lead}and the analytic gradient is zero: that path is missing.",
                    f"Add the incoming gradient of a skip connection around "
                    f"{inputs[which].name} to what comes back through it.",
                )
            ]
        if factor > 1 and fraction_words(factor) is not None:
            return [
                Clue(
                    BugKind.EXTRA_TERM,
                    0.86,
                    f"{lead}and analytic = {factor:.5g} x numeric: that path is "
                    f"counted more than once.",
                    f"Add the incoming gradient of a skip connection around "
                    f"{inputs[which].name} once.",
                    (BugKind.SCALE,),
                )
            ]
    return []


def _agrees(case: Case, which: int, value: float) -> bool | None:
    """Compare both sides with all entries of another input at one value."""
    return agree_at(case.evidence, _filled(case, which, value), case.part.which)


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
    layer = layer_of(case.evidence, case.part.which)
    carried = layer is not None and layer.recurrent == which
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


def _factor(case: Case, which: int, value: float) -> float | None:
    """Return the one factor between both sides with another input at a value."""
    if case.variable.coordinates < 2:  # any two numbers are in some proportion
        return None
    sides = both_sides_at(case.evidence, _filled(case, which, value), case.part.which)
    if sides is None:
        return None
    _, ours, slopes = sides
    below = float(slopes @ slopes)
    least = _MOVES * float(np.abs(case.numeric).max())
    if not np.abs(slopes).max() > least:
        return None  # of what does not move rounding is left
    factor = float(ours @ slopes) / below
    apart = np.abs(ours - factor * slopes).max()
    return factor if apart <= _SAME * np.abs(ours).max() else None
