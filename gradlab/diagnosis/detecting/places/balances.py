"""Detectors of broken balances: sums, couplings and constants that do not fit."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.layer_shapes import layer_of
from gradlab.diagnosis.measuring.lookups import overwritten
from gradlab.diagnosis.measuring.measures import EXACT, Case, Clue
from gradlab.diagnosis.measuring.moving import stays
from gradlab.diagnosis.measuring.places import place_words
from gradlab.diagnosis.measuring.proportions import fraction_words
from gradlab.diagnosis.measuring.sums import (
    balanced_but_for,
    vanishing_blocks,
    vanishing_sums,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "broken_sums",
    "coupling_factor",
    "moved_along",
    "units",
    "unreal",
]

_SUMMED = 3  # entries of which a sum does not vanish by chance
_PARTS = 10  # of a unit, that slopes of straight pieces are multiples of
_ELSE = (BugKind.WRONG_AXIS, BugKind.WRONG_DERIVATIVE)  # that breaks a sum
_CLOSE = 1e-4  # relative slack of factors and constants that are recognised


def coupling_factor(case: Case) -> list[Clue]:
    """Detect couplings between different entries that are off by a factor.

    In a softmax or a normalisation the diagonal holds the direct path, the rest the
    path through the sum; a factor or a sign on that path alone shows off the diagonal.
    """
    a, n = case.analytic, case.numeric
    if case.scalar or a.shape[0] != a.shape[1] or len(a) < 3 or len(a) > 2000:
        return []
    if case.variable.is_complex or not case.part.complete:
        return []
    off = ~np.eye(len(a), dtype=bool) & ~case.numeric_zero
    below = float((n[off] ** 2).sum())
    if off.sum() < 3 or below == 0 or not case.wrong[off].any():
        return []
    c = float(a[off] @ n[off]) / below
    if abs(c - 1) < 1e-3 or abs(c) < 1e-9:
        return []
    model = np.where(np.eye(len(a), dtype=bool), a, c * n)
    if case.share(model) > EXACT:
        return _named(case, c)
    rows = np.where(off, n, 0.0)
    each = (np.where(off, a, 0.0) * rows).sum(axis=1) / np.maximum(
        (rows**2).sum(axis=1), 1e-300
    )
    model = np.where(np.eye(len(a), dtype=bool), a, each[:, None] * n)
    if case.share(model) < EXACT or (off.sum(axis=1) < 3).any():
        return []
    told = (
        f"The couplings between different entries of {case.name} have one factor for "
        f"each output, from {each.min():.4g} to {each.max():.4g}; the direct path does "
        f"not have it."
    )
    advice = (
        f"Check the term of the backward of {case.name} that goes through the sum: its "
        f"power of the norm, and the array it multiplies."
    )
    return [Clue(BugKind.WRONG_DERIVATIVE, 0.86, told, advice)]


def _named(case: Case, c: float) -> list[Clue]:
    told = (
        f"Between different entries of {case.name}, analytic = {c:.5g} x numeric; the "
        f"direct path (the diagonal) does not have that factor"
    )
    where = f"the term of the backward of {case.name} that goes through a sum"
    if abs(c + 1) < 1e-3:
        return [Clue(BugKind.SIGN, 0.94, f"{told}.", f"Flip the sign of {where}.")]
    large = max(c, 1 / c) if c > 0 else 0.0
    sizes = {*case.variable.shape, case.variable.size}
    size = next((s for s in sizes if s > 1 and abs(s - large) < _CLOSE * s), None)
    if size is not None:
        verb = (
            "a sum stands where a mean belongs" if c > 1 else "divided once too often"
        )
        return [
            Clue(
                BugKind.MISSING_REDUCTION,
                0.93,
                f"{told}; {size} is a length of {case.name}: {verb}.",
                f"Take the mean in {where} exactly where the forward pass does.",
            )
        ]
    if fraction_words(c) is None:  # no factor that anybody wrote
        advice = f"Check {where}: its power of the norm, and the array it multiplies."
        doubts = (BugKind.SCALE, BugKind.STALE_CACHE)
        return [Clue(BugKind.WRONG_DERIVATIVE, 0.7, f"{told}.", advice, doubts)]
    return [Clue(BugKind.SCALE, 0.8, f"{told}.", f"Search {where} for a factor.")]


def broken_sums(case: Case) -> list[Clue]:
    """Detect gradients that should sum to zero along an axis and do not.

    Adding a constant leaves a softmax or a normalisation as it is; a gradient that
    does not sum to zero there lacks the term that balances it.
    """
    n, a = case.grid(case.numeric), case.grid(case.analytic)
    if n is None or a is None or case.variable.is_complex or not case.variable.shape:
        return []
    true = vanishing_sums(n)
    if not true:
        return _beside_a_penalty(case, n, a) or _broken_blocks(case, n, a)
    if true & vanishing_sums(a):
        return []
    if case.scalar and int(case.wrong.sum()) == 1:
        return []  # a term that balances a line enters more of it than one entry
    axis = min(true)
    lost = bool(case.analytic_zero[case.wrong].all())
    spread = case.wrong.reshape(a.shape)
    lines = np.moveaxis(spread, axis + 1, -1).reshape(-1, a.shape[axis + 1])
    lines = lines[lines.any(axis=1)]
    lost = lost and len(lines) > 1 and not bool((lines == lines[0]).all())
    left = float(np.abs(a.sum(axis=axis + 1)).max())
    return [
        Clue(
            BugKind.MISSING_TERM,
            0.945 if lost else 0.79,
            f"The numeric gradient of {case.name} sums to zero along axis {axis}, the "
            f"analytic one to up to {left:.4g}, {place_words(case)}: the term that "
            f"balances it is missing"
            f"{'' if lost else ', or runs along another axis, or has another weight'}.",
            f"Add the term of {case.name} that is common to the whole axis {axis}: the "
            f"sum in a softmax, the mean in a normalisation, the true class in a "
            f"margin.",
            () if lost else (*overwritten(case), *_ELSE),
        )
    ]


def _beside_a_penalty(
    case: Case, n: NDArray[np.float64], a: NDArray[np.float64]
) -> list[Clue]:
    """Tell of a sum that is zero but for the penalty on a weight."""
    x = case.point.reshape(case.variable.shape)
    found = balanced_but_for(n[0], x) if case.scalar else None
    if found is None or int(case.wrong.sum()) < _SUMMED:
        return []
    axis, k = found
    left = np.abs((a[0] - k * x).sum(axis=axis))
    if left.max() < _CLOSE * np.abs(a).max():
        return []
    return [
        Clue(
            BugKind.MISSING_TERM,
            0.79,
            f"But for {k:.5g} x {case.name}, as of a penalty, the numeric gradient of "
            f"{case.name} sums to zero along axis {axis}, the analytic one to up to "
            f"{left.max():.4g}, {place_words(case)}: the term that balances it is "
            f"missing, or runs along another axis, or has another weight.",
            f"Add the term of the data part that is common to the whole axis {axis}: "
            f"the true class in a margin, the sum in a softmax.",
            _ELSE,
        )
    ]


def _broken_blocks(
    case: Case, n: NDArray[np.float64], a: NDArray[np.float64]
) -> list[Clue]:
    """Tell of sums over several axes together, as those of an instance norm."""
    true = vanishing_blocks(n)
    if not case.scalar or not true or int(case.wrong.sum()) < _SUMMED:
        return []
    if set(true) & set(vanishing_blocks(a)) or vanishing_sums(a):
        return []
    axes = true[0]
    left = float(np.abs(a.sum(axis=tuple(axis + 1 for axis in axes))).max())
    named = f"{', '.join(map(str, axes[:-1]))} and {axes[-1]}"
    return [
        Clue(
            BugKind.MISSING_TERM,
            0.995,  # a mean that is missing has a part along the input as well
            f"The numeric gradient of {case.name} sums to zero over axes {named} "
            f"together, the analytic one to up to {left:.4g}, {place_words(case)}: the "
            f"term that balances it is missing, or runs along other axes, or has "
            f"another weight.",
            f"Add the term of {case.name} that is common to all entries along these "
            f"axes, such as the mean in a normalisation.",
            _ELSE,
        )
    ]


def moved_along(case: Case) -> list[Clue]:
    """Detect an error that sums to zero along an axis; the gradient does not.

    What is too much here is missing there, or a term is wrong that is balanced itself.
    """
    n = case.grid(case.numeric)
    if not case.scalar or n is None or case.variable.is_complex:
        return []
    error = (case.analytic - case.numeric).reshape(n.shape)[0]
    for axis, length in enumerate(case.variable.shape):
        left, total = (np.abs(side.sum(axis=axis)) for side in (error, n[0]))
        sizes = np.abs(error).sum(axis=axis)
        size = float(sizes.max())
        if length < _SUMMED or left.max() > 1e-6 * size:
            continue
        if (total[sizes > 0] < 1e-3 * size).any():
            continue
        return [
            Clue(
                BugKind.UNKNOWN,
                0.6,
                f"The error of {case.name} sums to zero along axis {axis}, its "
                f"gradient does not, {place_words(case)}: parts of it stand at other "
                f"indices, or a term is wrong that sums to zero itself, as that of "
                f"differences (total variation) or of a softmax does.",
                f"Check the sign and the factor of such a term, and the indices with "
                f"which {case.name} is read in the forward pass and written in the "
                f"backward.",
                (BugKind.WRONG_INDEX, BugKind.MISSING_TERM, BugKind.SIGN),
            )
        ]
    return []


def unreal(case: Case) -> list[Clue]:
    """Detect imaginary parts that were dropped."""
    if not case.variable.is_complex:
        return []
    rows = np.zeros(len(case.numeric), dtype=bool)
    for output, part in case.parts_of_output:
        rows[part] = output.name.endswith(".imag")
    cross = rows[:, None] != (case.part.positions % 2 == 1)[None]
    a_zero, n_zero = case.analytic_zero, case.numeric_zero
    if not (a_zero[cross].all() and (~n_zero)[cross].any()):
        return []
    if case.share(np.where(cross, 0.0, case.numeric)) < EXACT:
        return []
    told = (
        f"Real parts of the gradient of {case.name} are right; all imaginary "
        f"contributions are zero, {int((cross & ~n_zero).sum())} entries in all: an "
        f"imaginary part was dropped."
    )
    advice = "Look for .real, abs or a cast to a real dtype in the backward."
    return [Clue(BugKind.DTYPE, 0.95, told, advice)]


def _may_count(case: Case, counts: NDArray[np.float64], samples: int) -> bool:
    """Whether errors in units of 1/N may be labels of N samples at the wrong index.

    No more labels are moved than there are. A row of logits has one label: two of its
    entries are wrong, by one.
    """
    if float(np.abs(counts).sum()) / 2 > samples + 0.5:
        return False
    shape = case.variable.shape
    if len(shape) < 2 or shape[0] == 1:
        return True
    rows = np.abs(counts.reshape(shape))
    moved = (rows > 0.5).sum(axis=1)
    return shape[0] == samples and bool((moved <= 2).all() and rows.max() < 1.5)


def units(case: Case) -> list[Clue]:
    """Detect one-hot labels at the wrong index: the error counts samples.

    In the last bias of a classifier a wrong label leaves whole multiples of 1/N. They
    sum to zero where labels are moved, and do not where a row gets several or none.
    """
    error = (case.analytic - case.numeric)[0]
    if (
        not case.scalar
        or not case.part.complete
        or len(error) < 3
        or len(case.variable.shape) > 2
    ):
        return []
    size = float(np.abs(error).max(initial=0.0))
    if size == 0:
        return []
    moved = abs(float(error.sum())) <= 1e-6 * size
    steps = np.abs(error[np.abs(error) > 1e-6 * size])
    step = float(steps.min())
    for divisor in (1, 2, 3):
        counts = error / (step / divisor)
        per = divisor / step  # samples, if the loss is a mean
        if np.abs(counts - np.round(counts)).max() < 1e-4 and (
            abs(per - round(per)) < 1e-3 * per and 1 < round(per) < 1e6
        ):
            if moved and _may_count(case, counts, round(per)):
                part = _part_of_unit(case.numeric[0] * per)
                if part is not None:
                    return [_margins(case, round(per), round(per) * part)]
                clue = _moved_labels(case, round(per))
                # as a penalty |w| would be off: other points tell which it is
                signs = _are_signs(counts, case.point)
                return [dataclasses.replace(clue, confidence=0.75) if signs else clue]
            if not moved and _many_labels(case, counts, per):
                # no weight moves labels; samples within a margin are counted as well
                fixed = stays(case, _own_layer(case)) is not False
                return [_spread_labels(case, round(per))] if fixed else []
    return []


def _are_signs(counts: NDArray[np.float64], point: NDArray[np.float64]) -> bool:
    """Whether an error is one number times the signs of the entries, 0 at zero."""
    signs = np.sign(point)
    c = float(counts @ signs) / max(float(np.abs(signs).sum()), 1.0)
    return bool(np.abs(counts - c * signs).max() < _CLOSE * abs(c))


def _own_layer(case: Case) -> list[int]:
    """Numbers of the weight and the bias of a layer; or of the input alone."""
    layer = layer_of(case.evidence, case.part.which)
    return [case.part.which] if layer is None else [layer.weight, layer.bias]


def _many_labels(case: Case, counts: NDArray[np.float64], per: float) -> bool:
    """Whether a bias may count labels that land on several classes, or on none.

    Stricter, for these need not balance: several sizes, and a divisor that is whole.
    """
    found = np.unique(np.round(np.abs(counts[np.abs(counts) > 0.5])))
    shape = [n for n in case.variable.shape if n > 1]
    sums = case.grid(case.numeric)
    return (
        len(shape) == 1
        and len(found) > 1
        and float(found[-1]) <= per + 0.5
        and abs(per - round(per)) < 1e-5 * per
        and abs(counts.sum() - per) > 0.5  # the label of every sample: none is there
        and sums is not None
        and bool(vanishing_sums(sums))
    )


def _moved_labels(case: Case, samples: int) -> Clue:
    return Clue(
        BugKind.WRONG_INDEX,
        0.9,
        f"The error of {case.name} consists of whole multiples of 1/{samples} that sum "
        f"to zero: labels are counted at the wrong index.",
        "Check the index of the one-hot label in the gradient of the loss.",
    )


def _part_of_unit(values: NDArray[np.float64]) -> int | None:
    """Find the least k for which k times all values are whole; None above ten."""
    for k in range(1, _PARTS + 1):
        if np.abs(k * values - np.round(k * values)).max() < _CLOSE:
            return k
    return None


def _margins(case: Case, samples: int, units: int) -> Clue:
    """Tell of a gradient that counts itself, as that of a hinge loss does."""
    own = "so does its gradient"
    if units != samples:
        own = f"its gradient of multiples of 1/{units} (straight pieces)"
    return Clue(
        BugKind.UNKNOWN,
        0.8,
        f"The error of {case.name} consists of whole multiples of 1/{samples} that sum "
        f"to zero, and {own}: margins are counted that should not be, "
        f"or not counted, or labels stand at the wrong index.",
        "Compare the condition of the margin (score - score of the label + 1 > 0), and "
        "the index of the label, in the gradient of the loss with the forward pass.",
        (
            BugKind.WRONG_MASK,
            BugKind.WRONG_INDEX,
            *((BugKind.WRONG_DERIVATIVE,) * (units != samples)),
        ),
    )


def _spread_labels(case: Case, samples: int) -> Clue:
    return Clue(
        BugKind.WRONG_INDEX,
        0.88,
        f"The error of {case.name} consists of whole multiples of 1/{samples} that do "
        f"not sum to zero: rows get the one-hot label of several classes, or of none.",
        "Index rows and columns together in the gradient of the loss: "
        "d[np.arange(n), y] -= 1, not d[:, y] or d[0, y]; and smooth or weight labels "
        "there as in the loss.",
        (BugKind.MISSING_TERM,),
    )
