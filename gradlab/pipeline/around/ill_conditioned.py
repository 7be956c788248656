"""Accusations no larger than what roundings inside do to the gradient.

The inverse of a nearly singular matrix, a logarithm of its determinant, ``sinc`` at
1e9: f may still be a number with some digits, and its gradient, computed as well as
float64 allows, has none of them. A difference of f then contradicts a formula that is
right. How many digits the gradient has shows a thousand roundings beside the point,
where all sums inside round anew: what leaves a straight line by as much as it is off
by is held against nobody. A mistake in a formula is a smooth function.

References
----------
N. J. Higham, *Accuracy and Stability of Numerical Algorithms* (2nd ed. 2002), section
1.6: the forward error is the backward error times the condition number. D. S. Parker,
*Monte Carlo Arithmetic* (1997).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.differentiation.analytic.gradients_elsewhere import gradients_at
from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.differentiation.noise.analytic_noise import (
    AWAY,
    GRADIENTS,
    SCATTER,
    rounding_noise,
    rows_together,
    value_bend,
)
from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.blocks import label_of
from gradlab.subject.subject import has_own_code, is_torch_subject, unit_vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Judged
    from gradlab.subject.subject import Subject

__all__ = ["leave_ill_conditioned"]

_FEW = 8  # outputs that are asked first: where none of them moves, none does
_DIGITS = 1e-4  # of a gradient that jumps by as much within a thousand roundings
# Of the accusations of an output: where as many are explained, and as many not far
# larger than what is seen to move, all are.
_MOST, _NEAR = 0.75, 0.1
_CALMER = 10.0  # times less than at the point may be seen to move beside it
_SAME = 0.1  # of a gap: a gradient that moves as much by itself is another matter
_STEADY = 16.0  # roundings of f: what is no farther from a line has nothing to excuse
_FAR = 1e5  # roundings of f that a jump of the gradient moves it by, and more
_AGAIN = 4  # times that a gradient which jumps is asked for at the point
_ALL = 32.0  # times the scatter: what is off by no more is explained by it alone


def leave_ill_conditioned(judged: Judged) -> list[Finding]:
    """Leave open what is off by no more than roundings inside change it by.

    Ten gradients of up to eight outputs where something is accused, and as many of the
    next ones as long as one of these moves. Those of NumPy functions are charged, for
    they evaluate f as well where that returns them; where the budget does not hold them
    nothing is asked.
    """
    subject, outcome = judged.subject, judged.outcome
    meter, seed = judged.meter, judged.seed
    wrong = [block for block in judged.wrong if _heard(block).any()]
    if not wrong or outcome.interrupted:
        return []
    # gradients that are single precision whatever comes in round where the user is
    short = any(block.precise is None for block in wrong)
    at = subject if short else judged.at
    rows = _most_likely_first(wrong)
    bend = functools.cache(lambda: value_bend(at, meter, seed=seed))
    told: dict[int, Finding] = {}
    for some in np.split(rows, range(_FEW, len(rows), rows_together(at, meter))):
        try:
            if not is_torch_subject(at):
                meter.spend(GRADIENTS + 1)
            moved = _scatter(at, wrong, some, meter, seed)
            effects = [n * b.sizes for b, n in zip(wrong, moved, strict=False)]
            loud = _unprovoked(at, outcome.base, some, effects, bend)
        except BudgetExhausted:
            break
        except KeyboardInterrupt as stop:
            outcome.cut_short(stop, "gradients beside the point were not asked for")
            break
        except Exception:  # noqa: BLE001 - the user's code may not take this point
            break
        found = dict(_leave_rows_open(subject, wrong, some, moved, loud))
        told = found | told
        if not found:
            break
    return list(told.values())


def _leave_rows_open(
    subject: Subject,
    wrong: list[Block],
    rows: NDArray[np.intp],
    moved: list[NDArray[np.float64]],
    loud: list[NDArray[np.bool_]],
) -> Iterator[tuple[int, Finding]]:
    """Change the verdicts of some rows, and say why once for each input.

    Of an output of which most is explained the rest is the tail of the same noise, or
    was measured over steps that such a pole next to the point makes worth nothing. Most
    of what a ladder has looked at: what was not rests on that.
    """
    if not moved:
        return
    heard = [_heard(block)[rows] for block in wrong]
    looked = [h & (b.kinds[rows] >= 0) for h, b in zip(heard, wrong, strict=True)]
    own = [here & jumps for here, jumps in zip(heard, loud, strict=True)]
    found = [
        here & ~jumps & _explained(block, rows, noise)
        for block, here, jumps, noise in zip(wrong, heard, loud, moved, strict=True)
    ]
    some = _count(looked) > 0
    upon = [np.where(some, *pair) for pair in zip(looked, heard, strict=True)]
    near = [
        here & (block.gap[rows] <= _CALMER * SCATTER * noise)
        for block, here, noise in zip(wrong, upon, moved, strict=True)
    ]
    part = [told & here for told, here in zip(found, upon, strict=True)]
    most = _count(part) >= _MOST * _count(upon)
    most &= _count(near) >= _NEAR * _count(upon)
    for k, (block, noise) in enumerate(zip(wrong, moved, strict=True)):
        inexact = own[k].any() and _alone(block, rows, noise)
        if found[k].any() or inexact:
            i, column = np.argwhere(own[k] if inexact else found[k])[0]
            say = _inexact if inexact else _told
            yield block.which, say(subject, block, rows[i], column, noise[i, column])
        i, columns = np.nonzero(found[k] | (heard[k] & most & ~own[k]))
        block.leave_open((rows[i], columns))


def _count(masks: list[NDArray[np.bool_]]) -> NDArray[np.intp]:
    """Count the entries of each row in all blocks, (rows, 1)."""
    return np.asarray(sum(mask.sum(axis=1, keepdims=True) for mask in masks))


def _heard(block: Block) -> NDArray[np.bool_]:
    """Accusations of finite numbers. In noise a ladder sees kinks as well."""
    wrong = block.wrong
    return np.asarray(wrong & np.isfinite(block.gap))


def _explained(
    block: Block, rows: NDArray[np.intp], noise: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Whether roundings inside explain what entries are off by, (rows, n).

    Next to a pole f may be a spike in its own noise, of which no step shows a slope:
    where no ladder found a slope, a gradient of three digits is held against nobody.
    Nor is it where none was tried, and none was found beside. Debris next to a slope
    has no digits either: it is too small for that.
    """
    kinds = block.kinds[rows]
    sloped = (Smoothness.SMOOTH, Smoothness.KINK, Smoothness.EDGE)
    rough = (kinds >= 0) & ~np.isin(kinds, sloped)
    rough |= (kinds < 0) & rough.any(axis=1, keepdims=True)
    size = np.fmax(np.abs(block.formula[rows]), np.abs(block.value[rows]))
    rough &= noise >= _DIGITS * size
    return np.asarray((block.gap[rows] <= SCATTER * noise) | (rough & (noise > 0)))


