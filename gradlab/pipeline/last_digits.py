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

import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.evaluation import displaced_rows
from gradlab.differentiation.method import ComplexStep
from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.blocks import judge_all
from gradlab.pipeline.closer import CLOSE_LOOKS
from gradlab.pipeline.measuring import LAST_DIGITS, noise_level

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gradlab.differentiation.evaluation import Meter
    from gradlab.pipeline.blocks import Block, Outcome, Plan
    from gradlab.subject.subject import Subject

    Arithmetic = tuple[Subject, NDArray[np.float64]]

__all__ = ["hear_last_digits", "noise_once", "widen_bars"]

_DIGITS = 64.0  # rounding units of 1, or of x: more is no last digit
_DIVIDED = 1e8  # the most by which a division by x may magnify one
_SEEN = 1e-7  # of f: what a jump, or a departure from a smooth course, must exceed
_LOUD = 500.0  # rounding units of f, as well: the weights of the nodes add up to 129
_FARTHEST = 16.0  # scales
_NODES = np.array([0.0, 0.25, -0.25, 0.5, -0.5])  # of the next step
_HALVINGS = 30
_LASTS = 1e-5  # of the departure; a continuous one has less within 2^-30 of the way
_MANY = 3.0  # times as many columns accused beyond doubt
_FEW = 4.0  # rounding units that single precision may be off by, on both sides alike
_SINGLE = 1.2e-7
_BELOW = 512.0  # the first step is that much smaller than the one that was taken
_PATIENCE = 6  # departures from a smooth course that are looked at
_LEVER = 30.0  # noise of f in an extrapolation from steps far below the longest
_WIDE = 2.0  # jumps: how far f may be from what it is meant to be, on both ends


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Lanes:
    """Columns of one block, each with the output that is looked at, shape (n,) each."""

    subject: Subject
    block: Block
    base: NDArray[np.float64]  # (rows,)
    columns: NDArray[np.intp]
    rows: NDArray[np.intp]
    meter: Meter

    def some(self, which: NDArray[np.intp]) -> _Lanes:
        """Return some of the lanes."""
        columns, rows = self.columns[which], self.rows[which]
        return dataclasses.replace(self, columns=columns, rows=rows)

    def at(self, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        """Evaluate all outputs, each lane at a step of its own: (n, rows)."""
        positions = self.block.positions[self.columns]
        where = self.block.which
        return displaced_rows(self.subject, where, positions, steps, self.meter)[0]

    def seen(self, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        """Evaluate the output that is looked at, shape (n,)."""
        return self.pick(self.at(steps))

    def pick(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Pick the output that is looked at from (n, rows)."""
        return np.asarray(values[np.arange(len(self.rows)), self.rows])


def hear_last_digits(
    subject: Subject,
    own: Arithmetic,
    reference: Arithmetic,
    outcome: Outcome,
    plan: Plan,
    meter: Meter,
) -> None:
    """Take back accusations that rest on less than the last digits of f.

    Parameters
    ----------
    subject
        As the user has it.
    own, reference
        Subject and f at the point, as methods with steps of the user's choice evaluate
        it, and as all others do.
    outcome
        Judged; where a bar is widened it is judged again.
    plan
        The methods, and the seed.
    meter
        Charged for every evaluation.
    """
    wider = False
    heard_of = [(at, noise_once(*at, meter, plan.seed)) for at in (reference, own)]
    for block in outcome.blocks:
        name = subject.inputs[block.which].name
        if isinstance(plan.method_of(name), ComplexStep):
            continue  # no values are subtracted, and no digit is lost
        at, noise = heard_of[0 if plan.finds_steps(name) else 1]
        wider |= _excuse_short_arithmetic(subject, block)
        wider |= widen_bars(*at, block, meter, noise, noisy=True)
    if wider:
        judge_all(subject, outcome, plan)


def noise_once(
    subject: Subject, base: NDArray[np.float64], meter: Meter, seed: int
) -> Callable[[], NDArray[np.float64]]:
    """Return a function that measures the noise of f when it is first called.

    Shape (rows,); 0 where f stood still, and a level would be a guess.
    """

    @functools.cache
    def noise() -> NDArray[np.float64]:
        found = noise_level(subject, base, meter, seed)
        return np.where(found == LAST_DIGITS, 0.0, found)

    return noise


def widen_bars(
    subject: Subject,
    base: NDArray[np.float64],
    block: Block,
    meter: Meter,
    noise: Callable[[], NDArray[np.float64]],
    *,
    noisy: bool = False,
) -> bool:
    """Widen the bars of what is accused on less than the last digits of f.

    Parameters
    ----------
    subject
        What the numeric side of this block evaluates.
    base
        f at the point, shape (rows,).
    block
        Judged. Its bars are widened where the noise of f, or a jump beside the point,
        is all that an accusation rests on.
    meter
        Charged for every evaluation.
    noise
        From `noise_once`, for the same subject.
    noisy
        Whether to widen those of noisy entries as well, by what noise does to an
        extrapolation; for methods that have not measured it.

    Returns
    -------
    bool
        Whether any bar was widened.
    """
    digit = _last_digit(subject, block)
    doubtful = _doubtful(block, digit)
    # right entries, too: what a report says could be caught rests on their bars
    shaky = doubtful | (noisy & (block.kinds == Smoothness.NOISY))
    if not shaky.any():
        return False
    with np.errstate(all="ignore"):
        bar = _LEVER * noise()[:, None] / np.abs(block.step)
        wider = shaky & (bar > block.error)
        block.error = np.where(wider, bar, block.error)
        doubtful &= _gap(block) > SAFETY * block.error
    heard = _widen(subject, base, block, digit, doubtful, meter)
    return heard or bool(wider.any())


def _excuse_short_arithmetic(subject: Subject, block: Block) -> bool:
    """Allow single precision its last digit where the same formula is right in float64.

    ``1 - tanh(x) ** 2`` at 8 is one or two units of 6e-8. What the formula itself has
    wrong shows in float64, where nothing of this is forgiven.
    """
    if block.precise is None or subject.epsilon > _SINGLE:
        return False
    size = np.abs(subject.point(block.which)[block.positions])
    digits = _FEW * subject.epsilon * np.fmax(1.0, size)
    with np.errstate(all="ignore"):
        apart = np.abs(block.analytic - block.precise)
        excused = (block.verdicts == Verdict.DISAGREES) & (apart <= digits)
    if excused.any():
        block.slack = np.where(excused, np.fmax(block.slack, apart), block.slack)
    return bool(excused.any())


def _widen(
    subject: Subject,
    base: NDArray[np.float64],
    block: Block,
    digit: NDArray[np.float64],
    doubtful: NDArray[np.bool_],
    meter: Meter,
) -> bool:
    """Widen the bars of what is doubtful by the nearest jump; return whether any was.

    A slope that holds up to a distance from the point cannot be told from another one
    that f would be off by a jump for, at that distance.
    """
    columns = np.flatnonzero(doubtful.any(axis=0))
    columns = columns[np.argsort(-block.excess[columns], kind="stable")]
    heard, looks = False, 1  # a look may take three hundred evaluations
    while columns.size:
        now, columns = columns[:looks], columns[looks:]
        looks = min(2 * looks, CLOSE_LOOKS)
        rows = np.where(doubtful, _gap(block), -1.0)[:, now].argmax(axis=0)
        height, away = _nearest_jump(_Lanes(subject, block, base, now, rows, meter))
        with np.errstate(all="ignore"):
            reach = np.fmax(away, np.abs(block.step[:, now]))
            bar = np.where(height <= digit[now], _WIDE * height / reach, 0.0)
        wider = doubtful[:, now] & (bar > block.error[:, now])
        if not wider.any():
            break  # all upheld: so are the rest
        heard = True
        block.error[:, now] = np.where(wider, bar, block.error[:, now])
        block.kinds[:, now] = np.where(wider, Smoothness.NOISY, block.kinds[:, now])
    return heard


def _last_digit(subject: Subject, block: Block) -> NDArray[np.float64]:
    """Largest jump that may be a last digit, for each column of a block, (n,).

    Of a term of size one, or of such a term multiplied or divided by x.
    """
    size = np.abs(subject.point(block.which)[block.positions])
    with np.errstate(all="ignore"):
        divided = np.where(size > 0, np.minimum(1 / size, _DIVIDED), 1.0)
    return np.asarray(_DIGITS * subject.epsilon * np.fmax(1.0, np.fmax(size, divided)))


def _gap(block: Block) -> NDArray[np.float64]:
    """Distance between the sides, in the arithmetic of the numeric one, (rows, n)."""
    analytic = block.analytic if block.precise is None else block.precise
    with np.errstate(all="ignore"):
        return np.asarray(np.abs(analytic - block.value))


def _doubtful(block: Block, digit: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Accusations that one jump within the step would explain, (rows, n).

    None of the few that stand among many which it would not: what is wrong there is
    the formula.
    """
    wrong = block.verdicts == Verdict.DISAGREES
    if not wrong.any():
        return np.asarray(wrong)
    with np.errstate(all="ignore"):
        near = _gap(block) * np.abs(block.step) <= SAFETY * _WIDE * digit
    clear = np.count_nonzero((wrong & ~near).any(axis=0))
    if clear > _MANY * np.count_nonzero((wrong & near).any(axis=0)):
        return np.zeros_like(wrong)
    return np.asarray(wrong & near)


def _nearest_jump(lanes: _Lanes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Follow f away from the point, on both sides, until it jumps.

    Returns
    -------
    height
        Of the jump in every output, 0 where there is none; (rows, n).
    away
        Distance from the point, (n,).
    """
    count = len(lanes.columns)
    height, away = np.zeros((len(lanes.base), count)), np.full(count, np.nan)
    size = np.abs(lanes.subject.point(lanes.block.which))
    size = size[lanes.block.positions[lanes.columns]]
    step = np.abs(lanes.block.step[lanes.rows, lanes.columns])
    step = np.fmax(step / _BELOW, 16 * lanes.subject.epsilon * size)
    start = [lanes.base[lanes.rows]]
    start += [lanes.seen(node * step) for node in _NODES[1:]]
    nodes = np.stack(start)
    busy, looks = np.arange(count), np.zeros(count, int)
    farthest = _FARTHEST * lanes.block.scales[lanes.columns]
    while busy.size:
        some = lanes.some(busy)
        ends = np.stack([some.seen(step[busy]), some.seen(-step[busy])])
        with np.errstate(all="ignore"):
            away_by = np.abs(
                ends - _foretold(nodes[:, busy], np.array([[1.0], [-1.0]]))
            )
        for sign, departure in ((1.0, away_by[0]), (-1.0, away_by[1])):
            left = departure > _least(some, nodes[:, busy], ends)
            which = busy[left & np.isnan(away[busy])]
            if which.size:
                found = _cornered(
                    lanes.some(which), nodes[:, which], sign * step[which]
                )
                height[:, which], away[which] = found
                looks[which] += 1
        # the outer nodes of the next step are the ends and the outer nodes of this one
        nodes[:, busy] = np.concatenate(
            [nodes[:1, busy], nodes[3:, busy], ends], axis=0
        )
        step = 2 * step
        going = np.isnan(away[busy]) & np.isfinite(ends).all(axis=0)
        going &= (step[busy] <= farthest[busy]) & (looks[busy] < _PATIENCE)
        busy = busy[going]
    return height, away


def _foretold(
    nodes: NDArray[np.float64], place: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Continue the polynomial through the nodes (5, n) to places in steps."""
    value = np.zeros(np.broadcast_shapes(place.shape, nodes.shape[1:]))
    for k, node in enumerate(_NODES):
        others = np.delete(_NODES, k)
        weight = np.prod([(place - u) / (node - u) for u in others], axis=0)
        value = value + weight * nodes[k]
    return value


def _least(lanes: _Lanes, *values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what a jump of values like these (k, n) must exceed, (n,)."""
    size = np.fmax.reduce([np.abs(some).max(axis=0) for some in values])
    return np.asarray(max(_SEEN, _LOUD * lanes.subject.epsilon) * size)


def _cornered(
    lanes: _Lanes, nodes: NDArray[np.float64], step: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Corner where f leaves its smooth course between half a step and a whole one.

    Returns
    -------
    height, away
        As of `_nearest_jump`; nan as distance where f leaves it without a jump.
    """
    sign = np.sign(step)
    low, high = 0.5 * np.ones(len(step)), np.ones(len(step))
    f_low, f_high = lanes.at(low * step), lanes.at(high * step)
    whole = np.abs(lanes.pick(f_high) - _foretold(nodes, sign * high))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        there = lanes.at(middle * step)
        with np.errstate(all="ignore"):
            stray = np.abs(lanes.pick(there) - _foretold(nodes, sign * middle))
            beyond = ~(stray <= whole / 2)
        high, low = np.where(beyond, middle, high), np.where(beyond, low, middle)
        f_high = np.where(beyond[:, None], there, f_high)
        f_low = np.where(beyond[:, None], f_low, there)
        ends = np.stack([lanes.pick(f_high), lanes.pick(f_low)])
        with np.errstate(all="ignore"):  # too little is left for a jump
            least = np.fmax(_LASTS * whole, _least(lanes, ends))
            if (np.abs(ends[0] - ends[1]) <= least).all():
                break
    with np.errstate(all="ignore"):
        height = np.abs(f_high - f_low).T
        least = _least(lanes, np.stack([f_high.T.ravel(), f_low.T.ravel()]))
        height = np.where(height > least.reshape(height.shape), height, 0.0)
        jump = height[lanes.rows, np.arange(len(step))]
        lasting = (jump > _LASTS * whole) & np.isfinite(jump)
    away = np.where(lasting, low * np.abs(step), np.nan)
    return np.where(lasting, np.nan_to_num(height), 0.0), away
