"""Accusations by differences over steps too short, or too long, to show them.

Next to a pole a ladder may end on steps of which it does not know how little they are
worth: the noise of f is told from nothing there. What a thousand roundings of the
inputs bend f by (`value_bend`) tells. And beside entries of 1e8 one of 1e-8 is moved by
a step of 1: where an error is below the last digit of f as far as the entry itself
reaches, nothing tells whether f has this slope at the point or only far from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.differentiation.noise.analytic_noise import SCATTER, value_bend
from gradlab.differentiation.sizes.small_coordinates import OWN_SCALE
from gradlab.pipeline.blocks import label_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Judged
    from gradlab.subject.subject import Subject

__all__ = ["leave_unseen"]

_FAINT = 1e-9  # of f: an error that moves f by less may be a rounding inside
_DIGITS = 4.0  # roundings of f, that an error is below within a coordinate's own size


def leave_unseen(judged: Judged) -> Iterator[Finding]:
    """Leave open what f cannot show over its step: roundings inside move it by more.

    Nine evaluations, where an error moves f by less than a billionth of it over the
    step that found it.
    """
    outcome, at, wrong = judged.outcome, judged.at, judged.wrong
    last = _DIGITS * at.epsilon * np.abs(outcome.base)[:, None]
    faint = [(block, _faint(block, at.epsilon, last)) for block in wrong]
    # an output of which another accusation is clear is asked nothing
    clear = np.zeros((len(outcome.base), 1), dtype=bool)
    for block, moved in faint:
        others = block.wrong & np.isinf(moved)
        clear |= others.any(axis=1, keepdims=True)
    faint = [(block, np.where(clear, np.inf, moved)) for block, moved in faint]
    faint = [(block, moved) for block, moved in faint if np.isfinite(moved).any()]
    if not faint or outcome.interrupted:
        return
    still = np.zeros_like(last)
    try:
        if any((np.isfinite(moved) & (moved > 0)).any() for _, moved in faint):
            still = SCATTER * value_bend(at, judged.meter, seed=judged.seed)[:, None]
    except (BudgetExhausted, KeyboardInterrupt) as stop:
        outcome.cut_short(stop, "what roundings move f by was not measured")
        return
    except Exception:  # noqa: BLE001 - the user's code may not take this point
        return
    for block, moved in faint:
        unseen = moved <= still
        if unseen.any():
            block.leave_open(unseen)
            row, column = (int(i) for i in np.argwhere(unseen)[0])
            seen = float(still[row, 0]) if moved[row, column] > 0 else None
            yield _told(judged.subject, block, row, column, seen)


def _faint(
    block: Block, epsilon: float, last: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How far errors move f over the steps that found them; inf where that is far.

    And 0 where they move it by less than its last digits, `last`, within the own size
    of a coordinate that is far smaller than its tensor.
    """
    with np.errstate(all="ignore"):
        moved = block.gap * np.abs(block.step)
        found = block.wrong & np.isfinite(moved)
        found &= np.abs(block.step) > epsilon * block.sizes  # no complex step
        found &= moved < _FAINT * np.abs(block.height)
        beneath = block.gap * block.sizes <= last
    beneath &= (block.sizes < OWN_SCALE * block.scales) & (not block.faint)
    beneath &= block.wrong
    return np.where(beneath, 0.0, np.where(found, moved, np.inf))


def _told(
    subject: Subject, block: Block, row: int, column: int, still: float | None
) -> Finding:
    gap, step = float(block.gap[row, column]), abs(float(block.step[row, column]))
    size = float(np.broadcast_to(block.sizes, block.gap.shape)[row, column])
    told = (
        f"Within the size of that entry, {size:.2g}, this is less than the last digit "
        f"of f, and over longer steps f may be another function."
        if still is None
        else f"Over the step of {step:.2g} that is less than what a thousand roundings "
        f"of the inputs bend f by ({still:.2g}): f is too ill-conditioned to tell."
    )
    advice = (
        "Check at a point where entries of one input are less far apart in size."
        if still is None
        else "Check at a point where nothing nearly cancels, such as a matrix far from "
        "singular, or with a longer step: method=gl.Central(step=...)."
    )
    return Finding(
        BugKind.LOW_PRECISION,
        "warning",
        block.name,
        0.9,
        f"At {label_of(subject, block, column)} the sides differ by {gap:.2g}. {told}",
        advice,
    )
