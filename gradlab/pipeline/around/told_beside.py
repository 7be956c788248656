"""Words for accusations that points beside the given one take back.

And for a function that has slopes along no axis because it keeps values: f at a point
it was not at before may then be f at another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.pipeline.blocks import label_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.pipeline.blocks import Block
    from gradlab.subject.subject import Subject

__all__ = ["accused", "told_beside", "told_stale"]


def accused(block: Block) -> NDArray[np.bool_]:
    """Find wrong entries with numbers on both sides, (rows, n)."""
    wrong = block.wrong
    places = np.flatnonzero(wrong)
    if not places.size:  # nor is a matrix made that nobody has asked for
        return wrong
    sides = (block.analytic.reshape(-1)[places], block.value.reshape(-1)[places])
    wrong.reshape(-1)[places] = np.isfinite(sides[0]) & np.isfinite(sides[1])
    return wrong


def told_beside(
    subject: Subject,
    blocks: list[Block],
    rows: NDArray[np.bool_],
    *,
    known: bool,
) -> Iterator[Finding]:
    """Change the verdicts of some rows, and put it in words."""
    for block in blocks:
        taken_back = accused(block) & rows[:, None]
        if not taken_back.any():
            continue
        row, column = (int(i) for i in np.argwhere(taken_back)[0])
        if known:
            block.excuse(taken_back)
        else:
            block.leave_open(taken_back)
        values = block.value[row, column], block.analytic[row, column]
        yield Finding(
            BugKind.NONDIFFERENTIABLE,
            "note" if known else "warning",
            block.name,
            0.85,
            f"The function has no derivative at the point, where entries are equal or "
            f"zero; at {label_of(subject, block, column)}: {values[0]:.6g} by f, "
            f"{values[1]:.6g} analytic. "
            + (
                "The gradient is one of points beside, or between them: a sub-gradient."
                if known
                else "Several kinks meet there, and what torch gives for each of them "
                "by convention does not add up to a slope; right beside the point "
                "the gradient is right."
            ),
            "To check formulas, move the point: add a little noise to the input.",
        )


def told_stale(subject: Subject, blocks: list[Block]) -> Iterator[Finding]:
    """Leave accusations open where f gives values that it has kept, and say so."""
    for block in blocks:
        stale = accused(block)
        if not stale.any():
            continue
        row, column = (int(i) for i in np.argwhere(stale)[0])
        block.leave_open(stale)
        yield Finding(
            BugKind.STATEFUL,
            "error",
            block.name,
            0.95,
            f"The function moves with {label_of(subject, block, column)} only where "
            f"other entries move as well, and then as the gradient says: along it "
            f"alone {block.value[row, column]:.6g}, analytic "
            f"{block.analytic[row, column]:.6g}. It gives a value that it kept from an "
            f"earlier call, at another point.",
            f"Look for a cache whose key, or whose test for a new point, leaves out a "
            f"part of {block.name}; or empty it before every call.",
        )
