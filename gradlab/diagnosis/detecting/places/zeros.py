"""Detectors of zeros in the wrong places: detached, masks, lost contributions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.detecting.places.passing import passed_on
from gradlab.diagnosis.detecting.places.unwritten import unwritten_ends
from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.layer_shapes import layer_of
from gradlab.diagnosis.measuring.measures import (
    EXACT,
    Case,
    Clue,
    cases_of,
    reaches,
)
from gradlab.diagnosis.measuring.places import are_slices, place_words
from gradlab.diagnosis.measuring.proportions import fraction_words, ratio
from gradlab.diagnosis.measuring.sides import side_of, wrong_weight_of
from gradlab.subject.subject import is_torch_subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.subject.subject import Variable

__all__ = ["detached", "partial_zeros"]


def detached(case: Case) -> list[Clue]:
    """Detect a gradient that is zero throughout while the function moves."""
    zero = case.analytic_zero
    still = (zero if case.all_usable else zero | ~case.usable).all()
    if not still or case.numeric_zero.all():
        return []
    gone = {p.where for p in case.evidence.problems if p.kind in {"none", "missing"}}
    none = case.name in gone
    most = float(np.abs(case.analytic).max(initial=0.0))
    told = f"at most {most:.1g}" if most else "zero"  # what rounding leaves of it
    told = "None" if none else f"{told} in every entry"
    largest = float(np.abs(case.numeric).max(initial=0.0))
    if not none and _sums_to_nothing(case):
        return [
            Clue(
                BugKind.WRONG_AXIS,
                0.85,
                f"The gradient of {case.name} is {told}, while the "
                f"function moves with it, and that of the weight of its layer is wrong "
                f"and not zero: their error signal sums to zero over samples, as where "
                f"a softmax or a mean is taken over samples.",
                "Check the axis of every softmax, sum and mean between this layer and "
                "the loss, forward and backward.",
                (BugKind.DETACHED,),
            )
        ]
    if not none and _starts_from_zero(case):
        return [
            Clue(
                BugKind.LOST_ACCUMULATION,
                0.85,
                f"The gradient of {case.name} is {told}, while the function moves with "
                f"it, and what else meets the same error signal is wrong and not zero: "
                f"as where a loop assigns what each step adds, and ends with the first "
                f"step, whose state is zero.",
                f"Add (+=) what each step gives to the gradients of the layer, of "
                f"{case.name} and the others, in place of assigning it.",
                (BugKind.DETACHED,),
            )
        ]
    return [
        Clue(
            BugKind.DETACHED,
            0.98,  # what names the cut is better
            f"The gradient of {case.name} is {told}, while the function moves with it "
            f"(largest derivative {largest:.4g}).",
            _where_cut(case),
        )
    ]


def _sums_to_nothing(case: Case) -> bool:
    """Whether a bias is zero by a sum: the weight of its layer is wrong, and is not."""
    weight = wrong_weight_of(case)
    if weight is None:
        return False
    ours, x = weight.analytic, weight.point
    # what is along the weight itself is the slope of a penalty, and no signal
    rest = ours - np.outer(ours @ x, x) / max(float(x @ x), 1e-300)
    return bool(np.linalg.norm(rest) > 1e-6 * np.linalg.norm(ours))


def _starts_from_zero(case: Case) -> bool:
    """Whether a weight of states is zero, and the others of its layer wrong alone."""
    layer = layer_of(case.evidence, case.part.which)
    if layer is None or layer.recurrent != case.part.which:
        return False
    mates = [side_of(case.evidence, which) for which in (layer.weight, layer.bias)]
    return all(
        mate is not None and mate.is_wrong and not mate.analytic_zero.all()
        for mate in mates
    )


def _where_cut(case: Case) -> str:
    if not is_torch_subject(case.evidence.subject):
        return (
            f"Compute the gradient of {case.name} and return it in its place: a "
            f"forgotten return, a name under which it was never stored, or a loop that "
            f"assigns (=) in place of adding, and ends with a zero, gives this."
        )
    return (
        f"Find where the path from {case.name} to the output is cut: detach, .data, "
        f"no_grad, item(), a trip through NumPy, or a gradient that is computed and "
        f"not returned."
    )


def partial_zeros(case: Case) -> list[Clue]:
    """Detect entries that are zero on one side only, the others being right."""
    a_zero, n_zero = case.analytic_zero, case.numeric_zero
    lost = case.wrong & a_zero & ~n_zero
    extra = case.wrong & n_zero & ~a_zero
    both, one_sided = ~a_zero & ~n_zero, lost | extra
    every = a_zero[case.usable].all() or n_zero[case.usable].all()
    if every or not one_sided.any():
        return []
    model = np.where(lost, 0.0, np.where(extra, case.analytic, case.numeric))
    share = case.share(model)
    scaled = 1.0
    enough = int((both & ~one_sided).sum()) > 2
    if share < EXACT and enough:
        mask = both & case.usable
        scaled = ratio(case.analytic[mask], case.numeric[mask])
        model = np.where(one_sided, case.analytic, scaled * case.numeric)
        share = min(case.share(model), case.share(model, both))
    if share < EXACT:
        return []
    told = "they agree" if scaled == 1.0 else f"one is {scaled:.4g} x the other"
    if fraction_words(scaled) is None:  # of a kept unit or sample: no mask alone
        share *= 0.55
    if not extra.any():
        clues = _imaginary(case, lost, share) or _lost(case, lost, share)
        if clues:
            return clues
    if not both.any():
        told = ""
    passed = passed_on(case, lost, extra, share, told=told)
    return [*passed, *unwritten_ends(case, lost, extra)]


def _imaginary(case: Case, lost: NDArray[np.bool_], share: float) -> list[Clue]:
    """Recognise a complex gradient without its imaginary part, or its real one."""
    if not case.variable.is_complex:
        return []
    parts = case.part.positions % 2  # 0 where it is real, 1 where imaginary
    without, moves = parts[reaches(lost, 0)], parts[reaches(~case.numeric_zero, 0)]
    which = int(without[0])
    if (without != which).any() or len(without) < (moves == which).sum():
        return []
    gone, kept = ("imaginary", "real") if which else ("real", "imaginary")
    return [
        Clue(
            BugKind.DETACHED,
            0.95 * share,
            f"The gradient of {case.name} has no {gone} part where the function moves "
            f"with it; its {kept} part is right.",
            f"Look for .{kept}, a cast or an array of real numbers that drops the "
            f"{gone} part in the backward of {case.name}.",
        )
    ]


def _lost(case: Case, lost: NDArray[np.bool_], share: float) -> list[Clue]:
    """Name zeros that are missing only in the analytic side."""
    if case.scalar:
        return []
    rows = reaches(lost, 1)
    zero = case.numeric_zero
    gone = _lost_output(case, lost, share)
    if gone:
        return gone
    mates = _wrong_alike(case, case.wrong & case.analytic_zero)
    if mates:  # no line about one input alone explains what several lose
        return [_shared_loss(case, mates, share)]
    whole = bool((rows == ((lost | zero).all(axis=1) & rows)).all())
    clues = _one_sample(case, rows, share) if whole else []
    kept = ~case.analytic_zero
    uses, touched = (~zero).sum(axis=0), reaches(lost, 0)
    if (uses > 1)[touched].all() and reaches(kept, 0)[touched].all():
        clues.append(_accumulated(case, touched, kept, share))
    several = np.median((~zero)[rows].sum(axis=1)) > 1
    several_left = bool((kept.sum(axis=0)[touched] > 1).all())
    if clues and several_left and _copies(case):  # what is assigned leaves one
        return [_copies_lost(case, int(lost[:, touched].sum(axis=0).max()), share)]
    if whole and (several or are_slices(case, rows)):
        clues += _lost_rows(case, rows, share)
    return clues


def _lost_output(case: Case, lost: NDArray[np.bool_], share: float) -> list[Clue]:
    """Name an output whose whole path to some entries is gone, others being right."""
    zero, touched = case.numeric_zero, reaches(lost, 0)
    if len(case.outputs) < 2:
        return []
    for output, part in case.parts_of_output:
        others = np.ones(len(lost), dtype=bool)
        others[part] = False
        if lost[others].any() or not lost[part].any():
            continue
        if not (lost | zero)[part][:, touched].all():
            return []
        whole = bool((lost | zero)[part].all())
        told = (
            f"No gradient comes from {output.name} to "
            f"{'any entry' if whole else f'{int(touched.sum())} entries'} of "
            f"{case.name}; what comes from the other outputs is right."
        )
        advice = (
            f"Add the path from {output.name} to {case.name}, with the incoming "
            f"gradient of {output.name}."
        )
        return [Clue(BugKind.MISSING_TERM, 0.95 * share, told, advice)]
    return []


def _copies(case: Case) -> bool:
    """Whether each output is a copy of one entry, or the same multiple of it."""
    moves = ~case.numeric_zero
    n = case.numeric[moves]
    return bool((moves.sum(axis=1) <= 1).all()) and bool(np.ptp(n) <= 1e-6 * abs(n[0]))


def _copies_lost(case: Case, count: int, share: float) -> Clue:
    most = int((~case.numeric_zero).sum(axis=0).max())
    return Clue(
        BugKind.BROADCAST_REDUCTION,
        0.965 * share,
        f"Each output is a copy of one entry of {case.name}, {most} of each; the "
        f"gradients of {count} of them are lost.",
        f"Sum the incoming gradient for {case.name} over all of its copies.",
        (BugKind.MISSING_TERM, BugKind.LOST_ACCUMULATION),
    )


def _lost_rows(case: Case, rows: NDArray[np.bool_], share: float) -> list[Clue]:
    """Whole outputs, or samples of one, that pass nothing back."""
    return [
        Clue(
            BugKind.DETACHED,
            (0.95 if are_slices(case, rows) else 0.93) * share,
            f"No gradient reaches {case.name} from {int(rows.sum())} of {len(rows)} "
            f"output rows, {place_words(case)}; the others are right.",
            f"Add the path from these outputs to {case.name}: one of them may be "
            f"detached, or left out by a loop over outputs or samples.",
        )
    ]


def _one_sample(case: Case, rows: NDArray[np.bool_], share: float) -> list[Clue]:
    """Say whether a shared input gets the gradient of one sample only."""
    for output, part in case.parts_of_output:
        moves = reaches(~case.numeric_zero[part], 1).reshape(output.shape)
        kept = moves & ~rows[part].reshape(output.shape)
        for axis, length in enumerate(output.shape):
            others = tuple(i for i in range(len(output.shape)) if i != axis)
            if length < 2 or not _serves(case, output, part, axis, others):
                continue
            left = np.flatnonzero(reaches(kept, others))
            if len(left) != 1 or int(reaches(moves, others).sum()) < 2:
                continue
            everywhere = _used_along(case, output, part, others)
            known = (everywhere | ~reaches(everywhere, 0)).all()
            if not known and not _in_line(case, output, part):
                continue  # entries that serve some indices only: no broadcasting
            return [
                Clue(
                    BugKind.BROADCAST_REDUCTION,
                    0.965 * share,
                    f"{case.name} serves all {length} indices along axis {axis} of "
                    f"{output.name}, but its gradient holds that of index "
                    f"{int(left[0])} alone.",
                    f"Sum the gradient of {case.name} over the axis along which it "
                    f"was broadcast.",
                )
            ]
    return []


def _in_line(case: Case, output: Variable, part: slice) -> bool:
    """Whether outputs use the entries with their own last indices, and no others.

    As of a slope for each feature that a mask switches off for some samples.
    """
    shape = case.variable.shape
    if not shape or output.shape[len(output.shape) - len(shape) :] != shape:
        return False
    rows, columns = np.nonzero(~case.numeric_zero[part])
    return bool((rows % case.variable.size == columns).all())


def _serves(
    case: Case, output: Variable, part: slice, axis: int, others: tuple[int, ...]
) -> bool:
    """Whether the input is broadcast along an axis, or used at every index of it."""
    if _broadcast(case, output, axis):
        return True
    return bool(_used_along(case, output, part, others).all())


def _used_along(
    case: Case, output: Variable, part: slice, others: tuple[int, ...]
) -> NDArray[np.bool_]:
    """Which entries move an output at each index of the one axis not in `others`."""
    used = (~case.numeric_zero)[part].reshape(*output.shape, -1)
    return reaches(used, others) if others else used


def _broadcast(case: Case, output: Variable, axis: int) -> bool:
    """Whether the input has no axis that goes with an axis of the output."""
    shape = case.variable.shape
    own = axis - (len(output.shape) - len(shape))
    return own < 0 or shape[own] != output.shape[axis]


def _accumulated(
    case: Case,
    touched: NDArray[np.bool_],
    kept: NDArray[np.bool_],
    share: float,
) -> Clue:
    """Entries used several times that keep one contribution and lose the others.

    An assignment leaves what one statement adds: of uses that are no multiple of that,
    a statement is missing. Where every output reads one entry, as of a table, one that
    is left out takes no other's place: what keeps exactly one use was overwritten.
    """
    moves = ~case.numeric_zero
    uses, left = moves.sum(axis=0)[touched], kept.sum(axis=0)[touched]
    if (uses % left).any():  # one statement of several is left, or all but one
        least = int((case.wrong & case.analytic_zero).sum(axis=0)[touched].min())
        return Clue(
            BugKind.MISSING_TERM,
            0.94 * share,
            f"{_acting(case, touched, uses)} and lack the gradient of "
            f"{least} or more: {place_words(case)}."
            if int(touched.sum()) > 1
            else f"{_acting(case, touched, uses)} and lacks the gradient of {least}.",
            f"Add up the contributions of every use of {case.name} (+=, np.add.at).",
            (BugKind.LOST_ACCUMULATION,),
        )
    reads = bool((moves.sum(axis=1) <= 1).all() and (left == 1).all())
    return Clue(
        BugKind.LOST_ACCUMULATION,
        (0.96 if reads else 0.94) * share,
        f"{_acting(case, touched, uses)} and keep{'' if touched.sum() > 1 else 's'} "
        f"the gradient of only {int(left.min())}: {place_words(case)}.",
        f"Add to the gradient of {case.name} (+=, np.add.at) where the backward "
        f"assigns to it.",
        # what one statement leaves another may have had to give as well
        (BugKind.MISSING_TERM,) if left.min() > 1 else (),
    )


def _acting(case: Case, touched: NDArray[np.bool_], uses: NDArray[np.int_]) -> str:
    """Begin a sentence on entries that several outputs use."""
    count, most = int(touched.sum()), int(uses.max())
    if count == 1:
        return f"One entry of {case.name} acts on {most} outputs"
    return f"{count} entries of {case.name} act on up to {most} outputs"


def _shared_loss(case: Case, mates: list[str], share: float) -> Clue:
    """Say that outputs for which other inputs are wrong too pass nothing back."""
    verb = "is" if len(mates) == 1 else "are"
    return Clue(
        BugKind.MISSING_TERM,
        0.94 * share,
        f"{case.name} gets no gradient from outputs for which {' and '.join(mates)} "
        f"{verb} wrong as well, {place_words(case)}: something that they share on the "
        f"way back is lost, such as the step from a later state.",
        "Add what comes back from later steps, or along other paths, to the error "
        "signal before any gradient is made from it.",
    )


def _wrong_alike(case: Case, lost: NDArray[np.bool_]) -> list[str]:
    """Name other inputs that are wrong for most of the outputs that lose something."""
    rows = reaches(lost, 1)
    return [
        other.name
        for other in cases_of(case.evidence)
        if other.part.which != case.part.which
        and 2 * int((rows & reaches(other.wrong, 1)).sum()) >= int(rows.sum())
    ]
