"""Detector of penalties in the loss or in the gradient only: error ~ parameter."""

from __future__ import annotations

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measures import Case, Clue
from gradlab.diagnosis.places import every_entry

__all__ = ["penalty"]

# A penalty is proportional to the input exactly; near zero every odd slip is nearly so.
_PROPORTIONAL = 0.999


def penalty(case: Case) -> list[Clue]:
    """Detect an error that is proportional to the input itself, or to its sign."""
    x = case.point
    if len(x) < 2 and case.numeric.size < 2:
        return []
    if int(case.wrong.sum()) == 1:
        return []  # one error is some multiple of the input there, whatever it is
    clues = []
    for words, direction in (
        ("", x),
        ("the sign of ", np.sign(x)),
        ("the cube of ", x**3),
    ):
        if _refuted(case, direction):
            continue
        model, factor = _fit(case, direction)
        share = case.share(model)
        if share < _PROPORTIONAL or factor == 0:
            continue
        if _parallel(case.numeric, direction) > 0.999999:
            continue  # the gradient itself has that direction: a factor, no penalty
        trust = 0.985 if len(x) > 2 else 0.6
        if words:  # of few entries a mask or a slope may look the same
            # and where all have one sign, any constant does
            trust = 0.9 if len(x) >= 8 and np.ptp(np.sign(x)) > 0 else 0.5
        verb = "is missing from the gradient"
        if factor > 0:
            verb = "is in the gradient and not in the loss"
        clues.append(
            Clue(
                BugKind.REGULARIZATION,
                trust * share,
                f"analytic - numeric = {factor:.6g} * {words}{case.name} "
                f"{every_entry(case.numeric.size)}: a penalty {verb}.",
                f"Put the penalty on {case.name} into both the loss and its gradient, "
                f"with the same strength (0.5 * c * w**2 goes with c * w).",
            )
        )
        break
    return clues or _scaled_data(case) or _other_penalty(case)


def _scaled_data(case: Case) -> list[Clue]:
    """Recognise ``c * data + k * w`` where ``data + k * w`` belongs.

    The data part was summed, the penalty was not: analytic is c times numeric, and the
    penalty is what is left.
    """
    if not case.scalar or len(case.point) < 4:
        return []
    a, n, x = case.analytic[0], case.numeric[0], case.point
    (c, k), *_ = np.linalg.lstsq(np.stack([n, x], axis=1), a, rcond=None)
    if c < 1e-6 or abs(c - 1) < 0.2 or abs(k) < 1e-9:
        return []
    if c * np.linalg.norm(n) < 1e-3 * np.linalg.norm(a):
        return []
    if case.share((c * n + k * x)[None]) < _PROPORTIONAL:
        return []
    large = max(c, 1 / c)
    if abs(large - round(large)) > 1e-3 * large or round(large) < 2:
        return []
    size = round(large)
    return [
        Clue(
            BugKind.MISSING_REDUCTION,
            0.93,
            f"analytic = {c:.6g} x numeric {k:+.6g} x {case.name}: the data part is "
            f"{c:.6g} times as large as it should be, the penalty on {case.name} is "
            f"not.",
            f"Divide the data part of the gradient by {size} as the loss does, before "
            f"the penalty is added."
            if c > 1
            else f"Divide the data part of the gradient by {size} once, not twice.",
        ),
        Clue(
            BugKind.REGULARIZATION,
            0.7,
            f"analytic = {c:.6g} x numeric {k:+.6g} x {case.name}: data part and "
            f"penalty do not have the same factor.",
            f"Compare the weights of data and penalty on {case.name} in loss and "
            f"gradient.",
        ),
    ]


def _other_penalty(case: Case) -> list[Clue]:
    """Recognise the gradient of another penalty: that of |w| for that of w**2."""
    x = case.point
    if not case.scalar or len(x) < 4:
        return []
    error = (case.analytic - case.numeric)[0]
    table = np.stack([x, np.sign(x)], axis=1)
    (k, s), *_ = np.linalg.lstsq(table, error, rcond=None)
    if k * s >= 0 or min(abs(k), abs(s)) < 1e-3 * max(abs(k), abs(s)):
        return []
    if case.share(case.numeric + table @ (k, s)) < _PROPORTIONAL:
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


def _refuted(case: Case, direction: np.ndarray) -> bool:
    """Whether norms alone tell that the error of all rows is no such direction."""
    rows, below = len(case.numeric), float(direction @ direction)
    if not case.all_usable or below == 0:
        return False
    along = float(case.summed @ direction) ** 2 / (rows * below)
    left = np.sqrt(max(case.total**2 - along, 0.0))
    return bool(left - case.freedom > 2 * (1 - _PROPORTIONAL) * case.total)


def _fit(case: Case, direction: np.ndarray) -> tuple[np.ndarray, float]:
    rows = np.broadcast_to(direction, case.numeric.shape)[case.usable]
    below = float(rows @ rows)
    if below == 0:
        return case.numeric, 0.0
    difference = (case.analytic - case.numeric)[case.usable]
    factor = float(difference @ rows) / below
    return case.numeric + factor * direction, factor


def _parallel(matrix: np.ndarray, direction: np.ndarray) -> float:
    """Return the cosine between all rows of a matrix and a direction."""
    rows = np.broadcast_to(direction, matrix.shape).ravel()
    size = float(np.linalg.norm(matrix) * np.linalg.norm(rows))
    return abs(float(matrix.ravel() @ rows)) / size if size > 0 else 0.0
