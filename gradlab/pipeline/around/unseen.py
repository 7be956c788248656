"""Accusations by differences over steps too short to show them.

Next to a pole a ladder may end on steps of which it does not know how little they are
worth: the noise of f is told from nothing there. What a thousand roundings of the
inputs bend f by (`value_bend`) tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.differentiation.analytic_noise import SCATTER, value_bend
from gradlab.differentiation.evaluation import BudgetExhausted
from gradlab.differentiation.metering import INTERRUPTED
from gradlab.pipeline.blocks import label_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.differentiation.evaluation import Meter
    from gradlab.pipeline.blocks import Block, Outcome
    from gradlab.subject.subject import Subject

__all__ = ["leave_unseen"]

_FAINT = 1e-9  # of f: an error that moves f by less may be a rounding inside


def leave_unseen(
    subject: Subject, outcome: Outcome, meter: Meter, seed: int
) -> Iterator[Finding]:
    """Leave open what f cannot show over its step: roundings inside move it by more.

    Parameters
    ----------
    subject
        As the user has it.
    outcome
        Judged; verdicts of its blocks are changed.
    meter
        Charged for nine evaluations, where an error moves f by less than a billionth
        of it over the step that found it.
    seed
        Of the roundings.
    """
    at = outcome.reference or subject
    wrong = [block for block in outcome.blocks if block.accused]
    faint = [(block, _faint(block, at.epsilon)) for block in wrong]
    # an output of which another accusation is clear is asked nothing
    clear = np.zeros((len(outcome.base), 1), dtype=bool)
    for block, moved in faint:
        others = block.wrong & np.isinf(moved)
        clear |= others.any(axis=1, keepdims=True)
    faint = [(block, np.where(clear, np.inf, moved)) for block, moved in faint]
    faint = [(block, moved) for block, moved in faint if np.isfinite(moved).any()]
    if not faint or outcome.stopped == INTERRUPTED:
        return
    try:
        still = SCATTER * value_bend(at, meter, seed=seed)[:, None]
    except BudgetExhausted:
        return
    except Exception:  # noqa: BLE001 - the user's code may not take this point
        return
    for block, moved in faint:
        unseen = moved <= still
        if unseen.any():
            block.verdicts[unseen] = Verdict.UNDECIDED
            row, column = (int(i) for i in np.argwhere(unseen)[0])
            yield _told(subject, block, row, column, float(still[row, 0]))


def _faint(block: Block, epsilon: float) -> NDArray[np.float64]:
    """How far errors move f over the steps that found them; inf where that is far."""
    with np.errstate(all="ignore"):
        moved = block.gap * np.abs(block.step)
        found = block.wrong & np.isfinite(moved)
        found &= np.abs(block.step) > epsilon * block.sizes  # no complex step
        found &= moved < _FAINT * np.abs(block.height)
    return np.where(found, moved, np.inf)


def _told(
    subject: Subject, block: Block, row: int, column: int, still: float
) -> Finding:
    gap, step = float(block.gap[row, column]), abs(float(block.step[row, column]))
    return Finding(
        BugKind.LOW_PRECISION,
        "warning",
        block.name,
        0.9,
        f"At {label_of(subject, block, column)} the sides differ by {gap:.2g}. Over "
        f"the step of {step:.2g} that is less than what a thousand roundings of the "
        f"inputs bend f by ({still:.2g}): f is too ill-conditioned to tell.",
        "Check at a point where nothing nearly cancels, such as a matrix far from "
        "singular, or with a longer step: method=gl.Central(step=...).",
    )
