"""Last resort where nothing explains an error: too little, too much, another formula.

These readings are guesses from the size and the zeros of the error, and say so.
"""

from __future__ import annotations

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measures import NEARLY_RIGHT, Case, Clue
from gradlab.diagnosis.places import place_words

__all__ = ["terms"]

_CLOSE_TO_ONE = 0.1  # of which two digits would not say that it is another number
_LITTLE = 1e-2  # of the length of a gradient: few terms of it are as small
_LEAST = 1e-3  # and hardly any as small as that
_SINGLE = 1e-6  # what single precision rounds off, a few times
_TWICE = 2.0  # times as long as the gradient: with all of it counted twice
_ALONG = 0.5  # cosine of error and gradient above which a term is counted twice


def terms(case: Case) -> list[Clue]:
    """Fall back on structure: something is missing, or something is too much."""
    n = case.numeric
    if not case.error.any() or not n.any():
        return []
    a_zero, n_zero = case.analytic_zero, case.numeric_zero
    fewer = bool((a_zero | ~n_zero).all() and (a_zero & ~n_zero).any())
    more = bool((n_zero | ~a_zero).all() and (n_zero & ~a_zero).any())
    strength = 0.55 if int(case.wrong.sum()) > 3 else 0.3
    grown = _along(case) > _ALONG and not fewer
    if more:  # a mask lets through what should be zero, a sum adds what is not there
        grown = True
    paths = (
        f"Write down every path from {case.name} to the output and give each its term."
    )
    missing = Clue(
        BugKind.MISSING_TERM,
        (0.58 if case.scalar else 0.85) if fewer else 0.3 if grown else strength,
        _why_missing(case, fewer=fewer),
        paths,
    )
    extra = Clue(
        BugKind.EXTRA_TERM,
        0.6 if more and not case.scalar else strength if grown else 0.3,
        _why_extra(case, more=more),
        f"Look for a term that belongs to another path, or is counted twice, in the "
        f"gradient of {case.name}.",
    )
    same = not fewer and not more
    guesses = [missing, extra, *_other_formula(case, extra.confidence, same=same)]
    return guesses + _nearly_right(case)


def _nearly_right(case: Case) -> list[Clue]:
    """Say that the whole is right, but for very little."""
    size = float(np.linalg.norm(case.numeric[case.usable]))
    off = float(np.linalg.norm(case.error))
    if not 0 < off < _LITTLE * size:
        return []
    share = f"{100 * off / size:.2g} %"
    told = f"The gradient of {case.name} is right but for {share} of its length"
    if off < _SINGLE * size and _is_short(case):
        return [
            Clue(
                BugKind.DTYPE,
                0.9,
                f"{told}, and its numbers are those of single precision, which rounds "
                f"off as much.",
                "Look for .float(), np.float32 or a float32 constant in the backward.",
            )
        ]
    return [
        Clue(
            BugKind.WRONG_DERIVATIVE,
            0.59 if off < _LEAST * size else 0.5,
            f"{told}, {place_words(case)}: little for a factor or an order to be "
            f"wrong, or for a term to be missing.",
            NEARLY_RIGHT,
        )
    ]


def _is_short(case: Case) -> bool:
    """Whether the wrong numbers have no more digits than float32 has."""
    wrong = case.analytic[case.wrong]
    return bool((wrong == wrong.astype(np.float32)).all())


def _length(case: Case) -> float:
    """Length of the analytic side along the numeric one, where they are wrong."""
    a, n = case.analytic[case.wrong], case.numeric[case.wrong]
    below = float(n @ n)
    return float(a @ n) / below if below > 0 else 0.0


def _why_missing(case: Case, *, fewer: bool) -> str:
    if fewer:
        return (
            f"The function couples {case.name} to outputs, or entries, for which the "
            f"analytic gradient is zero {place_words(case)}.{_rank_words(case)}"
        )
    return (
        f"No factor, mask or order explains the error of {case.name}, "
        f"{place_words(case)}. {_length_words(case)}{_rank_words(case)}"
    )


def _why_extra(case: Case, *, more: bool) -> str:
    if more:
        return (
            f"The analytic gradient of {case.name} is not zero where the function does "
            f"not move at all, {place_words(case)}.{_rank_words(case)}"
        )
    told = f"The error of {case.name}, {place_words(case)}, may be a term too many"
    if _length(case) > 1 + _LITTLE:
        told = f"The gradient of {case.name} is too long, {place_words(case)}"
    return f"{told}. {_length_words(case)}{_rank_words(case)}"


def _length_words(case: Case) -> str:
    """Compare analytic with numeric side along the numeric one, as a sentence."""
    length = _length(case)
    if length < 0:
        return "It points against the numeric gradient."
    if abs(length - 1) < _LITTLE:
        return (
            "Along the numeric gradient it has the right length; the error is across."
        )
    told = f"{length:.2g}" if abs(length - 1) > _CLOSE_TO_ONE else f"{length:.3g}"
    return f"Along the numeric gradient it has {told} times the right length."


def _along(case: Case) -> float:
    size = float(np.linalg.norm(case.error) * np.linalg.norm(case.numeric))
    return float(np.sum(case.error * case.numeric)) / size if size > 0 else 0.0


def _other_formula(case: Case, extra: float, *, same: bool) -> list[Clue]:
    """Say that the formula may be another's: zeros coincide, ratios do not.

    More likely than a term too many, of confidence `extra`, where that would be longer
    than the gradient itself: nothing that is counted twice is.
    """
    a, n = case.analytic[case.wrong], case.numeric[case.wrong]
    ratios = a[n != 0] / n[n != 0]
    if not same or len(ratios) < 2:
        return []
    return [
        Clue(
            BugKind.WRONG_DERIVATIVE,
            max(extra + 0.02, 0.42) if _length(case) > _TWICE else 0.42,
            f"Both sides of {case.name} are zero at the same places, and analytic / "
            f"numeric runs from {ratios.min():.3g} to {ratios.max():.3g}: a slope on "
            f"the way may be that of another function.",
            f"Check the derivative of each function between {case.name} and the output "
            f"by itself, the last one first.",
        )
    ]


def _rank_words(case: Case) -> str:
    """Say as a sentence that the error is a matrix of low rank; empty where it is not.

    As a matrix of the input's own shape of a loss, else of outputs by entries.
    """
    error = case.error
    shape = case.variable.shape
    if case.scalar and len(shape) == 2 and case.part.complete:
        error = error.reshape(*shape, -1)[..., 0]
    if max(error.shape) > 500 or min(error.shape) < 2:
        return ""
    values = np.linalg.svd(error, compute_uv=False)
    rank = int((values > 1e-6 * values[0]).sum())
    if 2 * rank > min(error.shape):
        return ""
    one = ": it is one outer product" if rank == 1 else ""
    return f" The error is a matrix of rank {rank} of {min(error.shape)}{one}."
