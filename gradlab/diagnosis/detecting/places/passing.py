"""Which mask, index or axis is wrong, where slopes pass that should not, or stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.measures import Case, Clue, reaches
from gradlab.diagnosis.measuring.moving import affine
from gradlab.diagnosis.measuring.places import are_slices, place_words, some_entries
from gradlab.diagnosis.measuring.proportions import fraction_words
from gradlab.differentiation.smoothness import Smoothness

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["kinked_point", "passed_on"]

_MANY = 8  # entries, of which one alone meets no mask as a rule
_VARIED = 1e-3  # relative: slopes that are not all one
# what a slope where nothing moves may be as well
_CONSTANTS = (BugKind.EXTRA_TERM, BugKind.WRONG_DERIVATIVE)


def passed_on(
    case: Case,
    lost: NDArray[np.bool_],
    extra: NDArray[np.bool_],
    share: float,
    *,
    told: str,
) -> list[Clue]:
    """Tell a wrong mask from a wrong index and from a sum over too many axes.

    Parameters
    ----------
    lost
        Where the analytic side alone is zero.
    extra
        Where it alone is not.
    share
        Of the error that these account for.
    told
        How the two sides compare where neither is zero; empty if that is nowhere.
    """
    elsewhere = _other_way(case, lost, extra, share)
    elsewhere = elsewhere or _from_others(case, lost, extra, share)
    mask = _mask_clue(case, lost, extra, share, told)
    return elsewhere or [mask, *_handed_on(case, lost, extra, share)]


def _from_others(
    case: Case, lost: NDArray[np.bool_], extra: NDArray[np.bool_], share: float
) -> list[Clue]:
    """Recognise entries that take the gradients of as many outputs, but of others.

    A mask that is wrong stops what belongs to an output, or lets it through; both of
    one output it does only where it selects among entries, and then of other entries.
    """
    if (lost.sum(axis=0) != extra.sum(axis=0)).any():
        return []
    if not (reaches(lost, 1) & reaches(extra, 1)).any():
        return []
    return [
        Clue(
            BugKind.WRONG_INDEX,
            0.93 * share,
            f"Every entry of {case.name} that is wrong takes the incoming gradient of "
            f"as many outputs as it should, and of others ({place_words(case)}).",
            f"Read the incoming gradient for {case.name} at the indices to which the "
            f"forward pass writes.",
        )
    ]


def _other_way(
    case: Case, lost: NDArray[np.bool_], extra: NDArray[np.bool_], share: float
) -> list[Clue]:
    """Recognise zeros that are transposed: an order, or a graph, the other way round.

    What an output depends on, and what depends on it, are exchanged. A mask knows
    nothing of pairs.
    """
    if lost.shape[0] != lost.shape[1] or not lost.any() or (lost != extra.T).any():
        return []
    if (lost == extra).all():
        return []
    return [
        Clue(
            BugKind.TRANSPOSE,
            0.93 * share,
            f"The zeros of the analytic Jacobian of {case.name} are those of the "
            f"numeric one transposed: each output hands its gradient to the entries "
            f"whose outputs depend on it, and to none of those that it depends on.",
            "Go the other way in the backward: from the last to the first in a running "
            "sum or product, and with A.T for a matrix A of neighbours.",
        )
    ]


def _handed_on(
    case: Case, lost: NDArray[np.bool_], extra: NDArray[np.bool_], share: float
) -> list[Clue]:
    """Recognise a sum over too many axes: each output reaches entries of its mates.

    Of an input that the function is a straight line in, no value decides which entry
    an output depends on: what is not zero there comes from no mask. Nor does a number
    that is another one for each output, and for each the same in all entries.
    """
    rows = reaches(extra, 1)
    own = ~case.numeric_zero
    if case.scalar or lost.any() or (own.sum(axis=1)[rows] != 1).any():
        return []
    there = own & rows[:, None]
    n = case.numeric[there]
    c = float(case.analytic[there] @ n / (n @ n))  # 1 of a sum, less of a mean
    named = fraction_words(c)
    if named is None:
        return []
    same = c * np.where(own, case.numeric, 0.0).sum(axis=1, keepdims=True)
    apart = np.abs(case.analytic - same) > case.tolerance + case.relative * np.abs(same)
    if (apart & (extra | there)).any():
        return []
    # a mask of a maximum hands on the same slope everywhere: one
    varied = np.ptp(np.abs(n)) > _VARIED * np.abs(n).max()
    if not varied and not affine(case.evidence, case.part.which):
        return []
    is_sum = named == "1"
    what = "the same number: a sum" if is_sum else f"{named} of it to each: a mean"
    return [
        Clue(
            BugKind.WRONG_AXIS,
            0.95 * share,
            f"Each output depends on one entry of {case.name}; its gradient is handed "
            f"to others as well ({int(extra.sum())} times), {what} "
            f"that runs over an axis of {case.name} itself.",
            f"Sum the gradient of {case.name} over the axes along which it was "
            f"broadcast, and over no other.",
        )
    ]


def _mask_clue(
    case: Case,
    lost: NDArray[np.bool_],
    extra: NDArray[np.bool_],
    share: float,
    told: str,
) -> Clue:
    place = place_words(case)
    if place.startswith("wherever"):  # of zeros, that says nothing
        place = f"in {some_entries(case, int((lost | extra).sum()))}"
    doubts: tuple[BugKind, ...] = _CONSTANTS if _of_constants(case, lost, extra) else ()
    if not case.scalar and not extra.any():  # a term may as well be left out there
        doubts = (BugKind.MISSING_TERM,)
    alone = case.scalar and int((lost | extra).sum()) == int(lost.sum()) == 1
    alone = alone and case.variable.size >= _MANY
    if alone:
        doubts = (BugKind.WRONG_INDEX, BugKind.DETACHED)  # one place left unwritten
    return Clue(
        BugKind.WRONG_MASK,
        (0.78 if alone else 0.92) * share,
        f"{_counted(lost, extra)} {place}; "
        f"{f'where neither is zero, {told}' if told else 'nowhere is neither zero'}.",
        f"Compare the mask in the backward of {case.name} with the one the forward "
        f"pass applies: same array, same comparison, same side.",
        doubts,
    )


def _of_constants(
    case: Case, lost: NDArray[np.bool_], extra: NDArray[np.bool_]
) -> bool:
    """Whether what is too much is the slope of whole slices that nothing moves.

    A mask stops some entries of a slice, as a rule; a constant has no slope at all.
    """
    rows = reaches(extra, 1)
    still = case.numeric_zero[rows].all()
    return bool(not lost.any() and still and are_slices(case, rows))


def _counted(lost: NDArray[np.bool_], extra: NDArray[np.bool_]) -> str:
    """Say how many entries are zero on one side only, as a sentence begins."""
    stopped, passed = int(lost.sum()), int(extra.sum())
    if not passed:
        return "The analytic gradient is zero where the function moves,"
    if not stopped:
        return "The analytic gradient is not zero where the function does not move,"
    return (
        f"The analytic gradient is zero where the function moves ({stopped:,} times) "
        f"and not zero where it does not move ({passed:,} times),"
    )


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
