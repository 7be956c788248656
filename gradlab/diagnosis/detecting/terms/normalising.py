"""Detector of terms of a normalisation that are wrong, missing or too large.

With the mean and the variance taken over D entries, xh = (x - mean) / s and K the gain,

    d out_i / d x_j = K_i / s (delta_ij - 1 / D - xh_i xh_j / D)

within each group, whatever the gain is: the slope along a group that is shifted, or
stretched about its mean, is zero. So which term of the backward is wrong, and by which
factor, can be read off (S. Ioffe and C. Szegedy, arXiv:1502.03167).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.layer_shapes import shift_of
from gradlab.diagnosis.measuring.measures import EXACT, Case, Clue
from gradlab.diagnosis.measuring.moving import analytic_at, slopes_at
from gradlab.diagnosis.measuring.proportions import fraction_words
from gradlab.diagnosis.measuring.sides import wrong_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

__all__ = ["mean_behind_a_weight", "terms_of_normalisation"]

_LARGE = 1_000_000  # entries of a Jacobian beyond which it is not tried
_STILL = 1e-3  # of the largest slope: an epsilon beside the variance leaves so little
_ONE = 1e-6  # of the largest singular value: a matrix that is one outer product
_UNITS = 4  # that are looked at with another shift
_MOVES = 1e-2  # relative: a number that has become another one
_CLOSE = 2e-3  # how near to a simple factor one must be that rests on as much


def terms_of_normalisation(case: Case) -> list[Clue]:
    """Detect a wrong factor at the mean or at the variance of a normalisation."""
    shape = case.variable.shape
    if case.variable.is_complex or case.grid(case.numeric) is None or not shape:
        return []
    if [output.shape for output in case.outputs] != [shape] or len(shape) < 1:
        return []
    if case.numeric.size > _LARGE:
        return []
    x = case.point.reshape(shape)
    for axes in _candidates(len(shape)):
        count = int(np.prod([shape[axis] for axis in axes]))
        if count < 3:
            continue
        apart = x - x.mean(axis=axes, keepdims=True)
        size = np.sqrt((apart**2).mean(axis=axes, keepdims=True))
        if not (size > 0).all():
            continue
        hat = (apart / size).ravel()
        if not _stands_still(case.numeric, hat):
            continue
        groups = np.broadcast_to(
            np.arange(size.size).reshape(size.shape), shape
        ).ravel()
        clues = _terms(case, hat, groups, size.ravel(), axes)
        if clues:
            return clues
    return []


def mean_behind_a_weight(case: Case) -> list[Clue]:
    """Detect that the mean is left out of a normalisation behind a weight, ``x @ W``.

    What is left out is one number for each unit, the mean of its error signal, for
    every sample alike: the error of W is an outer product. With another shift behind
    the norm these numbers follow the gradient of the shift, which is their sum.
    """
    shape, evidence = case.variable.shape, case.evidence
    if not case.scalar or len(shape) != 2 or min(shape) < 2 or not case.part.complete:
        return []
    for gain in (case.part.which + 1, case.part.which + 2):
        shift = _shift(case, gain)
        units = evidence.subject.inputs[shift or 0].coordinates
        if shift is None or units < 2 or units not in shape:
            continue
        axis = shape.index(units)
        error = np.moveaxis((case.analytic - case.numeric).reshape(shape), axis, -1)
        left, sizes, right = np.linalg.svd(error)
        if sizes[1:].max() > _ONE * sizes[0]:
            continue
        if not _follows(case, axis, (left[:, 0], sizes[0] * right[0]), shift):
            continue
        name = evidence.subject.inputs[gain].name
        return [
            Clue(
                BugKind.MISSING_TERM,
                0.99,
                f"The error of {case.name} is one number for each unit that all "
                f"samples share, and follows the gradient of the shift beside {name}: "
                f"the mean of the normalisation is taken for a constant.",
                "Subtract the mean of the error signal over the batch: dx = (g - "
                "mean(g) - xh mean(g xh)) / s.",
            )
        ]
    return []


def _follows(
    case: Case,
    axis: int,
    error: tuple[NDArray[np.float64], NDArray[np.float64]],
    shift: int,
) -> bool:
    """Whether errors of units keep their ratio to the gradient of another shift."""
    evidence, which, shape = case.evidence, case.part.which, case.variable.shape
    left, here = error
    chosen = np.argsort(-np.abs(here))[:_UNITS]
    lines = np.zeros((len(chosen), len(left), shape[axis]))
    lines[np.arange(len(chosen)), :, chosen] = left
    flat = np.moveaxis(lines, -1, axis + 1).reshape(len(chosen), -1)
    point = np.asarray(evidence.subject.point(shift), dtype=np.float64)
    away = (1 + np.abs(point).max()) * evidence.rng.normal(size=len(point))
    moved = {shift: point + away}
    before, after = analytic_at(evidence, {}), analytic_at(evidence, moved)
    if before is None or after is None:
        return False
    there = flat @ after[which] - slopes_at(evidence, moved, which, flat)
    own = here[chosen] * after[shift][chosen]
    apart = np.abs(there * before[shift][chosen] - own)
    size = np.abs(own).max(initial=0.0)
    turned = np.abs(there - here[chosen]).max() > _MOVES * np.abs(here).max()
    return bool(turned and (apart <= _CLOSE * size).all())


def _shift(case: Case, gain: int) -> int | None:
    """Find the shift beside a gain, if an input is one, and both of them are right."""
    evidence, wrong = case.evidence, wrong_inputs(case.evidence)
    if gain >= len(evidence.subject.inputs) or gain in wrong:
        return None
    shift = shift_of(evidence, gain)
    return None if shift in wrong else shift


def _candidates(dimensions: int) -> Iterator[tuple[int, ...]]:
    """List sets of axes that a normalisation runs over: batch, layer, instance."""
    every = tuple(range(dimensions))
    found = [(0,), (dimensions - 1,), every[2:], every[1:], (0, *every[2:]), every]
    yield from dict.fromkeys(axes for axes in found if axes)


def _stands_still(numeric: Matrix, hat: NDArray[np.float64]) -> bool:
    """Whether f does not change with the mean nor with the width of its groups."""
    size = np.abs(numeric) @ np.abs(hat)
    still = np.abs(numeric @ hat) <= _STILL * size
    shifted = np.abs(numeric.sum(axis=1)) <= _STILL * np.abs(numeric).sum(axis=1)
    return bool(still.all() and shifted.all() and (size > 0).any())


def _terms(
    case: Case,
    hat: NDArray[np.float64],
    groups: NDArray[np.intp],
    deviations: NDArray[np.float64],
    axes: tuple[int, ...],
) -> list[Clue]:
    """Fit factors of both terms to the error; tell those that are not one."""
    n, count = case.numeric, len(hat) // len(deviations)
    left = 1 - (1 + hat**2) / count
    if (left <= 1e-6).any():
        return []
    slope = np.diag(n) / left  # K / s
    together = groups[:, None] == groups[None, :]
    mean = np.where(together, slope[:, None] / count, 0.0)
    variance = mean * np.outer(hat, hat)
    right = np.where(np.eye(len(n), dtype=bool), slope, 0.0) - mean - variance
    if np.abs(right - n).max() > 10 * _STILL * np.abs(n).max():
        return []  # another function
    table = np.stack([mean.ravel(), variance.ravel()], axis=1)
    error = (case.analytic - n).ravel()
    fitted = np.linalg.lstsq(table, error, rcond=None)[0]
    stray = float(np.linalg.norm(table @ fitted - error))
    where = f"ax{'is' if len(axes) == 1 else 'es'} {', '.join(map(str, axes))}"
    if stray > (1 - EXACT) * float(np.linalg.norm(error)):
        return _powers(case, (mean, variance), groups, deviations, where)
    terms = (
        ("mean", "mean(d)", 1 - float(fitted[0])),
        ("variance", "xhat * mean(d * xhat)", 1 - float(fitted[1])),
    )
    return [
        _clue(case, word, formula, factor, count, where)
        for word, formula, factor in sorted(terms, key=lambda term: -abs(1 - term[2]))
        if abs(1 - factor) > _CLOSE
    ][:1]


def _powers(
    case: Case,
    terms: tuple[Matrix, Matrix],
    groups: NDArray[np.intp],
    deviations: NDArray[np.float64],
    where: str,
) -> list[Clue]:
    """Recognise a term with a factor that is a power of its group's deviation."""
    error = case.analytic - case.numeric
    for term, word in zip(terms, ("mean", "variance"), strict=True):
        factors = np.ones(len(deviations))
        for group in range(len(factors)):
            own, off = term[groups == group], error[groups == group]
            below = float((own * own).sum())
            factors[group] -= float((own * off).sum()) / below if below > 0 else 0.0
        model = case.numeric + (1 - factors[groups])[:, None] * term
        if case.share(model) < EXACT or (factors <= 0).any():
            continue
        for power in (2, 1, -1, -2, 3, -3):
            if np.abs(factors / deviations**power - 1).max() > 5 * _CLOSE:
                continue
            return [
                Clue(
                    BugKind.WRONG_DERIVATIVE,
                    0.95,
                    f"The function normalises {case.name} along {where}; in its "
                    f"gradient the term of the {word} has, in each of {len(factors)} "
                    f"groups, the factor s**{power}, where s is the standard deviation "
                    f"of the group and 1 belongs.",
                    f"Compare the powers of the {word} in the backward: the derivative "
                    f"of (var + eps)**-0.5 is -0.5 * (var + eps)**-1.5.",
                )
            ]
    return []


