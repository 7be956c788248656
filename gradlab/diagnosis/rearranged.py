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
    if case.growth:
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
    out: tuple[int, ...], into: tuple[int, ...]
) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """Permutations of all axes that exchange some; the last says "spatial"."""
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

    What comes in at the border is unknown, so only the overlap is compared. Along axes
    of the input, and of a single output: what a kernel is multiplied with is one of its
    windows for every place in the output.
    """
    if case.analytic.size > _LARGE:
        return []
    for a, n, first, count, name in _views(case):
        some = np.unravel_index(case.largest, a.shape)
        slack = 1e-5 * float(np.linalg.norm(case.alive[0]))
        found = _shift_along(a, n, some, slack, range(first, first + count))
        if found is None:
            continue
        group, shift = found
        axes = " and ".join(str(axis - first) for axis in group)
        where = f"ax{'is' if len(group) == 1 else 'es'} {axes}"
        by = " and ".join(map(str, shift))
        return [
            Clue(
                BugKind.WRONG_INDEX,
                0.94,
                f"analytic = numeric shifted by {by} along {where} of {name}, "
                f"apart from the border.",
                f"Check the offsets with which the backward of {case.name} cuts or "
                f"pads: it is off by {by}.",
            )
        ]
    return []


View = tuple["NDArray[np.float64]", "NDArray[np.float64]", int, int, str]


def _views(case: Case) -> Iterator[View]:
    """Both sides by the axes of the input, and by those of a single output.

    With the number of the first such axis, how many there are, and what has them.
    """
    n, a = case.grid(case.numeric), case.grid(case.analytic)
    if n is not None and a is not None and n.ndim > 1:
        yield a, n, 1, len(case.variable.shape), case.name
    if not case.scalar and len(case.outputs) == 1 and case.outputs[0].shape:
        output = case.outputs[0]
        a, n = (
            side.reshape(*output.shape, -1) for side in (case.analytic, case.numeric)
        )
        yield a, n, 0, len(output.shape), output.name


def _shift_along(
    a: NDArray[np.float64],
    n: NDArray[np.float64],
    some: tuple[NDArray[np.intp], ...],
    slack: float,
    axes: range,
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Find the axes and the shift by which one side becomes the other."""
    groups: list[tuple[int, ...]] = [(axis,) for axis in axes]
    groups += [(i, i + 1) for i in axes[:-1]]
    for group in groups:
        reach = range(-_REACH, _REACH + 1)
        for shift in itertools.product(reach, repeat=len(group)):
            if not all(shift) or _refuted_at(some, a, n, group, shift, slack):
                continue
            if _overlap_agrees(a, n, group, shift):
                return group, shift
    return None


def _refuted_at(
    some: tuple[NDArray[np.intp], ...],
    a: NDArray[np.float64],
    n: NDArray[np.float64],
    group: tuple[int, ...],
    shift: tuple[int, ...],
    slack: float,
) -> bool:
    """Whether some entries alone show that a shift is none: those far off, mostly."""
    inside = np.ones(some[0].shape, dtype=bool)
    source = list(some)
    for axis, by in zip(group, shift, strict=True):
        moved = some[axis] - by
        inside &= (moved >= 0) & (moved < a.shape[axis])
        source[axis] = moved
    here = tuple(index[inside] for index in some)
    there = tuple(index[inside] for index in source)
    return bool((np.abs(a[here] - n[there]) > slack).any())


def _overlap_agrees(
    a: NDArray[np.float64],
    n: NDArray[np.float64],
    group: tuple[int, ...],
    shift: tuple[int, ...],
) -> bool:
    ours, true = [slice(None)] * a.ndim, [slice(None)] * n.ndim
    for axis, by in zip(group, shift, strict=True):
        length = a.shape[axis]
        if length < 3 or abs(by) >= length - 1:
            return False
        ours[axis] = slice(max(by, 0), length + min(by, 0))
        true[axis] = slice(max(-by, 0), length - max(by, 0))
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
    if case.analytic.size > _LARGE:
        return []
    for a, n, first, count, name in _views(case):
        axes = range(first, first + count)
        if first and count < 2:
            continue
        groups: list[tuple[int, ...]] = [(axis,) for axis in axes]
        groups += [(i, i + 1) for i in axes[:-1] if count > 2]
        found = _still_along(a, n, groups)
        if found is None:
            continue
        group, index, length = found
        told = ", ".join(map(str, index))
        words = " and ".join(str(axis - first) for axis in group)
        slices = f"slices of {name}"
        if not first:
            slices = f"slices of the Jacobian of {case.name}"
        return [
            Clue(
                BugKind.WRONG_INDEX,
                0.6 if _signal_is_wrong(case) else 0.94 if first else 0.97,
                f"All {length} {slices} along ax{'is' if len(group) == 1 else 'es'} "
                f"{words}{'' if first else f' of {name}'} hold the gradient of index "
                f"{told}: the index does not move.",
                f"Use the loop's own index where the backward of {case.name} reads.",
            )
        ]
    return []


def _still_along(
    a: NDArray[np.float64], n: NDArray[np.float64], groups: list[tuple[int, ...]]
) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """Find axes along which one side does not change: their place on the other."""
    top = np.unravel_index(int(np.abs(a).argmax()), a.shape)
    for group in groups:
        line = a[
            tuple(slice(None) if k in group else place for k, place in enumerate(top))
        ]
        if np.ptp(line) > 1e-6 * np.abs(a[top]):
            continue  # one line of entries tells
        lengths = [a.shape[axis] for axis in group]
        length = int(np.prod(lengths))
        front = tuple(range(len(group)))
        ours, true = (
            np.moveaxis(side, group, front).reshape(length, -1) for side in (a, n)
        )
        size = float(np.abs(ours).max(initial=0.0))
        if length < 2 or size == 0 or np.ptp(ours, axis=0).max() > 1e-6 * size:
            continue
        gaps = [float(np.abs(ours[0] - piece).max()) for piece in true]
        best = int(np.argmin(gaps))
        if gaps[best] > 1e-5 * size or np.ptp(true, axis=0).max() < 1e-3 * size:
            continue
        index = tuple(int(i) for i in np.unravel_index(best, lengths))
        return group, index, length
    return None


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
            same = gaps <= 1e-6 * np.abs(ours[k]).max()
            if int(same.sum()) == 1 and not same[k]:  # of several alike none is copied
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
    return [Clue(BugKind.WRONG_AXIS, 0.94, told, advice)]


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
