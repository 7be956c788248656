"""Detector of a slope that the chain rule lacks: that of what an entry is put into.

A scale is often kept as its logarithm, a bounded number as a logit. Where the slope of
exp is left out behind it, analytic / numeric is a function of the entry alone: other
entries, other inputs and the data do not move it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.measures import Case, Clue
from gradlab.diagnosis.measuring.moving import (
    analytic_at,
    slightly_aside,
    slopes_at,
)
from gradlab.subject.subject import unit_vectors

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Map = Callable[[NDArray[np.float64]], NDArray[np.float64]]

__all__ = ["slope_of_its_own"]

_ASKED = 3  # entries that are moved
_SAME = 1e-4  # relative: two ratios that are one
_OTHER = 1e-2  # relative: two that are not
_MOVED = 1e-5  # relative: a slope that other inputs move
_SHAPE = 1e-3  # relative: a factor that is one number
_STEPS = (0.0, 0.4, 0.4, -0.4, 0.8)  # of an entry, or of one where it is zero

# factors that an entry makes as it stands: told where they are exact
_FACTORS: dict[str, Map] = {
    "{}": lambda x: x,
    "{}**2": lambda x: x**2,
    "{}**3": lambda x: x**3,
    "sqrt({})": lambda x: np.abs(x) ** 0.5,
}

# slopes by the name of what has them; each is asked for up to a constant factor
_SLOPES: dict[str, Map] = {
    "exp({})": np.exp,
    "exp(2 * {})": lambda x: np.exp(2 * x),
    "{}**2": lambda x: x,
    "{}**3": lambda x: x**2,
    "log({})": lambda x: 1 / x,
    "sqrt({})": lambda x: np.abs(x) ** -0.5,
    "tanh({})": lambda x: 1 - np.tanh(x) ** 2,
    "the logistic function of {}": lambda x: np.exp(-x) / (1 + np.exp(-x)) ** 2,
    "softplus({})": lambda x: 1 / (1 + np.exp(-x)),
}


def slope_of_its_own(case: Case) -> list[Clue]:
    """Detect that analytic / numeric follows each entry, and nothing else."""
    if not case.scalar or case.variable.is_complex or not case.part.complete:
        return []
    moves = ~(case.numeric_zero | case.analytic_zero)
    chosen = np.flatnonzero(case.wrong[0] & moves[0])[:_ASKED]
    pairs: list[tuple[float, float]] = []
    for j in chosen:
        found = _ratios(case, int(j))
        if not found:
            return []
        pairs += found.items()
    if not pairs:
        return []
    entries, ratios = (np.array(side) for side in zip(*pairs, strict=True))
    told = ", ".join(f"{r:.4g} at {x:.4g}" for x, r in sorted(pairs)[:4])
    name = case.name
    lead = (
        f"analytic / numeric follows the entry of {name} itself and nothing else "
        f"({told}), where all other inputs move"
    )
    named = _named(entries, ratios)
    if named is None:
        return [
            Clue(
                BugKind.WRONG_DERIVATIVE,
                0.83,
                f"{lead}: the slope of what the entry is put into first is wrong.",
                f"Check the last factor of the chain rule for {name}: the derivative "
                f"of what is made of each entry before it meets anything else.",
                (BugKind.STALE_CACHE,),
            )
        ]
    what, advice = (words.format(name) for words in named)
    return [
        Clue(
            BugKind.WRONG_DERIVATIVE,
            0.92,
            f"{lead}, {what}.",
            f"{advice} in the line that computes the gradient of {name}.",
        )
    ]


def _ratios(case: Case, j: int) -> dict[float, float]:
    """Return values of an entry with analytic / numeric there, if that is a function.

    No values where other inputs move it, where the entry does not, or where the
    numeric slope stands still: of a sum over entries any slope follows its own.
    """
    evidence, which, x = case.evidence, case.part.which, case.point
    unit = unit_vectors(len(x), [j])
    slopes = {0.0: float(case.numeric[0, j])}
    ratios = {0.0: float(case.analytic[0, j]) / slopes[0.0]}
    moves = False
    for step in _STEPS:
        points = slightly_aside(evidence)
        points[which][j] = x[j] + step * (abs(x[j]) or 1.0)
        ours = analytic_at(evidence, points)
        if ours is None:
            return {}
        slope = float(slopes_at(evidence, points, which, unit)[0])
        ratio = float(ours[which][j]) / slope if slope else np.nan
        told = ratios.setdefault(step, ratio)
        if not abs(ratio - told) <= _SAME * abs(told):
            return {}  # something else moves it
        before = slopes.setdefault(step, slope)
        moves |= abs(slope - before) > _MOVED * abs(before)
    most = max(abs(ratio / ratios[0.0] - 1) for ratio in ratios.values())
    if not moves or most < _OTHER:
        return {}
    return {x[j] + step * (abs(x[j]) or 1.0): r for step, r in ratios.items()}


def _named(
    entries: NDArray[np.float64], ratios: NDArray[np.float64]
) -> tuple[str, str] | None:
    """Name what has such a slope: left out where ratio times slope is one number.

    Returns
    -------
    tuple of str or None
        What analytic / numeric is, and what to do about it; ``{}`` is the input.
    """
    for made, of in _FACTORS.items():
        if np.abs(ratios * of(entries) - 1).max() <= _SHAPE:
            return f"as 1 / {made} does: that factor is left out", f"Multiply by {made}"
        if np.abs(ratios / of(entries) - 1).max() <= _SHAPE:
            return f"as {made} does: that factor is one too many", f"Divide by {made}"
    for power, what, advice in (
        (1, "left out", "Multiply by"),
        (-1, "there twice", "Multiply only once by"),
    ):
        for into, slope in _SLOPES.items():
            product = ratios * slope(entries) ** power
            if np.ptp(product) <= _SHAPE * np.abs(product).max():
                last = f"{advice} the derivative of {into}, the last of the chain rule,"
                return f"as where the slope of {into} is {what}", last
    return None
