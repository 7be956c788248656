"""Detectors of right numbers in wrong places: transposed, permuted, shifted."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measures import EXACT, Case, Clue, reaches
from gradlab.diagnosis.orders import orders_of
from gradlab.diagnosis.places import every_entry, place_words
from gradlab.subject.numpy_values import as_complex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

__all__ = [
    "conjugated",
    "moved_one",
    "permuted",
    "transposed",
    "transposed_factor",
    "transposed_inside",
]

_LARGE = 2_000_000  # entries beyond which the search for permutations stops
_NUMBERS = 3  # different ones that are taken to be no coincidence
_ABOUT = 0.05  # of a number: how near it the density of others is counted
_BY_CHANCE = 0.1  # a number may be known by accident so often


def conjugated(case: Case) -> list[Clue]:
    """Detect complex derivatives with the sign of an imaginary part flipped."""
    if not case.variable.is_complex:
        return []
    turned = _turned(case)
    if turned or case.growth:
        return turned or _half_conjugated(case)
    columns = np.where(case.part.positions % 2 == 0, 1.0, -1.0)
    rows = np.ones(len(case.numeric))
    for output, part in case.parts_of_output:
        if output.name.endswith(".imag"):
            rows[part] = -1.0
    models = [case.numeric * columns]
    if (rows < 0).any():
        models += [case.numeric * rows[:, None], case.numeric * rows[:, None] * columns]
    share = max(case.share(model) for model in models)
    if share < EXACT:
        return _half_conjugated(case)
    return [
        Clue(
            BugKind.CONJUGATE,
            0.985 * share,
            f"analytic = conjugate of numeric {every_entry(case.variable.size)} of "
            f"{case.name}.",
            "Conjugate the derivative: for a holomorphic f the gradient is "
            "grad * conj(f'(z)).",
        )
    ]


def _turned(case: Case) -> list[Clue]:
    """Detect a complex factor, such as -1j: real factors are detected elsewhere."""
    if not case.part.complete:
        return []
    a, n = as_complex(case.analytic), as_complex(case.numeric)
    there = np.abs(n) > 1e-3 * np.abs(n).max(initial=0.0)
    if there.sum() < 2:
        return []
    ratios = a[there] / n[there]
    factor = complex(ratios.mean())
    steady = np.abs(ratios - factor).max() < 1e-4 * abs(factor)
    if not steady or abs(factor.imag) < 1e-3 * abs(factor):
        return []
    if case.share((factor * n).view(np.float64)) < EXACT:
        return []
    told = f"({factor:.4g})"
    if abs(factor.real) < 1e-6 * abs(factor):
        told = f"{factor.imag:.4g}j"
    return [
        Clue(
            BugKind.SCALE,
            0.95,
            f"analytic = {told} x numeric {every_entry(case.variable.size)} of "
            f"{case.name}: a complex factor.",
            "Search the backward for a factor 1j that is left out or conjugated: that "
            "of f(z) = 1j * z is -1j * grad.",
        )
    ]


def _half_conjugated(case: Case) -> list[Clue]:
    """Detect a product of which one factor lacks its conjugate: sizes are right."""
    real = not any(output.is_complex for output in case.outputs)
    if not (real and case.part.complete):
        return []
    a, n = as_complex(case.analytic), as_complex(case.numeric)
    there = np.abs(n) > 1e-6 * np.abs(n).max(initial=0.0)
    if there.sum() < 3 or not np.allclose(np.abs(a), np.abs(n), rtol=1e-5, atol=1e-9):
        return []
    turned = a[there] / n[there]
    if np.ptp(turned.real) < 1e-3 or np.abs(turned.imag).max() < 1e-3:
        return []  # one factor, or signs
    return [
        Clue(
            BugKind.CONJUGATE,
            0.93,
            f"Every entry of {case.name} has the right modulus and another phase: of a "
            f"product one factor is not conjugated, or one too many.",
            "Write the adjoint factor by factor: that of y = M z is M.conj().T @ up, "
            "and that of abs(y)**2 is 2 * y * up.",
        )
    ]


def transposed(case: Case) -> list[Clue]:
    """Detect a gradient array, or a Jacobian, that is transposed."""
    if case.growth:
        return []
    clues = []
    grid = case.grid(case.numeric)
    shape = case.variable.shape
    if grid is not None and not case.variable.is_complex and len(shape) > 1:
        for axes in itertools.permutations(range(len(shape))):
            if axes == tuple(range(len(shape))):
                continue
            same = tuple(shape[i] for i in axes) == shape
            if not same and axes[::-1] != tuple(range(len(shape))):
                continue
            turned = grid.transpose(0, *(i + 1 for i in axes))
            share = case.share(turned.reshape(len(grid), -1))
            if share > EXACT:
                how = "" if same else ", read in the wrong order"
                # summed over an axis, each entry is part of one output, and no more
                reduced = not case.scalar and bool(
                    ((~case.numeric_zero).sum(axis=0) <= 1).all()
                )
                clues.append(
                    Clue(
                        BugKind.WRONG_AXIS if reduced else BugKind.TRANSPOSE,
                        0.96 * share,
                        f"analytic = numeric with axes {axes}{how}: the gradient of "
                        f"{case.name} is transposed.",
                        f"Swap the factors in the product that forms the gradient of "
                        f"{case.name}: x.T @ delta for delta.T @ x.",
                    )
                )
    clues += _jacobian_transposed(case)
    return clues[:1]


def _jacobian_transposed(case: Case) -> list[Clue]:
    if case.scalar or case.numeric.shape[0] != case.numeric.shape[1]:
        return []
    share = case.share(case.numeric.T)
    if share < EXACT:
        return []
    permutes = bool(((~case.numeric_zero).sum(axis=1) <= 1).all())
    return [
        Clue(
            BugKind.TRANSPOSE,
            (0.92 if permutes else 0.96) * share,
            f"The analytic Jacobian of {case.name} is the numeric one transposed.",
            "The backward of y = A x multiplies by A.T: it uses A itself here. Of "
            "y = d * (S x) it takes the factors in reverse order: S (d * up), not "
            "d * (S up).",
        )
    ]


def transposed_factor(case: Case) -> list[Clue]:
    """Detect ``delta @ W`` for ``delta @ W.T`` with a square matrix among the inputs.

    For a gradient ``delta @ W.T`` the unknown `delta` follows from the numeric side,
    whatever comes after the product; with it the wrong product can be predicted.
    """
    shape = case.variable.shape
    grid, got = case.grid(case.numeric), case.grid(case.analytic)
    if grid is None or got is None or not shape:
        return []
    subject, is_complex = case.evidence.subject, case.variable.is_complex
    numbers = as_complex(grid.ravel()).reshape(-1, *shape) if is_complex else grid
    for which, other in enumerate(subject.inputs):
        if which == case.part.which or len(other.shape) != 2:
            continue
        if other.shape[0] != other.shape[1] or other.support is not None:
            continue
        if other.is_complex != is_complex:
            continue
        w: NDArray[Any] = subject.point(which)
        # backwards multiply by the conjugate
        w = (as_complex(w).conj() if is_complex else w).reshape(other.shape)
        if np.linalg.cond(w) > 1e7 or np.allclose(w, w.T):
            continue
        for words, predict in _products(w, shape):
            model = np.ascontiguousarray(predict(numbers)).view(np.float64)
            share = case.share(model.reshape(len(grid), -1))
            if share > EXACT:
                return [
                    Clue(
                        BugKind.TRANSPOSE,
                        0.96 * share,
                        f"The gradient of {case.name} is what comes out of {words} "
                        f"with {other.name} transposed.",
                        f"Use {other.name}.T where the backward of {case.name} uses "
                        f"{other.name}, or the other way round.",
                    )
                ]
    return []


def transposed_inside(case: Case) -> list[Clue]:
    """Detect ``delta @ W`` for ``delta @ W.T`` beside other paths.

    Whatever else leads to x, the error is ``delta @ (W - W.T)`` then, and the same
    unknown delta must give the numeric gradient of W, ``x.T @ delta``.
    """
    shape = case.variable.shape
    if len(shape) != 2 or case.grid(case.numeric) is None or case.variable.is_complex:
        return []
    subject, (n, d) = case.evidence.subject, shape
    x = case.point.reshape(shape)
    order = np.argsort(-np.abs(case.error).max(axis=1))[:12]
    for part in case.evidence.parts:
        other = subject.inputs[part.which]
        if part.which == case.part.which or other.shape != (d, d) or not part.complete:
            continue
        if n * d > 300:
            continue
        w = subject.point(part.which).reshape(d, d)
        system = np.concatenate(
            [np.kron(np.eye(n), (w - w.T).T), np.kron(x.T, np.eye(d))]
        )
        if system.shape[0] <= np.linalg.matrix_rank(system):
            continue
        right = np.concatenate([case.error[order], part.numeric[order]], axis=1).T
        found = np.linalg.lstsq(system, right, rcond=None)[0]
        left = np.linalg.norm(system @ found - right)
        if left < 1e-5 * np.linalg.norm(case.error[order]):
            return [
                Clue(
                    BugKind.TRANSPOSE,
                    0.95,
                    f"The error of {case.name} is delta @ ({other.name} - "
                    f"{other.name}.T), with the delta that gives the gradient of "
                    f"{other.name}.",
                    f"Use {other.name}.T where the backward of {case.name} uses "
                    f"{other.name}, or the other way round.",
                )
            ]
    return []


def _products(
    w: NDArray[Any], shape: tuple[int, ...]
) -> Iterator[tuple[str, Callable[[NDArray[Any]], NDArray[Any]]]]:
    if shape[-1] == len(w):
        yield "delta @ W", lambda g: g @ np.linalg.solve(w.T, w)
        yield "delta @ W.T", lambda g: g @ np.linalg.solve(w, w.T)
    if len(shape) >= 2 and shape[-2] == len(w):
        yield "W @ delta", lambda g: w @ np.linalg.solve(w.T, g)
        yield "W.T @ delta", lambda g: w.T @ np.linalg.solve(w, g)


def permuted(case: Case) -> list[Clue]:
    """Detect slices of the input or the output that are rolled, flipped, permuted."""
    if case.analytic.size > _LARGE:
        return []
    if case.variable.is_complex:
        return []
    for words, order in () if case.growth > 0 else orders_of(case):
        if not case.refutes(order.at(case.numeric, case.largest)):
            share = case.share(order.whole(case.numeric))
            if share > EXACT:
                return [_order_clue(case, share, words)]
    model = None if case.growth else _sorted_alike(case)
    if model is not None and (share := case.share(model)) > EXACT:
        return [_order_clue(case, share, "its entries in another order")]
    return _same_numbers(case)


def _order_clue(case: Case, share: float, words: str) -> Clue:
    return Clue(
        BugKind.WRONG_INDEX,
        0.955 * share,
        f"analytic = numeric with {words}.",
        f"Check the indices with which the backward of {case.name} reads and writes: "
        f"an offset, a reversed order, a stale permutation.",
    )


def _same_numbers(case: Case) -> list[Clue]:
    """Recognise numbers of the other side at places that are not theirs.

    A window that is cut out at the wrong place, or an index that runs wrongly, makes no
    new numbers: each is a slope that the function has, elsewhere. Where no row or
    column loses any they are the same; at borders some get lost and others come in.
    """
    moved = case.wrong & ~case.analytic_zero
    if not moved.any() or not (case.wrong & ~case.numeric_zero).any():
        return []  # too little alone, or too much alone: a mask
    size = float(np.abs(case.numeric).max())
    if (np.abs(case.analytic - case.numeric)[moved] < 1e-3 * size).any():
        return []  # a slip of 1e-5 is no other place
    whole = not case.scalar and (_same_lines(case, 1) or _same_lines(case, 0))
    if not whole and not _known(case.analytic[moved], case.numeric):
        return []
    return [
        Clue(
            BugKind.WRONG_INDEX,
            0.95 if whole else 0.79,  # a transpose may say the same more simply
            f"Every number that is wrong of {case.name} is right elsewhere: all "
            f"{int(moved.sum())} stand at wrong places, {place_words(case)}.",
            f"Check the index arithmetic in the backward of {case.name}: an offset, a "
            f"stride or a padding, a kernel or an order that must be reversed.",
        )
    ]


def _same_lines(case: Case, axis: int) -> bool:
    """Whether all wrong rows (axis 1) or columns hold the numbers that they should."""
    lines = reaches(case.wrong, axis)
    a, n = (
        side[lines] if axis else side.T[lines] for side in (case.analytic, case.numeric)
    )
    moves = (~case.numeric_zero).sum(axis=axis)[lines]
    if len(a) < 2 or not np.median(moves) > 1:
        return False
    size = float(np.abs(n).max(initial=0.0))
    first = np.abs(np.sort(a[0]) - np.sort(n[0])).max() <= 1e-5 * size  # one tells
    return bool(
        first and np.abs(np.sort(a, axis=1) - np.sort(n, axis=1)).max() <= 1e-5 * size
    )


def _known(found: NDArray[np.float64], numeric: Matrix) -> bool:
    """Whether all of several different numbers occur on the numeric side.

    Among so many that any number is near one of them, that would say nothing.
    """
    size = float(np.abs(numeric).max(initial=0.0))
    pool = np.unique(numeric[np.abs(numeric) > 1e-9 * size])
    if len(pool) < _NUMBERS or np.ptp(found) < 1e-5 * size:
        return False
    about = np.abs(found) * _ABOUT
    near = np.searchsorted(pool, found + about) - np.searchsorted(pool, found - about)
    if (near * 1e-5 / _ABOUT).max() > _BY_CHANCE:
        return False
    after = np.searchsorted(pool, found).clip(1, len(pool) - 1)
    gaps = np.minimum(np.abs(found - pool[after - 1]), np.abs(found - pool[after]))
    return bool((gaps <= 1e-5 * np.abs(found)).all())


def _sorted_alike(case: Case) -> Matrix | None:
    """Numeric entries of a loss in the order of the analytic ones."""
    # of few different values many an order can be made by accident
    several = len(np.unique(np.round(case.numeric, 9))) > max(2, case.numeric.size // 2)
    if not case.scalar or case.numeric.size <= 2 or not several:
        return None
    order = np.argsort(case.analytic[0], kind="stable")
    model = np.empty_like(case.numeric)
    model[0, order] = np.sort(case.numeric[0])
    return model


def moved_one(case: Case) -> list[Clue]:
    """Detect a constant put at the wrong index: + v at one place, - v at another."""
    grid = case.grid(case.error)
    if grid is None or case.variable.is_complex or not case.variable.shape:
        return []
    lines = grid.reshape(-1, case.variable.shape[-1])
    lines = lines[(lines != 0).any(axis=1)]
    if lines.shape[1] < 2 or not len(lines) or ((lines != 0).sum(axis=1) != 2).any():
        return []
    top, bottom = lines.max(axis=1), lines.min(axis=1)
    v = float(top.max())
    if (
        v <= 0
        or np.abs(top - v).max() > 1e-4 * v
        or np.abs(bottom + v).max() > 1e-4 * v
    ):
        return []
    where = f"In {len(lines)} lines of {case.name}" if len(lines) > 1 else "Only"
    return [
        Clue(
            BugKind.WRONG_INDEX,
            0.95 if len(lines) > 1 else 0.6,
            f"{where} one entry is {v:.6g} too large and "
            f"another {v:.6g} too small: the same number at the wrong index.",
            "Check the index at which the backward adds or subtracts a constant, such "
            "as the label in softmax minus one-hot.",
        )
    ]
