"""Detectors for losses that are sums over entries: is each slope its own entry's.

For ``sum(f(x))`` the gradient of an entry depends on that entry alone, which a few
evaluations show. A wrong gradient is then the derivative of another f.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.curves import Curve, read, straight
from gradlab.diagnosis.measuring.layer_shapes import layer_of
from gradlab.diagnosis.measuring.measures import Case, Clue
from gradlab.diagnosis.measuring.moving import analytic_at, slopes_at
from gradlab.diagnosis.measuring.places import place_words
from gradlab.subject.subject import unit_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["entry_by_entry"]

_MOST = 0.5  # of the entries, at least, miss a term that all have
_ASKED = 6  # entries of which each is asked whether another one's slope follows it
_TELLING = 3  # entries whose counts are no accident
_MOST_SAMPLES = 100  # of which a part is counted
_PIECES = 4  # entries by which pieces are told from accidents
_SUMMED = 0.78  # trust in a formula of what is summed over samples
_PROBED = 5  # entries whose slopes are measured again
_EACH = 3  # entries of each sort whose slopes have to stay
_FOLLOWS = 1e-3  # relative: a slope that moves with its entry
_SAME = 1e-5  # relative: sums that are one number


def entry_by_entry(case: Case) -> list[Clue]:
    """Detect the derivative of another function in a sum over entries."""
    if not case.scalar or case.variable.is_complex or not case.part.complete:
        return []
    n = case.numeric[0]
    if len(n) < 4 or not case.wrong.any():
        return []
    chosen = _spread(np.flatnonzero(case.wrong[0]), _PROBED)
    evidence, which = case.evidence, case.part.which
    if not _apart(case, chosen):
        return []
    curve = _curve(case, chosen)
    stands = straight(curve)  # around the point any such function is a sum over entries
    of_samples = layer_of(evidence, which) is not None
    if stands:
        if of_samples:
            return _miscounted(case)
        return read(curve, "", 0.0) if len(chosen) >= _PIECES else []
    known = _one_of_many(case, chosen) or _mixed(case, chosen) or _stuck(case, chosen)
    if known:
        return known
    lead = (
        f"The function is a sum over the entries of {case.name}: each slope depends on "
        f"its own entry. The analytic slopes are wrong, and by no one factor"
    )
    trust = 0.85 if case.wrong.sum() > 2 else 0.5
    clues = [*_constant(case, chosen), *read(curve, lead, trust)]
    return _of_samples(case, chosen, clues) if of_samples else clues


def _apart(case: Case, chosen: NDArray[np.intp]) -> bool:
    """Whether slopes stay when all other entries move, as those of a sum over entries.

    A slope of zero stays whatever the function is: entries that move it are asked, of
    those that are wrong and of all others.
    """
    x, n, evidence = case.point, case.numeric[0], case.evidence
    alive = np.flatnonzero(~case.numeric_zero[0])
    asked = np.union1d(_spread(chosen, _EACH), _spread(alive, _EACH))
    for j in asked:
        # others moved by random signs and sizes: a slope of its own stays
        moved = x + evidence.rng.normal(size=len(x)) * (0.3 + 0.3 * np.abs(x))
        moved[j] = x[j]
        unit, there = unit_vectors(len(x), [j]), {case.part.which: moved}
        slope = slopes_at(evidence, there, case.part.which, unit)[0]
        if not abs(slope - n[j]) <= 1e-5 * max(abs(n[j]), 1e-3 * np.abs(n).max()):
            return False
    return alive.size > 0


def _miscounted(case: Case) -> list[Clue]:
    """Tell of slopes that count samples: those of a weight or a bias, summed."""
    return [
        Clue(
            BugKind.UNKNOWN,
            0.78,
            f"The function is made of straight pieces in {case.name} (its slopes stand "
            f"still around the point), and the analytic gradient is wrong "
            f"{place_words(case)}: samples are counted that should not be, or not "
            f"counted, or the slope of a piece is another.",
            "Compare the condition of each piece, and its slope, in the gradient of "
            "the loss with the forward pass.",
            (BugKind.WRONG_MASK, BugKind.WRONG_DERIVATIVE, BugKind.MISSING_TERM),
        )
    ]


def _of_samples(case: Case, chosen: NDArray[np.intp], clues: list[Clue]) -> list[Clue]:
    """Read the slopes of a weight or a bias: each is a sum over samples.

    What is wrong of some samples, or of their number, looks like another formula.
    """
    doubts = BugKind.WRONG_MASK, BugKind.MISSING_TERM
    return _counted(case, chosen) + [
        dataclasses.replace(c, confidence=min(c.confidence, _SUMMED), doubts=doubts)
        if c.kind == BugKind.WRONG_DERIVATIVE
        else c
        for c in clues
    ]


def _curve(case: Case, chosen: NDArray[np.intp]) -> Curve:
    """Slopes at a few entries, each by itself."""
    units = unit_vectors(len(case.point), chosen)

    def at(
        point: NDArray[np.float64],
        others: Mapping[int, NDArray[np.float64]],
        count: int,
    ) -> NDArray[np.float64]:
        moved = {**others, case.part.which: point}
        return slopes_at(case.evidence, moved, case.part.which, units[:count])

    sides = case.analytic[0][chosen], case.numeric[0][chosen]
    return Curve(case, chosen, *sides, at)


def _spread(places: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    """Take a few places from all over: those in a row may belong to one dead unit."""
    some = np.linspace(0, len(places) - 1, min(count, len(places))).astype(int)
    return np.asarray(places[some])


def _stuck(case: Case, chosen: NDArray[np.intp]) -> list[Clue]:
    """Recognise a gradient of which the part that follows the entries is left out."""
    evidence, which, moved = case.evidence, case.part.which, case.point + 0.37
    if not case.analytic[0][chosen].any():
        return []  # zeros are told as that
    analytic = analytic_at(evidence, {which: moved})
    if analytic is None or (analytic[which] != case.analytic[0]).any():
        return []
    slopes = slopes_at(
        evidence, {which: moved}, which, unit_vectors(len(moved), chosen)
    )
    n = case.numeric[0][chosen]
    if not (np.abs(slopes - n) > _FOLLOWS * np.abs(n).max()).all():
        return []
    return [
        Clue(
            BugKind.MISSING_TERM,
            0.86,
            f"The slopes of the function follow the entries of {case.name}, each its "
            f"own; the analytic gradient is the same wherever {case.name} stands: the "
            f"term that follows it is missing.",
            f"Look for a term of {case.name} in the loss that the gradient leaves out, "
            f"or for one that was computed and never subtracted or added.",
            (BugKind.WRONG_DERIVATIVE,),
        )
    ]


def _mixed(case: Case, chosen: NDArray[np.intp]) -> list[Clue]:
    """Recognise a gradient that mixes entries which the function keeps apart."""
    j = int(chosen[0])
    others = np.delete(np.arange(len(case.point)), j)
    if not _follows(case, j, others):
        return []
    some = case.evidence.rng.permutation(others)[:_ASKED]
    alone = [_follows(case, j, some[[i]]) for i in range(len(some))]
    label = case.variable.label(int(case.part.positions[j]))
    told = (
        f"The function keeps the entries of {case.name} apart: each slope depends on "
        f"its own entry. The analytic gradient at {label} moves with other entries"
    )
    places = (
        f"Check the index at which the gradient of {case.name} reads {case.name}, or "
        f"what was made from it, and that at which it is written."
    )
    # a sum over an axis mixes all of its entries; its sum is the same as well
    if sum(alone) < len(alone) and _moved_elsewhere(case):
        told += (
            "; both gradients have the same sum, here and elsewhere: what belongs to "
            "one entry is added to another."
        )
        doubts = (BugKind.WRONG_AXIS,)
        return [Clue(BugKind.WRONG_INDEX, 0.88, told, places, doubts)]
    if sum(alone) < 2:
        return [Clue(BugKind.WRONG_INDEX, 0.88, f"{told}.", places)]
    return [
        Clue(
            BugKind.WRONG_AXIS,
            0.88,
            f"{told}, {sum(alone)} of {len(alone)} that were moved one by one.",
            f"Check the axis of every sum in the gradient of {case.name}, and the "
            f"indices with which it is written.",
            (BugKind.WRONG_INDEX,),
        )
    ]


def _moved_elsewhere(case: Case) -> bool:
    """Whether both gradients sum to the same, which is not nothing, at two points."""
    size = len(case.point)
    which, ones = case.part.which, np.ones((1, size)) / np.sqrt(size)
    there = {which: case.point + 0.3 * case.evidence.rng.normal(size=size)}
    ours = analytic_at(case.evidence, there)
    if ours is None:
        return False
    sums = (
        (ours[which] @ ones[0], slopes_at(case.evidence, there, which, ones)[0]),
        (case.analytic[0] @ ones[0], case.numeric[0] @ ones[0]),
    )
    least = _SAME * float(np.linalg.norm(case.numeric))
    return all(
        abs(a - n) <= max(_SAME * abs(n), 1e-2 * least) and abs(n) > least
        for a, n in sums
    )


def _follows(case: Case, j: int, others: NDArray[np.intp]) -> bool:
    """Whether one entry of the analytic gradient moves with other entries."""
    moved = case.point.copy()
    moved[others] += 0.3 + 0.3 * np.abs(moved[others])
    analytic = analytic_at(case.evidence, {case.part.which: moved})
    if analytic is None:
        return False
    apart = np.abs(analytic[case.part.which][j] - case.analytic[0, j])
    return bool(apart > 1e-5 * np.abs(case.analytic).max())


def _growth(
    case: Case, chosen: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Measure how much analytic and numeric slopes grow where all entries move alike.

    None where that is not known, or f's do not grow in proportion to the way.
    """
    which, moved = case.part.which, case.point + 0.37
    analytic = analytic_at(case.evidence, {which: moved})
    if analytic is None:
        return None
    units = unit_vectors(len(moved), chosen)
    grown = slopes_at(case.evidence, {which: moved}, which, units)
    further = slopes_at(case.evidence, {which: case.point + 0.74}, which, units)
    rise = grown - case.numeric[0][chosen]
    if not (np.abs(further - grown - rise) <= 1e-5 * np.abs(rise).max()).all():
        return None
    return analytic[which][chosen] - case.analytic[0][chosen], rise


