"""Detector of penalties in the loss or in the gradient only: error ~ parameter."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.explaining import EVEN
from gradlab.diagnosis.measuring.measures import Case, Clue
from gradlab.diagnosis.measuring.moving import analytic_at, slopes_at
from gradlab.diagnosis.measuring.places import every_entry, place_words
from gradlab.subject.subject import DOUBLE, unit_vectors

if TYPE_CHECKING:
    from collections.abc import Callable

    _Slope = Callable[[np.ndarray], np.ndarray]

__all__ = ["of_its_own_entry", "penalty"]

# A penalty is proportional to the input exactly; near zero every odd slip is nearly so.
_PROPORTIONAL = 0.999
_FEWEST = 3  # entries of which an error is no multiple by chance
_SAME = 1e-4  # relative: two errors at different points that are the same
_OTHER = 1e-2  # relative: two strengths that are not one
_BLUR = 1e-6  # relative: of slopes at another point
_WHOLE = 0.02  # how near to a whole number one that counts samples must be
_ASKED = 3  # entries that are moved
# what an error along some entries may be as well
_OF_A_LENGTH = (BugKind.MISSING_TERM, BugKind.WRONG_DERIVATIVE)
_ALONE = 0.7  # confidence where f does not depend on the input
_STRONG = 2.5  # of a penalty: no strength that anybody takes


def _whole_lines(case: Case) -> bool:
    """Whether what is wrong is all of some rows, or columns: of a table, say."""
    wrong = case.wrong[0].reshape(case.variable.shape) if case.part.complete else None
    if wrong is None or wrong.ndim < 2 or case.variable.is_complex:
        return False
    every = range(wrong.ndim)
    lines = [wrong.any(axis=tuple(set(every) - {k}), keepdims=True) for k in every]
    return any(
        np.array_equal(np.broadcast_to(one, wrong.shape), wrong) for one in lines
    )


def penalty(case: Case) -> list[Clue]:
    """Detect an error that is proportional to the input itself, or to its sign."""
    x = case.point
    if len(x) < 2 and case.numeric.size < 2:
        return []
    if int(case.wrong.sum()) == 1:
        return []  # one error is some multiple of the input there, whatever it is
    # of few entries a mask or a slope may look the same
    # and where all have one sign, any constant does
    odd = 0.9 if len(x) >= 8 and np.ptp(np.sign(x)) > 0 else 0.5
    value, sign, cube = (lambda x: x), np.sign, (lambda x: x**3)
    models: list[tuple[str, _Slope, np.ndarray | None, float]] = [
        ("the value of ", value, None, 0.985 if len(x) > 2 else 0.6),
        ("the sign of ", sign, None, odd),
        ("the cube of ", cube, None, odd),
    ]
    # where f moves with none of them it was stopped, as by a mask, and only there
    stopped = case.numeric_zero[case.wrong].all() and not _whole_lines(case)
    if case.scalar and int(case.wrong.sum()) >= _FEWEST and not stopped:
        models.append(("", value, case.wrong, 0.95))
    for words, slope, where, trust in models:
        direction = slope(x)
        share, factor = _explained(case, direction, where)
        if share < _PROPORTIONAL or factor == 0:
            continue
        if _parallel(case.numeric, direction, where) > 0.999999:
            continue  # the gradient itself has that direction: a factor, no penalty
        place = place_words(case)
        if where is None:
            place = every_entry(case.numeric.size, complete=case.part.complete)
        changes = _changes_elsewhere(case, slope, factor, where)
        if changes:
            if slope is value:
                return [_of_its_length(case, place, where)]
            continue
        # of a few entries that is no more than likely
        doubts = () if changes is False or where is None else _OF_A_LENGTH
        return [_told(case, factor, words, place, trust * share, doubts)]
    return _scaled_data(case) or _other_penalty(case)


def _changes_elsewhere(
    case: Case, slope: _Slope, factor: float, where: np.ndarray | None
) -> bool | None:
    """Whether an error that is a multiple here is another multiple at another point.

    In all entries, or in those of `where`; None where it cannot be told. The strength
    of a penalty is one number. The derivative of a length, of a vector by itself, is
    along it as well, by a factor of its own at each point.
    """
    if not case.scalar or case.variable.is_complex:
        return None
    if case.evidence.subject.epsilon > DOUBLE and case.evidence.reference is None:
        return None  # slopes have too few digits to tell
    evidence, which = case.evidence, case.part.which
    there = {which: case.point * evidence.rng.uniform(1.2, 1.5, len(case.point))}
    along = slope(there[which])
    along = along if where is None else np.where(where[0], along, 0.0)
    length = float(np.linalg.norm(along))
    ours = analytic_at(evidence, there)
    if ours is None or not length > 0:
        return None
    unit = along / length
    mine = float(ours[which] @ unit)
    true = float(slopes_at(evidence, there, which, unit[None])[0])
    apart = abs(mine - true - factor * length)
    blur = _BLUR * max(abs(mine), abs(true))
    if not np.isfinite(apart):
        return None
    return bool(apart > max(_OTHER * abs(factor) * length, blur))


def _of_its_length(case: Case, place: str, where: np.ndarray | None) -> Clue:
    these = case.name if where is None else f"these entries of {case.name}"
    return Clue(
        BugKind.UNKNOWN,
        0.72,
        f"analytic - numeric is a multiple of {case.name} itself {place}, and at other "
        f"points another multiple: no penalty, but the derivative of what depends on "
        f"the length of {these} alone (a norm, an angle, a distance).",
        f"Check the derivative of the norm, {case.name} / norm, and that the norm is "
        f"not taken for a constant where something is divided by it.",
        _OF_A_LENGTH,
    )


def _explained(
    case: Case, direction: np.ndarray, where: np.ndarray | None
) -> tuple[float, float]:
    """Share of the error that is a multiple of a direction, and that multiple."""
    if where is None and _refuted(case, direction):
        return 0.0, 0.0
    model, factor = _fit(case, direction, where)
    return case.share(model, rest=EVEN), factor


def _told(
    case: Case,
    factor: float,
    words: str,
    place: str,
    trust: float,
    doubts: tuple[BugKind, ...],
) -> Clue:
    if factor > 0:
        verb = "is in the gradient and not in the loss, or too strong there"
    else:
        verb = "is missing from the gradient, or too weak there"
    if case.numeric_zero.all():  # any gradient of a function of its own looks so
        trust = min(trust, _ALONE)
    what = "a penalty"
    if abs(factor) >= _STRONG:  # no penalty holds weights as fast as that, as a rule
        what = "a term that depends on each entry alone, such as a penalty,"
        missing = BugKind.EXTRA_TERM if factor > 0 else BugKind.MISSING_TERM
        doubts = tuple(dict.fromkeys((missing, *doubts)))
    # a sentence holds of several inputs, a formula of one
    times = "x" if words else "*"
    return Clue(
        BugKind.REGULARIZATION,
        trust,
        f"analytic - numeric = {factor:.6g} {times} {words}{case.name} {place}: {what} "
        f"{verb}.",
        f"Put the penalty on {case.name} into both the loss and its gradient, with the "
        f"same strength and on the same entries (0.5 * c * w**2 goes with c * w).",
        doubts,
    )


def _scaled_data(case: Case) -> list[Clue]:
    """Recognise ``c * data + k * w`` where ``data + k * w`` belongs.

    The data part was summed, the penalty was not: analytic is c times numeric, and the
    penalty is what is left.
    """
    if not case.scalar or len(case.point) < 4:
        return []
    c, k = _two_factors(case)
    if abs(c) < 1e-6 or abs(c - 1) < 0.2 or abs(k) < 1e-9:
        return []
    if abs(c) * np.linalg.norm(case.numeric) < 1e-3 * np.linalg.norm(case.analytic):
        return []
    if abs(k) * np.linalg.norm(case.point) < (1 - _PROPORTIONAL) * case.total:
        return _plain_factor(case, c)
    if abs(c + 1) < 1e-3:
        return [
            Clue(
                BugKind.SIGN,
                0.93,
                f"analytic = {c:.6g} x numeric {k:+.6g} x {case.name}: the sign of the "
                f"data part is flipped, that of the penalty on {case.name} is not.",
                "Look for target - output for output - target before the penalty.",
            )
        ]
    large = max(c, 1 / c)
    if abs(large - round(large)) > min(1e-3 * large, _WHOLE) or round(large) < 2:
        return []
    size = round(large)
    told = f"analytic = {c:.6g} x numeric {k:+.6g} x {case.name}"
    data = Clue(
        BugKind.MISSING_REDUCTION,
        0.93,
        f"{told}: the data part is {c:.6g} times as large as it should be, the penalty "
        f"on {case.name} is not.",
        f"Divide the data part of the gradient by {size} as the loss does, before the "
        f"penalty is added."
        if c > 1
        else f"Divide the data part of the gradient by {size} once, not twice.",
    )
    if size == 2:  # of a square, rather than of two samples
        data = dataclasses.replace(
            data,
            kind=BugKind.SCALE,
            advice=f"Search the data part of the gradient of {case.name} for the "
            f"factor {'2' if c > 1 else '1/2'}.",
        )
    return [data]


def _plain_factor(case: Case, c: float) -> list[Clue]:
    """Recognise a factor beside which a solver, or rounding, leaves a little."""
    if c < 0:
        return []
    size = max(c, 1 / c)
    if abs(size - round(size)) > 1e-3 * size or round(size) < 2:
        return []
    rest = np.linalg.norm(case.analytic - c * case.numeric)
    rest /= np.linalg.norm(case.analytic)
    factor = f"{round(size)}" if c > 1 else f"1/{round(size)}"
    return [
        Clue(
            BugKind.SCALE,
            0.9,
            f"analytic = {c:.4g} x numeric, but for {rest:.1g} of its length.",
            f"Search the backward for the factor {factor} in the line that computes "
            f"the gradient of {case.name}.",
        )
    ]


def _two_factors(case: Case) -> tuple[float, float]:
    """Fit ``analytic = c * numeric + k * input``; c and k are 0 if that is not so.

    The first row may do without k: an intercept has no penalty.
    """
    a, n, x = case.analytic[0], case.numeric[0], case.point
    first = np.arange(len(x)) < math.prod(case.variable.shape[1:])
    for penalised in (x, np.where(first, 0.0, x)):
        (c, k), *_ = np.linalg.lstsq(np.stack([n, penalised], axis=1), a, rcond=None)
        if case.share((c * n + k * penalised)[None], rest=EVEN) >= _PROPORTIONAL:
            return float(c), float(k)
    return 0.0, 0.0


def _other_penalty(case: Case) -> list[Clue]:
    """Recognise the gradient of another penalty: of |w| for w**2; two sizes fit any."""
    x = case.point
    if not case.scalar or len(np.unique(np.abs(x[x != 0]))) < 4:
        return []
    error = (case.analytic - case.numeric)[0]
    table = np.stack([x, np.sign(x)], axis=1)
    (k, s), *_ = np.linalg.lstsq(table, error, rcond=None)
    if k * s >= 0 or min(abs(k), abs(s)) < 1e-3 * max(abs(k), abs(s)):
        return []
    if case.share(case.numeric + table @ (k, s), rest=EVEN) < _PROPORTIONAL:
        return []
    one, other = ("|w|", "w**2") if s > 0 else ("w**2", "|w|")
    return [
        Clue(
            BugKind.REGULARIZATION,
            0.93,
            f"analytic - numeric = {s:.5g} x sign({case.name}) {k:+.5g} x "
            f"{case.name}: the gradient of a penalty {one} where the loss has {other}.",
            f"Use the same penalty on {case.name} in loss and gradient.",
        )
    ]


def of_its_own_entry(case: Case) -> list[Clue]:
    """Detect an error that moves with its own entry alone, where the gradient does not.

    A penalty adds a function of one entry to each slope, data couple them. So one
    entry with a penalty, an intercept say, is told from any other error there.
    """
    if not case.scalar or case.variable.is_complex or not case.part.complete:
        return []
    chosen = np.flatnonzero(case.wrong[0] & (case.point != 0))[:_ASKED]
    if not len(chosen):
        return []
    forms = [_form(case, int(j)) for j in chosen]
    if None in forms or len(set(forms)) > 1:
        return []
    form = str(forms[0])
    how = {
        "proportional": "in proportion",
        "constant": "by its sign alone",
        "other": "and is odd in it",
        "mixed": "and changes with it",
    }[form]
    what, doubts = "a penalty", tuple[BugKind, ...]()
    if form in {"mixed", "other"}:  # as a penalty is less often than other terms
        what = "a term of that entry alone, such as a penalty,"
        doubts = (BugKind.MISSING_TERM, BugKind.EXTRA_TERM)
    return [
        Clue(
            BugKind.REGULARIZATION,
            0.93 if form != "mixed" else 0.83,
            f"{case.name} is wrong {place_words(case)}, by an error that depends on "
            f"the same entry of {case.name} and no other, {how}: {what} is in the "
            f"loss or in the gradient only, or has another form there.",
            f"Put the same {'term' if doubts else 'penalty'} on the same entries of "
            f"{case.name} into the loss and its gradient; an intercept or a bias "
            f"usually has no penalty.",
            doubts,
        )
    ]


def _form(case: Case, j: int) -> str | None:
    """Say how the error of an entry follows it; None where others move it as well."""
    evidence, which, x = case.evidence, case.part.which, case.point
    unit = unit_vectors(len(x), [j])
    here, numeric = float(case.error[0, j]), float(case.numeric[0, j])
    others = _others_moved(case) if len(x) < 2 else {}
    errors, slopes = [], []
    for own in (x[j], 2 * x[j], -x[j], 2 * x[j], 1.1 * x[j]):
        moved = x + (0.1 + 0.1 * np.abs(x)) * evidence.rng.normal(size=len(x))
        moved[j] = own
        points = {**others, which: moved}
        ours = analytic_at(evidence, points)
        if ours is None:
            return None
        slopes.append(float(slopes_at(evidence, points, which, unit)[0]))
        errors.append(float(ours[which][j]) - slopes[-1])
        if len(errors) == 3 and abs(sum(errors[::2])) <= _SAME * abs(here):
            break  # odd, as all penalties are but wrong ones
    same, twice, turned, *again = np.array(errors) / here
    if not abs(same - 1) < _SAME or abs(slopes[0] - numeric) < _SAME * abs(here):
        return None  # data take part, or nothing but this entry does
    if not abs(turned + 1) <= _SAME:  # as of w**2 for w, or nan; a constant is none
        # no constant, nor one that jumps with samples on either side of a bound
        steady = abs(again[0] - twice) < _SAME * abs(twice) and abs(again[1] - 1) > 0.01
        return "mixed" if steady and abs(twice - 1) > _SAME else None
    if abs(twice - 2) < 2 * _SAME:
        return "proportional"
    return "constant" if abs(twice - 1) < _SAME else "other"


def _others_moved(case: Case) -> dict[int, np.ndarray]:
    """Move the other inputs, where this one has no other entry to be moved."""
    points = {}
    for which, variable in enumerate(case.evidence.subject.inputs):
        if which != case.part.which and variable.support is None:
            here = np.asarray(case.evidence.subject.point(which), dtype=np.float64)
            step = 0.1 + 0.1 * np.abs(here)
            points[which] = here + step * case.evidence.rng.normal(size=here.shape)
    return points


def _refuted(case: Case, direction: np.ndarray) -> bool:
    """Whether norms alone tell that the error of all rows is no such direction."""
    rows, below = len(case.numeric), float(direction @ direction)
    if not case.all_usable or below == 0:
        return False
    along = float(case.summed @ direction) ** 2 / (rows * below)
    left = np.sqrt(max(case.total**2 - along, 0.0))
    return bool(left - case.freedom > 2 * (1 - _PROPORTIONAL) * case.total)


def _fit(
    case: Case, direction: np.ndarray, where: np.ndarray | None
) -> tuple[np.ndarray, float]:
    mask = case.usable if where is None else where
    rows = np.broadcast_to(direction, case.numeric.shape)
    below = float(rows[mask] @ rows[mask])
    if below == 0:
        return case.numeric, 0.0
    difference = (case.analytic - case.numeric)[mask]
    factor = float(difference @ rows[mask]) / below
    added = rows if where is None else np.where(where, rows, 0.0)
    return case.numeric + factor * added, factor


def _parallel(
    matrix: np.ndarray, direction: np.ndarray, where: np.ndarray | None
) -> float:
    """Return the cosine between all rows of a matrix and a direction."""
    mask = np.ones(matrix.shape, dtype=bool) if where is None else where
    one, other = matrix[mask], np.broadcast_to(direction, matrix.shape)[mask]
    size = float(np.linalg.norm(one) * np.linalg.norm(other))
    return abs(float(one @ other)) / size if size > 0 else 0.0
