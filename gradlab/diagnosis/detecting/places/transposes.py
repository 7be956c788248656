"""Detectors of a transpose that is lost, or one too many: of arrays and of matrices."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.held import real_arrays
from gradlab.diagnosis.measuring.measures import EXACT, Case, Clue
from gradlab.diagnosis.measuring.moving import agree_at
from gradlab.diagnosis.measuring.sides import wrong_inputs
from gradlab.subject.numpy_values import as_complex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Matrix = NDArray[Any]

__all__ = [
    "partly_transposed",
    "symmetric_point",
    "transposed",
    "transposed_data",
    "transposed_factor",
    "transposed_signal",
]

_LARGE = 1_000_000  # entries of a Jacobian beyond which axes are not exchanged
_LONG = 500  # rows of a matrix beyond which no product is taken back
_FEWEST = 3  # rows of a matrix whose error is no difference by chance
_MATRICES = 4  # square matrices that are made symmetric


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
                # summed over an axis, each entry is part of one output, and no more;
                # so is that of a weight that one sample is multiplied with
                reduced = not case.scalar and bool(
                    ((~case.numeric_zero).sum(axis=0) <= 1).all()
                )
                reduced = reduced and len(case.evidence.subject.inputs) == 1
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
            "Multiply by A.T in the backward of y = A x, where A itself stands now. "
            "If A is symmetric, mind the order: the backward of y = d * (A x) is "
            "A (d * up), not d * (A up).",
        )
    ]


def transposed_data(case: Case) -> list[Clue]:
    """Detect a transpose of what data give, beside the penalty of a weight that stands.

    With n = G + k W and a = G.T + k W, a - n.T is k times W - W.T.
    """
    shape = case.variable.shape
    if not case.scalar or not case.part.complete or case.variable.is_complex:
        return []
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < _FEWEST:
        return []
    w, turned = case.point.reshape(shape), case.numeric.reshape(shape).T
    apart = w - w.T
    below = float((apart**2).sum())
    if not below > 0:
        return []
    k = float(((case.analytic.reshape(shape) - turned) * apart).sum()) / below
    model = (turned + k * apart).reshape(1, -1)
    if abs(k) * np.sqrt(below) < (1 - EXACT) * case.total or case.share(model) < EXACT:
        return []
    name = case.name
    return [
        Clue(
            BugKind.TRANSPOSE,
            0.95,
            f"analytic = numeric.T {k:+.5g} x ({name} - {name}.T): what data give of "
            f"the gradient of {name} is transposed, the penalty {k:.5g} x {name} is "
            f"not.",
            f"Swap the factors in the product that forms the data part of the gradient "
            f"of {name}: x.T @ delta for delta.T @ x.",
        )
    ]


def transposed_factor(case: Case) -> list[Clue]:
    """Detect ``delta @ W`` for ``delta @ W.T`` with a square matrix W that is known.

    For a gradient ``delta @ W.T`` the unknown `delta` follows from the numeric side,
    whatever comes after the product; with it the wrong product can be predicted.
    """
    shape = case.variable.shape
    grid, got = case.grid(case.numeric), case.grid(case.analytic)
    if grid is None or got is None or not shape:
        return []
    is_complex = case.variable.is_complex
    numbers = as_complex(grid.ravel()).reshape(-1, *shape) if is_complex else grid
    for name, w in _matrices(case, shape):
        if np.linalg.cond(w) > 1e7 or np.allclose(w, w.T):
            continue
        for words, predict in _products(w, shape):
            model = np.ascontiguousarray(predict(numbers)).view(np.float64)
            if case.share(model.reshape(len(grid), -1)) > EXACT:
                told = f"The gradient is what comes out of {words} with W = {name}.T."
                return [_factor_clue(name, told, 0.96)]
    return []


def _factor_clue(name: str, told: str, trust: float) -> Clue:
    """Say which matrix is transposed: the same of all inputs, which is told once."""
    return Clue(
        BugKind.TRANSPOSE,
        trust,
        told,
        f"Look for {name} in the backward where {name}.T belongs, or the other way "
        f"round; or for one of them where both do, as ({name} + {name}.T) @ x of "
        f"x.T @ {name} @ x.",
    )


def _matrices(case: Case, shape: tuple[int, ...]) -> Iterator[tuple[str, Matrix]]:
    """Square matrices as long as an axis of an input: other inputs, and held arrays."""
    subject, is_complex = case.evidence.subject, case.variable.is_complex
    for which, other in enumerate(subject.inputs):
        square = len(other.shape) == 2 and other.shape[0] == other.shape[1]
        if which == case.part.which or not square or other.support is not None:
            continue
        if other.is_complex == is_complex and other.shape[0] in shape[-2:]:
            w: Matrix = subject.point(which)
            # backwards multiply by the conjugate
            w = as_complex(w).conj() if is_complex else w
            yield other.name, w.reshape(other.shape)
    if is_complex:
        return
    for length in {*shape[-2:]}:
        if 1 < length <= _LONG:
            yield from real_arrays(subject, (length, length))


def transposed_signal(case: Case) -> list[Clue]:
    """Detect a transpose of what is between two inputs, by the gradient of the other.

    In ``y = x @ W`` with error signal D the gradient of W is ``x.T @ D``: where that of
    x is ``D @ W``, ``x.T`` times its error is ``x.T @ D @ (W - W.T)``, whatever D is.
    In ``s = a @ x.T``, as of queries and keys, the gradient of x is ``D.T @ a``: where
    it is ``D @ a``, ``a.T`` times that is the transpose of what it should be.
    """
    shape = case.variable.shape
    numeric, found = case.grid(case.numeric), case.grid(case.analytic)
    if numeric is None or found is None or len(shape) != 2 or case.variable.is_complex:
        return []
    subject, x = case.evidence.subject, case.point.reshape(shape)
    for part in case.evidence.parts:
        other = subject.inputs[part.which]
        if part.which == case.part.which or not part.complete or other.is_complex:
            continue
        at = subject.point(part.which)
        if other.shape == shape:
            a = at.reshape(shape)
            if _is_turned(a.T @ found, a.T @ numeric, numeric, a):
                told = (
                    f"{other.name}.T times the analytic gradient of {case.name} is the "
                    f"transpose of {other.name}.T times the numeric one: what is "
                    f"multiplied with {other.name} is transposed."
                )
                advice = (
                    f"With s = {other.name} @ {case.name}.T and its gradient ds, the "
                    f"gradient of {case.name} is ds.T @ {other.name}, and that of "
                    f"{other.name} is ds @ {case.name}."
                )
                return [Clue(BugKind.TRANSPOSE, 0.96, told, advice)]
        for size, error, own in (
            (shape[1], x.T @ (found - numeric), "x.T @ error"),
            (shape[0], (found - numeric) @ x.T, "error @ x.T"),
        ):
            if other.shape != (size, size) or part.is_wrong:
                continue
            w, theirs = at.reshape(other.shape), part.numeric.reshape(-1, size, size)
            turn = w - w.T
            model = theirs @ turn if own[0] == "x" else turn @ theirs
            if _same(error, model) and not np.allclose(turn, 0):
                told = f"{other.name} in place of {other.name}.T makes this error."
                return [_factor_clue(other.name, told, 0.955)]
    return []


def _same(one: Matrix, other: Matrix) -> bool:
    size = float(np.abs(other).max(initial=0.0))
    return size > 0 and bool(np.abs(one - other).max(initial=0.0) <= 1e-5 * size)


def _is_turned(ours: Matrix, true: Matrix, gradient: Matrix, factor: Matrix) -> bool:
    """Whether products are transposed that are not symmetric, nor nearly zero."""
    size = float(np.abs(true).max(initial=0.0))
    if size <= 1e-6 * float(np.abs(gradient).max() * np.abs(factor).max()):
        return False
    turned = true.transpose(0, 2, 1)
    apart = float(np.abs(turned - true).max())
    return apart > 1e-2 * size and bool(np.abs(ours - turned).max() <= 1e-5 * size)


def _products(
    w: NDArray[Any], shape: tuple[int, ...]
) -> Iterator[tuple[str, Callable[[NDArray[Any]], NDArray[Any]]]]:
    if shape[-1] == len(w):
        yield "delta @ W", lambda g: g @ np.linalg.solve(w.T, w)
        yield "delta @ W.T", lambda g: g @ np.linalg.solve(w, w.T)
    if len(shape) >= 2 and shape[-2] == len(w):
        yield "W @ delta", lambda g: w @ np.linalg.solve(w.T, g)
        yield "W.T @ delta", lambda g: w.T @ np.linalg.solve(w, g)


def partly_transposed(case: Case) -> list[Clue]:
    """Detect axes of the incoming gradient and of the result that are exchanged.

    A kernel that is not reversed exchanges the spatial axes, ``p @ delta`` for
    ``p.T @ delta`` the first ones, ``A.T @ delta`` for ``delta @ A.T`` both at once.
    """
    shape = case.variable.shape
    if case.scalar or len(case.outputs) != 1 or case.analytic.size > _LARGE:
        return []
    if case.growth:
        return []
    if case.grid(case.numeric) is None or case.variable.is_complex or not shape:
        return []
    output = case.outputs[0]
    k = len(output.shape)
    tensor = case.numeric.reshape(*output.shape, *shape)
    for words, axes, index in _exchanges(tensor, output.shape, shape):
        model = tensor.transpose(axes).reshape(case.numeric.shape)
        share = case.share(model)
        if share < EXACT:
            continue
        kind = BugKind.WRONG_INDEX if index else BugKind.TRANSPOSE
        told = (
            f"analytic = numeric with {words} exchanged between {output.name} and "
            f"{case.name}"
        )
        advice = (
            "Reverse the kernel, or the order of the indices, in the backward."
            if index
            else f"Use the transpose of the matrix that multiplies the incoming "
            f"gradient (axes of {k} dimensions) in the backward of {case.name}."
        )
        return [Clue(kind, 0.945 * share, f"{told}.", advice)]
    return []


def _exchanges(
    tensor: Matrix, out: tuple[int, ...], into: tuple[int, ...]
) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """Permutations of all axes that exchange some; the last says "a kernel"."""
    k = len(out)
    offset = k - len(into)
    pairs = [
        (p, q)
        for p, length in enumerate(out)
        for q, other in enumerate(into)
        if other == length > 1
    ]
    pairs.sort(key=lambda pair: pair[0] - pair[1] != offset)  # those that align first
    for count in range(1, min(len(pairs), 3) + 1):
        for chosen in itertools.combinations(pairs, count):
            if (
                len({p for p, _ in chosen}) < count
                or len({q for _, q in chosen}) < count
            ):
                continue
            axes = list(range(k + len(into)))
            for p, q in chosen:
                axes[p], axes[k + q] = axes[k + q], axes[p]
            named = " and ".join(str(q) for _, q in chosen)
            words = f"ax{'is' if count == 1 else 'es'} {named}"
            slides = all(_slides(tensor, p, k + q) for p, q in chosen)
            yield words, tuple(axes), slides
    if k == len(into) >= 2 and out[-1] == out[-2] == into[-1] == into[-2]:
        axes = list(range(2 * k))
        axes[k - 2 : k] = [k - 1, k - 2]
        axes[-2:] = [2 * k - 1, 2 * k - 2]
        yield "the last two axes on both sides", tuple(axes), False
        axes[k - 2 : k] = [2 * k - 1, k - 2]  # and the matrix between them transposed
        axes[-2:] = [k - 1, 2 * k - 2]
        yield "the last two axes on both sides", tuple(axes), False


def _slides(tensor: Matrix, p: int, q: int) -> bool:
    """Whether what leads from one axis to another slides along them, as a kernel."""
    lines = np.moveaxis(tensor, (p, q), (0, 1))
    size = float(np.abs(lines).max(initial=0.0))
    return bool(np.abs(lines[1:, 1:] - lines[:-1, :-1]).max() <= 1e-5 * size)


def symmetric_point(case: Case) -> list[Clue]:
    """Detect a lost transpose: the error vanishes where a matrix is symmetric."""
    evidence = case.evidence
    tried = 0
    for which, variable in enumerate(evidence.subject.inputs):
        shape = variable.shape
        square = len(shape) >= 2 and shape[-1] == shape[-2] and shape[-1] > 1
        kernel = len(shape) > 2 and which != case.part.which
        if variable.is_complex or variable.support is not None:
            continue
        if not (square or kernel):
            continue
        tried += 1
        if tried > _MATRICES:
            break
        matrix = evidence.subject.point(which).reshape(shape)
        if kernel and (clue := _reversed_kernel(case, which, matrix)):
            return [clue]
        if not square:
            continue
        even = (matrix + np.swapaxes(matrix, -1, -2)) / 2
        if np.allclose(even, matrix):
            continue
        if agree_at(case, {which: even.ravel()}):
            told = (
                f"The error vanishes when {variable.name} is replaced by its symmetric "
                f"part, where {variable.name} and {variable.name}.T are the same."
            )
            return [_factor_clue(variable.name, told, 0.955)]
    return []


def _reversed_kernel(case: Case, which: int, kernel: Matrix) -> Clue | None:
    """Recognise a kernel that is not reversed, by one that is the same both ways.

    It stands behind an input whose gradient is wrong, and its own is right. Of either
    sign: what is wrong with a mask may be right where all units are on.
    """
    if which in wrong_inputs(case.evidence):
        return None
    axes = tuple(range(2, kernel.ndim))
    even = (kernel + np.flip(kernel, axes)) / 2
    if np.allclose(even, kernel):
        return None
    for each in (even, -even):
        if not agree_at(case, {which: each.ravel()}):
            return None
    name = case.evidence.subject.inputs[which].name
    return Clue(
        BugKind.WRONG_INDEX,
        0.955,
        f"The error vanishes when {name} is replaced by a kernel that is the same read "
        f"backwards: it is not reversed on the way back, or where it should not be.",
        f"In the backward each output hands its gradient to the positions it was read "
        f"from: dx[i + k] += up[i] * w[k], a convolution with {name} reversed.",
    )
