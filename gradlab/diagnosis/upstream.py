"""Detectors that feed other cotangents: a backward is linear in what comes in."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind, Finding, Severity
from gradlab.diagnosis.measuring.measures import Case, Clue, sides_of
from gradlab.diagnosis.measuring.responses import ALWAYS, TWICE, UNMOVED
from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.subject.subject import DOUBLE, is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.comparison.comparison import Comparison
    from gradlab.diagnosis.evidence import Evidence
    from gradlab.diagnosis.measuring.responses import Response

__all__ = ["hidden_upstream", "ignored"]

_LITTLE = 1e-6  # of an incoming gradient: what no bound on gradients cuts off
_DEBRIS = 10.0  # error bars: entries within so many say nothing of a whole gradient


def ignored(case: Case, response: Response) -> list[Clue]:
    """Detect a backward that does not multiply by the incoming gradient."""
    if response.normalised(case.part.which):
        return [_normalised(case.name)]
    if response.unsteady(case.part.which):
        return [
            Clue(
                BugKind.NONDETERMINISTIC,
                0.99,
                f"Asked twice with the same incoming gradient, the backward of "
                f"{case.name} differs by "
                f"{100 * response.unsteady(case.part.which):.2g} %.",
                "Save what the backward draws at random (a mask, noise) in the forward "
                "pass, and use that.",
            )
        ]
    same = _identical_rows(case)
    flaw = response.flaw(case.part.which, case.relative)
    if same is None and flaw is None:
        return []
    if flaw is None and response.values is not None:
        return [
            Clue(
                BugKind.WRONG_AXIS,
                0.95,
                f"{same}, and twice the incoming gradient gives twice that: the "
                f"incoming gradient is summed over all outputs.",
                f"Sum the incoming gradient for {case.name} over the axes along which "
                f"{case.name} was repeated, and over no others.",
            )
        ]
    if same is None and flaw == TWICE and _is_right_for_small_ones(case, response):
        return [_cut_off(case.name)]
    words = "; ".join(filter(None, (same, flaw)))
    return [
        Clue(
            BugKind.IGNORES_UPSTREAM,
            0.985 if same else 0.955 if flaw in (UNMOVED, ALWAYS) else 0.9,
            f"{words[0].upper()}{words[1:]}.",
            f"Multiply the local derivative of {case.name} by the incoming gradient "
            f"(grad_output) before summing or returning it.",
        )
    ]


def _identical_rows(case: Case) -> str | None:
    """Say whether the gradient is the same for every output."""
    a, n = case.analytic, case.numeric
    if len(a) < 2 or not case.usable.all():
        return None
    size = float(np.abs(a).max(initial=0.0))
    if size == 0 or np.ptp(a, axis=0).max(initial=0.0) > 1e-9 * size:
        return None
    spread = float(np.ptp(n, axis=0).max(initial=0.0))
    if spread <= 1e-6 * float(np.abs(n).max(initial=0.0)):
        return None
    every = "Both" if len(a) == 2 else f"All {len(a):,}"
    return f"{every} rows of the analytic Jacobian of {case.name} are identical"


def _normalised(name: str) -> Clue:
    return Clue(
        BugKind.SURROGATE,
        0.965,
        f"Twice the incoming gradient gives the same gradient of {name}, its negative "
        f"the negative: the gradient is normalised or clipped.",
        "Check the gradient before it is clipped or normalised.",
    )


def _is_right_for_small_ones(case: Case, response: Response) -> bool:
    """Whether a millionth of a cotangent gets a millionth of what is right for it."""
    analytic, part = case.evidence.subject.analytic, case.part
    cotangent = _LITTLE * response.cotangent
    if analytic is None or len(cotangent) != len(case.numeric):
        return False
    case.evidence.meter.spend(1)
    try:
        answer = analytic.pull(cotangent[None]).values[part.which][0]
    except BudgetExhausted:
        raise
    except Exception:  # noqa: BLE001 - the user's code may refuse such cotangents
        return False
    apart = np.abs(np.asarray(answer)[part.positions] - cotangent @ case.numeric)
    allowed = np.abs(cotangent) @ case.slack(np.abs(case.numeric))
    return bool((apart <= allowed).all())


def _cut_off(name: str) -> Clue:
    return Clue(
        BugKind.SURROGATE,
        0.96,
        f"For a millionth of the incoming gradient the gradient of {name} is right; "
        f"twice the incoming gradient does not give twice the gradient: on the way "
        f"back what is large is cut off (clamp, clip), or made smaller.",
        "Check without the clipping; to bound what the optimizer sees, clip the "
        "finished gradients behind the backward pass.",
    )


def _noisy(name: str, spread: float) -> Finding:
    return Finding(
        BugKind.NONDETERMINISTIC,
        "warning",
        name,
        0.9,
        f"Asked twice with the same incoming gradient, the backward of {name} "
        f"differs by {100 * spread:.2g} %.",
        "Save what the backward draws at random in the forward pass, and use that.",
    )


def _lost(case: Case) -> bool:
    """Whether nothing of a gradient stands far out of its error bars: may be debris.

    That of a bias before a batch norm is zero, and what is left is round-off, which is
    no linear map of anything.
    """
    part = case.part
    a, bars = np.abs(part.analytic), _DEBRIS * np.asarray(part.error)
    open_ = bool((part.verdicts != Verdict.AGREES).any())
    largest = bars.max(initial=0.0, where=np.isfinite(bars))
    return bool((a <= bars).all()) or (open_ and bool(a.max(initial=0.0) <= largest))


def hidden_upstream(evidence: Evidence, response: Response) -> list[Finding]:
    """Report a backward that is right only for the incoming gradient 1."""
    if response.values is None:
        return []
    findings = []
    for case in sides_of(evidence):
        which = case.part.which
        if case.part.is_wrong:
            continue
        unsteady, normalised = response.unsteady(which), response.normalised(which)
        relative = max(case.relative, 1e-6)
        # what forgives looks at whole matrices, which a check that agrees never makes:
        # it is asked where there is something to be forgiven
        flaw = response.flaw(which, relative)
        if not (unsteady or normalised) and flaw is None:
            continue
        flaw = response.flaw(which, relative, response.rounding(case))
        if not (unsteady or normalised or flaw is not None) or _lost(case):
            continue
        findings.append(_hidden(evidence, response, which, flaw))
    epsilon = evidence.subject.epsilon
    relative = max(1e3 * epsilon, 1e-6)
    for which, off in _seen_along_directions(evidence):
        # directions say nothing of what float32 leaves of zero in single entries
        sums = 10 * off if epsilon < DOUBLE else np.inf
        flaw = response.flaw(which, relative, sums=sums)
        if flaw or response.normalised(which) or response.unsteady(which):
            findings.append(_hidden(evidence, response, which, flaw))
    return findings


def _hidden(
    evidence: Evidence, response: Response, which: int, flaw: str | None
) -> Finding:
    """Say what is wrong with a backward whose gradient agrees."""
    name = evidence.subject.inputs[which].name
    spread = response.unsteady(which)
    if spread:
        return _noisy(name, spread)
    # a loss of NumPy, written with its gradient, is never asked for another one
    own = is_torch_subject(evidence.subject) or len(evidence.base) > 1
    severity: Severity = "error" if own or flaw != UNMOVED else "warning"
    if response.normalised(which):
        clue = _normalised(name)
        return dataclasses.replace(clue.finding(name), severity=severity)
    return Finding(
        BugKind.IGNORES_UPSTREAM,
        severity,
        name,
        0.9,
        f"The gradient of {name} is right for the incoming gradient 1 only: {flaw}.",
        "Multiply by the incoming gradient (grad_output), or the function breaks as "
        "soon as something is computed from its result.",
    )


def _seen_along_directions(evidence: Evidence) -> Iterator[tuple[int, float]]:
    """List inputs that agree along random directions, by more than their bars.

    And how far apart both sides are there; nothing is known of their entries.
    """
    known = {part.which for part in evidence.parts}
    compared: dict[str, list[Comparison]] = {}
    for comparison in evidence.comparisons:
        compared.setdefault(comparison.input.name, []).append(comparison)
    for which, variable in enumerate(evidence.subject.inputs):
        told = compared.get(variable.name, [])
        right = all(each.verdict == Verdict.AGREES for each in told)
        if which in known or not right:
            continue
        if any(
            (np.abs(each.analytic) > _DEBRIS * each.numeric_error).all()
            for each in told
        ):
            yield which, max(float(np.max(each.error, initial=0.0)) for each in told)
