"""Detector of a sum of outer products of which some are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.held import held_arrays
from gradlab.diagnosis.measuring.measures import Case, Clue
from gradlab.diagnosis.measuring.sides import wrong_inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["too_few_products"]

_LARGE = 500  # rows or columns of a matrix beyond which its rank is not asked for


def too_few_products(case: Case) -> list[Clue]:
    """Detect a matrix that holds fewer outer products than are added up.

    The gradient of a weight is a sum of outer products, one for each sample and step.
    """
    shape = case.variable.shape
    if len(shape) != 2 or not case.scalar or not case.part.complete:
        return []
    if case.variable.is_complex or min(shape) < 2 or max(shape) > _LARGE:
        return []
    if 2 * int(case.wrong.sum()) <= case.wrong.size:
        return []  # a contribution that is lost spoils more
    sides = (case.analytic, case.numeric, case.point)
    ours, true, weights = (side.reshape(shape) for side in sides)
    # rows and columns that get no gradient at all say nothing about the others
    there = np.ix_((ours != 0).any(axis=1), (ours != 0).any(axis=0))
    ours, true, weights = ours[there], true[there], weights[there]
    if min(ours.shape) < 2:
        return []
    penalty = _up_to_a_penalty(ours, weights)
    kept = 1 if penalty is not None else _rank(ours, 1e-6 * np.abs(ours).max())
    rank = _rank(true - (penalty or 0.0) * weights, 1e-4 * np.abs(true).max())
    if kept >= rank or _is_symmetric(true):
        return []
    stale = _before_activation(case, ours, true, there)
    if stale:
        return stale
    lost = _rank(true - ours, 1e-4 * np.abs(true).max()) < rank
    if not _meets_samples(case, 0 if lost else rank):
        return []
    apart = f", apart from {penalty:.4g} x {case.name}," if penalty else ""
    some = "one outer product" if kept == 1 else f"a sum of {kept} outer products"
    left = "one is" if kept == 1 else "a part is"
    # what its own line loses spoils no other input; a signal without some samples does
    alone = wrong_inputs(case.evidence) == {case.part.which}
    return [
        Clue(
            BugKind.LOST_ACCUMULATION,
            0.76 if kept == 1 else 0.7 if alone else 0.5,
            f"The analytic gradient of {case.name}{apart} is {some}, the "
            f"numeric one has rank {rank} of {min(ours.shape)}: of what several "
            f"samples or steps contribute {left} left (or they were averaged before "
            f"they were multiplied).",
            f"In a loop add every contribution to the gradient of {case.name} (+=) in "
            f"place of assigning; without a loop multiply whole arrays, x.T @ delta.",
        )
    ]


def _meets_samples(case: Case, count: int) -> bool:
    """Whether the function holds arrays with as many samples or steps, or takes some.

    Of sums of products those that are left out are as many fewer; where both have as
    many as a matrix has rows, a term that is no product (a determinant's, a penalty's)
    leaves the same behind, and what samples contribute needs samples. With a count of
    0 any array that is held will do, a sample by itself.
    """
    subject = case.evidence.subject
    leaves = getattr(getattr(subject, "tree", None), "leaves", ())
    own = {id(leaf.value) for leaf in leaves}
    held = [array for _, array in held_arrays(subject) if id(array.value) not in own]
    if held and not count:
        return True
    shapes = [array.shape for array in held]
    shapes += [v.shape for i, v in enumerate(subject.inputs) if i != case.part.which]
    return any(len(shape) > 1 and max(shape) >= count for shape in shapes)


def _is_symmetric(true: NDArray[np.float64]) -> bool:
    """Whether a matrix is its own transpose: no sum of what samples contribute is."""
    if true.shape[0] != true.shape[1]:
        return False
    return bool(np.abs(true - true.T).max() <= 1e-6 * np.abs(true).max())


def _before_activation(
    case: Case,
    ours: NDArray[np.float64],
    true: NDArray[np.float64],
    there: tuple[NDArray[np.intp], ...],
) -> list[Clue]:
    """Recognise the pre-activation as factor: it lies in the span of its own layer.

    Of a layer before this one: error signals lie in the span of the one behind it.
    """
    inputs = case.evidence.subject.inputs
    for axis, length in enumerate(case.variable.shape):
        kept = there[axis].ravel()
        sides = (ours, true) if axis == 0 else (ours.T, true.T)
        for which, layer in enumerate(inputs[: case.part.which]):
            if len(layer.shape) != 2 or layer.is_complex:
                continue
            point = case.evidence.subject.point(which).reshape(layer.shape)
            basis = [v for v in (point, point.T) if v.shape[0] == length]
            if len(basis) != 1:
                continue
            shifts = [
                case.evidence.subject.point(i)[:, None]
                for i, v in enumerate(inputs)
                if v.shape == (length,) and not v.is_complex
            ]
            span = np.hstack([*basis, *shifts])[kept]
            size = float(np.abs(span).max(initial=0.0))
            own = _rank(span, 1e-6 * size)
            with_ours, with_true = (
                _rank(np.hstack([span, v * (size / np.abs(v).max())]), 1e-6 * size)
                for v in sides
            )
            if with_ours == own < with_true:
                return [_pre_activation(case, layer.name)]
    return []


def _pre_activation(case: Case, layer: str) -> Clue:
    return Clue(
        BugKind.STALE_CACHE,
        0.85,
        f"The analytic gradient of {case.name} is made of combinations of {layer}, the "
        f"numeric one is not: it is multiplied with the array that {layer} gives, "
        f"before the activation.",
        f"Multiply the error signal for {case.name} with the output of the activation "
        f"that enters {case.name}, not with its pre-activation.",
    )


def _rank(matrix: NDArray[np.float64], least: float) -> int:
    """Count the singular values above `least`."""
    return int((np.linalg.svd(matrix, compute_uv=False) > least).sum())


def _up_to_a_penalty(
    gradient: NDArray[np.float64], weights: NDArray[np.float64]
) -> float | None:
    """Find k for which gradient - k * weights is one outer product; 0 before others.

    Then every two by two piece of it, and of what it is multiplied with, has no
    determinant: a quadratic equation in k.
    """
    if _is_product(gradient):
        return 0.0
    rng = np.random.default_rng(0)
    left, right = (rng.normal(size=(2, length)) for length in gradient.shape)
    # determinants of large numbers overflow
    sizes = [float(np.abs(side).max()) or 1.0 for side in (gradient, weights)]
    gradient, weights = gradient / sizes[0], weights / sizes[1]
    a, w = left @ gradient @ right.T, left @ weights @ right.T
    middle = a[0, 0] * w[1, 1] + a[1, 1] * w[0, 0] - a[0, 1] * w[1, 0]
    middle -= a[1, 0] * w[0, 1]
    roots = np.roots([np.linalg.det(w), -middle, np.linalg.det(a)])
    for root in roots[np.isreal(roots)].real:
        if min(gradient.shape) > 2 and _is_product(gradient - root * weights):
            return float(root) * sizes[0] / sizes[1]
    return None


def _is_product(matrix: NDArray[np.float64]) -> bool:
    sizes = np.linalg.svd(matrix, compute_uv=False)
    return bool(sizes[0] > 0 and sizes[1] <= 1e-6 * sizes[0])
