"""Slopes that depend on their own entry alone: which function, point or piece has them.

Those of an elementwise function stand on the diagonal of its Jacobian, those of a sum
over entries are its gradient.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.measures import Case, Clue
from gradlab.diagnosis.measuring.moving import affine, analytic_at
from gradlab.diagnosis.measuring.places import place_words
from gradlab.diagnosis.measuring.sums import vanishing_sums

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Map = Callable[[Array], Array]
    SlopesAt = Callable[[Array, Mapping[int, Array], int], Array]

__all__ = ["Curve", "fits", "read", "straight"]

_AROUND = 3e-3  # relative: so far slopes of straight pieces are looked at
_SAME = 1e-5  # relative: slopes at another point that are those of the analytic side
_NOISE = 1e-8  # of the longest slope: what it leaves in others
_TOLD = 1e-3  # of a slope: noise in which it is still told
_LEAST = 3  # slopes that tell a point
_ROUNDED = 1e-12  # of the largest slope, and at most: what rounding leaves of a zero

# where the sizes of terms are compared: on both sides of zero
_SPREAD = np.array([0.3, -0.3, 0.7, -0.7, 1.1, -1.1, 1.9, -1.9, 2.7, -2.7])
# terms of a sum that a product rule or a power leaves behind, by name
_TERMS: dict[str, Map] = {
    "v": lambda v: v,
    "v**2": lambda v: v**2,
    "v**3": lambda v: v**3,
    "cos": np.cos,
    "sin": np.sin,
    "exp": np.exp,
}
# where a right derivative may have been taken by mistake
_POINTS: dict[str, Map] = {
    "twice the input": lambda x: 2 * x,
    "half the input": lambda x: x / 2,
    "minus the input": lambda x: -x,
    "the positive part of the input": lambda x: np.maximum(x, 0),
    "the square of the input": lambda x: x * x,
    "the normalised input": lambda x: (x - x.mean()) / (x.std() or 1.0),
    "the sine of the input": np.sin,
    "tanh of the input": np.tanh,
    "the logistic function of the input": lambda x: 1 / (1 + np.exp(-x)),
    "the exponential of the input": np.exp,
}


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """Slopes of one function of one number, at several entries of an input.

    Attributes
    ----------
    places
        Which entries.
    a, n
        Analytic and numeric slopes there.
    at
        Measures the first few at another point, with other inputs moved as well; nan
        where it cannot.
    output
        The values of the function, where it has one for each entry.
    """

    case: Case
    places: NDArray[np.intp]
    a: Array
    n: Array
    at: SlopesAt
    output: Array | None = None

    @property
    def x(self) -> Array:
        """The entries."""
        return np.asarray(self.case.point[self.places])


def read(curve: Curve, lead: str, trust: float) -> list[Clue]:
    """Tell what slopes are of another function, or of this one at another point.

    Parameters
    ----------
    lead
        How each slope depends on its entry, as a sentence begins.
    trust
        That they are of another function, if nothing more is known.
    """
    pieces = _pieces(curve)
    if pieces is not None:
        return pieces
    case, worst = curve.case, int(np.abs(curve.a - curve.n).argmax())
    other = Clue(
        BugKind.WRONG_DERIVATIVE,
        trust,
        f"{lead}: the derivative of another function, {place_words(case)}.",
        f"Derive the formula again; compare it at one entry: {case.name} = "
        f"{curve.x[worst]:.6g} gives {curve.a[worst]:.6g}, should be "
        f"{curve.n[worst]:.6g}.",
    )
    other = _of_one_side(curve, other)
    return [*_single_term(curve), *_elsewhere(curve), other]


def _of_one_side(curve: Curve, other: Clue) -> Clue:
    """Add that slopes are wrong exactly where an entry is on one side of zero."""
    x, wrong = curve.case.point, curve.case.wrong.any(axis=0)
    for side, words in ((x < 0, "negative"), (x > 0, "positive")):
        if wrong.sum() > 1 and not wrong.all() and np.array_equal(wrong, side):
            told = f"{other.evidence[:-1]}, exactly where {curve.case.name} is {words}."
            doubts = (BugKind.WRONG_MASK,)
            return dataclasses.replace(other, evidence=told, doubts=doubts)
    return other


def _pieces(curve: Curve) -> list[Clue] | None:
    """Recognise right slopes at wrong entries of a function made of straight pieces.

    None where the function is curved: its slopes move with the entries.
    """
    case, count = curve.case, len(curve.a)
    if count < 4:
        return None
    if not straight(curve):
        return None
    balance = _balance(case)
    if balance is False:
        return []  # a mask of pieces that balance leaves them balanced
    every = case.numeric[case.numeric != 0]
    size = float(np.abs(every).max(initial=0.0))
    gaps = np.abs(curve.a[:, None] - np.append(every, 0.0)[None]).min(axis=1)
    known = bool((gaps <= 1e-5 * size).all())
    moves = case.scalar and _moves(case)  # as no slope of a piece does
    known = not moves and (known or balance is True or _of_own_ends(curve))
    if affine(case.evidence, case.part.which):
        # of a straight line nothing says which other slopes these are
        return [_of_other_entries(case)] if known else []
    doubts = () if known else (BugKind.MISSING_TERM,)
    told = (
        f"{case.name} meets a function of straight pieces (its slopes stand still "
        f"around the point)"
    )
    mask = Clue(
        BugKind.WRONG_MASK,
        0.95 if known else 0.7,
        f"{told}; analytic slopes are those of another piece {place_words(case)}.",
        f"Compare the condition on {case.name} in the backward with the one in the "
        f"forward pass.",
    )
    other = Clue(
        BugKind.WRONG_DERIVATIVE,
        0.8 if known else 0.9,
        f"{told}; the analytic slopes {place_words(case)} belong to another function.",
        f"Compare the slope of every piece for {case.name} in forward and backward.",
        doubts,
    )
    return [other] if moves else [mask, other]


def _balance(case: Case) -> bool | None:
    """Whether both sides sum to zero along an axis; None where the function does not.

    As margins do: what is added to one class is taken off another.
    """
    n, a = case.grid(case.numeric), case.grid(case.analytic)
    if n is None or a is None or not case.variable.shape:
        return None
    true = vanishing_sums(n)
    return bool(true & vanishing_sums(a)) if true else None


def _of_own_ends(curve: Curve) -> bool:
    """Whether each analytic slope is that of the function far off, on either side."""
    x = curve.case.point
    far = 10.0 * (1.0 + float(np.abs(x).max(initial=0.0)))
    ends = np.stack([curve.at(x + side * far, {}, len(curve.a)) for side in (1, -1)])
    gaps = np.abs(ends - curve.a).min(axis=0)
    same = gaps <= 1e-4 * np.abs(ends).max(axis=0)
    return bool(np.isfinite(ends).all() and same.all())


def _of_other_entries(case: Case) -> Clue:
    return Clue(
        BugKind.WRONG_INDEX,
        0.9,
        f"The function is a straight line in {case.name}, and analytic slopes are "
        f"those of other entries {place_words(case)}.",
        f"Check the index with which the backward of {case.name} reads the array that "
        f"{case.name} is multiplied with.",
        (BugKind.STALE_CACHE,),
    )


def straight(curve: Curve) -> bool:
    """Whether slopes stand still around the point; an entry that is zero moves too."""
    slopes = curve.at(_beside(curve.case.point), {}, len(curve.a))
    return np.allclose(slopes, curve.n, rtol=1e-5)


def _beside(x: Array) -> Array:
    size = float(np.abs(x).max(initial=0.0)) or 1.0
    return np.asarray(x + _AROUND * np.where(x == 0, size, x))


def _moves(case: Case) -> bool:
    """Whether the analytic gradient of a loss moves beside the point."""
    beside = _beside(case.evidence.subject.point(case.part.which))
    found = analytic_at(case.evidence, {case.part.which: beside})
    if found is None:
        return False
    there = found[case.part.which][case.part.positions]
    apart = float(np.abs(there - case.analytic[0]).max())
    return apart > _AROUND**2 * float(np.abs(case.analytic).max())


def _single_term(curve: Curve) -> list[Clue]:
    """Recognise an error that is one simple function of one input, times a factor."""
    case, error = curve.case, curve.a - curve.n
    if len(error) < 4:
        return []
    subject = case.evidence.subject
    for which, other in enumerate(subject.inputs):
        if other.is_complex or other.support is not None:
            continue
        try:
            value = np.broadcast_to(
                subject.point(which).reshape(other.shape), case.variable.shape
            ).ravel()[curve.places]
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
            if c and fits(curve, curve.a, curve.n + c * term):
                name = (
                    words.replace("v", other.name)
                    if "v" in words
                    else f"{words}({other.name})"
                )
                larger = _grown(curve, which, c, function)
                return [_term_clue(case, f"{c:.5g} * {name}", larger=larger)]
    return []


def _grown(curve: Curve, which: int, c: float, term: Map) -> bool:
    """Whether a term makes slopes longer at points that nobody drew, on either side.

    There even and odd terms are perpendicular: slopes that lack one are shorter.
    """
    case = curve.case
    size = len(case.point)
    if case.evidence.subject.inputs[which].size != size:  # of one that is broadcast
        return float((case.analytic**2).sum()) > float((case.numeric**2).sum())
    longer = 0.0
    for k in range(len(_SPREAD)):
        values = np.resize(np.roll(_SPREAD, k), size)
        other = values if which == case.part.which else np.roll(values, 1)
        n = curve.at(values, {which: other}, len(curve.a))
        a = n + c * term(other[curve.places])
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


def _elsewhere(curve: Curve) -> list[Clue]:
    """Recognise the right derivative at another point: f'(y), f'(2x), f'(relu(x))."""
    case, a = curve.case, curve.a
    if len(a) < _LEAST or len(np.unique(np.round(a, 9))) < _LEAST:
        return []  # two slopes, as those of a relu, can be had at many points
    points = {words: move(case.point) for words, move in _POINTS.items()}
    if curve.output is not None:
        points = {"its output": curve.output, **points}
    for words, point in points.items():
        if not np.isfinite(point).all() or np.allclose(point, case.point):
            continue
        if all(_slopes_are(curve, point, count) for count in (1, len(a))):
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


def _slopes_are(curve: Curve, point: Array, count: int) -> bool:
    """Whether the first few analytic slopes are those at another point, each by itself.

    One that is long makes noise in which others cannot be told: these show nothing.
    """
    a, slopes = curve.a[:count], curve.at(point, {}, count)
    size = np.abs(a) + np.abs(slopes)
    if not np.isfinite(slopes).all():
        return False
    noise = _NOISE * size.max()
    told = int((noise <= _TOLD * size).sum())
    same = np.abs(a - slopes) <= _SAME * size + noise
    return bool(same.all()) and told >= min(count, _LEAST)


def fits(curve: Curve, side: Array, model: Array) -> bool:
    """Whether slopes are as a model says, up to rounding."""
    size = np.abs(curve.a) + np.abs(curve.n) + np.abs(model)
    slack = 10 * curve.case.relative * size
    slack += _ROUNDED * min(1.0, float(size.max(initial=0.0)))
    return bool(np.isfinite(model).all() and (np.abs(side - model) <= slack).all())
