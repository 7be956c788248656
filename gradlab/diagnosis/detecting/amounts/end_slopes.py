"""Detector of a slope at one end of the function: a factor for each row or column."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.held import real_arrays
from gradlab.diagnosis.measuring.measures import EXACT, Case, Clue, cases_of, reaches
from gradlab.diagnosis.measuring.moving import slopes_at
from gradlab.diagnosis.measuring.proportions import fraction_words
from gradlab.subject.subject import unit_vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["slopes_of_one_end"]

_ZERO = 1e-6  # a factor that is none
_ASKED = 2  # entries that are moved by themselves


def slopes_of_one_end(case: Case) -> list[Clue]:
    """Detect a factor for each output, or each entry: another's slope at that end."""
    a, n, wrong = case.analytic, case.numeric, case.wrong
    last = _own_factors(a, n, wrong)
    if last is not None and _explained(case, last[:, None]):
        return [_named(case, last) or _own_slopes("output", "row", "last", last)]
    first = _own_factors(a.T, n.T, wrong.T)
    if first is not None and _explained_where_it_moves(case, first):
        if _is_straight(case, first):
            return [_other_multiplier(case, first)]
        words = f"entry of {case.name}"
        return [_own_slopes(words, "column", "first", first)]
    return _slopes_of_mates(case)


def _explained_where_it_moves(case: Case, factors: Array) -> bool:
    """Whether columns are what they should be, times a factor, but for a few zeros.

    What is multiplied with a state that is zero at the start has no factor there.
    """
    moves = reaches(~case.numeric_zero, 0)
    if moves.all() or 3 * int((~moves).sum()) > len(moves):
        return _explained(case, factors)
    model = np.where(case.wrong, factors * case.numeric, case.numeric)
    there = np.broadcast_to(moves, model.shape)
    return case.share(model, there) >= EXACT


def _is_straight(case: Case, factors: Array) -> bool:
    """Whether f is a straight line in each entry by itself: a product, and no slope."""
    evidence, which, x = case.evidence, case.part.which, case.point
    chosen = np.argsort(-np.abs(factors - 1), kind="stable")[:_ASKED]
    for j in chosen:
        direction = unit_vectors(len(x), [j])
        moved = x.copy()
        moved[j] += 0.7 + abs(x[j])
        here, there = (
            float(slopes_at(evidence, {which: point}, which, direction)[0])
            for point in (x, moved)
        )
        if not abs(here - there) <= 1e-6 * abs(here):
            return False
    return True


def _other_multiplier(case: Case, c: Array) -> Clue:
    return Clue(
        BugKind.STALE_CACHE,
        0.9,
        f"Each entry of {case.name} has a factor of its own, from {c.min():.4g} to "
        f"{c.max():.4g}, for all outputs alike, and the function is a straight line in "
        f"each entry: what multiplies it in the forward pass is another number than in "
        f"the backward.",
        f"Multiply the error signal of {case.name} by the very value that it met in "
        f"the forward pass: at the same step and the same index, before it was "
        f"overwritten.",
        (BugKind.WRONG_INDEX, BugKind.SCALE),
    )


def _explained(case: Case, factors: Array) -> bool:
    """Whether what is wrong is what it should be, times these factors."""
    model = np.where(case.wrong, factors * case.numeric, case.numeric)
    return case.share(model) >= EXACT


def _slopes_of_mates(case: Case) -> list[Clue]:
    """Recognise the factors of the outputs that another wrong input has: one slope.

    A row of one number alone is some multiple of any other.
    """
    for other in cases_of(case.evidence):
        if other.part.which == case.part.which or case.scalar:
            continue
        theirs = _own_factors(other.analytic, other.numeric, other.wrong)
        if theirs is None or not _explained(other, theirs[:, None]):
            continue
        if _explained(case, theirs[:, None]):
            clue = _named(case, theirs) or _own_slopes("output", "row", "last", theirs)
            told = f"{clue.evidence} The same factors spoil {other.name}."
            return [dataclasses.replace(clue, confidence=0.93, evidence=told)]
    return []


