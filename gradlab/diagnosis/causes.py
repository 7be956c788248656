"""One cause for several wrong inputs: what a wrong error signal spoils as well."""

from __future__ import annotations

import dataclasses

from gradlab.diagnosis import leftovers
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.diagnosis.measuring.layer_shapes import layer_of, layers_of
from gradlab.diagnosis.measuring.measures import Case, cases_of
from gradlab.labels import few_of

__all__ = ["Causes"]

_CAUSE = 0.75  # above it, an explanation may explain the inputs before it as well
_OF_EACH = {BugKind.DTYPE, BugKind.ACCUMULATED_GRAD}  # slips of no error signal
_NAMED = 4  # of the inputs that are spoiled


class Causes:
    """Findings about one input after the other, from the output back to the input.

    Where the error signal of a layer is wrong, so are both its gradients and those of
    all that comes before. What nothing else explains there is told with that layer.
    """

    def __init__(self) -> None:
        self.root: Case | None = None  # whose cause may explain what comes before
        self._lead: Case | None = None  # or that of a weight that stands alone
        self._told: dict[str, list[Finding]] = {}
        self._cases: dict[str, Case] = {}
        self._spoiled: list[Case] = []

    def add(self, case: Case, told: list[Finding], *, guessed: bool) -> None:
        """Take what is told of an input; `guessed`: it has no explanation of its own.

        It is spoiled as well where it has the kind of the root, in other words.
        """
        if self.root is None and guessed:
            self.root = self._lead
        if self.root is not None:
            same = self._told[self.root.name][0].kind
            if guessed or (told and all(f.kind == same for f in told)):
                self._spoiled.append(case)
                return
        self._told[case.name], self._cases[case.name] = told, case
        if told and told[0].kind in _OF_EACH:
            return  # so is each gradient that is made like that, whatever comes back
        if self.root is None and told and told[0].confidence > _CAUSE:
            self.root = case if _signal(case) else None
            self._lead = self._lead or (case if _stands_alone(case) else None)
        elif self.root is None:
            self._open_signal(case)

    def findings(self) -> list[Finding]:
        """Return all findings, that of the root with what it spoils."""
        if self.root is not None and self._spoiled:
            first, *others = self._told[self.root.name]
            whole = _with_spoiled(first, self.root, self._spoiled)
            self._told[self.root.name] = [whole, *others]
        found = [finding for told in self._told.values() for finding in told]
        plain = [finding for finding in found if leftovers.is_plain(finding)]
        if len(plain) < 2:
            return found
        whole = leftovers.told_together(plain[0], plain[1:])
        kept = [whole if finding is plain[0] else finding for finding in found]
        return [finding for finding in kept if finding not in plain]

    def _open_signal(self, case: Case) -> None:
        """Make a layer the root if all that is known is that its signal is wrong."""
        members = _signal(case)
        known = [self._told.get(name, []) for name in members]
        if len(members) < 2 or not all(map(_is_open, known)):
            return
        first, *mates = (name for name in self._told if name in members)
        self.root = self._cases[first]
        for name in mates:
            del self._told[name]
            self._spoiled.append(self._cases[name])


def _signal(case: Case) -> set[str]:
    """Names of the wrong inputs of a layer, where the error signal is what is wrong.

    That is handed on to the layers before it; one line of code alone hands nothing on.
    """
    layer = layer_of(case.evidence, case.part.which)
    wrong = {other.part.which: other.name for other in cases_of(case.evidence)}
    if layer is None or not {layer.weight, layer.bias} <= wrong.keys():
        return set()
    members = {layer.weight, layer.bias, layer.recurrent}
    return {name for which, name in wrong.items() if which in members}


def _stands_alone(case: Case) -> bool:
    """Whether no bias tells the error signal of a weight from its own line."""
    layer = layer_of(case.evidence, case.part.which)
    return layer is None and len(case.variable.shape) > 1


def _is_open(told: list[Finding]) -> bool:
    return len(told) == 1 and told[0].kind == BugKind.UNKNOWN


def _right_behind(root: Case) -> str:
    """Name the weight that comes next, if all gradients of its layer are right."""
    evidence, own = root.evidence, layer_of(root.evidence, root.part.which)
    biases = {layer.bias for layer in layers_of(evidence)}
    for which, variable in enumerate(evidence.subject.inputs):
        if own is None or which <= own.weight or which in {own.recurrent, *biases}:
            continue
        if len(variable.shape) < 2:
            continue
        layer = layer_of(evidence, which)
        members = {which} if layer is None else {layer.weight, layer.bias}
        wrong = {case.part.which for case in cases_of(evidence)}
        return "" if wrong & members else variable.name
    return ""


def _with_spoiled(finding: Finding, root: Case, spoiled: list[Case]) -> Finding:
    """Name what else is wrong, and how that hangs together, as far as can be told."""
    members = _signal(root)
    mates = [case.name for case in spoiled if case.name in members]
    before = [case.name for case in spoiled if case.name not in members]
    evidence, advice = finding.evidence, finding.advice
    behind = _right_behind(root) if finding.kind == BugKind.UNKNOWN else ""
    if behind:
        evidence += f" {behind}, behind it, is right: so is the signal up to there."
        advice = (
            f"Compare each step of the backward between {behind} and {root.name} with "
            f"the forward pass: the weight that the signal is multiplied with, the "
            f"slope or mask of the activation, a mask of dropout, a normalisation."
        )
    if mates:
        verb = "are" if len(mates) > 1 else "is"
        evidence += (
            f" {few_of(mates, _NAMED)} {verb} wrong with it: of one error signal."
        )
    if before:
        verb = "come" if len(before) > 1 else "comes"
        evidence += (
            f" {few_of(before, _NAMED)} {verb} before it, and may be spoiled by it."
        )
        advice += " Then check again: what comes before may be right."
    also = tuple(case.name for case in spoiled)
    return dataclasses.replace(finding, evidence=evidence, advice=advice, also=also)
