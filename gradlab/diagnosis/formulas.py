"""Detectors of wrong formulas: the derivative of another function, a lost product."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measures import Case, Clue
from gradlab.diagnosis.places import place_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["elementwise"]

# where the sizes of terms are compared: on both sides of zero
_SPREAD = np.array([0.3, -0.3, 0.7, -0.7, 1.1, -1.1, 1.9, -1.9, 2.7, -2.7])
# terms of a sum that a product rule or a power leaves behind, by name
_TERMS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "v": lambda v: v,
    "v**2": lambda v: v**2,
    "v**3": lambda v: v**3,
    "cos": np.cos,
    "sin": np.sin,
    "exp": np.exp,
}


def elementwise(case: Case) -> list[Clue]:
    """Detect a Jacobian that is diagonal on both sides with a ratio that varies."""
    pairs = _diagonal(case)
    if pairs is None:
        return []
    a, n, x, y = pairs
    rows = _rows(case)
    wrong = np.diag(case.wrong[rows])
    ratio = _ratio(a[wrong], n[wrong])
    if np.ptp(ratio) < 1e-4 * np.abs(ratio).max(initial=0.0):
        return _one_side(case, wrong, x, float(ratio[0]))
    product = _product_rule(case, a, n, x, y)
    if product:
        return product
    pieces = _pieces(case, a, n, x)
    if pieces is not None:
        return pieces
    return [
        *_single_term(case, a, n),
        *_stale(case, a, n, x, y),
        *_elsewhere(case, a, x, y),
        Clue(
            BugKind.WRONG_DERIVATIVE,
            0.9,
            f"Each output depends on its own entry of {case.name}, but analytic / "
            f"numeric runs from {ratio.min():.4g} to {ratio.max():.4g} with the value "
            f"of the entry: the derivative of another function, {place_words(case)}.",
            "Derive the elementwise formula again; compare it at one entry: "
            f"{case.name} = {x[_worst(a, n)]:.6g} gives {a[_worst(a, n)]:.6g}, should "
            f"be {n[_worst(a, n)]:.6g}.",
        ),
    ]


def _pieces(
    case: Case,
    a: NDArray[np.float64],
    n: NDArray[np.float64],
    x: NDArray[np.float64],
) -> list[Clue] | None:
    """Recognise right slopes at wrong entries of a function made of straight pieces.

    None where the function is curved: its slopes move with the entries.
    """
    if len(a) < 4 or not np.allclose(_slopes_at(case, x * 1.003), n, rtol=1e-5):
        return None
    size = float(np.abs(n).max(initial=0.0))
    known = np.abs(a[:, None] - n[None]).min(axis=1) <= 1e-5 * size
    told = (
        f"{case.name} meets a function of straight pieces (its slopes stand still "
        f"around the point)"
    )
    mask = Clue(
        BugKind.WRONG_MASK,
        0.95 if known.all() else 0.7,
        f"{told}; analytic slopes are those of another piece {place_words(case)}.",
        f"Compare the condition on {case.name} in the backward with the one in the "
        f"forward pass.",
    )
    other = Clue(
        BugKind.WRONG_DERIVATIVE,
        0.8 if known.all() else 0.9,
        f"{told}; the analytic slopes {place_words(case)} belong to another function.",
        f"Compare the slope of every piece for {case.name} in forward and backward.",
    )
    return [mask, other]


def _one_side(
    case: Case, wrong: NDArray[np.bool_], x: NDArray[np.float64], ratio: float
) -> list[Clue]:
    """Recognise the slope of one side of a kink: wrong exactly where x is negative."""
    for words, side in (("negative", x < 0), ("positive", x > 0)):
        if wrong.sum() > 1 and not wrong.all() and np.array_equal(wrong, side):
            if abs(ratio + 1) < 1e-4:
                return [
                    Clue(
                        BugKind.SIGN,
                        0.965,
                        f"The sign is flipped exactly where {case.name} is {words}.",
                        f"Multiply by sign({case.name}), or look for an absolute value "
                        f"that the backward leaves out.",
                    )
                ]
            return [
                Clue(
                    BugKind.WRONG_DERIVATIVE,
                    0.96,
                    f"Wrong exactly where {case.name} is {words}, there by the factor "
                    f"{ratio:.6g}: the slope of that side is another one.",
                    f"Compare the slope for {words} {case.name} in forward and "
                    f"backward.",
                )
            ]
    return []  # one factor on all wrong entries: told elsewhere


def _worst(a: NDArray[np.float64], n: NDArray[np.float64]) -> int:
    return int(np.abs(a - n).argmax())


def _ratio(a: NDArray[np.float64], n: NDArray[np.float64]) -> NDArray[np.float64]:
    keep = n != 0
    return a[keep] / n[keep] if keep.any() else np.zeros(1)


def _diagonal(
    case: Case,
) -> (
    tuple[
        NDArray[np.float64],
        NDArray[np.float64],
        NDArray[np.float64],
        NDArray[np.float64],
    ]
    | None
):
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
    return np.diag(a), np.diag(n), case.point, case.evidence.base[rows]


def _rows(case: Case) -> slice:
    """Rows of the only output that is wrong; no rows where several are."""
    wrong = [part for _, part in case.parts_of_output if case.wrong[part].any()]
    return wrong[0] if len(wrong) == 1 else slice(0, 0)


def _product_rule(
    case: Case,
    a: NDArray[np.float64],
    n: NDArray[np.float64],
    x: NDArray[np.float64],
    y: NDArray[np.float64],
) -> list[Clue]:
    """Recognise one term of (x g)' = g + x g' alone, where f = x g(x)."""
    if (x == 0).any():
        return []
    g = y / x
    name = case.name
    for words, model in (("g", g), (f"{name} g'", n - g)):
        if _fits(case, a, n, model):
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


def _single_term(
    case: Case, a: NDArray[np.float64], n: NDArray[np.float64]
) -> list[Clue]:
    """Recognise an error that is one simple function of one input, times a factor."""
    if len(a) < 4:
        return []
    error, subject = a - n, case.evidence.subject
    for which, other in enumerate(subject.inputs):
        if other.is_complex or other.support is not None:
            continue
        try:
            value = np.broadcast_to(
                subject.point(which).reshape(other.shape), case.variable.shape
            ).ravel()
        except ValueError:
            continue
        for words, function in _TERMS.items():
            if which == case.part.which and words in {"cos", "sin", "exp"}:
                continue  # alone, these are formulas rather than terms
            term = function(value)
            below = float(term @ term)
            if not np.isfinite(below) or below == 0 or np.ptp(term) == 0:
                continue
            c = float(error @ term) / below
            if c and _fits(case, a, n, n + c * term):
                name = (
                    words.replace("v", other.name)
                    if "v" in words
                    else f"{words}({other.name})"
                )
                larger = _grown(case, which, c, function)
                return [_term_clue(case, f"{c:.5g} * {name}", larger=larger)]
    return []


def _grown(case: Case, which: int, c: float, term: Callable[[Array], Array]) -> bool:
    """Whether a term makes slopes longer at points that nobody drew, on either side.

    There even and odd terms are perpendicular: slopes that lack one are shorter.
    """
    size = len(case.point)
    if case.evidence.subject.inputs[which].size != size:  # of one that is broadcast
        return float((case.analytic**2).sum()) > float((case.numeric**2).sum())
    longer = 0.0
    for k in range(len(_SPREAD)):
        values = np.resize(np.roll(_SPREAD, k), size)
        other = values if which == case.part.which else np.roll(values, 1)
        n = _slopes_at(case, values, {which: other})
        a = n + c * term(other)
        there = np.isfinite(a) & np.isfinite(n)
        longer += float((a[there] ** 2).sum() - (n[there] ** 2).sum())
    return longer > 0


def _term_clue(case: Case, term: str, *, larger: bool) -> Clue:
    return Clue(
        BugKind.EXTRA_TERM if larger else BugKind.MISSING_TERM,
        0.93,
        f"analytic - numeric = {term} in every entry of {case.name}: one term "
        f"{'is too many' if larger else 'is missing'}.",
        f"Write down every path from {case.name} to the output and give each its term.",
    )


def _elsewhere(
    case: Case,
    a: NDArray[np.float64],
    x: NDArray[np.float64],
    y: NDArray[np.float64],
) -> list[Clue]:
    """Recognise the right derivative at another point: f'(y), f'(2x), f'(relu(x))."""
    if len(np.unique(np.round(a, 9))) < 3:
        return []  # two slopes, as those of a relu, can be had at many points
    points = {
        "its output": y,
        "twice the input": 2 * x,
        "half the input": x / 2,
        "minus the input": -x,
        "the positive part of the input": np.maximum(x, 0),
        "the square of the input": x * x,
        "the normalised input": (x - x.mean()) / (x.std() or 1.0),
    }
    for words, point in points.items():
        if not np.isfinite(point).all() or np.allclose(point, x):
            continue
        slope = _slopes_at(case, point)
        size = np.abs(a) + np.abs(slope)
        if (np.abs(a - slope) <= 1e-5 * size + 1e-8 * size.max()).all():
            return [
                Clue(
                    BugKind.STALE_CACHE,
                    0.96,
                    f"The analytic side is the right derivative at another point: at "
                    f"{words} in place of {case.name}.",
                    f"Save {case.name} itself for the backward, and do not overwrite "
                    f"it afterwards.",
                )
            ]
    return []


