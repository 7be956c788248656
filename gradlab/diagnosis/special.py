"""Detectors that look at special points, where one kind of mistake vanishes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measures import Case, Clue
from gradlab.diagnosis.moving import agree_at
from gradlab.diagnosis.places import place_words
from gradlab.differentiation.smoothness import Smoothness

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["kinked_point", "real_point", "symmetric_point"]

_MATRICES = 4  # square matrices that are tried


def symmetric_point(case: Case) -> list[Clue]:
    """Detect a lost transpose: the error vanishes where a matrix is symmetric."""
    evidence = case.evidence
    tried = 0
    for which, variable in enumerate(evidence.subject.inputs):
        shape = variable.shape
        square = len(shape) >= 2 and shape[-1] == shape[-2] and shape[-1] > 1
        if not square or variable.is_complex or variable.support is not None:
            continue
        tried += 1
        if tried > _MATRICES:
            break
        matrix = evidence.subject.point(which).reshape(shape)
        even = (matrix + np.swapaxes(matrix, -1, -2)) / 2
        if np.allclose(even, matrix):
            continue
        if agree_at(evidence, {which: even.ravel()}, case.part.which):
            return [
                Clue(
                    BugKind.TRANSPOSE,
                    0.955,
                    f"The error of {case.name} vanishes when {variable.name} is "
                    f"replaced by its symmetric part, where {variable.name} and "
                    f"{variable.name}.T are the same.",
                    f"Look for {variable.name} in the backward where "
                    f"{variable.name}.T belongs, or the other way round.",
                )
            ]
    return []


def kinked_point(case: Case) -> list[Clue]:
    """Detect a branch that is wrong at a kink alone: ``x == 0``, a tie."""
    part, wrong = case.part, case.wrong
    if not (part.kinds[wrong] == Smoothness.KINK).all():
        return []
    row, column = (int(i) for i in np.argwhere(wrong)[0])
    entry = case.variable.entry_of(int(part.positions[column]))
    label = case.variable.label(entry)
    left, right = (side[row, column] + 0.0 for side in (part.left, part.right))
    return [
        Clue(
            BugKind.WRONG_MASK,
            0.96,
            f"{case.name} is wrong only where the function has a kink, "
            f"{place_words(case)}: the slope is {left:.6g} to the left of {label} and "
            f"{right:.6g} to the right, and {part.analytic[row, column]:.6g} is not "
            f"between them.",
            f"Give the case of the kink itself (zero, a tie, a bound) a slope between "
            f"the two, such as {(left + right) / 2:.6g}.",
        )
    ]


def real_point(case: Case) -> list[Clue]:
    """Detect a lost conjugate: the error vanishes where the input is real."""
    if not case.variable.is_complex:
        return []
    point: NDArray[np.float64] = case.evidence.subject.point(case.part.which)
    point[1::2] = 0.0
    if not agree_at(case.evidence, {case.part.which: point}, case.part.which):
        return []
    return [
        Clue(
            BugKind.CONJUGATE,
            0.95,
            f"The error of {case.name} vanishes when its imaginary parts are zero: a "
            f"conjugate is missing, or one too many.",
            "The gradient of a real loss by z multiplies by conj(df/dz), not by df/dz.",
        )
    ]
