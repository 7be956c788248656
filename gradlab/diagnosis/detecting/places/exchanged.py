"""Detectors that compare with other arrays: another input's gradient, another value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.layer_shapes import shift_of
from gradlab.diagnosis.measuring.measures import EXACT, Case, Clue, sides_of
from gradlab.diagnosis.measuring.moving import analytic_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["as_of_another_input", "growing", "multiplier", "of_another_input"]

_HELD = 2  # entries at least at a bound, of twice as many that move
_DRIFT = 1e-3  # relative: a gradient that is another one than it was


def of_another_input(case: Case) -> list[Clue]:
    """Detect gradients that are returned in the wrong order."""
    for part in case.evidence.parts:
        if part.which == case.part.which or part.numeric.shape != case.numeric.shape:
            continue
        theirs = next(c for c in sides_of(case.evidence) if c.part is part)
        if (
            part.which == shift_of(case.evidence, case.part.which)
            and not theirs.is_wrong
        ):
            continue  # a gain without the array that it multiplies has its gradient
        share = case.share(part.numeric)
        if share > EXACT:
            other = case.evidence.subject.inputs[part.which].name
            mutual = theirs.share(case.numeric) > EXACT
            if not mutual and _meet(case, part.numeric):
                return [_alike_in_part(case, other, share)]
            # two numbers that coincide are no order of the inputs
            trust = 0.97 if mutual else 0.9 if _several(part.numeric) else 0.5
            told = f"The gradient returned for {case.name} is that of {other}."
            if mutual:  # both say the same: it is one slip
                first, last = sorted((case, theirs), key=lambda one: one.part.which)
                told = f"The gradients of {first.name} and {last.name} are exchanged."
            return [
                Clue(
                    BugKind.WRONG_INDEX,
                    trust * share,
                    told,
                    "Return the gradients in the order of the inputs.",
                )
            ]
    return []


def _meet(case: Case, theirs: NDArray[np.float64]) -> bool:
    """Whether some entries that move f have one right gradient for both inputs."""
    same = ~case.wrong & ~case.numeric_zero
    apart = np.abs(case.numeric - theirs) > case.tolerance
    return _several(case.numeric[same]) and not bool(apart[same].any())


def _alike_in_part(case: Case, other: str, share: float) -> Clue:
    """Tell a factor that is left out of an input that f adds to another one."""
    right = int((~case.wrong & ~case.numeric_zero).sum())
    total = int((~case.numeric_zero).sum())
    return Clue(
        BugKind.MISSING_TERM,
        0.78 * share,
        f"The gradient returned for {case.name} is that of {other}, and should be in "
        f"{right:,} of {total:,} entries: there the function sees both alike. In the "
        f"others what {case.name} meets and {other} does not, a factor or a path, is "
        f"left out.",
        f"Follow {case.name} forward in the entries that are wrong, and multiply by "
        f"what it is multiplied with there.",
        (BugKind.WRONG_DERIVATIVE, BugKind.WRONG_INDEX),
    )


def as_of_another_input(case: Case) -> list[Clue]:
    """Detect a part that is missing, or too many, and that another input has as well.

    Where f sees a - b, or a + b, what comes back to one of them comes to both: the
    error of a is the gradient of b, which is right.
    """
    if not _several(case.error):
        return []
    for other in sides_of(case.evidence):
        if other.is_wrong or other.numeric.shape != case.numeric.shape:
            continue
        for sign, verb in ((1, "+"), (-1, "-")):
            if case.share(case.numeric + sign * other.numeric) <= EXACT:
                continue
            told = f"The gradient of {case.name} is the right one {verb} that of "
            return [
                Clue(
                    BugKind.MISSING_TERM,
                    0.86,
                    f"{told}{other.name}, which is right itself: the path on which "
                    f"both meet is left out, or there twice.",
                    f"Add what comes back where {case.name} and {other.name} meet to "
                    f"both of them once, with the sign that each has there.",
                    (BugKind.EXTRA_TERM,),
                )
            ]
    return []


def _several(values: NDArray[np.float64]) -> bool:
    """Whether there are three different numbers that are not zero."""
    there = values[values != 0]
    return len(np.unique(np.round(there, 9))) > 2


def multiplier(case: Case) -> list[Clue]:
    """Detect a factor that is another array of the function than it should be.

    Where every output meets one entry of the input, as in ``g * h``, the Jacobian
    holds the factor h itself; on the analytic side it may be recognised.
    """
    a = case.analytic
    if case.scalar or a.shape[0] == a.shape[1]:
        return []
    if ((~case.analytic_zero).sum(axis=1) > 1).any() or (
        (~case.numeric_zero).sum(axis=1) > 1
    ).any():
        return []
    row = a.sum(axis=1)
    if np.ptp(row) < 1e-9 * np.abs(row).max(initial=0.0):
        return []
    if len(case.outputs) != 1:
        return []
    known = [("the output", case.evidence.base), *case.arrays(case.outputs[0].shape)]
    for words, values in known:
        if np.allclose(row, values, rtol=1e-6, atol=1e-9):
            return [
                Clue(
                    BugKind.STALE_CACHE,
                    0.915,  # below a mask, which says the same more simply
                    f"The gradient of {case.name} multiplies by {words}, where the "
                    f"function multiplies {case.name} with something else.",
                    "Save the array that the forward pass multiplies with.",
                )
            ]
    return []


def growing(case: Case) -> list[Clue]:
    """Detect a gradient that grows from call to call: it adds to what was there."""
    if not case.scalar or not case.part.complete:
        return []
    first = analytic_at(case.evidence, {})
    second = analytic_at(case.evidence, {})
    if first is None or second is None:
        return []
    which = case.part.which
    grown = second[which] - first[which]
    n = case.numeric[0]
    size = float(np.linalg.norm(n))
    apart = float(np.linalg.norm(grown))
    known = max(size, float(np.linalg.norm(first[which])))
    if not np.isfinite(grown).all():
        return []
    if apart <= 1e-6 * known:  # by chance, perhaps, of what changes now and then
        again = float(
            np.linalg.norm(first[which][case.part.positions] - case.analytic[0])
        )
        by = again / max(float(np.linalg.norm(case.analytic)), 1e-300)
        if again <= _DRIFT * known:
            return []
        return _clipped(case, first[which], second[which]) or [_unsteady(case, by)]
    steps = float(grown @ n) / size**2 if size else 0.0
    if np.linalg.norm(grown - steps * n) > 1e-4 * apart:
        by = apart / max(float(np.linalg.norm(first[which])), 1e-300)
        return _clipped(case, first[which], second[which]) or [_unsteady(case, by)]
    return [_added_to(case, f"{steps:.4g} x numeric")]


def _added_to(case: Case, by: str, then: str = "") -> Clue:
    return Clue(
        BugKind.ACCUMULATED_GRAD,
        0.99,
        f"Asked twice at the same point, the gradient of {case.name} grows by {by}: it "
        f"is added to what earlier calls left{then}.",
        f"Set the gradient of {case.name} to zero at the start of every backward.",
    )


def _clipped(
    case: Case, first: NDArray[np.float64], second: NDArray[np.float64]
) -> list[Clue]:
    """Recognise one that grows until it is clipped: entries at the bound stay there."""
    n = case.numeric[0]
    bound = float(np.abs(second).max(initial=0.0))
    held = np.abs(second) > bound * (1 - 1e-9)
    moving, sums = n != 0, first + n
    if np.count_nonzero(held) < _HELD or np.count_nonzero(moving) < 2 * _HELD:
        return []
    free = ~held & moving
    off = np.linalg.norm((sums - second)[free])
    beyond = sums[held] * np.sign(second[held]) >= bound * (1 - 1e-6)
    if off > 1e-4 * np.linalg.norm(n[free]) or not beyond.all():
        return []
    return [_added_to(case, f"1 x numeric up to {bound:.4g}", ", and clipped there")]


def _unsteady(case: Case, by: float) -> Clue:
    return Clue(
        BugKind.NONDETERMINISTIC,
        0.99,
        f"Asked again at the same point, the gradient of {case.name} differs by "
        f"{100 * by:.2g} %.",
        "Draw random numbers in the forward pass, keep them, and use the same ones in "
        "the gradient. Where none are drawn it is an order: a set of nodes has another "
        "one each time, which shows where a gradient is assigned (=) in place of added "
        "up (+=).",
        (BugKind.LOST_ACCUMULATION,),
    )
