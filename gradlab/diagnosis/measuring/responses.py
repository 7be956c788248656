"""What a backward makes of cotangents that it was not read out with.

A backward is linear in what comes in. Rows of a Jacobian are read out with ones, and a
backward may be right for these and nothing else: what ignores the incoming gradient,
cuts it off or normalises it, or has few digits of it, shows where others are sent.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.differentiation.noise.analytic_noise import rest_of_zero
from gradlab.subject.subject import input_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.diagnosis.evidence import Evidence
    from gradlab.diagnosis.measuring.measures import Case

__all__ = ["ALWAYS", "TWICE", "UNMOVED", "Response"]

UNMOVED = "the gradient does not change at all with the incoming gradient"
ALWAYS = "an incoming gradient of zero still gives a gradient"
TWICE = "twice the incoming gradient does not give twice the gradient"
_ROUGH = 0.1  # of a gradient: what round-off may not explain
_SINGLE = float(np.finfo(np.float32).eps)
_NORMAL = {  # by round-off: the smallest number with all its digits
    float(info.eps): float(info.tiny)
    for info in (np.finfo(np.float64), np.finfo(np.float32), np.finfo(np.float16))
}
_LARGE = 100_000  # coordinates beyond which a gradient that agrees is left alone
# Of an answer: by less the answer to a sum may differ from the sum of two, for an
# adjoint may be solved to a tolerance. A cotangent cast to bfloat16 costs twice that.
_UNEVEN = 1e-3
_SPREAD = 3.0  # cotangents of the second kind: beyond what is cut off at one


class Response:
    """What the analytic side makes of the cotangents 0, c, 2c, -c and c, per input.

    Where no entry is wrong c, another one, d, and c + d are sent first: a backward that
    answers their sum by the sum of its answers is asked no more.

    What short arithmetic makes of them is no linear map: a gradient of 1e-6 is a few
    steps of float16. Whatever the code itself does wrong it does in float64, too, so a
    flaw is one where the twin in float64 has it, if there is one.
    """

    def __init__(self, evidence: Evidence) -> None:
        self.values: tuple[NDArray[np.float64], ...] | None = None
        self.cotangent = np.zeros(0)
        self._sums: list[float] = []  # by how much they fail, beyond what is forgiven
        self._evidence, self._linear = evidence, False  # as was seen
        self._cut_short = False
        subject, wrong = evidence.subject, _wrong(evidence)
        self.debris = _NORMAL.get(subject.epsilon, _NORMAL[_SINGLE])
        analytic = subject.analytic
        if analytic is None or not analytic.takes_cotangents:
            return
        linear = analytic.linear
        if linear and not wrong:
            self._linear = True  # when it was read out
            return
        large = input_columns(subject.inputs) > _LARGE
        if large and not wrong:
            return  # three passes are felt there, and nothing is amiss
        rows = len(evidence.base)
        c = evidence.rng.uniform(0.5, 1.5, rows)
        c *= 1.0 if rows == 1 else evidence.rng.choice([-1.0, 1.0], rows)
        self.cotangent = c
        if large:
            self._few(evidence, analytic, c)
            return
        try:
            adds_up = not wrong and self._adds_up(evidence, analytic, c)
            if adds_up and linear is None:  # and not seen to be none
                self._linear = True
                return
            seeds = (0 * c, c, 2 * c, -c, c)
            self.values = _answers(evidence, analytic, seeds)
        except BudgetExhausted:
            self._cut_short = True
        except Exception:  # noqa: BLE001 - the user's code may refuse such cotangents
            return

    def _adds_up(
        self, evidence: Evidence, analytic: Any, c: NDArray[np.float64]
    ) -> bool:
        """Whether every input gets for a sum the sum of what it gets for its parts."""
        d = evidence.rng.uniform(-_SPREAD, _SPREAD, len(c))
        if len(c) == 1:
            d = -2 * c - np.abs(d)  # a sign that is ignored shows where two differ
        # a backward may look at zeros, and at what is largest: that is another entry
        d[np.argsort(-np.abs(c))[: len(c) // 2]] = 0.0
        subject, told = evidence.subject, True
        relative = max(1e3 * subject.epsilon, 1e-6)
        height = float(np.abs(evidence.base) @ (np.abs(c) + np.abs(d)))
        for which, answers in enumerate(_answers(evidence, analytic, (c, d, c + d))):
            once, other, both = answers
            size = float((np.abs(once) + np.abs(other)).max(initial=0.0))
            apart = float(np.abs(both - once - other).max(initial=0.0))
            rest = max(self.debris, rest_of_zero(subject, which, height))
            self._sums.append(apart if apart > max(_UNEVEN * size, rest) else 0.0)
            told &= apart <= max(relative * size, rest)  # a nan is not
        return told

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

    def flaw(
        self,
        which: int,
        relative: float,
        rounding: float = 0.0,
        *,
        sums: float | None = None,
    ) -> str | None:
        """Say how input `which` fails to be linear in the cotangent, or None.

        By more than its round-off, relative and absolute. What is left of zero by
        cancellation doubles with its cotangent, but adds up to nothing: `sums` are
        forgiven as much, all of `rounding` if that is not known.
        """
        told = self._own_flaw(which, relative, rounding, sums)
        if told is None or self._twin is None:
            return told
        same = self._twin.flaw(which, relative) or self._twin.normalised(which)
        return told if same else None

    @functools.cached_property
    def _twin(self) -> Response | None:
        """What the same code makes of them in float64; None if it refuses them.

        One that is cut short has no flaw: short numbers alone accuse nobody.
        """
        evidence = self._evidence
        if evidence.reference is None:
            return None
        wide = dataclasses.replace(evidence, subject=evidence.reference, reference=None)
        twin = Response(wide)
        asked = twin.values is not None or twin._linear or twin._cut_short
        return twin if asked else None

    def _own_flaw(
        self, which: int, relative: float, rounding: float, sums: float | None
    ) -> str | None:
        """Say how the answers as they stand fail."""
        if self.values is None:
            return None
        zero, once, twice, minus, _ = self.values[which]
        if not np.isfinite(self.values[which][1:]).all() or self._is_unsteady(which):
            return None
        size = float(np.abs(once).max(initial=0.0))
        slack = max(relative, 1e-9) * max(size, 1e-300)
        slack = max(slack, self.debris, min(rounding, _ROUGH * size))
        if self._is_normalised(which):
            return None
        if np.abs(zero).max(initial=0.0) > slack:
            if np.abs(twice - once).max(initial=0.0) <= slack:
                return UNMOVED
            return ALWAYS
        if np.abs(twice - 2 * once).max(initial=0.0) > 2 * slack:
            return TWICE
        if np.abs(minus + once).max(initial=0.0) > slack:
            return "the sign of the incoming gradient is ignored"
        forgiven = max(slack, rounding if sums is None else sums)
        if self._sums and self._sums[which] > forgiven:
            return (
                "two incoming gradients together do not give the sum of what each gives"
            )
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
        apart = self._is_unsteady(which)
        steady = apart and self._twin is not None and not self._twin.unsteady(which)
        return 0.0 if steady else apart

    def _is_unsteady(self, which: int) -> float:
        if self.values is None:
            return 0.0
        once, again = self.values[which][1], self.values[which][4]
        size = float(np.abs(once).max(initial=0.0))
        apart = float(np.abs(again - once).max(initial=0.0))
        return apart / size if apart > 1e-6 * size else 0.0

    def normalised(self, which: int) -> bool:
        """Whether the answer follows the sign of the cotangent but not its size."""
        told = self._is_normalised(which)
        if told and self._twin is not None:
            return self._twin.normalised(which)
        return told

    def _is_normalised(self, which: int) -> bool:
        if self.values is None:
            return False
        _, once, twice, minus, _ = self.values[which]
        size = float(np.abs(once).max(initial=0.0))
        if not 0 < size < np.inf:
            return False
        same = bool((np.abs(twice - once) <= 1e-7 * size).all())
        return same and bool((np.abs(minus + once) <= 1e-7 * size).all())


def _answers(
    evidence: Evidence, analytic: Any, seeds: Sequence[NDArray[np.float64]]
) -> tuple[NDArray[np.float64], ...]:
    """Collect what each input gets for them, (cotangents, coordinates)."""
    evidence.meter.spend(len(seeds))
    parts = [analytic.pull(seed[None]) for seed in seeds]
    return tuple(
        np.concatenate([part.values[which] for part in parts])
        for which in range(len(evidence.subject.inputs))
    )


def _gradients(
    analytic: Any, cotangent: NDArray[np.float64], which: list[int]
) -> dict[int, NDArray[np.float64]]:
    """Gradients of some inputs for one cotangent; none where its code refuses it."""
    found: dict[int, NDArray[np.float64]] = {}

    def take(k: int, gradient: NDArray[Any]) -> None:
        found[k] = gradient.astype(np.float64)

    if analytic.streams:
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