def _clue(
    case: Case, word: str, formula: str, factor: float, count: int, where: str
) -> Clue:
    """Say what the factor of one term means."""
    lead = (
        f"The function normalises {case.name} along {where}, {count} entries at a "
        f"time; in its gradient the term of the {word}, {formula},"
    )
    if abs(factor) < _CLOSE:
        return Clue(
            BugKind.MISSING_TERM,
            0.96,
            f"{lead} is missing.",
            f"The {word} depends on every entry of its group: subtract {formula} "
            f"before dividing by the standard deviation.",
        )
    told = f"{lead} has the factor {factor:.5g} where 1 belongs"
    if abs(factor + 1) < _CLOSE:
        return Clue(
            BugKind.SIGN,
            0.96,
            f"{told}: its sign is flipped.",
            f"Subtract {formula} in place of adding it.",
        )
    for size, words in (
        (count, f"a sum stands where a mean over {count} entries belongs"),
        (1 / count, f"the mean over {count} entries is taken twice"),
        (count / (count - 1), f"{count} - 1 stands where {count} belongs"),
        ((count - 1) / count, f"{count} stands where {count} - 1 belongs"),
    ):
        if abs(factor / size - 1) < _CLOSE:
            return Clue(
                BugKind.MISSING_REDUCTION,
                0.96,
                f"{told}: {words}.",
                f"Divide {formula} by the number of entries that the forward pass "
                f"divides by.",
            )
    named = fraction_words(round(factor, 3))
    return Clue(
        BugKind.WRONG_DERIVATIVE,
        0.95,
        f"{told}{f' ({named})' if named and '/' in named else ''}.",
        f"Derive the term of the {word} again: {formula}.",
    )
