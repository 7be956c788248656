"""Detectors of constant factors: scale, sign, forgotten means."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import NEARLY_RIGHT, BugKind
from gradlab.diagnosis.measuring.explaining import EVEN
from gradlab.diagnosis.measuring.layer_shapes import layer_of
from gradlab.diagnosis.measuring.lengths import is_everyday, matching_length
from gradlab.diagnosis.measuring.measures import (
    EXACT,
    Case,
    Clue,
    cases_of,
    sides_of,
)
from gradlab.diagnosis.measuring.moving import has_factor_elsewhere
from gradlab.diagnosis.measuring.places import place_words, whole_words
from gradlab.diagnosis.measuring.proportions import (
    NEAR_ONE,
    factor,
    factor_words,
    fraction_words,
    is_written,
)
from gradlab.diagnosis.measuring.sides import wrong_inputs, wrong_weight_of
from gradlab.diagnosis.measuring.sums import vanishing_sums
from gradlab.differentiation.metering.meter import BudgetExhausted

if TYPE_CHECKING:
    from gradlab.diagnosis.evidence import Evidence
    from gradlab.diagnosis.measuring.lengths import Length

__all__ = ["scales"]

_CONSTANT = 0.999  # share of the error above which a factor is told to be one
_CLOSE = 1e-3  # how near to a size or an integer a measured factor must be
_WHOLE = 0.02  # and how near to any whole number, however large
_AS_IT_IS = 1e-3  # of the distance from a multiple: an entry that is none
_SHARP = 1e-6  # relative: how near to a whole number a factor of two entries must be
_NAMED = 0.75  # of the trust in a factor: from there on its meaning is told instead
_TELLING = 0.9  # trust in a factor from which on it may be one on purpose
_MOST_OF_ALL = 0.9  # of a sum: a contribution that is lost is seldom less than the rest
_PAIR = 2  # entries: so few may have a plain factor by chance
_EXPONENT = 4  # of a power: as large as most are
_LOSS_SCALE = 128  # the least power of two that is rather one of mixed precision
_PLAIN = {-4.0, -2.0, -1.0, 1.0, 4.0, 6.0}  # twice a factor that one number may show


def scales(case: Case) -> list[Clue]:
    """Detect one factor for everything, or for the wrong entries only."""
    clues = []
    for only_wrong in (False, True):
        if not only_wrong and _half_right(case):
            continue  # what is right has no factor that is seen
        c = factor(case, only_wrong=only_wrong)
        if not np.isfinite(c) or abs(c) < 1e-9:
            continue
        share = case.share_of_factor(c)
        if only_wrong:
            share = case.share(c * case.numeric, case.wrong, rest=EVEN)
        fits = _proportional(case, c) if only_wrong else not _spares(case, c)
        if share < _least(case) or not fits:
            continue
        trust = _trust(case, c, only_wrong=only_wrong)
        if only_wrong and _one_row_of_several(case, c):
            clues.append(_used_twice(case, c, share))
        if trust > 0:
            clues += _named(case, c, share * trust, whole=not only_wrong)
        if trust < 1 and only_wrong and 0 < c < _MOST_OF_ALL and case.analytic.size > 3:
            clues.append(_less(case, c))
        break
    return clues


def _trust(case: Case, c: float, *, only_wrong: bool) -> float:
    """Say how far a factor that fits is to be believed: of few entries, less."""
    count = int(case.wrong.sum())
    shared = count > _PAIR or (count == _PAIR and _counts(c))
    trust = 1.0 if shared or is_written(c) else 0.6
    plain = round(2 * c, 3) in _PLAIN or _alike(case.evidence, c)
    if case.analytic.size == 1 and not plain:
        trust = 0.3  # one number has a factor whatever is wrong: others tell more
    steady = None
    if count == 1:
        with contextlib.suppress(BudgetExhausted):
            steady = has_factor_elsewhere(case, c)
    if steady is False:
        trust = 0.0
    elif steady and case.analytic.size == 1:
        trust = 1.0
    if not only_wrong:
        return trust
    if count <= _PAIR and _not_of_weight(case, c):
        trust = min(trust, 0.3)
    if not is_written(c) and _unbalanced(case):
        trust = min(trust, 0.6)  # in a line of a balance any missing term has one
    return 0.98 * trust


def _least(case: Case) -> float:
    """Share of the error that a factor has to account for, as far as bars allow.

    Numbers that are noisy by a hundredth show no constant to a thousandth.
    """
    blurred = case.freedom / case.total if case.total > 0 else 0.0
    return 1 - max(1 - _CONSTANT, min(1 - EXACT, blurred))


def _proportional(case: Case, c: float) -> bool:
    """Whether the wrong entries are c times what they should be, however small c is."""
    a, n = case.analytic[case.wrong], case.numeric[case.wrong]
    left = np.maximum(np.abs(a - c * n) - case.tolerance[case.wrong], 0.0)
    return bool(np.linalg.norm(left) <= (1 - _least(case)) * np.linalg.norm(a))


def _spares(case: Case, c: float) -> bool:
    """Whether an entry that is too small to weigh is right, where c would not be.

    Off by more than what may be rounding, or exact by far as it stands.
    """
    apart = np.abs(case.analytic - c * case.numeric)
    right = np.abs(case.analytic - case.numeric)
    told = (apart > case.tolerance) & (right < apart) | (right < _AS_IT_IS * apart)
    return bool((told & ~case.wrong & case.usable).any())


def _half_right(case: Case) -> bool:
    """Whether half of the entries that are not zero agree, one by one.

    Of a factor so near to one that bars hide it there, the others may have another.
    """
    alive = case.usable & ~(case.analytic_zero & case.numeric_zero)
    return 2 * int(case.wrong.sum()) <= int(alive.sum())


def _less(case: Case, c: float) -> Clue:
    """One or two entries that are too small: a contribution may have got lost."""
    return Clue(
        BugKind.LOST_ACCUMULATION,
        0.58,
        f"analytic = {c:.6g} x numeric {place_words(case)}, as if one of several "
        f"contributions had been overwritten.",
        f"Where an entry of {case.name} is used more than once, add to its gradient "
        f"(+=, np.add.at) in place of assigning.",
        (BugKind.MISSING_TERM, BugKind.WRONG_DERIVATIVE),
    )


def _one_row_of_several(case: Case, c: float) -> bool:
    """Whether one row of a table has 1/2, 1/3 ... of its gradient, others all."""
    shape = case.variable.shape
    if len(shape) < 2 or not case.scalar or not case.part.complete or not 0 < c < 0.6:
        return False
    if abs(1 / c - round(1 / c)) > _CLOSE / c:
        return False
    wrong, alive = (
        side.reshape(shape[0], -1) for side in (case.wrong[0], ~case.numeric_zero[0])
    )
    rows = wrong.any(axis=1)
    whole = (wrong == alive)[rows].all() and int(alive[rows].sum()) > 1
    return bool(rows.sum() == 1 and whole and alive[~rows].any())


def _used_twice(case: Case, c: float, share: float) -> Clue:
    """Name a row that is read several times, and written each time: one is left."""
    count = round(1 / c)
    return Clue(
        BugKind.LOST_ACCUMULATION,
        0.94 * share,
        f"analytic = 1/{count} x numeric {place_words(case)}, and the other rows are "
        f"right: of {count} uses of that row one is left.",
        f"Where a row of {case.name} is used more than once, add to its gradient (+=, "
        f"np.add.at) in place of assigning.",
    )


def _not_of_weight(case: Case, c: float) -> bool:
    """Whether the weight of a bias is wrong too, and not by its factor.

    Both have one error signal: a factor of that is a factor of both.
    """
    weight = wrong_weight_of(case)
    if weight is None:
        return False
    theirs = factor(weight, only_wrong=True)
    return not (abs(theirs - c) < _CLOSE * abs(c) and _proportional(weight, theirs))


def _unbalanced(case: Case) -> bool:
    """Whether a gradient should sum to zero along an axis, and does not."""
    n, a = case.grid(case.numeric), case.grid(case.analytic)
    if n is None or a is None:
        return False
    true = vanishing_sums(n)
    return bool(true) and not true & vanishing_sums(a)


def _counts(c: float) -> bool:
    """Whether a factor is N or 1/N: that of a mean, and hardly one by chance."""
    large = max(c, 1 / c)
    return round(large) >= 3 and abs(large - round(large)) < _SHARP * large


def _named(case: Case, c: float, trust: float, *, whole: bool) -> list[Clue]:
    """Say what a factor means."""
    named = fraction_words(c)
    told = factor_words(c)
    if abs(c - 1) < NEAR_ONE:
        told, named = f"(1 {'+' if c > 1 else '-'} {abs(c - 1):.3g})", None
    place = whole_words(case) if whole else place_words(case)
    evidence = f"analytic = {told} x numeric {place}."
    if abs(c + 1) < _CLOSE:
        return [
            Clue(
                BugKind.SIGN,
                0.97 * trust,
                f"The sign is flipped: analytic = -1 x numeric {place}.",
                f"Look for a minus that is lost or doubled on the way to "
                f"{case.name}, such as target - output for output - target.",
            )
        ]
    advice = (
        f"Search the backward for the factor {named or format(c, '.4g')} in the line "
        f"that computes the gradient of {case.name}."
    )
    if abs(c - 1) < NEAR_ONE:
        advice = NEARLY_RIGHT
    if _is_loss_scale(case, c):
        evidence = f"{evidence[:-1]}: 2**{round(math.log2(c))}, such as a loss scale."
        advice = (
            "Divide by the loss scale of mixed precision before gradients are looked "
            "at: scaler.unscale_(optimizer) in torch."
        )
    reduction = _reduction(case, c, trust, evidence) if whole or c > 0 else None
    if c < 0 and trust >= _TELLING:  # seldom an accident, but one number may have it
        advice += (
            f" A layer that reverses gradients multiplies by such a number: if one by "
            f"{abs(c):.4g} is meant (surrogate), leave it out of the check."
        )
    # a half, or two, of as many samples is as often that of a square
    halves = reduction is not None and round(max(c, 1 / c)) == 2
    doubts = (BugKind.MISSING_REDUCTION,) if halves else ()
    scale = Clue(BugKind.SCALE, 0.93 * trust, evidence, advice, doubts)
    better = reduction is not None and reduction.confidence >= _NAMED * scale.confidence
    return [reduction] if reduction is not None and better else [scale]


def _is_loss_scale(case: Case, c: float) -> bool:
    """Whether all inputs are too large by a power of two that no length explains."""
    if not c >= _LOSS_SCALE or abs(math.log2(c) - round(math.log2(c))) > 1e-6:
        return False
    return matching_length(case, c, alike=True) is None and _alike(case.evidence, c)


def _mean_for_sum(case: Case, c: float) -> Clue | None:
    """Recognise the gradient of a bias that is averaged over samples, not summed.

    The weight of the layer is right: so is the error signal, and its sum is not.
    """
    layer = layer_of(case.evidence, case.part.which)
    count = round(1 / c)
    if layer is None or layer.bias != case.part.which or layer.recurrent is not None:
        return None
    if count < 3 or abs(c * count - 1) > _CLOSE:
        return None
    if layer.weight in wrong_inputs(case.evidence):
        return None
    weight = case.evidence.subject.inputs[layer.weight].name
    return Clue(
        BugKind.MISSING_REDUCTION,
        0.97,
        f"analytic = 1/{count} x numeric in {case.name}, and {weight} of the same "
        f"layer is right: a mean over {count} samples stands where a sum belongs.",
        f"Sum the error signal for {case.name} (sum in place of mean).",
    )


def _masked_mean(case: Case, c: float) -> Clue | None:
    """Recognise a mean over all entries where that of the others is one over a few."""
    count, size = int((~case.numeric_zero).sum()), case.numeric.size
    words = "the mean runs over all, that of the function over those"
    if c > 1:
        c, words = 1 / c, "the mean runs over those, that of the function over all"
    if not case.scalar or count == size or abs(c * size - count) > _CLOSE:
        return None
    for other in cases_of(case.evidence):  # of as many entries, where it is one cause
        share = (~other.numeric_zero).mean()
        if abs(factor(other) - factor(case)) < _CLOSE and abs(share - c) > _CLOSE:
            return None
    return Clue(
        BugKind.MISSING_REDUCTION,
        0.5 if 2 * count == size else 0.95,
        f"{count} of {size} entries of {case.name} have a gradient, and analytic / "
        f"numeric is {count}/{size} or its inverse: {words}.",
        "Divide by the number of entries that the mask (of padding, say) leaves, or by "
        "that of all, as the forward pass does.",
    )


def _reduction(case: Case, c: float, trust: float, evidence: str) -> Clue | None:
    """Recognise a factor N or 1/N as a mean that is missing or doubled."""
    if c <= 0 or _is_loss_scale(case, c):
        return None
    large = max(c, 1 / c)
    mean = _mean_for_sum(case, c) or _masked_mean(case, c)
    if mean is not None:
        return dataclasses.replace(mean, confidence=mean.confidence * trust)
    if abs(c - 1) < 0.3:
        return None
    alike = _alike(case.evidence, c)
    length = matching_length(case, large, alike=alike)
    near = min(_CLOSE * large, _WHOLE)
    if length is not None:
        size, strength = length.size, 0.95 if length.leading else 0.9
        if not alike and _of_features(case, length):
            strength = 0.5
        if size == 2:
            strength = 0.6 if alike and length.leading else 0.5  # of a square, as often
        told = f"{size} is {length.words}"
    elif alike and abs(large - round(large)) < near and round(large) >= 3:
        size, strength = round(large), 0.95
        told = f"Of a mean over {size} samples, or of as many that count"
    else:
        return None
    # numbers that are written as often as they are lengths, of one input or another
    samples = length is not None and length.leading and alike
    hedged = length is None or (is_everyday(size) and not samples)
    verb = "is missing" if c > 1 else "is applied twice, or to a sum"
    advice = (
        f"Divide by {size} exactly once between the loss and {case.name}, as the "
        f"forward pass does."
    )
    if c < 1 and size <= _EXPONENT and not alike:  # it may have lost its exponent
        advice += f" Of a power look for its exponent: {size} * x**{size - 1}."
    elif hedged:
        advice += f" Or search the backward for a factor {size}."
    return Clue(
        BugKind.MISSING_REDUCTION,
        strength * trust,
        f"{evidence} {told}: a mean's 1/{size} "
        f"{verb.replace('is ', 'may be ', 1) if hedged else verb}.",
        advice,
        (BugKind.SCALE,) if hedged else (),
    )


def _alike(evidence: Evidence, c: float) -> bool:
    """Whether every input with a gradient is wrong by the same factor."""
    factors = [factor(other) for other in sides_of(evidence) if other.numeric.any()]
    return len(factors) > 1 and all(abs(f - c) < _CLOSE * abs(c) for f in factors)


def _of_features(case: Case, length: Length) -> bool:
    """Whether a length of the data is one of the weights too: no number of samples."""
    inputs = case.evidence.subject.inputs
    return length.held and any(length.size in variable.shape for variable in inputs)
