"""Detectors that feed other cotangents: a backward is linear in what comes in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.diagnosis.measuring.measures import Case, Clue, sides_of
from gradlab.subject.subject import input_columns, is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.comparison.comparison import Comparison
    from gradlab.diagnosis.evidence import Evidence

__all__ = ["Response", "hidden_upstream", "ignored", "respond"]


_UNMOVED = "the gradient does not change at all with the incoming gradient"
_ALWAYS = "an incoming gradient of zero still gives a gradient"
_ROUGH = 0.1  # of a gradient: what round-off may not explain
_DEBRIS = 10.0  # error bars: entries within so many say nothing of a whole gradient
_SINGLE = float(np.finfo(np.float32).eps)
_NORMAL = {  # by round-off: the smallest number with all its digits
    float(info.eps): float(info.tiny)
    for info in (np.finfo(np.float64), np.finfo(np.float32), np.finfo(np.float16))
}
_LARGE = 100_000  # coordinates beyond which a gradient that agrees is left alone


class Response:
    """What the analytic side makes of the cotangents 0, c, 2c, -c and c, per input."""

    def __init__(self, evidence: Evidence) -> None:
        self.values: tuple[NDArray[np.float64], ...] | None = None
        self.cotangent = np.zeros(0)
        subject = evidence.subject
        self.debris = _NORMAL.get(subject.epsilon, _NORMAL[_SINGLE])
        analytic = subject.analytic
        if analytic is None or not analytic.takes_cotangents:
            return
        if getattr(analytic, "linear", None) and not _wrong(evidence):
            return  # seen to be a linear map when it was read out
        large = input_columns(subject.inputs) > _LARGE
        if large and not _wrong(evidence):
            return  # five passes are felt there, and nothing is amiss
        rows = len(evidence.base)
        c = evidence.rng.uniform(0.5, 1.5, rows)
        c *= 1.0 if rows == 1 else evidence.rng.choice([-1.0, 1.0], rows)
        self.cotangent = c
        seeds = (np.zeros(rows), c, 2 * c, -c, c)
        if large:
            self._few(evidence, analytic, c)
            return
        try:
            evidence.meter.spend(len(seeds))
            parts = [analytic.pull(seed[None]) for seed in seeds]
        except Exception:  # noqa: BLE001 - the user's code may refuse such cotangents
            return
        self.values = tuple(
            np.concatenate([part.values[which] for part in parts])
            for which in range(len(subject.inputs))
        )

    def _few(self, evidence: Evidence, analytic: Any, c: NDArray[np.float64]) -> None:
        """Ask about the wrong inputs of a large model alone, in two passes if it can.

        Where c and -2c get opposite answers, one twice the other, the map is linear,
        and repeats itself: no answer is kept.
        """
        wrong = [part.which for part in evidence.parts if part.wrong.any()]
        answers: list[dict[int, NDArray[np.float64]]] = []

        def ask(factor: float) -> bool:
            evidence.meter.spend(1)
            found = _gradients(analytic, factor * c, wrong)
            answers.append(found)
            return bool(found)

        if not (ask(1.0) and ask(-2.0)):
            return
        once, back = answers
        answers = []
        if all(_opposite(once[k], back[k], evidence.subject.epsilon) for k in wrong):
            answers = [{}] * 5
        elif not all(map(ask, (0.0, 1.0, 2.0, -1.0, 1.0))):
            return
        empty = np.zeros(0)
        self.values = tuple(
            np.stack([found.get(k, empty) for found in answers])
            for k in range(len(evidence.subject.inputs))
        )

    def flaw(self, which: int, relative: float, rounding: float = 0.0) -> str | None:
        """Say how input `which` fails to be linear in the cotangent, or None.

        By more than its round-off, relative and absolute.
        """
        if self.values is None:
            return None
        zero, once, twice, minus, _ = self.values[which]
        if not np.isfinite(self.values[which][1:]).all() or self.unsteady(which):
            return None
        size = float(np.abs(once).max(initial=0.0))
        slack = max(relative, 1e-9) * max(size, 1e-300)
        slack = max(slack, self.debris, min(rounding, _ROUGH * size))
        if self.normalised(which):
            return None
        if np.abs(zero).max(initial=0.0) > slack:
            if np.abs(twice - once).max(initial=0.0) <= slack:
                return _UNMOVED
            return _ALWAYS
        if np.abs(twice - 2 * once).max(initial=0.0) > 2 * slack:
            return "twice the incoming gradient does not give twice the gradient"
        if np.abs(minus + once).max(initial=0.0) > slack:
            return "the sign of the incoming gradient is ignored"
        return None

    def rounding(self, case: Case) -> float:
        """How far an answer may be off for an input whose entries agree.

        Where the backward cancels, as that of logcumsumexp does through logarithms,
        each row shows how many digits are left of it.
        """
        if len(self.cotangent) != len(case.analytic):
            return 0.0
        off = np.abs(case.analytic - case.numeric)
        return 10 * float((np.abs(self.cotangent) @ off).max(initial=0.0))

    def unsteady(self, which: int) -> float:
        """Relative difference of two answers to one cotangent; 0 if there is none."""
        if self.values is None:
            return 0.0
        once, again = self.values[which][1], self.values[which][4]
        size = float(np.abs(once).max(initial=0.0))
        apart = float(np.abs(again - once).max(initial=0.0))
        return apart / size if apart > 1e-6 * size else 0.0

    def normalised(self, which: int) -> bool:
        """Whether the answer follows the sign of the cotangent but not its size."""
        if self.values is None:
            return False
        _, once, twice, minus, _ = self.values[which]
        size = float(np.abs(once).max(initial=0.0))
        if not 0 < size < np.inf:
            return False
        same = bool((np.abs(twice - once) <= 1e-7 * size).all())
        return same and bool((np.abs(minus + once) <= 1e-7 * size).all())


def _gradients(
    analytic: Any, cotangent: NDArray[np.float64], which: list[int]
) -> dict[int, NDArray[np.float64]]:
    """Gradients of some inputs for one cotangent; none where its code refuses it."""
    found: dict[int, NDArray[np.float64]] = {}

    def take(k: int, gradient: NDArray[Any]) -> None:
        found[k] = gradient.astype(np.float64)

    if getattr(analytic, "streams", False):
        return {} if analytic.stream(cotangent, which, take) is None else found
    try:
        values = analytic.pull(cotangent[None]).values
    except Exception:  # noqa: BLE001 - the user's code may refuse such cotangents
        return {}
    for k in which:
        take(k, values[k][0])
    return found


def _opposite(
    once: NDArray[np.float64], back: NDArray[np.float64], epsilon: float
) -> bool:
    """Whether one answer is minus two times the other, up to round-off."""
    if not (np.isfinite(once).all() and np.isfinite(back).all()):
        return False
    size = float(np.abs(once).max(initial=0.0))
    gap = float(np.abs(back + 2 * once).max(initial=0.0))
    return gap <= max(1e3 * epsilon, 1e-9) * size


def _wrong(evidence: Evidence) -> bool:
    return any(part.is_wrong for part in evidence.parts)


def respond(evidence: Evidence) -> Response:
    """Feed the cotangents once; every input's answer is kept."""
    return Response(evidence)


