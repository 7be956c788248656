"""Accusations no larger than what the last digits of data do to the gradient.

A Hilbert matrix of ten rows has a condition number of 1e13: ``solve(A, b)`` moves by a
thousandth of itself where A moves in its last digits, and the gradient that another
``solve`` computes is off by as much without any mistake. f is a straight line in b and
shows nothing of it. So data that is no input is moved by a rounding or so, and the
gradient asked for anew, and f for its slope at the worst entry. What roundings of data
do grows with them; a comparison of data that is right by chance does not.

References
----------
N. J. Higham, *Accuracy and Stability of Numerical Algorithms* (2nd ed. 2002), sections
1.6 and 7.2: the forward error of a stable method is its backward error, some roundings
of the data, times the condition number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.pipeline.around.slight_errors import least_first, off, slope_at, weights
from gradlab.pipeline.blocks import label_of
from gradlab.subject.constants_off import constants_off
from gradlab.subject.subject import holds_numbers, unit_vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Judged
    from gradlab.subject.subject import Subject

__all__ = ["leave_rounded_data"]

# Of 240 right gradients behind matrices of condition numbers from 1e6 to 1e14 none was
# off by more than 1.7 times what three moves by one rounding did, and 32 roundings
# moved it by 12 to 80 times as much.
_DRAWS = 3
_CLOSE = 0.03  # of a gradient: what is farther off than that is asked nothing
_LIKE = 4.0
_LONGER, _GROWS = 32.0, 4.0
_STEP = 1e-5  # of the size of an entry: of the noise of f, 1e-11 of it is left


def leave_rounded_data(judged: Judged) -> Iterator[Finding]:
    """Leave open what is off by no more than a few roundings of the data would do.

    Three gradients and six evaluations, and as many again where these explain
    something. Where the budget does not hold them nothing is asked.
    """
    subject, outcome = judged.subject, judged.outcome
    meter, seed = judged.meter, judged.seed
    wrong = [block for block in judged.wrong if off(block).any()]
    if not (wrong and judged.exact) or outcome.interrupted:
        return
    rows = least_first(wrong, _CLOSE)
    if not rows.size:
        return
    try:
        few = _moved(subject, wrong, rows, 1.0, meter, seed)
        clear = _clear(wrong, rows, [_LIKE * moved for moved in few])
        if clear.all():
            return
        many = _moved(subject, wrong, rows, _LONGER, meter, seed)
    except BudgetExhausted:
        return
    except KeyboardInterrupt as stop:
        outcome.cut_short(stop, "what the last digits of data do was not measured")
        return
    except Exception:  # noqa: BLE001 - the user's code may not take such data
        return
    steady = [many < _GROWS * few for few, many in zip(few, many, strict=True)]
    clear |= _clear(wrong, rows, [np.where(still, 0.0, np.inf) for still in steady])
    for block, short in zip(wrong, few, strict=True):
        i, columns = np.nonzero(off(block)[rows] & ~clear[:, None])
        if i.size:
            block.leave_open((rows[i], columns))
            worst = int(block.gap[rows[i], columns].argmax())
            entry = int(rows[i[worst]]), int(columns[worst])
            yield _told(subject, block, entry, float(short[i[worst], entry[1]]))


def _clear(
    wrong: list[Block], rows: NDArray[np.intp], most: list[NDArray[np.float64]]
) -> NDArray[np.bool_]:
    """Find outputs with an accusation of more than `most`: they are excused nothing."""
    rest = [
        (off(b)[rows] & ~(b.gap[rows] <= limit)).any(axis=1)
        for b, limit in zip(wrong, most, strict=True)
    ]
    return np.asarray(np.any(rest, axis=0))


def _moved(
    subject: Subject,
    wrong: list[Block],
    rows: NDArray[np.intp],
    roundings: float,
    meter: Meter,
    seed: int,
) -> list[NDArray[np.float64]]:
    """Measure how far moves of the data move both sides, (rows, n) for each block.

    All of the gradient; f by its slope along the worst entry of the first output, and
    what weighs less than that entry moves with it.
    """
    rng = np.random.default_rng([seed, 23])
    cotangents = unit_vectors(len(wrong[0].gap), rows)
    worst = max(wrong, key=lambda block: weights(block)[rows[0]].max())
    column = int(weights(worst)[rows[0]].argmax())
    moved = [np.zeros((len(rows), block.gap.shape[1])) for block in wrong]
    slopes = []
    for _ in range(_DRAWS):
        with constants_off(subject, roundings, rng) as other:
            if other is None:
                return moved
            meter.spend(3)
            slopes.append(slope_at(other, worst, column, _STEP)[rows, None])
            if other.analytic is None or holds_numbers(other):
                continue
            pulled = other.analytic.pull(cotangents).values
            for largest, block in zip(moved, wrong, strict=True):
                own = pulled[block.which][:, block.positions]
                np.fmax(largest, np.abs(own - block.formula[rows]), out=largest)
    tilt = np.ptp(slopes, axis=0) * worst.sizes[column]
    return [np.fmax(own, tilt / b.sizes) for own, b in zip(moved, wrong, strict=True)]


def _told(
    subject: Subject, block: Block, place: tuple[int, int], moved: float
) -> Finding:
    entry, gap = label_of(subject, block, place[1]), float(block.gap[place])
    return Finding(
        BugKind.LOW_PRECISION,
        "warning",
        block.name,
        0.9,
        f"The slope hangs on the last digits of data that the function reads: where "
        f"each number of it is moved by one rounding, it moves by {moved:.2g} at "
        f"{entry}, and the gradient is off by {gap:.2g} there. Too few digits are left "
        f"to compare.",
        "Check with data that is better conditioned, such as a matrix far from "
        "singular; scale its columns, or add to its diagonal.",
    )
