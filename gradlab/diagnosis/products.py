"""Detector of a sum of outer products of which one alone is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measures import Case, Clue

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["one_product"]

_LARGE = 500  # rows or columns of a matrix beyond which its rank is not asked for


def one_product(case: Case) -> list[Clue]:
    """Detect a matrix that holds one outer product where many are added up.

    The gradient of a weight is a sum of outer products, one for each sample and step.
    """
    shape = case.variable.shape
    if len(shape) != 2 or not case.scalar or not case.part.complete:
        return []
    if case.variable.is_complex or min(shape) < 2 or max(shape) > _LARGE:
        return []
    if 2 * int(case.wrong.sum()) <= case.wrong.size:
        return []  # a contribution that is lost spoils more
    ours, true = (side.reshape(shape) for side in (case.analytic, case.numeric))
    penalty = _up_to_a_penalty(ours, case.point.reshape(shape))
    if penalty is None:
        return []
    weights = case.point.reshape(shape)
    left = np.linalg.svd(true - penalty * weights, compute_uv=False)
    rank = int((left > 1e-4 * left[0]).sum())
    if rank < 2 or left[0] < 1e-6 * np.abs(true).max():
        return []
    apart = f", apart from {penalty:.4g} x {case.name}," if penalty else ""
    return [
        Clue(
            BugKind.LOST_ACCUMULATION,
            0.76,
            f"The analytic gradient of {case.name}{apart} is one outer product, the "
            f"numeric one has rank {rank} of {min(shape)}: of what several samples or "
            f"steps contribute one is left (or they were averaged before they were "
            f"multiplied).",
            f"In a loop add every contribution to the gradient of {case.name} (+=) in "
            f"place of assigning; without a loop multiply whole arrays, x.T @ delta.",
        )
    ]


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
    a, w = left @ gradient @ right.T, left @ weights @ right.T
    middle = a[0, 0] * w[1, 1] + a[1, 1] * w[0, 0] - a[0, 1] * w[1, 0]
    middle -= a[1, 0] * w[0, 1]
    roots = np.roots([np.linalg.det(w), -middle, np.linalg.det(a)])
    for root in roots[np.isreal(roots)].real:
        if min(gradient.shape) > 2 and _is_product(gradient - root * weights):
            return float(root)
    return None


def _is_product(matrix: NDArray[np.float64]) -> bool:
    sizes = np.linalg.svd(matrix, compute_uv=False)
    return bool(sizes[0] > 0 and sizes[1] <= 1e-6 * sizes[0])