def _one_of_many(case: Case, chosen: NDArray[np.intp]) -> list[Clue]:
    """Recognise one of several equal contributions, by how its slope moves.

    The gradient of a bias in a sum of squares over samples grows with the bias once for
    every sample. That of one sample has another value, and grows once.
    """
    growth = _growth(case, chosen) if len(chosen) > 1 else None
    if growth is None:
        return []
    ours, rise = growth
    size = np.abs(rise).max()
    if size == 0 or (np.abs(rise) < 1e-3 * size).any():
        return []
    counts = rise / np.where(ours == 0, np.nan, ours)
    whole = np.round(counts)
    if not (np.abs(counts - whole) <= 1e-4 * np.abs(whole)).all() or whole.min() < 2:
        return []
    told = (
        f"{int(whole.min())}"
        if np.ptp(whole) == 0
        else (f"{int(whole.min())} to {int(whole.max())}")
    )
    words = (
        f"As {case.name} moves, its gradient moves {told} times as fast as the "
        f"analytic one: of {told} contributions that move alike one is there."
    )
    return [
        Clue(
            BugKind.BROADCAST_REDUCTION,
            0.9,
            words,
            f"Sum the gradient of {case.name} over all samples that share it.",
        ),
        Clue(
            BugKind.LOST_ACCUMULATION,
            0.85,
            words,
            f"Where {case.name} is used in a loop, add to its gradient (+=).",
        ),
    ]


