"""Kinks and jumps of f at the point: no mistake of a gradient, nor a test of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.differentiation.smoothness import Smoothness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.diagnosis.evidence import Evidence, Part

__all__ = ["kinks", "label_of"]


def kinks(evidence: Evidence) -> Iterator[Finding]:
    """Tell of kinks and jumps, of entries and of all that was moved together.

    Parameters
    ----------
    evidence
        What the check has measured.
    """
    yield from _of_entries(evidence)
    yield from _crowded(evidence)


def _of_entries(evidence: Evidence) -> Iterator[Finding]:
    for part in evidence.parts:
        if part.pattern is not None:  # no entry has had a second look
            continue
        name = evidence.subject.inputs[part.which].name
        for kind, words in (
            (Smoothness.KINK, "a kink"),
            (Smoothness.JUMP, "a jump"),
        ):
            mask = part.kinds == kind
            if not mask.any():
                continue
            row, column = (int(i) for i in np.argwhere(mask)[0])
            label = label_of(evidence, part, column)
            left = part.left[row, column] + 0.0  # no negative zero
            right = part.right[row, column] + 0.0
            wrong = bool((mask & part.wrong).any())
            where = _counted(int(mask.any(axis=0).sum()), name, label)
            slopes = (
                f": slope {left:.6g} to the left, {right:.6g} to the right, analytic "
                f"{part.analytic[row, column]:.6g}"
                if np.isfinite(left) and np.isfinite(right)
                else ""
            )
            yield Finding(
                BugKind.NONDIFFERENTIABLE,
                "warning" if wrong or kind == Smoothness.JUMP else "note",
                name,
                0.8,
                f"The function has {words} at {where}{slopes}.",
                "Any slope between the two sides is a sub-gradient; to check formulas, "
                "move the point off the kink."
                if kind == Smoothness.KINK
                else "There is no derivative at a jump: move the point.",
            )


def _crowded(evidence: Evidence) -> Iterator[Finding]:
    crowd = evidence.met.crowd
    if crowd is None or not crowd.inputs:
        return
    first, *others = crowd.inputs
    yield Finding(
        BugKind.NONDIFFERENTIABLE,
        "warning",
        first,
        0.8,
        f"Kinks crowd round the point: a step of {crowd.step:.0e} of the size of all "
        f"entries still crosses some on either side, and finer ones are round-off.",
        "Check with fewer examples or tokens at a time: each number that meets a relu, "
        "an abs or a max brings a kink.",
        also=tuple(others),
    )


def _counted(count: int, name: str, label: str) -> str:
    return label if count == 1 else f"{count:,} entries of {name}, such as {label}"


def label_of(evidence: Evidence, part: Part, column: int) -> str:
    """Name the entry that a column of a part belongs to."""
    variable = evidence.subject.inputs[part.which]
    return variable.label(variable.entry_of(int(part.positions[column])))