def _most_likely_first(wrong: list[Block]) -> NDArray[np.intp]:
    """Find outputs of which something is accused; those off by little come first."""
    least = np.full(len(wrong[0].gap), np.inf)
    for block in wrong:
        with np.errstate(all="ignore"):
            size = np.fmax(np.abs(block.formula), np.abs(block.value))
            share = np.where(_heard(block), block.gap / size, np.inf)
        np.fmin(least, share.min(axis=1), out=least)
    return np.argsort(least, kind="stable")[: np.count_nonzero(np.isfinite(least))]


def _scatter(
    subject: Subject,
    wrong: list[Block],
    rows: NDArray[np.intp],
    meter: Meter,
    seed: int,
) -> list[NDArray[np.float64]]:
    """Tell how far roundings move the entries of some rows; not where time does.

    Returns
    -------
    list of ndarray
        For each block, (rows, n).

    Raises
    ------
    BudgetExhausted
        If the seconds that are left do not hold so many gradients.
    """
    meter.in_time()
    began = meter.seconds
    cotangents = unit_vectors(len(wrong[0].gap), rows)
    again = gradients_at(subject, {}, cotangents)
    if again is None:
        return []
    most, each = meter.budget.seconds, meter.seconds - began
    if most is not None and meter.seconds + GRADIENTS * each > most:
        msg = f"{GRADIENTS} gradients of {each:.2g} s do not fit in what is left"
        raise BudgetExhausted(msg)
    if _drifts(wrong, rows, again):
        return []
    aside = min(AWAY**2 * subject.epsilon, 1e-3)  # ties are broken there, and stay so
    noise = rounding_noise(subject, cotangents, aside=aside, seed=seed)
    found = [noise[block.which][:, block.positions] for block in wrong]
    large = [n > _SAME * b.gap[rows] for b, n in zip(wrong, found, strict=True)]
    if any((_heard(b)[rows] & n).any() for b, n in zip(wrong, large, strict=True)):
        # what an order that changes from call to call does it does at the point as well
        for _ in range(_AGAIN):
            if not is_torch_subject(subject):
                meter.spend(1)
            again = gradients_at(subject, {}, cotangents)
            if again is None or _drifts(wrong, rows, again):
                return []
    return found


