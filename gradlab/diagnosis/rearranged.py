"""Detectors of right numbers at wrong places, for parts of the axes only."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.layer_shapes import layer_of
from gradlab.diagnosis.measures import EXACT, Case, Clue, reaches
from gradlab.diagnosis.moving import affine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = [
    "copied",
    "offset",
    "other_axis",
    "partly_transposed",
    "repeated",
    "selection",
]

_LARGE = 1_000_000  # entries of a Jacobian beyond which these are not tried
_REACH = 2  # shifts along each of two axes that are tried


def partly_transposed(case: Case) -> list[Clue]:
    """Detect axes of the incoming gradient and of the result that are exchanged.

    A kernel that is not reversed exchanges the spatial axes, ``p @ delta`` for
    ``p.T @ delta`` the first ones, ``A.T @ delta`` for ``delta @ A.T`` both at once.
    """
    shape = case.variable.shape
    if case.scalar or len(case.outputs) != 1 or case.analytic.size > _LARGE:
        return []
    if case.grid(case.numeric) is None or case.variable.is_complex or not shape:
        return []
    output = case.outputs[0]
    k = len(output.shape)
    tensor = case.numeric.reshape(*output.shape, *shape)
    for words, axes, index in _exchanges(output.shape, shape):
        model = tensor.transpose(axes).reshape(case.numeric.shape)
        share = case.share(model)
        if share < EXACT:
            continue
        kinds = (BugKind.WRONG_INDEX, BugKind.TRANSPOSE)
        told = (
            f"analytic = numeric with {words} exchanged between {output.name} and "
            f"{case.name}"
        )
        first, second = kinds if index else kinds[::-1]
        advice = (
            "Reverse the kernel, or the order of the indices, in the backward."
            if index
            else f"Use the transpose of the matrix that multiplies the incoming "
            f"gradient (axes of {k} dimensions) in the backward of {case.name}."
        )
        return [
            Clue(first, 0.945 * share, f"{told}.", advice),
            Clue(second, 0.8 * share, f"{told}.", advice),
        ]
    return []


def _exchanges(
    out: tuple[int, ...], into: tuple[int, ...]
) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """Permutations of all axes that exchange some; the last says "spatial"."""
    k = len(out)
    offset = k - len(into)
    pairs = [
        (p, p - offset)
        for p, length in enumerate(out)
        if 0 <= p - offset < len(into) and into[p - offset] == length > 1
    ]
    for count in range(1, min(len(pairs), 3) + 1):
        for chosen in itertools.combinations(pairs, count):
            axes = list(range(k + len(into)))
            for p, q in chosen:
                axes[p], axes[k + q] = axes[k + q], axes[p]
            named = " and ".join(str(q) for _, q in chosen)
            words = f"ax{'is' if count == 1 else 'es'} {named}"
            yield words, tuple(axes), all(p >= 2 for p, _ in chosen)
    if k == len(into) >= 2 and out[-1] == out[-2] == into[-1] == into[-2]:
        axes = list(range(2 * k))
        axes[k - 2 : k] = [k - 1, k - 2]
        axes[-2:] = [2 * k - 1, 2 * k - 2]
        yield "the last two axes on both sides", tuple(axes), False
        axes[k - 2 : k] = [2 * k - 1, k - 2]  # and the matrix between them transposed
        axes[-2:] = [k - 1, 2 * k - 2]
        yield "the last two axes on both sides", tuple(axes), False


def offset(case: Case) -> list[Clue]:
    """Detect a window that is cut out at the wrong place: a shift along two axes.

    What comes in at the border is unknown, so only the overlap is compared.
    """
    n, a = case.grid(case.numeric), case.grid(case.analytic)
    if n is None or a is None or case.analytic.size > _LARGE or n.ndim < 2:
        return []
    count = len(case.variable.shape)
    groups: list[tuple[int, ...]] = [(axis,) for axis in range(count)]
    groups += [(i, i + 1) for i in range(count - 1)]
    for group in groups:
        reach = range(-_REACH, _REACH + 1)
        for shift in itertools.product(reach, repeat=len(group)):
            if not all(shift) or not _overlap_agrees(a, n, group, shift):
                continue
            where = f"ax{'is' if len(group) == 1 else 'es'} " + " and ".join(
                map(str, group)
            )
            by = " and ".join(map(str, shift))
            return [
                Clue(
                    BugKind.WRONG_INDEX,
                    0.94,
                    f"analytic = numeric shifted by {by} along {where} of {case.name}, "
                    f"apart from the border.",
                    f"Check the offsets with which the backward of {case.name} cuts or "
                    f"pads: it is off by {by}.",
                )
            ]
    return []


def _overlap_agrees(
    a: NDArray[np.float64],
    n: NDArray[np.float64],
    group: tuple[int, ...],
    shift: tuple[int, ...],
) -> bool:
    ours, true = [slice(None)] * a.ndim, [slice(None)] * n.ndim
    for axis, by in zip(group, shift, strict=True):
        length = a.shape[axis + 1]
        if length < 3 or abs(by) >= length - 1:
            return False
        ours[axis + 1] = slice(max(by, 0), length + min(by, 0))
        true[axis + 1] = slice(max(-by, 0), length - max(by, 0))
    left, right = a[tuple(ours)], n[tuple(true)]
    size = float(np.linalg.norm(left))
    if np.abs((left - right).reshape(-1)[np.abs(left).argmax()]) > 1e-5 * size:
        return False  # one entry tells
    told = left[np.abs(left) > 1e-9 * max(size, 1e-300)]
    if size < 0.3 * np.linalg.norm(a) or len(told) < 6:
        return False
    varied = np.ptp(told) > 1e-3 * np.abs(told).max()
    same = np.linalg.norm(left - n[tuple(ours)]) < 1e-3 * size  # right without a shift
    return bool(varied and not same and np.linalg.norm(left - right) < 1e-5 * size)


def repeated(case: Case) -> list[Clue]:
    """Detect an index that does not move: every slice is that of one and the same."""
    n, a = case.grid(case.numeric), case.grid(case.analytic)
    shape = case.variable.shape
    if n is None or a is None or case.analytic.size > _LARGE or len(shape) < 2:
        return []
    groups: list[tuple[int, ...]] = [(axis,) for axis in range(len(shape))]
    groups += [(i, i + 1) for i in range(len(shape) - 1) if len(shape) > 2]
    for group in groups:
        where = tuple(axis + 1 for axis in group)
        length = int(np.prod([shape[axis] for axis in group]))
        front = tuple(range(len(group)))
        ours, true = (
            np.moveaxis(side, where, front).reshape(length, -1) for side in (a, n)
        )
        size = float(np.abs(ours).max(initial=0.0))
        if length < 2 or size == 0 or np.ptp(ours, axis=0).max() > 1e-6 * size:
            continue
        gaps = [float(np.abs(ours[0] - piece).max()) for piece in true]
        best = int(np.argmin(gaps))
        if gaps[best] > 1e-5 * size or np.ptp(true, axis=0).max() < 1e-3 * size:
            continue
        index = np.unravel_index(best, [shape[axis] for axis in group])
        told = ", ".join(str(int(i)) for i in index)
        axes = " and ".join(map(str, group))
        return [
            Clue(
                BugKind.WRONG_INDEX,
                0.6 if _signal_is_wrong(case) else 0.94,
                f"All {length} slices of {case.name} along ax"
                f"{'is' if len(group) == 1 else 'es'} {axes} hold the gradient of "
                f"index {told}: the index does not move.",
                f"Use the loop's own index where the backward of {case.name} reads.",
            )
        ]
    return []


def _signal_is_wrong(case: Case) -> bool:
    """Whether the bias of the same layer is wrong as well: no index of its is."""
    layer = layer_of(case.evidence, case.part.which)
    if layer is None or layer.bias == case.part.which:
        return False
    return any(
        part.which == layer.bias and part.is_wrong for part in case.evidence.parts
    )


def copied(case: Case) -> list[Clue]:
    """Detect slices that hold the gradient of another index, the others being right."""
    n, a = case.grid(case.numeric), case.grid(case.analytic)
    if (
        n is None
        or a is None
        or case.analytic.size > _LARGE
        or case.variable.is_complex
    ):
        return []
    wrong = case.wrong.reshape(a.shape)
    for axis, length in enumerate(case.variable.shape):
        ours, true, bad = (
            np.moveaxis(side, axis + 1, 0).reshape(length, -1) for side in (a, n, wrong)
        )
        spoiled = np.flatnonzero(bad.any(axis=1))
        size = float(np.abs(true).max(initial=0.0))
        if not 0 < 2 * len(spoiled) <= length or size == 0:
            continue
        pairs = []
        for k in spoiled:
            gaps = np.abs(true - ours[k]).max(axis=1)
            if gaps.min() <= 1e-6 * np.abs(ours[k]).max() and gaps.argmin() != k:
                pairs.append(f"index {k} holds that of index {int(gaps.argmin())}")
        if len(pairs) < len(spoiled):
            continue
        return [
            Clue(
                BugKind.WRONG_INDEX,
                0.94,
                f"Along axis {axis} of {case.name}, the gradient of "
                f"{'; '.join(pairs[:4])}; the others are right.",
                f"Check the indices with which the backward of {case.name} reads and "
                f"writes there.",
            )
        ]
    return []


def other_axis(case: Case) -> list[Clue]:
    """Detect a factor that multiplies columns of the Jacobian where it belongs to rows.

    With ``J = diag(s) A`` for ``A diag(s)``, analytic / numeric at (i, j) is the
    inverse of that at (j, i), and 1 on the diagonal.
    """
    a, n = case.analytic, case.numeric
    if case.scalar or a.shape[0] != a.shape[1] or not 2 < len(a) <= 500:
        return []
    if case.numeric_zero.any() or case.analytic_zero.any():
        return []
    ratio = a / n
    factors = ratio[0]
    model = factors[None] / factors[:, None]
    if not np.allclose(ratio, model, rtol=1e-4) or np.ptp(factors) < 1e-3:
        return []
    told = (
        f"Entry (i, j) of the Jacobian of {case.name} has the factor s[j] where it "
        f"should have s[i], with s in the proportions "
        f"{', '.join(f'{value:.3g}' for value in factors[:4])}."
    )
    advice = (
        "Multiply the rows of the Jacobian by the slopes of the outer function "
        "(s[:, None] * A), not its columns."
    )
    return [
        Clue(BugKind.WRONG_AXIS, 0.94, told, advice),
        Clue(BugKind.TRANSPOSE, 0.9, told, advice),
    ]


def selection(case: Case) -> list[Clue]:
    """Tell a wrong mask from a wrong index where every output picks one entry.

    Which entry max or min picks depends on the values; which one a lookup picks does
    not, so a lookup is a straight line along every direction.
    """
    if case.scalar or case.variable.is_complex or not case.part.complete:
        return []
    a, n = ~case.analytic_zero, ~case.numeric_zero
    wrong = reaches(case.wrong, 1)
    if (n.sum(axis=1) > 1).any() or (n.sum(axis=1)[wrong] != 1).any():
        return []
    if (a.sum(axis=1)[wrong] != 1).any():
        return []
    moved = reaches(a & ~n, 1)[wrong]
    if not moved.all() or wrong.sum() < 2:
        return []
    flat = affine(case.evidence, case.part.which)
    if flat is None:
        return []
    if flat or bool((n.sum(axis=0) == 1).all()):
        return [
            Clue(
                BugKind.WRONG_INDEX,
                0.96,
                f"Each output picks one entry of {case.name}, whatever the values are; "
                f"{int(wrong.sum())} of {len(wrong)} outputs hand their gradient to "
                f"another entry.",
                "Send each incoming gradient to the index the forward pass read from.",
            )
        ]
    return [
        Clue(
            BugKind.WRONG_MASK,
            0.965,
            f"Each output picks the entry of {case.name} that its values decide (a "
            f"maximum, say); {int(wrong.sum())} of {len(wrong)} outputs hand their "
            f"gradient to another entry.",
            "Keep the mask or the argmax of the forward pass, and use that.",
        )
    ]