def _own_factors(a: Array, n: Array, wrong: NDArray[np.bool_]) -> Array | None:
    """Return one factor per row; None if all that is wrong has the same.

    A row of one wrong number has some factor, whatever it is, and one of zeros has none
    that is told from a row that is lost: two others at least must show it.
    """
    if len(a) < 3 or a.shape[1] < 2:
        return None
    there = wrong & (np.abs(n) > 1e-9 * np.abs(n).max(initial=0.0))
    several = there.sum(axis=1) > 1
    if several.sum() < 3:
        return None
    below = np.where(there, n * n, 0.0).sum(axis=1)
    c = np.where(there, a * n, 0.0).sum(axis=1) / np.where(below > 0, below, 1.0)
    c = np.asarray(np.where(below > 0, c, 1.0))
    off = c[several & (np.abs(c - 1) > 1e-4)]
    shown = off[np.abs(off) > _ZERO]
    if shown.size < 2 or np.ptp(off) < 1e-4 * np.abs(off).max():
        return None
    return c


def _own_slopes(what: str, line: str, end: str, c: Array) -> Clue:
    few = _few_plain(c)
    if few is not None:
        told = ", ".join(f"{factor:.4g}" for factor in few)
        return Clue(
            BugKind.SCALE,
            0.88,
            f"Each {what} has one of {len(few)} factors ({told}), and several have the "
            f"same; within its {line} of the Jacobian what is wrong is proportional.",
            "Look for a number that multiplies a group of them, a level or a sample, "
            "in one of forward and backward only: a weight, a length, a root of two.",
            (BugKind.WRONG_DERIVATIVE, BugKind.MISSING_REDUCTION),
        )
    first = "multiplies the incoming gradient first" if end == "last" else "comes last"
    return Clue(
        BugKind.WRONG_DERIVATIVE,
        0.88,
        f"Each {what} has a factor of its own, from {c.min():.4g} to {c.max():.4g}; "
        f"within its {line} of the Jacobian what is wrong is proportional.",
        f"Check the slope that {first} in the backward: that of the {end} function in "
        f"the forward pass, and the value that it is taken at.",
        (BugKind.STALE_CACHE,),
    )


def _few_plain(c: Array) -> list[float] | None:
    """Return the factors if they are few, shared, and fractions or roots of such.

    A slope is another number for each.
    """
    few = np.unique(np.round(c, 6))
    shared = [int((np.abs(c - factor) <= 2e-6).sum()) for factor in few]
    if len(few) > len(c) // 2 or min(shared) < 2:
        return None
    plain = all(
        fraction_words(float(factor)) or fraction_words(float(factor) ** 2)
        for factor in few
    )
    return few.tolist() if plain else None


def _named(case: Case, c: Array) -> Clue | None:
    """Recognise factors that are an array of the function, or one by another."""
    for output, rows in case.parts_of_output:
        factors = c[rows]
        if not factors.size or np.ptp(factors) < 1e-4 * np.abs(factors).max(
            initial=0.0
        ):
            continue
        for words, values, clue in _readings(case, output.shape, factors):
            wrong = factors != 1.0
            if wrong.sum() > 2 and np.allclose(factors[wrong], values[wrong], 1e-5, 0):
                told = f"Each output has a factor of its own: it is {words}"
                return dataclasses.replace(clue, evidence=f"{told}, {clue.evidence}")
    return None


def _readings(
    case: Case, shape: tuple[int, ...], factors: Array
) -> Iterator[tuple[str, Array, Clue]]:
    """Yield what factors may be, with their values and what that means.

    Of an output y = s x, x / y is 1 / s, which is no array in place of another: no
    output is read as what belongs there, nor are factors that an axis shares.
    """
    known = dict(case.arrays(shape))
    made = {
        output.name: case.evidence.base[rows]
        for output, rows in case.parts_of_output
        if output.shape == shape
    }
    subject = case.evidence.subject
    held = {name: value.ravel() for name, value in real_arrays(subject, shape)}
    slope, stale = BugKind.WRONG_DERIVATIVE, BugKind.STALE_CACHE
    advice = "Multiply by it in the backward exactly where the forward pass does."
    with np.errstate(all="ignore"):
        for name, values in {**known, **held, **made}.items():
            for words, power, verb in (
                (f"1 / {name}", 1 / values, "is not multiplied by"),
                (name, values, "is multiplied by once too often"),
            ):
                told = f"which {verb} on the way back to {case.name}."
                yield words, power, Clue(slope, 0.93, told, advice)
        grid = factors.reshape(shape)
        if any(np.ptp(grid, axis=axis).max() < 1e-9 for axis in range(grid.ndim)):
            return
        for (name, values), (other, theirs) in itertools.product(
            {**known, **made}.items(), known.items()
        ):
            told = f"as where {name} stands in the backward for {other}."
            advice = f"Save {other} for the backward of {case.name}, and use it there."
            clue = Clue(stale, 0.95, told, advice)
            yield f"{name} / {other}", values / theirs, clue