def _slopes_at(
    case: Case, point: Array, others: Mapping[int, Array] | None = None
) -> Array:
    """Differentiate an elementwise function at another point; two evaluations."""
    subject, which = case.evidence.reference or case.evidence.subject, case.part.which
    h = 1e-5 * np.maximum(np.abs(point), 1e-3)
    case.evidence.meter.spend(2)
    moved = {k: v for k, v in (others or {}).items() if k != which}
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


def _fits(
    case: Case,
    a: NDArray[np.float64],
    n: NDArray[np.float64],
    model: NDArray[np.float64],
) -> bool:
    slack = 10 * case.relative * (np.abs(a) + np.abs(n) + np.abs(model))
    return bool((np.abs(a - model) <= slack + 1e-12).all())


def _stale(
    case: Case,
    a: NDArray[np.float64],
    n: NDArray[np.float64],
    x: NDArray[np.float64],
    y: NDArray[np.float64],
) -> list[Clue]:
    """Recognise a formula in terms of the output that was fed the input.

    The derivatives of exp, tanh and the logistic function are polynomials of their
    values, p(y); a backward that saved x in place of y computes p(x).
    """
    for degree in (1, 2):
        if len(x) <= degree + 2:
            break
        powers = np.arange(degree + 1)
        table = y[:, None] ** powers
        fit = np.linalg.lstsq(table, n, rcond=None)[0]
        if _fits(case, n, n, table @ fit) and _fits(
            case, a, n, x[:, None] ** powers @ fit
        ):
            return [
                Clue(
                    BugKind.STALE_CACHE,
                    0.97,
                    f"The derivative is a polynomial of the output; the analytic side "
                    f"is the same polynomial of the input {case.name}.",
                    "Save the output for the backward, not the input.",
                )
            ]
    return []
