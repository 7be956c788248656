"""Detectors of one factor for each group: of its length, or of a weight that it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.measures import EXACT, Case, Clue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["uneven_means", "weighted_groups"]

_MOST = 1000  # members that a group may have
_LONGEST = 100  # members of the longest group, where no array has its length
_CLOSE = 1e-5  # how near to whole numbers ratios have to be
_SAME = 1e-5  # relative: ratios as near as that are one factor
_NEAR = 1e-2  # of 1: factors that an epsilon makes, and no weight of a class
_FEW = 3  # factors that need not follow an index
_TIMES, _PARTS = 64, 12  # that anybody counts of one number, and the least of these
_ENTRIES = 4  # that are enough to speak of whole numbers


def uneven_means(case: Case) -> list[Clue]:
    """Detect ratios that are whole numbers, different ones: counts, not a formula.

    ``sum / count`` of each segment without its count; or with the total in its place.
    """
    there = ~case.numeric_zero & case.usable
    a, n = case.analytic[there], case.numeric[there]
    if a.size < _ENTRIES or not (a * n > 0).all():
        return []
    if int(case.wrong.sum()) == 1:
        return []  # one factor is no list of lengths
    ratios = a / n
    sizes = {n for v in (case.variable, *case.outputs) for n in (*v.shape, v.size)}
    most = max(_MOST, *sizes)
    if np.ptp(ratios) * most < 0.5 and np.ptp(1 / ratios) < 0.5:
        return []  # counts differ by one, at least
    model = np.where(there, case.analytic, case.numeric)
    if case.analytic_zero[there].any() or case.share(model) < EXACT:
        return []
    # the total, or the longest group, which alone is right then
    longest = range(2, _LONGEST) if abs(ratios.max() - 1) <= _CLOSE else ()
    counted = case.scalar and _both_count(a, n)
    totals = {1} if counted else {1, *sizes, *longest}
    for total in sorted(totals - {0}):
        counts = _different_counts(ratios * total, total)
        if counts:
            words = "is missing" if total == 1 else f"is 1/{total} instead"
            times = "" if total == 1 else f"{total} x "
            sure = _have_members(ratios * total, counts)
            return [_clue(case, f"{times}analytic / numeric", counts, words, sure=sure)]
    counts = [] if counted else _different_counts(1 / ratios, 1)
    if counts:
        words = "is there twice, or with a sum"
        sure = _have_members(1 / ratios, counts)
        return [_clue(case, "numeric / analytic", counts, words, sure=sure)]
    return []


def _have_members(ratios: NDArray[np.float64], counts: list[int]) -> bool:
    """Whether whole numbers are as frequent as lengths of groups have to be.

    A group of three has three members. Of weights, and of halves at an edge, as many
    entries may have one; and two numbers of which one is 1 have it by accident.
    """
    if len(counts) < _FEW and counts[0] == 1:
        return False
    each = [int((np.round(ratios) == count).sum()) for count in counts]
    return all(number % count == 0 for number, count in zip(each, counts, strict=True))


def _both_count(a: NDArray[np.float64], n: NDArray[np.float64]) -> bool:
    """Whether both sides are a few times one number: margins that are counted.

    Their ratios are whole multiples of something then, whatever is wrong.
    """
    if np.ptp(n) <= _CLOSE * np.abs(n).max():
        return False
    values = np.abs(np.concatenate([a, n]))
    for parts in range(1, _PARTS):
        times = values / values.min() * parts
        if times.max() <= _TIMES and (abs(times - np.round(times)) <= _CLOSE).all():
            return True
    return False


def _different_counts(ratios: NDArray[np.float64], total: int) -> list[int]:
    """Return the whole numbers that ratios are, if they are, and are not all one."""
    whole = np.round(ratios)
    near = np.abs(ratios - whole) <= _CLOSE * np.maximum(whole, 1)
    counts = [int(count) for count in np.unique(whole)]
    most = _MOST if total == 1 else total
    if not near.all() or not 0 < counts[0] < counts[-1] <= most:
        return []
    return counts


def _clue(case: Case, ratio: str, counts: list[int], words: str, *, sure: bool) -> Clue:
    told = ", ".join(map(str, counts[:5])) + (", ..." if len(counts) > 5 else "")
    advice = (
        f"Divide the gradient of {case.name} by the length of its own group exactly "
        f"once, as the forward pass does."
    )
    as_weights = "."
    if not sure:
        advice += f" Else give each entry of {case.name} the weight that it has there."
        as_weights = (
            ", if these are lengths of groups that a mean runs over; weights of "
            "classes or of an edge may be such numbers as well."
        )
    groups = "lengths of groups that a mean runs over; its" if sure else "a mean's"
    return Clue(
        BugKind.MISSING_REDUCTION,
        0.91,
        f"{ratio} of {case.name} is a whole number in every entry, not the same one "
        f"everywhere ({told}): {groups} 1/length {words}{as_weights}",
        advice,
        () if sure else (BugKind.SCALE,),
    )


def _follow_an_index(case: Case, count: int) -> bool:
    """Whether factors are those of classes or samples: one for each index of an axis.

    Few factors in many entries are groups of some kind, whatever they follow.
    """
    lengths = {n for v in (case.variable, *case.outputs) for n in v.shape}
    if count <= _FEW or not case.part.complete or case.variable.is_complex:
        return True
    if count > max(lengths, default=0):
        return False
    for output, part in case.parts_of_output:
        a, n, wrong = (side[part] for side in (case.analytic, case.numeric, case.wrong))
        if not wrong.any():
            continue
        ratios = np.where(wrong, a / np.where(wrong, n, 1.0), np.nan)
        grid = ratios.reshape(*output.shape, *case.variable.shape)
        if not any(_is_one_for_each(grid, axis) for axis in range(grid.ndim)):
            return False
    return True


def _is_one_for_each(grid: NDArray[np.float64], axis: int) -> bool:
    """Whether all numbers at one index of an axis are the same, but for nan."""
    lines = np.moveaxis(grid, axis, 0).reshape(grid.shape[axis], -1)
    low = np.where(np.isnan(lines), np.inf, lines).min(axis=1)
    high = np.where(np.isnan(lines), -np.inf, lines).max(axis=1)
    there = np.isfinite(low)
    return bool((high - low <= 2 * _SAME * np.abs(high))[there].all())


def _is_of_one_sample(case: Case, count: int) -> bool:
    """Whether factors are those of the units of a weight that has met one sample.

    Its gradient is one outer product then, and any wrong error signal is a factor for
    each unit. So it is of samples that have met one vector.
    """
    shape = case.variable.shape
    if not case.scalar or len(shape) != 2 or not case.part.complete:
        return False
    if count <= _FEW and count not in shape:
        return False
    sizes = np.linalg.svd(case.numeric.reshape(shape), compute_uv=False)
    return bool(sizes[1:].sum() <= _SAME * sizes[0])


def _of_another_input(case: Case) -> list[Clue]:
    """Recognise factors that are the entries of another input, such as a gain."""
    shape, wrong = case.variable.shape, case.wrong.any(axis=0)
    if not case.scalar or not case.part.complete:
        return []
    a, n = case.analytic[0][wrong], case.numeric[0][wrong]
    for name, values in _along_an_axis(case, shape):
        v = values[wrong]
        if name == case.name or np.ptp(np.abs(v)) <= _SAME * np.abs(v).max():
            continue
        for told, ours, true in (("missing", a * v, n), ("there too often", a, n * v)):
            if np.abs(ours - true).max() <= _SAME * np.abs(true).max():
                return [
                    Clue(
                        BugKind.WRONG_DERIVATIVE,
                        0.93,
                        f"analytic / numeric of {case.name} follows the entries of "
                        f"{name}: the factor {name} is {told} on the way back.",
                        f"Multiply by {name} on the way back to {case.name} exactly "
                        f"where the forward pass does.",
                        (BugKind.MISSING_TERM, BugKind.SCALE),
                    )
                ]
    return []


def _along_an_axis(
    case: Case, shape: tuple[int, ...]
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield other inputs, spread along each axis that has their length."""
    yield from case.arrays(shape)
    for axis, length in enumerate(shape[:-1]):
        for name, values in case.arrays((length,)):
            along = values.reshape(-1, *(1,) * (len(shape) - axis - 1))
            yield name, np.broadcast_to(along, shape).ravel()


