"""Gradients of which half precision leaves nothing, and float64 what is right.

``1 - tanh(x) ** 2`` is zero in bfloat16 from 3 on, where 0.01 is right, and a gradient
below 6e-8 is zero in float16. The formula is no mistake then: the same code is right in
float64. Nor is all well, for who trains with it has no gradient there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.labels import few_of
from gradlab.pipeline.blocks import label_of
from gradlab.pipeline.looks.last_digits import few_units
from gradlab.subject.subject import SINGLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Judged
    from gradlab.subject.subject import Subject

__all__ = ["leave_lost_in_half", "lost_to_underflow"]

_SHARE = 0.1  # of a gradient's norm: less that is lost is a matter of digits
_NAMED = 4  # inputs in a finding
_RIGHT = 1e-5  # of the slope: so much may the same formula be off by in float64


def leave_lost_in_half(judged: Judged) -> list[Finding]:
    """Leave open what is lost to half precision alone."""
    subject = judged.subject
    if subject.epsilon <= SINGLE:
        return []
    lost = [(block, _lost(subject, block)) for block in judged.wrong]
    for block, entries in lost:
        block.leave_open(entries)
    return [_told(subject, block, entries) for block, entries in lost if entries.any()]


def _lost(subject: Subject, block: Block) -> NDArray[np.bool_]:
    """Accused entries that the same code has right in float64, (rows, n)."""
    if block.precise is None:
        return np.zeros(block.value.shape, dtype=bool)
    digits = few_units(subject, block)  # lost where something saturates
    with np.errstate(all="ignore"):
        bound = np.fmax(SAFETY * block.error, _RIGHT * np.abs(block.value))
        right = np.abs(block.precise - block.value) <= bound
        near = np.abs(block.analytic - block.precise) <= digits
    return np.asarray(block.wrong & right & near)


def _told(subject: Subject, block: Block, entries: NDArray[np.bool_]) -> Finding:
    gap = np.where(entries, block.gap, -1.0)
    row, column = divmod(int(gap.argmax()), gap.shape[1])
    name, least = block.name, float(block.precise[row, column])  # type: ignore[index] # where it is known
    return Finding(
        BugKind.LOW_PRECISION,
        "warning",
        name,
        0.85,
        f"Half precision leaves nothing of the gradient in {int(entries.sum()):,} of "
        f"{entries.size:,} entries of {name}, such as "
        f"{label_of(subject, block, column)}: it is {block.analytic[row, column]:.3g} "
        f"there, and {least:.3g} by the same code in float64, which is right. "
        f"Something has rounded to a constant, or underflowed.",
        "Compute this part in float32, or scale the loss, if that gradient is needed.",
    )


def lost_to_underflow(subject: Subject) -> list[Finding]:
    """Warn of gradients that are right, and mostly zero in the user's own arithmetic.

    Of those that were seen on the way; see `differentiation.noise.underflow`.
    """
    seen: dict[int, float] = getattr(subject, "underflow", {})
    lost = {which: share for which, share in seen.items() if share > _SHARE}
    if not lost:
        return []
    names = [subject.inputs[which].name for which in sorted(lost)]
    worst = max(lost, key=lambda which: lost[which])
    most = f"{100 * lost[worst]:.0f} % of that of {subject.inputs[worst].name}"
    return [
        Finding(
            BugKind.LOW_PRECISION,
            "warning",
            subject.inputs[worst].name,
            0.95,
            f"Gradients underflow in half precision: {most} is lost"
            f"{_too(names, subject.inputs[worst].name)}. Computed in float64 they are "
            f"right, and so they are where the incoming gradient is scaled up.",
            "Scale the loss, as torch.amp.GradScaler does, or use bfloat16, which has "
            "the range of float32.",
        )
    ]


def _too(names: list[str], worst: str) -> str:
    others = [name for name in names if name != worst]
    return (
        f", and more than a tenth of those of {few_of(others, _NAMED)}"
        if others
        else ""
    )