def ignored(case: Case, response: Response) -> list[Clue]:
    """Detect a backward that does not multiply by the incoming gradient."""
    if response.normalised(case.part.which):
        return [
            Clue(
                BugKind.SURROGATE,
                0.965,
                f"Twice the incoming gradient gives the same gradient of {case.name}, "
                f"its negative the negative: the gradient is normalised or clipped.",
                "Check the gradient before it is clipped or normalised.",
            )
        ]
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
                f"{case.name}: {same}, and twice the incoming gradient gives twice "
                f"that: the incoming gradient is summed over all outputs.",
                f"Sum the incoming gradient for {case.name} over the axes along which "
                f"{case.name} was repeated, and over no others.",
            )
        ]
    told = [words for words in (same, flaw) if words]
    return [
        Clue(
            BugKind.IGNORES_UPSTREAM,
            0.985 if same else 0.955 if flaw in (_UNMOVED, _ALWAYS) else 0.9,
            f"{case.name}: {'; '.join(told)}.",
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
    every = "both" if len(a) == 2 else f"all {len(a):,}"
    return f"{every} rows of the analytic Jacobian are identical"


def _noisy(case: Case, spread: float) -> Finding:
    return Finding(
        BugKind.NONDETERMINISTIC,
        "warning",
        case.name,
        0.9,
        f"Asked twice with the same incoming gradient, the backward of {case.name} "
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
    torch = is_torch_subject(evidence.subject)
    for case in sides_of(evidence):
        part = case.part
        if part.is_wrong:
            continue
        unsteady = response.unsteady(part.which)
        relative = max(case.relative, 1e-6)
        # what forgives looks at whole matrices, which a check that agrees never makes:
        # it is asked where there is something to be forgiven
        if not unsteady and response.flaw(part.which, relative) is None:
            continue
        flaw = response.flaw(part.which, relative, response.rounding(case))
        if not (unsteady or flaw is not None) or _lost(case):
            continue
        findings.append(
            _noisy(case, unsteady)
            if unsteady
            else _for_one_alone(case.name, flaw or "", torch=torch)
        )
    relative = max(1e3 * evidence.subject.epsilon, 1e-6)
    for which, name in _seen_along_directions(evidence):
        flaw = response.flaw(which, relative)
        if flaw is not None and not response.unsteady(which):
            findings.append(_for_one_alone(name, flaw, torch=torch))
    return findings


def _for_one_alone(name: str, flaw: str, *, torch: bool) -> Finding:
    return Finding(
        BugKind.IGNORES_UPSTREAM,
        "error" if torch else "warning",
        name,
        0.9,
        f"The gradient of {name} is right for the incoming gradient 1 only: {flaw}.",
        "Multiply by the incoming gradient (grad_output), or the function breaks as "
        "soon as something is computed from its result.",
    )


def _seen_along_directions(evidence: Evidence) -> Iterator[tuple[int, str]]:
    """List inputs that agree along random directions, by more than their bars.

    Nothing is known of their entries.
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
            yield which, variable.name