def weighted_groups(case: Case) -> list[Clue]:
    """Detect a few factors, each in several entries: weights of classes or samples."""
    wrong = case.wrong
    a, n = case.analytic[wrong], case.numeric[wrong]
    if a.size < _ENTRIES or not (a * n > 0).all() or case.analytic_zero[wrong].any():
        return []
    order = np.argsort(a / n)
    ratios = (a / n)[order]
    gaps = np.diff(ratios) > _SAME * np.abs(ratios[1:])
    groups = np.split(ratios, np.flatnonzero(gaps) + 1)
    if len(groups) < 2 or min(len(group) for group in groups) < 2:
        return []
    factors = np.array([group.mean() for group in groups])
    model = case.numeric.copy()
    scaled = np.empty_like(n)
    scaled[order] = n[order] * np.repeat(factors, [len(group) for group in groups])
    model[wrong] = scaled
    if case.share(model) < EXACT or not _follow_an_index(case, len(groups)):
        return []
    if _is_of_one_sample(case, len(groups)):
        return []
    if clues := _of_another_input(case):
        return clues
    near = bool((np.abs(factors - 1) < _NEAR).all())
    told = ", ".join(f"1 {c - 1:+.1g}" if near else f"{c:.4g}" for c in factors[:5])
    more = ", ..." if len(factors) > 5 else ""
    if near:
        return [
            Clue(
                BugKind.UNKNOWN,
                0.74,
                f"analytic / numeric of {case.name} is one of {len(groups)} factors "
                f"next to 1 ({told}{more}), each in several entries: what a group "
                f"shares, such as its variance, is not quite the same on the way back.",
                "Compare constants of forward and backward: an epsilon in a root or a "
                "norm, n or n - 1 in a variance, a number typed with too few digits.",
                (BugKind.WRONG_DERIVATIVE, BugKind.SCALE),
            )
        ]
    return [
        Clue(
            BugKind.SCALE,
            0.86,
            f"analytic / numeric of {case.name} is one of {len(groups)} factors "
            f"({told}{more}), each in several entries: what multiplies a class, a "
            f"sample or another group of entries is left out, or is there twice.",
            f"Multiply the gradient of {case.name} by the weight of its class or "
            f"sample, as the forward pass does.",
            (BugKind.MISSING_TERM,),
        )
    ]
