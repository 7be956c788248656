"""Detectors of deliberate non-gradients: straight-through, reversal, clipping."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.layer_shapes import layer_of
from gradlab.diagnosis.measuring.leaving import Leaving, leaving
from gradlab.diagnosis.measuring.measures import EXACT, Case, Clue, sides_of
from gradlab.diagnosis.measuring.places import some_entries
from gradlab.diagnosis.measuring.sides import side_of, wrong_inputs
from gradlab.differentiation.smoothness import Smoothness

if TYPE_CHECKING:
    from gradlab.diagnosis.evidence import Evidence
    from gradlab.diagnosis.measuring.layer_shapes import Layer

__all__ = ["clipped", "mostly_still", "on_identity", "straight_through"]

_FEWEST, _SHARE = 2, 0.5  # entries that stand still, and their share of what is wrong
_SIZES = 4  # different sizes that are taken to be no coincidence
_ROUND = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 10.0)


def _reads_others(case: Case) -> bool:
    """Whether no parameter in place moves f: it may read other arrays than these."""
    evidence = case.evidence
    in_place = evidence.subject.kind.endswith("parameters in place")
    return in_place and not any(part.numeric.any() for part in evidence.parts)


def straight_through(case: Case) -> list[Clue]:
    """Detect a gradient given to a function that is locally constant."""
    if not case.numeric_zero[case.usable].all() or not case.analytic.any():
        return []
    if np.abs(case.numeric).max(initial=0) > 1e-6 * np.abs(case.analytic).max():
        return []
    if (case.part.kinds[case.wrong] == Smoothness.KINK).any():
        return []  # the mean of two slopes is zero, and nothing is flat
    moves, told = leaving(case), _constant_words(case)
    if moves is Leaving.AT_ONCE:
        return []  # a minimum or a saddle: nothing is flat
    if moves is Leaving.NEVER:
        advice = (
            f"Remove the gradient of {case.name}, or find where the forward pass "
            f"lost it."
        )
        if _reads_others(case):
            advice = (
                "Pass in params= the very arrays that the function reads: copies of "
                "them, or arrays that it has replaced since, do not move it."
            )
        layer = layer_of(case.evidence, case.part.which)
        if layer is not None and _is_taken_off(case, layer):
            return [_shift_of_a_norm(case, layer.weight, told)]
        return [
            Clue(
                BugKind.EXTRA_TERM,
                0.8,
                f"The function does not depend on {case.name} at all, near or far; the "
                f"analytic gradient is {told}.",
                advice,
            )
        ]
    jumps = moves is Leaving.JUMP
    flat = (
        f"The function is a staircase in {case.name}: flat at the point, with jumps "
        f"further away."
        if jumps
        else f"The function is flat in {case.name} around the point, and moves further "
        f"away."
    )
    return [
        Clue(
            BugKind.SURROGATE,
            0.97 if jumps else 0.9,
            f"{flat} The analytic gradient is {told}: straight through.",
            "If that is meant (a straight-through estimator), leave it out of the "
            "check with wrt=; else the gradient is zero.",
            () if jumps else (BugKind.WRONG_MASK,),
        )
    ]


def mostly_still(case: Case) -> list[Clue]:
    """Detect a gradient given to entries that f is a staircase in, beside others.

    The largest weight sets the scale of a quantiser: f moves with that one alone.
    """
    still = case.wrong & case.numeric_zero
    columns = np.flatnonzero(still.any(axis=0) & (still == case.wrong).all(axis=0))
    count, all_wrong = len(columns), int(case.wrong.any(axis=0).sum())
    if count < _FEWEST or count < _SHARE * all_wrong or case.variable.is_complex:
        return []
    if case.numeric_zero[case.usable].all():
        return []  # so all of it is: see above
    if leaving(case, case.part.positions[columns]) is not Leaving.JUMP:
        return []
    return [
        Clue(
            BugKind.SURROGATE,
            0.95,
            f"The function is a staircase in {count:,} of {case.numeric.shape[1]:,} "
            f"entries of {case.name}: flat at the point, with jumps further away. "
            f"Their analytic gradient is not zero: straight through.",
            "If that is meant (a straight-through estimator), leave it out of the "
            "check with wrt=; else the gradient is zero there.",
        )
    ]


def _constant_words(case: Case) -> str:
    """Say what an analytic gradient is that should be zero."""
    values = case.analytic[case.analytic != 0]
    if np.ptp(values) >= 1e-9 * np.abs(values).max():
        return "not zero"
    if len(values) == case.analytic.size:
        return f"{values[0]:.6g} throughout"
    return f"{values[0]:.6g} in {some_entries(case, len(values))}"


def _is_taken_off(case: Case, layer: Layer) -> bool:
    """Whether the weight beside a bias that moves nothing moves f, and is wrong too."""
    weight = side_of(case.evidence, layer.weight)
    wrong = {layer.weight, layer.bias} <= wrong_inputs(case.evidence)
    return wrong and weight is not None and not weight.numeric_zero.all()


def _shift_of_a_norm(case: Case, weight: int, told: str) -> Clue:
    """Say what a bias is that a normalisation takes off again, its weight wrong too."""
    name = case.evidence.subject.inputs[weight].name
    return Clue(
        BugKind.MISSING_TERM,
        0.8,
        f"The function does not depend on {case.name} at all, as before a "
        f"normalisation that takes off the mean; the analytic gradient is {told}, and "
        f"{name} of the same layer is wrong too: their error signal lacks the term of "
        f"that mean, or takes it along another axis.",
        "Subtract the mean of the error signal, along the axis of the forward pass, in "
        "the backward of the normalisation.",
        (BugKind.WRONG_AXIS, BugKind.EXTRA_TERM),
    )


def on_identity(case: Case) -> list[Clue]:
    """Detect an identity forward whose backward multiplies: gradient reversal."""
    n = case.numeric
    if case.scalar or n.shape[0] != n.shape[1] or len(n) < 2:
        return []
    if not np.allclose(n, np.eye(len(n)), atol=1e-6):
        return []
    if not np.allclose(case.evidence.base, case.point, rtol=1e-9):
        return []
    if not case.analytic_zero[~np.eye(len(n), dtype=bool)].all():
        return []  # that hands gradients to other entries: no factor does
    return [
        Clue(
            BugKind.SURROGATE,
            0.975,
            f"The function returns {case.name} itself; its gradient is not the "
            f"identity: a reversal or scaling of gradients, by "
            f"{float(np.diag(case.analytic).mean()):.6g} on average.",
            "If a reversal layer is meant, leave it out of the check; else return the "
            "incoming gradient unchanged.",
        )
    ]


def clipped(case: Case) -> list[Clue]:
    """Detect entries cut off at a bound, and gradients scaled to a round norm."""
    wrong, a, n = case.wrong, case.analytic, case.numeric
    bounds = np.abs(a[wrong])
    top = float(bounds.max(initial=0.0))
    if top <= 0:
        return []
    at_bound = (bounds > top * (1 - 1e-9 - 10 * case.evidence.subject.epsilon)).all()
    grew = bool((np.abs(n[wrong]) > top).all())
    signs = bool((np.sign(a[wrong]) == np.sign(n[wrong])).all())
    inside = bool((np.abs(a[case.usable]) <= top * (1 + 1e-6)).all())
    # where all stand at the bound, several sizes must have been cut to it: of equal
    # ones any constant would be a bound
    right = np.abs(a[case.usable & ~wrong])
    passing = bool(((right > 0) & (right < top * (1 - 1e-6))).any())
    sizes = len(np.unique(np.round(np.abs(n[wrong]) / top, 6)))
    shared = _is_bound_of_others(case, top)
    if not passing and sizes < _SIZES and not shared:
        return _norm_clipped(case)
    both = len(np.unique(np.sign(a[wrong]))) == 2
    if not passing and at_bound and signs and both and not grew:
        return [
            Clue(
                BugKind.SURROGATE,
                0.95,
                f"analytic = {top:.6g} x the sign of numeric in all {int(wrong.sum())} "
                f"wrong entries: only signs are left of the gradient.",
                "Check the gradient before its sign is taken (signSGD, np.sign); else "
                "look for x / abs(x).",
            )
        ]
    if at_bound and grew and signs and inside and (shared or wrong.sum() > 1):
        share = case.share(np.clip(n, -top, top))
        if share > EXACT and (shared or np.ptp(np.abs(n[wrong])) > 1e-3 * top):
            return [
                Clue(
                    BugKind.SURROGATE,
                    0.97 * share,
                    f"analytic = numeric clipped to [-{top:.6g}, {top:.6g}]: "
                    f"{int(wrong.sum())} entries stand at the bound.",
                    "Check before clipping, or leave the clipping out of the function "
                    "under check.",
                    of_each=True,
                )
            ]
    return _norm_clipped(case)


def _is_bound_of_others(case: Case, top: float) -> bool:
    """Whether what is wrong in another input is cut off at the same number."""
    return any(
        float(np.abs(side.analytic[side.wrong]).max()) == top
        for side in sides_of(case.evidence)
        if side.part.which != case.part.which and side.wrong.any()
    )


def _norm_clipped(case: Case) -> list[Clue]:
    n = case.numeric
    below = float((n * n).sum())
    if below == 0 or not case.scalar:
        return []
    c = float((case.analytic * n).sum()) / below
    if not 0 < c < 0.999 or case.share_of_factor(c) < EXACT:
        return []
    norms = {"the joint": _joint_norm(case.evidence, c)}
    if case.analytic.size > 1:
        norms = {"its own": float(np.linalg.norm(case.analytic)), **norms}
    for words, norm in norms.items():
        nearest = min(_ROUND, key=lambda r: abs(r - norm))
        if abs(norm - nearest) < 1e-5 * nearest:
            return [
                Clue(
                    BugKind.SURROGATE,
                    0.96,
                    f"analytic = {c:.6g} x numeric, which makes {words} norm exactly "
                    f"{nearest:g}: clipped by norm.",
                    "Check the gradient before it is clipped.",
                    of_each=True,
                )
            ]
    return []


def _joint_norm(evidence: Evidence, c: float) -> float:
    """Norm over all inputs, if all are scaled alike; else nan, and of one number."""
    sides = sides_of(evidence)
    if sum(case.analytic.size for case in sides) < 2:
        return float("nan")
    total = 0.0
    for case in sides:
        if case.numeric.any() and case.share_of_factor(c) < EXACT:
            return float("nan")
        total += float((case.analytic**2).sum())
    return float(np.sqrt(total))
