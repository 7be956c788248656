"""Inputs that are not independent: one memory for two, or one computed from another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.subject.subject import is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.diagnosis.evidence import Evidence

__all__ = ["shared_memory"]


def shared_memory(evidence: Evidence) -> list[Finding]:
    """Tell entries and inputs that stand for one number, and inputs made of others."""
    return [*_aliasing(evidence), *_dependent(evidence)]


def _aliasing(evidence: Evidence) -> Iterator[Finding]:
    subject = evidence.subject
    for name in subject.aliased if is_torch_subject(subject) else ():
        yield Finding(
            BugKind.ALIASING,
            "warning",
            name,
            0.9,
            f"Several entries of {name} are one and the same number in memory (an "
            f"expanded tensor); each was varied on a copy of its own.",
            f"Pass {name}.clone(), or differentiate the tensor that was expanded.",
        )
    pairs, copied = (
        (subject.shared, "clone()")
        if is_torch_subject(subject)
        else (_numpy_pairs(subject), "copy()")
    )
    for one, other in dict.fromkeys(pairs):
        if subject.live:
            yield _in_place(one, other)
            continue
        yield Finding(
            BugKind.ALIASING,
            "warning",
            one,
            0.9,
            f"{one} and {other} share memory; each was varied on a copy of its own.",
            f"If they are one variable, its gradient is the sum of both; pass it once. "
            f"If not, pass {other}.{copied}.",
        )


def _in_place(one: str, other: str) -> Finding:
    return Finding(
        BugKind.ALIASING,
        "warning",
        one,
        0.9,
        f"{one} and {other} share memory: where one moves the other moves with it, "
        f"and what was compared is the slope of f with both.",
        f"Where that is not meant make {other} a copy. Where it is, each gradient has "
        f"to hold the uses of both, and an optimizer must move what they share once.",
    )


def _numpy_pairs(subject: Any) -> list[tuple[str, str]]:
    arrays = [subject.tree.leaves[position].value for position in subject.which]
    found = []
    for i, one in enumerate(arrays):
        for j in range(i):
            other = arrays[j]
            arrays_both = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
            if arrays_both and np.shares_memory(one, other):
                found.append((subject.inputs[j].name, subject.inputs[i].name))
    return found


def _dependent(evidence: Evidence) -> Iterator[Finding]:
    """Tell inputs that were computed from other inputs, as the check met them."""
    for pair in evidence.conditions.dependent:
        made, _, origin = pair.partition(" from ")
        yield Finding(
            BugKind.DEPENDENT_INPUTS,
            "warning",
            made,
            0.9,
            f"{made} was computed from {origin}; the check varies them independently, "
            f"so neither gradient holds the path through the other.",
            f"Pass a detached copy of {made} if they are meant to be independent, or "
            f"compute it inside the function.",
        )
