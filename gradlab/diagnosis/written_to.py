"""Inputs that the function, or what computes the gradient, writes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.diagnosis.measuring.sides import wrong_inputs
from gradlab.subject.subject import is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.diagnosis.evidence import Evidence

__all__ = ["written_to"]


def written_to(evidence: Evidence) -> list[Finding]:
    """Tell what is written to: first of all where its gradient is wrong as well.

    A gradient belongs to other values then, before or after the write, or lacks its
    slope; whatever else the numbers look like may come of that.
    """
    return [*_mutation(evidence), *_scribbled(evidence)]


def _mutation(evidence: Evidence) -> Iterator[Finding]:
    subject = evidence.subject
    names = dict.fromkeys((*evidence.conditions.mutated, *subject.mutated))
    cells = subject.cells if is_torch_subject(subject) else ()
    parameters = {cell.variable.name for cell in cells if cell.parameter}
    wrong = {subject.inputs[which].name for which in wrong_inputs(evidence)}
    for name in names:
        own, spoils = name in parameters, name in wrong
        told = f"The function writes to {name}; it was put back after every evaluation."
        if spoils:
            told += (
                f" Its gradient is wrong, and whether that is all there is to it shows "
                f"once the function leaves {name} alone."
            )
        yield Finding(
            BugKind.MUTATES_INPUT,
            "error" if spoils else "warning",
            name,
            _sureness(evidence, spoils=spoils),
            told,
            "Autograd takes it for no write: where no layer does so by design "
            "(max_norm), move it behind optimizer.step(), or make it part of forward "
            "(torch.nn.utils.parametrize)."
            if own
            else f"Work on a copy: {name} = {name}.copy() (clone() for tensors), or "
            f"write the operation out of place.",
        )


def _sureness(evidence: Evidence, *, spoils: bool) -> float:
    """Lead where a gradient is wrong as well; autograd tells the line that cuts it."""
    if not spoils:
        return 0.95
    return 0.9 if is_torch_subject(evidence.subject) else 1.0


def _scribbled(evidence: Evidence) -> Iterator[Finding]:
    """Tell inputs that what computes the gradient writes to, and f does not."""
    subject = evidence.subject
    told = {*evidence.conditions.mutated, *subject.mutated}
    for name in () if is_torch_subject(subject) else getattr(subject, "scribbled", ()):
        if name not in told:
            yield Finding(
                BugKind.MUTATES_INPUT,
                "warning",
                name,
                0.95,
                f"What computes the gradient writes to {name}: here that was undone, "
                f"elsewhere {name} has other values afterwards.",
                f"Work on a copy: {name} = {name}.copy(), or write the operation out "
                f"of place.",
            )
