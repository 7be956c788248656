"""What torch changes on purpose: said, and not accused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.diagnosis.finding import NOTHING_TO_DO, BugKind, Finding
from gradlab.differentiation.noise.analytic_noise import MOST_ROWS
from gradlab.subject.subject import is_torch_subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Judged
    from gradlab.subject.subject import Subject
    from gradlab.subject.tensors.gradients.deliberate import Purpose

__all__ = ["excuse_deliberate", "purposeful"]

_EXPLAINED = 1e-4  # of the largest slope: nearer than that is the derivative


def excuse_deliberate(judged: Judged) -> list[Finding]:
    """Take back accusations of what is not the derivative on purpose, and say so.

    A row of an embedding that is kept from learning, and whose gradient is zero, is
    right. What else torch changes on purpose cannot be compared: it is undecided.
    """
    subject, wrong = judged.subject, judged.wrong
    if not wrong or not is_torch_subject(subject):
        return []
    from gradlab.subject.tensors.gradients.deliberate import purposes

    return [
        _deliberate(subject, purpose)
        for purpose in purposes(subject)
        for block in wrong
        if block.which == purpose.which and _excuse(subject, block, purpose)
    ]


def purposeful(subject: Subject) -> dict[int, Finding]:
    """Say, before any look, which inputs cannot be compared; by position."""
    if not is_torch_subject(subject):
        return {}
    from gradlab.subject.tensors.gradients.deliberate import purposes

    return {p.which: _deliberate(subject, p) for p in purposes(subject, graph=False)}


def _excuse(subject: Subject, block: Block, purpose: Purpose) -> bool:
    """Change the verdicts that a purpose explains; whether there were any."""
    accused = block.wrong
    if purpose.entries is not None:
        accused &= np.isin(block.positions, purpose.entries)[None, :]
    if purpose.twin is not None:
        accused &= _explained(block, purpose.twin)
    if purpose.row is None:
        block.leave_open(accused)
        return bool(accused.any())
    variable = subject.inputs[block.which]
    width = variable.coordinates // variable.shape[0]
    inside = accused & (block.positions // width == purpose.row)[None, :]
    kept = inside & (block.analytic == 0)
    block.excuse(kept)
    block.leave_open(inside & ~kept)
    return bool(inside.any())


def _explained(block: Block, twin: Any) -> NDArray[np.bool_]:
    """Whether a twin that does nothing on purpose has the gradient measured."""
    if len(block.analytic) > MOST_ROWS:
        return np.ones(block.analytic.shape, bool)
    pulled = twin.analytic.pull(np.eye(len(block.analytic))).values[block.which]
    size = np.abs(block.value).max(initial=0.0)
    bound = max(_EXPLAINED, 1e3 * twin.epsilon) * size + 10 * block.error
    with np.errstate(invalid="ignore"):
        gap = np.abs(pulled[:, block.positions] - block.value)
        return np.asarray(~(gap > bound))


def _deliberate(subject: Subject, purpose: Purpose) -> Finding:
    return Finding(
        BugKind.SURROGATE,
        "note" if purpose.row is not None else "warning",
        subject.inputs[purpose.which].name,
        0.95,
        f"The gradient is not the derivative, on purpose: {purpose.words}.",
        NOTHING_TO_DO if purpose.row is not None else purpose.advice,
    )
