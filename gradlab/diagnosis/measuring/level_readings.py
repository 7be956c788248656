"""What it says of a layer how both gradients compare at several pre-activations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.levels import SAME_SLOPE, Level
from gradlab.diagnosis.measuring.measures import Clue

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["IN_OUTPUT", "read_levels"]

_NOTHING = 1e-7  # relative: a gradient that is zero
_FEWEST = 3  # levels at which the function has to move


def read_levels(
    where: str,
    rows: list[Level],
    trust: float,
    *,
    loops: bool,
) -> list[Clue]:
    """Tell a wrong slope or mask from how analytic / numeric depends on the level.

    Parameters
    ----------
    where
        The units, in words.
    trust
        That one factor at each level is that of a slope.
    loops
        Whether the layer has a recurrent weight, which is at zero here.
    """
    top = max(max(abs(row.ours), row.true) for row in rows)
    if top == 0:
        return []
    live = [row for row in rows if row.true >= _NOTHING * top]
    dead = [row for row in rows if row not in live]
    if dead and live:
        return _switching(where, live, dead, top)
    if len(live) < _FEWEST:
        return []
    if not all(row.parallel for row in live):
        return _one_side(where, live)
    ratios = [row.ratio for row in live]
    lost = sum(abs(ratio) < _NOTHING for ratio in ratios)
    if loops and lost > 1:
        return []  # steps that are lost, not a slope
    if lost == len(live):
        return [_one_of_two_paths(where)]
    if np.ptp(ratios) < 1e-4 * max(map(abs, ratios)):
        return _one_factor(where, float(np.mean(ratios))) if loops else []
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


def _one_factor(where: str, c: float) -> list[Clue]:
    """Name the factor that only what comes back from later steps hides elsewhere."""
    if abs(c - 1) < SAME_SLOPE:
        return []
    lead = f"With the recurrent weight of {where} at zero analytic = {c:.5g} x numeric"
    if abs(c + 1) < SAME_SLOPE:
        advice = f"Look for a minus that is lost or doubled on the way back to {where}."
        return [Clue(BugKind.SIGN, 0.92, f"{lead}: the sign is flipped.", advice)]
    advice = f"Search the backward for that factor on the way back to {where}."
    steps = round(1 / c) if abs(c) > SAME_SLOPE else 0
    if steps > 2 and abs(c * steps - 1) < SAME_SLOPE:  # of two it may be a square's
        return [
            Clue(
                BugKind.LOST_ACCUMULATION,
                0.88,
                f"{lead} at each pre-activation, where all steps add the same: of "
                f"{steps} steps one is left.",
                "Add (+=) what each step gives to the gradients of the layer in place "
                "of assigning it.",
                (BugKind.SCALE, BugKind.MISSING_REDUCTION),
            )
        ]
    return [Clue(BugKind.SCALE, 0.88, f"{lead} at each pre-activation.", advice)]


def _one_side(where: str, live: list[Level]) -> list[Clue]:
    """Recognise units that are right on one side of zero, and wrong on the other."""
    wrong = [row.t for row in live if not row.is_right()]
    right = [row.t for row in live if row.t not in wrong]
    for side, other, words in ((right, wrong, "above"), (wrong, right, "below")):
        if side and other and max(other) < 0 < min(side):
            return [
                Clue(
                    BugKind.WRONG_MASK,
                    0.85,
                    f"With all units of {where} at one pre-activation the gradient is "
                    f"right where that is {words} zero, and wrong on the other side: a "
                    f"mask, or the slope of one side.",
                    f"Compare forward and backward for what the layer gives "
                    f"{'below' if words == 'above' else 'above'} zero: a mask that the "
                    f"function does not have, or another slope.",
                    (BugKind.WRONG_DERIVATIVE,),
                )
            ]
    return []


def _switching(
    where: str, live: list[Level], dead: list[Level], top: float
) -> list[Clue]:
    """Say which mask is wrong of units that stand still at some pre-activations."""
    if max(row.t for row in dead) >= 0:
        return [Clue(BugKind.WRONG_MASK, 0.4, "", "")]  # no more than a doubt
    if all(row.parallel and abs(row.ratio - 1) < 1e-4 for row in live):
        if all(abs(row.ours) < _NOTHING * top for row in dead):
            return []  # right with all on, and with all off: no mask is left out
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
        (BugKind.LOST_ACCUMULATION,),
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
IN_OUTPUT: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "tanh": (lambda t: float(np.tanh(t)), lambda y: 1 - y * y),
    "sigmoid": (_sigmoid, lambda y: y * (1 - y)),
}


def _stale(where: str, ratios: list[tuple[float, float]]) -> list[Clue]:
    """Recognise 1 - z**2 for 1 - tanh(z)**2, and the slope taken at the output."""
    for name, (f, slope) in IN_OUTPUT.items():
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