def _drifts(
    wrong: list[Block], rows: NDArray[np.intp], again: Sequence[NDArray[np.float64]]
) -> bool:
    """Whether gradients are others where they are asked for again at the point."""
    for block in wrong:
        drift = np.abs(again[block.which][:, block.positions] - block.formula[rows])
        if (_heard(block)[rows] & ~(drift <= _SAME * block.gap[rows])).any():
            return True
    return False


def _unprovoked(
    subject: Subject,
    base: NDArray[np.float64],
    rows: NDArray[np.intp],
    effects: list[NDArray[np.float64]],
    bends: Callable[[], NDArray[np.float64]],
) -> list[NDArray[np.bool_]]:
    """Say which jumps, by how far they move some rows of f, nothing in f explains."""
    digit = subject.epsilon * np.abs(base[rows])[:, None]
    loud = [effect > _FAR * digit for effect in effects]
    if not has_own_code(subject) or not any(each.any() for each in loud):
        return [np.zeros_like(each) for each in loud]
    bend = bends()[rows][:, None]
    return [each & (bend <= _STEADY * digit) for each in loud]


def _alone(block: Block, rows: NDArray[np.intp], noise: NDArray[np.float64]) -> bool:
    """Whether jumps of the gradient are all that is the matter with some rows of it."""
    usual = np.fmax(noise, np.median(noise, axis=1, keepdims=True))
    gap = np.where(block.wrong[rows], block.gap[rows], 0.0)
    return bool((gap <= _ALL * usual).all())


def _inexact(
    subject: Subject, block: Block, row: int, column: int, noise: float
) -> Finding:
    entry = label_of(subject, block, column)
    gap = float(block.gap[row, column])
    return Finding(
        BugKind.LOW_PRECISION,
        "error",
        block.name,
        0.95,
        f"The gradient is computed inexactly: where inputs move by a thousand "
        f"roundings (relative {AWAY * subject.epsilon:.0e}) it jumps by {noise:.2g} at "
        f"{entry}, and it is off by {gap:.2g} there. The function itself is a straight "
        f"line so close by, to its last digit.",
        "If the gradient is a difference of values, take a longer step, or "
        "gl.numeric_jacobian; else look for numbers that nearly cancel in it.",
    )


def _told(
    subject: Subject, block: Block, row: int, column: int, noise: float
) -> Finding:
    entry = label_of(subject, block, column)
    gap = float(block.gap[row, column])
    away = AWAY * subject.epsilon
    return Finding(
        BugKind.LOW_PRECISION,
        "warning",
        block.name,
        0.9,
        f"The gradient is ill-conditioned at the point: where inputs move by a "
        f"thousand roundings (relative {away:.0e}) it jumps by {noise:.2g} at {entry}, "
        f"and it is off by {gap:.2g} there. Too few digits are left to compare.",
        "Check at a point where nothing nearly cancels (a matrix far from singular, "
        "arguments of ordinary size), or compute f and the gradient another way.",
    )
