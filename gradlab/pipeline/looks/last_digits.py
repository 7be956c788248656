"""Slopes below the last digit of what f is made of: nothing can be held against them.

``1 + erf(x)`` far to the left is a small whole number of units of 1.1e-16. Between two
of its jumps f is smooth, or stands still, and the slope there is another than the one
that is meant; next to 0 there are no jumps left to see a slope over. An accusation
counts only where f follows its numeric slope further than such a jump could hide.

References
----------
D. Goldberg, *What every computer scientist should know about floating-point
arithmetic*, ACM Computing Surveys 23 (1991), section 1.4 on cancellation.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.differentiation.method import ComplexStep
from gradlab.differentiation.noise.hidden_noise import LAST_DIGITS, noise_level
from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.looks.analytic_digits import excuse_own_digits
from gradlab.pipeline.looks.cancelled_terms import Elsewhere, excuse_cancelled_terms
from gradlab.pipeline.looks.closer import CLOSE_LOOKS
from gradlab.pipeline.looks.early_stops import (
    WIDE,
    jumps_of,
    takes_other_steps,
    widen_as_others,
    widen_by_jumps,
    widen_by_lines,
    widen_for_good,
)
from gradlab.pipeline.looks.following import Lanes, nearest_jump
from gradlab.pipeline.verdicts import judge_all
from gradlab.subject.subject import SINGLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.looks.early_stops import Jumps
    from gradlab.pipeline.outcome import Outcome
    from gradlab.pipeline.plan import Check
    from gradlab.subject.subject import Subject

__all__ = [
    "few_units",
    "hear_last_digits",
    "may_be_last_digits",
    "noise_once",
    "widen_bars",
]

_DIGITS = 64.0  # rounding units of 1, or of x: more is no last digit
_DIVIDED = 1e8  # the most by which one division by x may magnify one
_BEFORE = 0.999  # of the way to 0
_MANY = 3.0  # times as many columns accused beyond doubt
_FEW = 4.0  # rounding units that short arithmetic may lose, on both sides alike
_IMAGINARY = 1e-20  # of the scale: shorter steps would not change a number
_LEVER = 30.0  # noise of f in an extrapolation from steps far below the longest


def hear_last_digits(
    check: Check, outcome: Outcome, noise: Callable[[], NDArray[np.float64]]
) -> None:
    """Take back accusations that rest on less than the last digits of f.

    Parameters
    ----------
    outcome
        Judged; where a bar is widened it is judged again.
    noise
        From `noise_once`, of what the numeric side evaluates.
    """
    subject, plan, meter = check.subject, check.plan, check.meter
    origins = check.reference, check.own
    own = noise if origins[0] is origins[1] else noise_once(check.own, meter, plan.seed)
    noises = noise, own
    elsewhere = [Elsewhere(origin.subject, meter) for origin in origins]
    jumps, wider = jumps_of(outcome.blocks), False
    for block in outcome.blocks:
        if isinstance(plan.method_of(block.name), ComplexStep):
            continue  # no values are subtracted, and no digit is lost
        k = 0 if plan.finds_steps(block.name) else 1
        wider |= _excuse_short_arithmetic(subject, block, elsewhere[k])
        wider |= excuse_own_digits(origins[k].subject, block, meter)
        wider |= excuse_cancelled_terms(elsewhere[k], block)
        wider |= widen_bars(origins[k], block, meter, noises[k], jumps=jumps)
    if jumps.change.any():
        for block in outcome.blocks:
            wider |= widen_as_others(block, jumps)
    spoiled, early = jumps_of(outcome.blocks).spoiled, False
    for block in outcome.blocks:
        if not isinstance(plan.method_of(block.name), ComplexStep):
            k = 0 if plan.finds_steps(block.name) else 1
            early |= widen_by_lines(origins[k], block, meter, spoiled, jumps)
    wider |= early
    if wider:
        judge_all(subject, outcome, plan)
    if early or _stops_early(check, outcome):
        spoiled = jumps_of(outcome.blocks).spoiled
        widened = [widen_for_good(block, spoiled, jumps) for block in outcome.blocks]
        if any(widened):
            outcome.early = True
            judge_all(subject, outcome, plan)


def _stops_early(check: Check, outcome: Outcome) -> bool:
    """Whether something is accused of an f that takes other steps behind a jump."""
    return any(block.accused for block in outcome.blocks) and any(
        takes_other_steps(check.reference, block, check.meter)
        for block in outcome.blocks
    )


def noise_once(
    origin: Origin, meter: Meter, seed: int
) -> Callable[[], NDArray[np.float64]]:
    """Return a function that measures the `noise_level` when it is first called."""
    return functools.cache(functools.partial(noise_level, origin, meter, seed))


def widen_bars(
    origin: Origin,
    block: Block,
    meter: Meter,
    noise: Callable[[], NDArray[np.float64]],
    *,
    jumps: Jumps | None = None,
) -> bool:
    """Widen the bars of what is accused on less than last digits, or jumps, of f.

    Parameters
    ----------
    origin, block, meter
        As for `widen_by_jumps`. Bars are widened where the noise of f, or a jump beside
        the point, is all that an accusation rests on; those of noisy entries in any
        case, by what noise does to an extrapolation.
    noise
        From `noise_once`, of the same.
    jumps
        What looks along other inputs have told of solvers.

    Returns
    -------
    bool
        Whether any bar was widened.
    """
    jumps = jumps_of([block]) if jumps is None else jumps
    digit = _last_digit(origin.subject, block, divisions=2)
    doubtful = _doubtful(block, digit)
    # along the imaginary axis no values are subtracted, and steps are as short as that
    doubtful &= np.abs(block.step) > _IMAGINARY * block.latest_scales
    # right entries, too: what a report says could be caught rests on their bars
    shaky = doubtful | (block.kinds == Smoothness.NOISY)
    if not shaky.any():
        return widen_by_jumps(origin, block, meter, jumps)
    with np.errstate(all="ignore"):
        level = noise()  # where f stood still one would be a guess
        level = np.where(level == LAST_DIGITS, 0.0, level)
        bar = _LEVER * level[:, None] / np.abs(block.step)
        wider = shaky & (bar > block.error)
        block.widen(bar, wider)
        doubtful &= block.gap > SAFETY * block.error
    heard = _widen(origin, block, digit, doubtful, meter)
    heard |= bool(wider.any())
    return widen_by_jumps(origin, block, meter, jumps) or heard


def _excuse_short_arithmetic(
    subject: Subject, block: Block, elsewhere: Elsewhere
) -> bool:
    """Allow single precision its last digit where the same formula is right in float64.

    That of one, or of the terms that cancel in a gradient: see `Elsewhere`.

    ``1 - tanh(x) ** 2`` at 8 is one or two units of 6e-8. What the formula itself has
    wrong shows in float64, where nothing of this is forgiven.
    """
    if block.precise is None or subject.epsilon > SINGLE:
        return False
    with np.errstate(all="ignore"):
        apart = np.abs(block.analytic - block.precise)
        excused = block.wrong & (apart <= few_units(subject, block))
        right = block.gap <= np.fmax(block.allowed, SAFETY * block.error)
    asked = block.wrong & ~excused & right
    excused |= asked & (apart <= elsewhere.allowed(asked, block, subject.epsilon))
    if excused.any():
        block.slack = np.where(excused, np.fmax(block.slack, apart), block.slack)
    return bool(excused.any())


def few_units(subject: Subject, block: Block) -> NDArray[np.float64]:
    """Say what short arithmetic may lose of one, or of each coordinate, (n,)."""
    size = np.abs(subject.point(block.which)[block.positions])
    return np.asarray(_FEW * subject.epsilon * np.fmax(1.0, size))


def _widen(
    origin: Origin,
    block: Block,
    digit: NDArray[np.float64],
    doubtful: NDArray[np.bool_],
    meter: Meter,
) -> bool:
    """Widen the bars of what is doubtful by the nearest jump; return whether any was.

    A slope that holds up to a distance from the point cannot be told from another one
    that f would be off by a jump for, at that distance.
    """
    size = np.abs(origin.subject.point(block.which)[block.positions])
    once = _last_digit(origin.subject, block, divisions=1)
    columns = np.flatnonzero(doubtful.any(axis=0))
    columns = columns[np.argsort(-block.excess(columns), kind="stable")]
    heard, looks = False, 1  # a look may take three hundred evaluations
    while columns.size:
        now, columns = columns[:looks], columns[looks:]
        looks = min(2 * looks, CLOSE_LOOKS)
        rows = np.where(doubtful, block.gap, -1.0)[:, now].argmax(axis=0)
        height, away, _ = nearest_jump(Lanes(origin, block, now, rows, meter))
        away = np.abs(away)
        with np.errstate(all="ignore"):
            reach = np.fmax(away, np.abs(block.step[:, now]))
            # a jump at 0 is f's own: what is divided twice jumps on this side of it
            most = np.where(away < _BEFORE * size[now], digit[now], once[now])
            bar = np.where(height <= most, WIDE * height / reach, 0.0)
        if not block.blame_noise(bar, doubtful[:, now], now):
            break  # all upheld: so are the rest
        heard = True
    return heard


def _last_digit(
    subject: Subject, block: Block, *, divisions: int
) -> NDArray[np.float64]:
    """Largest jump that may be a last digit, for each column of a block, (n,).

    Of a term of size one, or of such a term multiplied by x or divided by it: twice,
    as ``(1 - cos(x)) / x**2`` is, or once.
    """
    size = np.abs(subject.point(block.which)[block.positions])
    with np.errstate(all="ignore"):
        divided = np.where(size > 0, np.minimum(1 / size, _DIVIDED), 1.0)
    most = np.fmax(1.0, np.fmax(size, divided**divisions))
    return np.asarray(_DIGITS * subject.epsilon * most)


def may_be_last_digits(subject: Subject, block: Block) -> NDArray[np.bool_]:
    """Entries whose sides one last digit of f would explain, within the step."""
    return _near(block, _last_digit(subject, block, divisions=1))


def _near(block: Block, digit: NDArray[np.float64]) -> NDArray[np.bool_]:
    with np.errstate(all="ignore"):
        moved = block.gap * block.reach
        return np.asarray(moved <= SAFETY * WIDE * digit)


def _doubtful(block: Block, digit: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Accusations that one jump within the step would explain, (rows, n).

    None of the few that stand among many which it would not: what is wrong there is
    the formula.
    """
    wrong = block.wrong
    if not wrong.any():
        return np.asarray(wrong)
    near = _near(block, digit)
    clear = np.count_nonzero((wrong & ~near).any(axis=0))
    if clear > _MANY * np.count_nonzero((wrong & near).any(axis=0)):
        return np.zeros_like(wrong)
    return np.asarray(wrong & near)
