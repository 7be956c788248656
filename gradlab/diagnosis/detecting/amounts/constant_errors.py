"""Detectors of errors that are constant: labels, targets, numbers that are added.

A label enters the error signal of a loss as a number that no weight moves. Where it
stands at the wrong class or sample, the error of the last layer is the same for all
weights of that layer; a wrong formula, mask or cache makes one that changes with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.layer_shapes import is_named, layer_of
from gradlab.diagnosis.measuring.measures import Case, Clue
from gradlab.diagnosis.measuring.moving import stays
from gradlab.diagnosis.measuring.sides import wrong_inputs
from gradlab.diagnosis.measuring.sums import vanishing_sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["constants", "of_groups", "of_own_entries", "steady"]

_CLOSE = 1e-4  # relative slack of constants that are recognised
_VARIES = 1e-2  # of the largest: a spread that is none of the same number
_FEWEST = 4  # entries that are off by the same number, and not by chance


def steady(case: Case) -> list[Clue]:
    """Detect an error that does not depend on the weights next to the output."""
    if not case.scalar or not case.part.complete or case.variable.is_complex:
        return []
    evidence, which = case.evidence, case.part.which
    layer = layer_of(evidence, which)
    if layer is not None and layer.recurrent is not None:
        if is_named(evidence, layer):
            return []
        layer = None  # three shapes fit by chance as often
    members = [which] if layer is None else [layer.weight, layer.bias]
    return _reading(case, members, which) if stays(case, members) else []


def _moved_along(case: Case) -> int | None:
    """Axis along which the error sums to zero, where a sum over it is one of units."""
    grid = case.grid(case.error)
    layer = layer_of(case.evidence, case.part.which)
    units = layer is not None and layer.bias == case.part.which
    if grid is None or (len(case.variable.shape) < 2 and not units):
        return None
    axes = vanishing_sums(grid)
    return max(axes) if axes else None


def _is_smoothed(case: Case, axis: int) -> bool:
    """Whether every line along an axis holds one number, but for one entry of it."""
    lines = np.moveaxis(case.error.reshape(case.variable.shape), axis, -1)
    lines = lines.reshape(-1, lines.shape[-1])
    if lines.shape[1] < 3:
        return False
    usual = np.median(lines, axis=1, keepdims=True)
    top = float(np.abs(lines).max())
    other = np.abs(lines - usual) > 1e-4 * top
    return bool((other.sum(axis=1) == 1).all() and (np.abs(usual) > 1e-4 * top).all())


def _reading(case: Case, members: list[int], which: int) -> list[Clue]:
    """Tell labels of other samples from those that are missing or something else."""
    evidence = case.evidence
    names = " and ".join(evidence.subject.inputs[k].name for k in members)
    wrong = wrong_inputs(evidence)
    told = f"The error of {case.name} is the same at other values of {names}"
    rest = [k for k in members if k != which]
    if rest and which == members[0] and rest[0] not in wrong:
        bias = evidence.subject.inputs[rest[0]].name
        return [
            Clue(
                BugKind.WRONG_INDEX,
                0.9,
                f"{told}, and {bias}, which sums over samples, is right: labels or "
                f"targets, which no weight moves, are not those of their samples.",
                "Check that labels are in the order of the samples, and the index of "
                "the one-hot label in the gradient of the loss.",
                handed_on=True,
            )
        ]
    moved = _moved_along(case)
    if moved is not None and _is_smoothed(case, moved):
        return [
            Clue(
                BugKind.MISSING_TERM,
                0.88,
                f"{told}, and is one number in all entries but one of every line along "
                f"axis {moved}, where the others are made up for: label smoothing, in "
                f"the loss or in its gradient only.",
                "Subtract the same smoothed labels, (1 - s) * onehot + s / classes, "
                "in the gradient as the loss uses.",
            )
        ]
    if moved is not None:
        return [
            Clue(
                BugKind.WRONG_INDEX,
                0.88,
                f"{told}, and sums to zero along axis {moved} of {case.name}: a number "
                f"that no weight moves, such as a label, is right in sum and stands at "
                f"other places than in the loss.",
                "Compare the one-hot label in the gradient (d[np.arange(n), y] -= 1) "
                "with that in the loss: an offset, another order, or smoothing.",
                (BugKind.MISSING_TERM,),
            )
        ]
    return _some_number(case, told, layered=bool(rest))


def _some_number(case: Case, told: str, *, layered: bool) -> list[Clue]:
    """Say that a number is another one: which, and in which sum, is left open."""
    first, second = _too_few_or_many(case)
    kinds = (
        (first, 0.82 if layered else 0.7),
        (second, 0.65),
        (BugKind.WRONG_INDEX, 0.6),
    )
    return [
        Clue(
            kind,
            trust,
            f"{told}: a number that no weight moves, such as a label or a target, is "
            f"not the one in the loss.",
            "Compare what the gradient of the loss subtracts from the scores, the "
            "one-hot label (d[np.arange(n), y] -= 1) or the target, with the loss: its "
            "index, its factor, its smoothing.",
        )
        for kind, trust in kinds
    ]


def constants(case: Case) -> list[Clue]:
    """Detect one and the same number too much, or missing, in some entries."""
    if not case.scalar or case.variable.is_complex or not case.part.complete:
        return []
    error, wrong = case.error[0], case.wrong[0]
    values, numeric = error[wrong], case.numeric[0][wrong]
    v = float(values[0])
    if np.abs(values - v).max() > _CLOSE * abs(v):
        return []
    if len(values) == 1:
        column = int(np.flatnonzero(wrong)[0])
        return _label_missing(case, column, v) or _single(case, column, v)
    flat = np.ptp(numeric) < 1e-3 * np.abs(numeric).max(initial=0.0)
    if flat and not case.is_noise:
        return []  # one factor says the same
    shape = case.variable.shape
    verb = "too large" if v > 0 else "too small"
    for side, words in ((case.point < 0, "negative"), (case.point > 0, "positive")):
        if len(values) > 2 and not wrong.all() and np.array_equal(wrong, side):
            return [_size_penalty(case, words, f"{verb} by {abs(v):.6g}", abs(v) / 2)]
    told = f"{len(values)} entries of {case.name} are each {verb} by {abs(v):.6g}"
    if len(shape) > 1 and not wrong.all():
        per = wrong.reshape(-1, shape[-1]).sum(axis=1)
        if (per <= 1).all():
            return _term(case, told + ", one in each row", 0.9)
        if per.min() < per.max():  # d[:, y] would do the same to every row
            return _term(case, told, 0.8)
        return [
            Clue(
                BugKind.WRONG_INDEX,
                0.9,
                f"{told}, up to {int(per.max())} in one row: the same number lands at "
                f"several indices.",
                "Index rows and columns together (d[np.arange(n), y], not d[:, y]).",
            ),
            *_term(case, told, 0.6),
        ]
    return _term(case, told, 0.9 if len(values) > 2 else 0.5)


def of_own_entries(case: Case) -> list[Clue]:
    """Detect one number too much, or missing, in the slope of every entry by itself."""
    a, n = case.analytic, case.numeric
    if case.scalar or case.variable.is_complex or len(n) < _FEWEST:
        return []
    if a.shape[0] != a.shape[1] or not np.array_equal(
        case.wrong, np.eye(len(n), dtype=bool)
    ):
        return []
    values, true = np.diag(case.error), np.diag(n)
    v = float(values[0])
    if np.abs(values - v).max() > _CLOSE * abs(v) or not _varies(true):
        return []
    more = np.linalg.norm(np.diag(a)) > np.linalg.norm(true)
    kinds = BugKind.MISSING_TERM, BugKind.EXTRA_TERM
    kind, other = kinds[::-1] if more else kinds
    return [
        Clue(
            kind,
            0.94,
            f"The slope of each entry of {case.name} by itself is "
            f"{'too large' if v > 0 else 'too small'} by {abs(v):.6g}, the same in all "
            f"{len(values)} of them: that multiple of the incoming gradient is "
            f"missing, or one too much.",
            f"Look for a term of {case.name} that is added in one of forward and "
            f"backward only: a residual connection, a slope for small values.",
            (other,),
        )
    ]


def of_groups(case: Case) -> list[Clue]:
    """Detect an error that is one number for each group of entries along some axes.

    Where forward divides by a sum over these axes, or by a norm, every entry of a group
    moves that by as much: a quotient rule of which half is missing.
    """
    shape = case.variable.shape
    grid, true = case.grid(case.error), case.grid(case.numeric)
    if not case.scalar or grid is None or true is None or len(shape) < 2:
        return []
    if case.variable.is_complex or not case.wrong.all():
        return []
    error, numeric = grid[0], true[0]
    top = float(np.abs(error).max())
    shared = tuple(
        axis
        for axis, length in enumerate(shape)
        if length > 1 and np.ptp(error, axis=axis).max() <= _CLOSE * top
    )
    others = [k for k, length in enumerate(shape) if length > 1 and k not in shared]
    if not (shared and others) or not _varies(np.ptp(numeric, axis=shared)):
        return []
    size = int(np.prod([shape[axis] for axis in shared]))
    alike = (size - 1) * int(np.prod([shape[k] for k in others]))
    if alike < _FEWEST - 1 or np.ptp(numeric, axis=shared).min() < _VARIES * top:
        return []
    if stays(case, [case.part.which]):
        return []  # a number that does not move with it, such as a target, is no sum
    axes = f"ax{'is' if len(shared) == 1 else 'es'} {', '.join(map(str, shared))}"
    return [
        Clue(
            BugKind.MISSING_TERM,
            0.82,
            f"The error of {case.name} is one number for all {size} entries along "
            f"{axes}, and another one for the next of them: a term that they share, "
            f"through a sum over {axes}, is missing, or one too much.",
            f"Differentiate what all entries along {axes} share as well: the sum in "
            f"a denominator (the quotient rule has two terms), a norm, a mean.",
            (BugKind.EXTRA_TERM,),
        )
    ]


def _varies(values: NDArray[np.float64]) -> bool:
    """Whether numbers are more than one."""
    return float(np.ptp(values)) > _VARIES * float(np.abs(values).max(initial=0.0))


def _size_penalty(case: Case, words: str, off: str, weight: float) -> Clue:
    """Recognise the slope of a penalty on sizes that does not turn with the sign."""
    return Clue(
        BugKind.REGULARIZATION,
        0.93,
        f"Entries of {case.name} are each {off} exactly where they are {words}; the "
        f"others are right: the slope of a penalty {weight:.4g} * |{case.name}| "
        f"without its sign.",
        f"The gradient of sum(|{case.name}|) is sign({case.name}).",
        (BugKind.SIGN,),
    )


def _too_few_or_many(case: Case) -> tuple[BugKind, BugKind]:
    """Return what a constant error is: a term too many, where nothing moves f."""
    kinds = BugKind.MISSING_TERM, BugKind.EXTRA_TERM
    return kinds[::-1] if case.is_noise else kinds


def _term(case: Case, told: str, trust: float) -> list[Clue]:
    kind, other = _too_few_or_many(case)
    return [
        Clue(
            kind,
            trust,
            f"{told}: a constant term is missing, or one too much.",
            "Look for a constant that is added in one of forward and backward only.",
            (other,),
        )
    ]


def _label_missing(case: Case, column: int, v: float) -> list[Clue]:
    """Recognise probabilities of which the label is not taken off: they sum to one.

    Or to 1/N, in a mean over N samples; what is right sums to zero along that axis.
    """
    ours, true = case.grid(case.analytic), case.grid(case.numeric)
    if ours is None or true is None or not v > 0 or v > 1 + _CLOSE:
        return []
    axes = vanishing_sums(true)
    if not axes or abs(1 / v - round(1 / v)) > _CLOSE / v:
        return []
    lines = np.moveaxis(ours[0], min(axes), -1).reshape(-1, ours.shape[min(axes) + 1])
    at = np.moveaxis(case.wrong.reshape(ours.shape)[0], min(axes), -1)
    line = lines[at.reshape(lines.shape).any(axis=1)][0]
    if line.min() < -_CLOSE * v or abs(line.sum() - v) > _CLOSE * v:
        return []
    label = case.variable.label(int(case.part.positions[column]))
    return [
        Clue(
            BugKind.MISSING_TERM,
            0.92,
            f"{label} alone is wrong, too large by {v:.6g}, and the numeric gradient "
            f"sums to zero along axis {min(axes)}: probabilities of which the label "
            f"is not taken off.",
            "Subtract the one-hot label from the probabilities (d[y] -= 1), as often "
            "and at the index that the loss reads.",
            (BugKind.EXTRA_TERM,),
        )
    ]


def _single(case: Case, column: int, v: float) -> list[Clue]:
    """One entry that is off by a round number: something was added there."""
    if case.numeric.size < 4:
        return []
    layer = layer_of(case.evidence, case.part.which)
    if layer is not None and {layer.weight, layer.bias} <= wrong_inputs(case.evidence):
        return []  # their error signal is wrong, and not a line of one of them
    rounded = float(f"{v:.2g}")
    twelfths = 12 * case.analytic[0, column] / (case.numeric[0, column] or np.nan)
    simple = np.isfinite(twelfths) and abs(twelfths - round(twelfths)) < 1e-4
    if abs(v - rounded) > _CLOSE * abs(v) or simple:
        return []
    if stays(case, [case.part.which]) is False:
        return []  # a number that is added does not follow the weights
    label = case.variable.label(int(case.part.positions[column]))
    kinds = BugKind.EXTRA_TERM, BugKind.MISSING_TERM
    a, n = float(case.analytic[0, column]), float(case.numeric[0, column])
    added, off = ("added to it", "taken off it")[:: 1 if v > 0 else -1]
    what = f"a number is {added}"
    # what is counted is lost in whole numbers, and leaves less of the gradient
    if rounded == round(rounded) and abs(a) < abs(n) and a * n >= 0:
        kinds, what = kinds[::-1], f"what should be {off} is not"
    return [
        Clue(
            kinds[0],
            0.9,
            f"{label} alone is wrong, too {'large' if v > 0 else 'small'} by "
            f"{abs(rounded):g}: {what}.",
            f"Look for an assignment to {label} in the backward; where an index may "
            f"stand there twice, add with np.add.at.",
            kinds[1:],
        )
    ]