def _counted(case: Case, chosen: NDArray[np.intp]) -> list[Clue]:
    """Recognise contributions that should be left out, by how the slopes move.

    In a sum of squares each sample makes the gradient of a bias grow by the same. Where
    a mask leaves out some, that of an entry grows with the number that is left.
    """
    growth = _growth(case, chosen) if len(chosen) >= _TELLING else None
    if growth is None:
        return []
    ours, rise = growth
    whole = float(ours[0])
    if np.ptp(ours) > 1e-6 * abs(whole) or np.abs(ours).min() <= np.abs(rise).min():
        return []
    for count in range(_TELLING, _MOST_SAMPLES):
        left = count * rise / whole
        if np.abs(left - np.round(left)).max() > 1e-4 or left.min() < 0.5:
            continue
        if np.ptp(np.round(left)) == 0 or left.max() > count + 0.5:
            return []
        told = f"{round(left.min())} to {round(left.max())}"
        return [
            Clue(
                BugKind.WRONG_MASK,
                0.9,
                f"As {case.name} moves, its analytic gradient grows by the same in "
                f"every entry, and should as {told} of {count}: contributions are "
                f"added up that the function leaves out.",
                "Multiply the error signal by the mask of the forward pass (of entries "
                "that are known, of padding) before anything is summed.",
            )
        ]
    return []


def _constant(case: Case, chosen: NDArray[np.intp]) -> list[Clue]:
    """Recognise a term that does not depend on the entry: it is the same elsewhere."""
    if case.wrong.mean() <= _MOST:
        return []  # a target is missing everywhere
    which, moved = case.part.which, case.point + 0.37
    analytic = analytic_at(case.evidence, {which: moved})
    if analytic is None:
        return []
    slopes = slopes_at(
        case.evidence, {which: moved}, which, unit_vectors(len(moved), chosen[:3])
    )
    if np.allclose(slopes, case.numeric[0][chosen[:3]], rtol=1e-5, atol=1e-9):
        return []  # of straight pieces every error stays
    there = analytic[which][chosen[:3]] - slopes
    here = (case.analytic - case.numeric)[0][chosen[:3]]
    if not np.allclose(there, here, rtol=1e-5, atol=1e-9):
        return []
    return [
        Clue(
            BugKind.MISSING_TERM,
            0.9,
            f"The error of {case.name} stays the same when {case.name} moves: a term "
            f"that does not depend on it, such as a target, is missing or too much.",
            f"Compare the terms of the gradient of {case.name} that are constant in "
            f"it, one by one, with those of the function.",
        )
    ]
