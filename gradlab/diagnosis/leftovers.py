"""What is said where nothing explains an error: how it looks, and what it may be.

From the size and the zeros of an error alone a missing term is not told from one too
many, nor from another formula: these are doubts, and what is measured is told.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from gradlab.diagnosis.finding import NEARLY_RIGHT, BugKind, Finding
from gradlab.diagnosis.measuring.measures import Case, Clue
from gradlab.diagnosis.measuring.places import place_words
from gradlab.labels import few_of

__all__ = [
    "beside_right",
    "halved",
    "is_plain",
    "is_slight",
    "terms",
    "told_through",
    "told_together",
    "unnamed",
]

_CLOSE_TO_ONE = 0.1  # of which two digits would not say that it is another number
_LITTLE = 1e-2  # of the length of a gradient: few terms of it are as small
_SEVERAL = 2  # entries that have few digits, and hardly by chance
_SINGLE = 1e-6  # what single precision rounds off, a few times
_LEAD = "No factor, mask or order explains the error of "
_OTHERS = 3  # right entries beside one that is wrong: the formula is right, then
_NAMED = 4  # of the inputs that are told with another
_DOUBTED = 0.4  # confidence of a reading that is a guess


def terms(case: Case) -> list[Clue]:
    """Read an error as a term that is missing, or too many, or of another formula."""
    if not case.error.any() or not case.numeric.any():
        return []
    a_zero, n_zero = case.analytic_zero, case.numeric_zero
    fewer = bool((a_zero | ~n_zero).all() and (a_zero & ~n_zero).any())
    more = bool((n_zero | ~a_zero).all() and (n_zero & ~a_zero).any())
    little = case.relative_total < _LITTLE
    if little and case.relative_total < _SINGLE and _is_short(case):
        return [_rounded(case)]
    kinds = [BugKind.MISSING_TERM, BugKind.EXTRA_TERM, BugKind.WRONG_DERIVATIVE]
    if more:  # a mask lets through what should be zero, a sum adds what is not there
        kinds = [BugKind.EXTRA_TERM]
    elif fewer:
        kinds = [BugKind.MISSING_TERM]
    elif little:
        kinds = [BugKind.WRONG_DERIVATIVE]
    return [Clue(kind, _DOUBTED, "", "") for kind in kinds]


def halved(case: Case) -> list[Clue]:
    """Detect a gradient that is the right one rounded to float16, in every entry."""
    a, n = case.analytic, case.numeric
    if int(case.wrong.sum()) < _SEVERAL or case.relative_total > _LITTLE:
        return []
    short = a.astype(np.float16)
    units = np.spacing(np.abs(short)).astype(np.float64)
    if not (short == a).all() or (np.abs(a - n) > units + case.tolerance).any():
        return []
    return [
        Clue(
            BugKind.DTYPE,
            0.98,
            f"The gradient of {case.name} holds numbers of float16, half precision: "
            f"each is the right one rounded off.",
            "Look for .half(), np.float16 or autocast in the backward, and compute "
            "there in the dtype of the forward pass.",
        )
    ]


def unnamed(case: Case) -> Finding:
    """Say how an error looks that no detector has a name for."""
    advice = (
        f"Write down every path from {case.name} to the output and give each its term; "
        f"check the derivative of each function on the way by itself, the last one "
        f"first."
    )
    told = f"{_LEAD}{case.name}, {place_words(case)}. {_length_words(case)}"
    if _is_one_of_many(case):
        return _one_entry(case)
    if 0 < case.relative_total < _LITTLE and _off(case) < _LITTLE:
        advice = NEARLY_RIGHT
        told = (
            f"The gradient of {case.name} is right but for "
            f"{100 * case.relative_total:.2g} % of its length, {place_words(case)}: "
            f"little for a factor or an order to be wrong, or for a term to be missing."
        )
    told += _rank_words(case)
    return Finding(BugKind.UNKNOWN, "error", case.name, 0.2, told, advice)


def _off(case: Case) -> float:
    """By how much of their own length the wrong entries are off.

    Beside others a thousand times as large all of it is little of the gradient.
    """
    a, n = case.analytic[case.wrong], case.numeric[case.wrong]
    length = float(np.linalg.norm(n))
    return float(np.linalg.norm(a - n)) / length if length else np.inf


def _is_one_of_many(case: Case) -> bool:
    """Whether one entry of a gradient is wrong, among others that are right."""
    alone = int(case.wrong.sum()) == 1
    return alone and int((~case.numeric_zero & ~case.wrong).sum()) >= _OTHERS


def _one_entry(case: Case) -> Finding:
    """Say of one wrong entry by how much it is off: few formulas spoil just one."""
    row, column = (int(i) for i in np.argwhere(case.wrong)[0])
    label = case.variable.label(int(case.part.positions[column]))
    if not case.scalar:
        rows = (
            o.label(row - part.start)
            for o, part in case.parts_of_output
            if part.start <= row < part.stop
        )
        label = f"{next(rows, 'one output')} / {label}"
    a, n = float(case.analytic[row, column]), float(case.numeric[row, column])
    times = "" if n == 0 else f", {a / n:.5g} times as large as it should be"
    return Finding(
        BugKind.UNKNOWN,
        "error",
        case.name,
        0.2,
        f"{label} alone is wrong: it is {a:.6g}{times}; the other entries of "
        f"{case.name} are right. A formula for all of {case.name} that is wrong "
        f"spoils more than one entry.",
        f"Look for what meets {label} and no other entry: an assignment in the "
        f"backward, an index at an edge, a limit or a mask; its own formula, where "
        f"several parameters are in one vector.",
    )


def is_plain(finding: Finding) -> bool:
    """Whether a finding says no more than that nothing explains an error."""
    return finding.kind == BugKind.UNKNOWN and finding.evidence.startswith(_LEAD)


def is_slight(finding: Finding) -> bool:
    """Whether a finding says no more than that a gradient is off by very little."""
    return finding.kind == BugKind.UNKNOWN and finding.advice == NEARLY_RIGHT


def told_together(first: Finding, also: tuple[str, ...]) -> Finding:
    """Say once that nothing explains several inputs: one mistake may spoil them all.

    Parameters
    ----------
    first
        Nearest to the output, whose error is described.
    also
        Names of others, of which no more is known.
    """
    if not also:
        return first
    verb = "is" if len(also) == 1 else "are"
    told = (
        f" {few_of(also, _NAMED)} {verb} wrong as well, and nothing explains that "
        f"either: one mistake may spoil all of them."
    )
    return dataclasses.replace(
        first, evidence=first.evidence + told, also=(*first.also, *also)
    )


def told_through(first: Finding, through: dict[str, str]) -> Finding:
    """Add inputs that are wrong on their way through another that is told here."""
    told = "".join(
        f" With all of {other} at zero the gradient of {name} is right: it is wrong on "
        f"its way through {other}."
        for name, other in through.items()
    )
    return dataclasses.replace(
        first, evidence=first.evidence + told, also=(*first.also, *through)
    )


def beside_right(finding: Finding, right: list[str]) -> Finding:
    """Name the inputs that are right: the mistake is on no way to them."""
    if not right:
        return finding
    the, are = ("gradient", "is") if len(right) == 1 else ("gradients", "are")
    told = f" The {the} of {few_of(right, _NAMED)} {are} right."
    return dataclasses.replace(finding, evidence=finding.evidence + told)


def _is_short(case: Case) -> bool:
    """Whether the wrong numbers have no more digits than float32 has."""
    wrong = case.analytic[case.wrong]
    return bool((wrong == wrong.astype(np.float32)).all())


def _rounded(case: Case) -> Clue:
    return Clue(
        BugKind.DTYPE,
        0.9,
        f"The gradient of {case.name} is right but for "
        f"{100 * case.relative_total:.2g} % of its length, and its numbers are those "
        f"of single precision, which rounds off as much.",
        "Look for .float(), np.float32 or a float32 constant in the backward.",
    )


def _length_words(case: Case) -> str:
    """Compare analytic with numeric side along the numeric one, as a sentence."""
    a, n = case.analytic[case.wrong], case.numeric[case.wrong]
    below = float(n @ n)
    if below == 0:
        how = "nothing beside the analytic one" if n.any() else "zero"
        return f"The numeric gradient is {how} there."
    length = float(a @ n) / below
    told = f"{length:.2g}" if abs(length - 1) > _CLOSE_TO_ONE else f"{length:.3g}"
    if a.size == 1:
        return f"The analytic value is {told} times the numeric one."
    if length < 0:
        return "The analytic gradient points against the numeric gradient."
    if abs(length - 1) < _LITTLE:
        return (
            "Along the numeric gradient the analytic one has the right length; the "
            "error is at right angles to it."
        )
    return (
        f"Along the numeric gradient the analytic one is {told} times as long as it "
        f"should be."
    )


def _rank_words(case: Case) -> str:
    """Say as a sentence that the error is a matrix of low rank; empty where it is not.

    As a matrix of the input's own shape of a loss, else of outputs by entries.
    """
    error = case.error
    shape = case.variable.shape
    if case.scalar and len(shape) == 2 and case.part.complete:
        error = error.reshape(*shape, -1)[..., 0]
    # of the rows and columns that are wrong: one alone is a product whatever it is
    error = error[error.any(axis=1)][:, error.any(axis=0)]
    if max(error.shape, default=0) > 500 or min(error.shape, default=0) < 2:
        return ""
    values = np.linalg.svd(error, compute_uv=False)
    rank = int((values > 1e-6 * values[0]).sum())
    if 2 * rank > min(error.shape):
        return ""
    one = ": it is one outer product" if rank == 1 else ""
    return f" The error is a matrix of rank {rank} of {min(error.shape)}{one}."
