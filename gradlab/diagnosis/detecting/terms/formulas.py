"""Detectors of wrong formulas: the derivative of another function, a lost product."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.curves import Curve, fits, read
from gradlab.diagnosis.measuring.measures import Case, Clue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["elementwise"]

_ZEROS = 0.5  # trust that slopes of zero alone are those of another function


def elementwise(case: Case) -> list[Clue]:
    """Detect a Jacobian that is diagonal on both sides with a ratio that varies."""
    curve = _diagonal(case)
    if curve is None:
        return []
    wrong = np.diag(case.wrong[_rows(case)])
    keep = wrong & (curve.n != 0)
    ratio = curve.a[keep] / curve.n[keep] + 0.0 if keep.any() else np.zeros(1)
    if np.ptp(ratio) < 1e-4 * np.abs(ratio).max(initial=0.0):
        return _one_side(curve, wrong, float(ratio[0]))
    if not ratio.any():  # where the function moves: told by its zeros
        lead = f"Each output depends on its own entry of {case.name}"
        return read(curve, lead, _ZEROS)
    lead = (
        f"Each output depends on its own entry of {case.name}, but analytic / numeric "
        f"runs from {ratio.min():.4g} to {ratio.max():.4g} with the value of the entry"
    )
    return _product_rule(curve) or [*_stale(curve), *read(curve, lead, 0.9)]


def _one_side(curve: Curve, wrong: NDArray[np.bool_], ratio: float) -> list[Clue]:
    """Recognise the slope of one side of a kink: wrong exactly where x is negative."""
    name = curve.case.name
    for words, side in (("negative", curve.x < 0), ("positive", curve.x > 0)):
        if wrong.sum() > 1 and not wrong.all() and np.array_equal(wrong, side):
            if abs(ratio + 1) < 1e-4:
                return [
                    Clue(
                        BugKind.SIGN,
                        0.965,
                        f"The sign is flipped exactly where {name} is {words}.",
                        f"Multiply by sign({name}), or look for an absolute value "
                        f"that the backward leaves out.",
                    )
                ]
            return [
                Clue(
                    BugKind.WRONG_DERIVATIVE,
                    0.96,
                    f"Wrong exactly where {name} is {words}, there by the factor "
                    f"{ratio:.6g}: the slope of that side is another one.",
                    f"Compare the slope for {words} {name} in forward and backward.",
                )
            ]
    return []  # one factor on all wrong entries: told elsewhere


def _diagonal(case: Case) -> Curve | None:
    """Diagonals of both sides with input and output values, if both are diagonal."""
    rows = _rows(case)
    a, n = case.analytic[rows], case.numeric[rows]
    if a.shape[0] != a.shape[1] or len(a) < 2 or not case.part.complete:
        return None
    if case.variable.is_complex:
        return None
    off = ~np.eye(len(a), dtype=bool)
    if not (case.analytic_zero & case.numeric_zero)[rows][off].all():
        return None

    def at(point: Array, others: Mapping[int, Array], count: int) -> Array:
        return _slopes_at(case, point, others)[:count]

    values = case.evidence.base[rows]
    finite = np.isfinite(values).all() and np.isfinite(case.point).all()
    output = values if finite else None  # nothing is fitted to an overflow
    return Curve(case, np.arange(len(a)), np.diag(a), np.diag(n), at, output)


def _rows(case: Case) -> slice:
    """Rows of the only output that is wrong; no rows where several are."""
    wrong = [part for _, part in case.parts_of_output if case.wrong[part].any()]
    return wrong[0] if len(wrong) == 1 else slice(0, 0)


def _product_rule(curve: Curve) -> list[Clue]:
    """Recognise one term of (x g)' = g + x g' alone, where f = x g(x)."""
    name, y = curve.case.name, curve.output
    if y is None or (curve.x == 0).any():
        return []
    g = y / curve.x
    for words, model in (("g", g), (f"{name} g'", curve.n - g)):
        if fits(curve, curve.a, model):
            return [
                Clue(
                    BugKind.MISSING_TERM,
                    0.95,
                    f"With f = {name} g({name}), the analytic side is {words} alone; "
                    f"the derivative is g + {name} g'.",
                    "Apply the product rule: add the term that is missing.",
                )
            ]
    return []


def _slopes_at(case: Case, point: Array, others: Mapping[int, Array]) -> Array:
    """Differentiate an elementwise function at another point; two evaluations."""
    subject, which = case.evidence.reference or case.evidence.subject, case.part.which
    h = 1e-5 * np.maximum(np.abs(point), 1e-3)
    case.evidence.meter.spend(2)
    moved = {k: v for k, v in others.items() if k != which}
    try:
        for k, value in moved.items():
            subject.place(k, value)
        subject.place(which, point + h)
        up = subject.row()
        subject.place(which, point - h)
        rise = (up - subject.row())[_rows(case)]
        return np.asarray(rise / ((point + h) - (point - h)))
    except Exception:  # noqa: BLE001 - the user's function may not take this point
        return np.full(len(point), np.nan)
    finally:
        for k in {which, *moved}:
            subject.place(k, None)


def _stale(curve: Curve) -> list[Clue]:
    """Recognise a formula in terms of the output that was fed the input.

    The derivatives of exp, tanh and the logistic function are polynomials of their
    values, p(y); a backward that saved x in place of y computes p(x).
    """
    x, y = curve.x, curve.output
    for degree in (1, 2):
        if y is None or len(x) <= degree + 2:
            break
        powers = np.arange(degree + 1)
        table = y[:, None] ** powers
        if not np.isfinite(table).all():
            break
        fit = np.linalg.lstsq(table, curve.n, rcond=None)[0]
        if fits(curve, curve.n, table @ fit) and fits(
            curve, curve.a, x[:, None] ** powers @ fit
        ):
            return [
                Clue(
                    BugKind.STALE_CACHE,
                    0.97,
                    f"The derivative is a polynomial of the output; the analytic side "
                    f"is the same polynomial of the input {curve.case.name}.",
                    "Save the output for the backward, not the input.",
                )
            ]
    return []
