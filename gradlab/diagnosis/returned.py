"""Detectors of slips short of values: shapes, dtypes, None, exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.subject.analytic_sides import OVERWRITTEN

if TYPE_CHECKING:
    from gradlab.diagnosis.evidence import Evidence
    from gradlab.subject.analytic_sides import Problem
    from gradlab.subject.subject import Variable

__all__ = ["returned"]

_CUT_OFF = ": its fractions were cut off"
_FRACTIONS = "fractions"  # of whole numbers, which no digit of a slope is left of
_DIGITS = 1e-2  # of the largest entry of a row: more than few digits leave of any


def returned(evidence: Evidence) -> list[Finding]:
    """Turn problems of the analytic side into findings."""
    findings: list[Finding] = []
    for problem in evidence.problems:
        findings += _one(evidence, problem)
    return findings


def _one(evidence: Evidence, problem: Problem) -> list[Finding]:
    wrong = any(
        (part.verdicts == Verdict.DISAGREES).any()
        for part in evidence.parts
        if evidence.subject.inputs[part.which].name == problem.where
    )
    where, detail = problem.where, problem.detail
    detail = detail if detail.endswith(".") else f"{detail}."
    if problem.kind == "wrong_shape":
        return [_shape(evidence, problem, detail)]
    if problem.kind == "dtype":
        if wrong and _CUT_OFF in detail and _is_the_same_for_all(evidence, where):
            wrong, detail = False, detail.replace(_CUT_OFF, "")
        beyond = _FRACTIONS not in detail and _is_beyond_digits(evidence, where)
        wrong = wrong and not beyond
        lost = not beyond and _lost_digits(evidence, detail)
        return [
            Finding(
                BugKind.DTYPE,
                "error" if wrong or lost else "warning",
                where,
                0.98 if wrong else 0.8,
                _sentence(detail, where),
                f"Compute and return the gradient of {where} in the dtype of {where}.",
            )
        ]
    if problem.kind == "raised":
        overwritten = OVERWRITTEN in detail
        return [
            Finding(
                BugKind.STALE_CACHE if overwritten else BugKind.UNKNOWN,
                "error",
                where,
                0.9,
                f"The {detail}",
                _how_to_run(evidence, detail),
            )
        ]
    return []  # "none" and "missing" are zeros: told by the detector of zeros


def _is_the_same_for_all(evidence: Evidence, where: str) -> bool:
    """Whether a gradient does not depend on the output: nothing of it was cut off."""
    return any(
        len(part.analytic) > 1 and not np.ptp(part.analytic, axis=0).any()
        for part in evidence.parts
        if evidence.subject.inputs[part.which].name == where
    )


def _is_beyond_digits(evidence: Evidence, where: str) -> bool:
    """Whether a gradient is wrong by more than its few digits: by something else."""
    for part in evidence.parts:
        if evidence.subject.inputs[part.which].name != where or not part.is_wrong:
            continue
        sides = [
            np.where(np.isfinite(s), s, 0.0) for s in (part.analytic, part.numeric)
        ]
        finite = np.isfinite(part.analytic) & np.isfinite(part.numeric)
        tops = np.maximum(*(np.abs(side).max(axis=1, initial=0.0) for side in sides))
        apart = np.where(finite & part.wrong, np.abs(sides[0] - sides[1]), 0.0)
        if (apart > _DIGITS * tops[:, None]).any():
            return True
    return False


def _lost_digits(evidence: Evidence, detail: str) -> bool:
    """Whether digits were lost in the backward alone, not in the function itself."""
    if "digits of float32" in detail:
        return True
    values = evidence.base[np.isfinite(evidence.base)]
    with np.errstate(all="ignore"):
        single = bool((values.astype(np.float32) == values).all())
    return "digits were lost" in detail and not single


def _how_to_run(evidence: Evidence, detail: str) -> str:
    """Say what to do about a backward that raised."""
    if OVERWRITTEN in detail:
        return "Write to a new tensor (y = y + 1, not y += 1), or to a clone()."
    if "backward through the graph a second time" in detail:
        return (
            "If the function calls backward() or autograd.grad() itself, leave that "
            "out and return the loss: gradlab asks for the gradient."
        )
    if "incorrect number of gradients" in detail:
        return (
            "Return one gradient for each argument of forward, in their order; None "
            "for those that have none."
        )
    if "expected Variable or None (got" in detail:
        return "Return tensors: torch.from_numpy(...) makes one of an array."
    if evidence.subject.kind == "forward/backward pair":
        return "Make it run first, as gradlab calls it: backward(dout, cache)."
    return (
        "Make it run first: called by hand at this point it shows the line where it "
        "stops."
    )


def _shape(evidence: Evidence, problem: Problem, detail: str) -> Finding:
    where, got = problem.where, problem.got
    variable = next((v for v in evidence.subject.inputs if v.name == where), None)
    if variable is None or got is None or problem.rows is not None:
        advice = "Return one array for each input, of the shape that is expected."
        outputs = [v.shape for v in evidence.subject.outputs]
        if variable is not None and outputs == [got] == [variable.shape]:
            advice = (
                "If f works entry by entry, and these are its slopes, they are the "
                "diagonal of the Jacobian: return np.diag(slopes.ravel())."
            )
        elif variable is not None and got == (variable.size, problem.rows):
            advice = "A row belongs to an output, a column to an input: return jac.T."
        told = _sentence(detail, where)
        return Finding(BugKind.WRONG_SHAPE, "error", where, 0.98, told, advice)
    axes = _unsummed(got, variable)
    if axes is not None:
        return Finding(
            BugKind.BROADCAST_REDUCTION,
            "error",
            where,
            0.985,
            f"The gradient of {where} has shape {got} for an input of shape "
            f"{variable.shape}: it was not summed over {axes}.",
            f"Sum it over the axes along which {where} was broadcast: "
            f"grad.sum(axis=...), keepdims for axes of length 1.",
        )
    told = _sentence(detail, where)
    advice = f"Return a gradient of exactly the shape of {where}."
    turned = got == variable.shape[::-1] and got != variable.shape
    if turned:
        told = f"{told[:-1]}: that of {where}.T."
        advice = "Swap the factors of the product: x.T @ delta for delta.T @ x."
    other = _whose(evidence, problem)
    if other:
        told = f"{told[:-1]}; it has that of {other}."
        advice = "Return the gradients in the order of the inputs."
    doubts = (BugKind.TRANSPOSE,) if turned else ()
    return Finding(BugKind.WRONG_SHAPE, "error", where, 0.98, told, advice, doubts)


def _whose(evidence: Evidence, problem: Problem) -> str:
    """Name the input whose gradient came in this place, and this one's in its place."""
    shapes = {v.name: v.shape for v in evidence.subject.inputs}
    mine = problem.got, shapes.get(problem.where)
    others = [o for o in evidence.problems if o.kind == "wrong_shape"]
    swapped = (o.where for o in others if mine == (shapes.get(o.where), o.got))
    return next(swapped, "")


def _unsummed(got: tuple[int, ...], variable: Variable) -> str | None:
    """Axes over which a broadcast gradient was not summed, or None."""
    extra = len(got) - len(variable.shape)
    if extra < 0 or got == variable.shape:
        return None
    tail = got[extra:]
    if not all(s in {g, 1} for g, s in zip(tail, variable.shape, strict=True)):
        return None
    axes = [i for i in range(extra) if got[i] > 1]
    axes += [
        extra + i
        for i, (g, s) in enumerate(zip(tail, variable.shape, strict=True))
        if g != s
    ]
    if not axes:
        return None
    return f"ax{'is' if len(axes) == 1 else 'es'} {', '.join(map(str, axes))}"


def _sentence(text: str, name: str = "") -> str:
    return text if name and text.startswith(name) else text[:1].upper() + text[1:]
