"""One cause for several wrong inputs: what a wrong error signal spoils as well."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from gradlab.diagnosis import leftovers
from gradlab.diagnosis.alike import alike
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.diagnosis.measuring.layer_shapes import layer_of, layers_of
from gradlab.diagnosis.measuring.proportions import factor, is_written
from gradlab.diagnosis.measuring.sides import right_inputs, wrong_inputs
from gradlab.labels import few_of

if TYPE_CHECKING:
    from gradlab.diagnosis.evidence import Evidence
    from gradlab.diagnosis.measuring.measures import Case, Clue

__all__ = ["Causes"]

_CAUSE = 0.75  # above it, an explanation may explain the inputs before it as well
_SURE = 0.8  # above it, an explanation stands beside that of another input
# slips of no error signal
_OF_EACH = {BugKind.DTYPE, BugKind.ACCUMULATED_GRAD, BugKind.REGULARIZATION}
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
        self._kinds: dict[str, set[BugKind]] = {}
        self._best: dict[str, Clue] = {}
        self._spoiled: list[str] = []

    def add(
        self, case: Case, told: list[Finding], clues: list[Clue], *, guessed: bool
    ) -> None:
        """Take what is told of an input; `guessed`: it has no explanation of its own.

        It is spoiled as well where it has the kind of the root, in other words, or one
        that the root could be called as surely.
        """
        if self.root is None and guessed:
            self.root = self._lead
        if self.root is not None:
            same = self._kinds[self.root.name]
            as_root = told and all(f.kind in same for f in told)
            # less than sure beside a signal that is wrong: it looks like that, spoiled
            unsure = all(f.confidence <= _SURE for f in told)
            if guessed or as_root or unsure or _by_accident(case, told):
                self._spoiled.append(case.name)
                return
        self._told[case.name], self._cases[case.name] = told, case
        best = max(clues, key=lambda clue: clue.confidence, default=None)
        if best is not None:
            self._best[case.name] = best
        sure = {clue.kind for clue in clues if clue.confidence > _CAUSE}
        self._kinds[case.name] = {told[0].kind, *sure} if told else sure
        each = best is not None and best.of_each and told and best.kind == told[0].kind
        if each or (told and told[0].kind in _OF_EACH):
            return  # so is each gradient that is made like that, whatever comes back
        if self.root is None and told and self._is_cause(told[0], best):
            handed_on = (
                best is not None and best.handed_on and best.kind == told[0].kind
            )
            self.root = case if handed_on or _signal(case) else None
            self._lead = self._lead or (case if _stands_alone(case) else None)
        elif self.root is None:
            self._open_signal(case)

    @staticmethod
    def _is_cause(told: Finding, best: Clue | None) -> bool:
        """Whether a finding may explain others: that of no kind if it was measured."""
        if told.kind == BugKind.UNKNOWN and told.doubts and best is not None:
            return best.kind == BugKind.UNKNOWN and best.confidence > _CAUSE
        return told.confidence > _CAUSE

    def findings(self) -> list[Finding]:
        """Return all findings, that of the root with what it spoils."""
        self._spoiled += filter(self._spoils, self._unseen())
        self._spoiled += self._on_the_way()
        self._spoiled += self._of_one_signal()
        if self.root is not None and self._spoiled:
            root = self._told[self.root.name][0]
            others = [f for told in self._told.values() for f in told if f is not root]
            first, *rest = alike([root, *others])
            found = [_with_spoiled(first, self.root, self._spoiled), *rest]
        else:
            found = [finding for told in self._told.values() for finding in told]
        plain = [finding for finding in found if leftovers.is_plain(finding)]
        if not plain:
            return found
        # what is off by little beside others that are off by much has no tolerance
        plain += [finding for finding in found if leftovers.is_slight(finding)]
        also = [place for finding in plain[1:] for place in finding.places]
        whole = leftovers.told_together(plain[0], (*also, *self._unseen()))
        through = self._through(whole.places)
        whole = leftovers.told_through(whole, through)
        if self.root is None:
            right = right_inputs(self._evidence, whole.where)
            whole = leftovers.beside_right(whole, right)
        rest = [f for f in found if f not in plain and f.where not in through]
        return [whole, *rest]

    def _through(self, unexplained: tuple[str, ...]) -> dict[str, str]:
        """Name what is wrong on its way through an unexplained input alone."""
        return {
            name: clue.through
            for name, clue in self._best.items()
            if clue.through in unexplained and name in self._told
        }

    def _on_the_way(self) -> list[str]:
        """Take what is wrong on its way through the layer of the root alone."""
        if self.root is None:
            return []
        members = {self.root.name, *_signal(self.root)}
        found = [
            name
            for name in self._told
            if name not in members and name in self._best
            if self._best[name].through in members
        ]
        for name in found:
            del self._told[name]
        return found

    def _of_one_signal(self) -> list[str]:
        """Take what nothing explains of the layer of the root: it has its signal."""
        if self.root is None:
            return []
        members = _signal(self.root) - {self.root.name}
        found = [name for name, told in self._told.items() if name in members]
        found = [name for name in found if _is_open(self._told[name])]
        for name in found:
            del self._told[name]
        return found

    @property
    def _evidence(self) -> Evidence:
        return next(iter(self._cases.values())).evidence

    def _unseen(self) -> list[str]:
        """Name what only directions show to be wrong, the last first."""
        if not self._cases:
            return []
        evidence = self._evidence
        wrong = sorted(wrong_inputs(evidence), reverse=True)
        names = [evidence.subject.inputs[which].name for which in wrong]
        return [name for name in names if name not in {*self._told, *self._spoiled}]

    def _spoils(self, name: str) -> bool:
        """Whether the root may spoil an input: one of its layer, or one before it."""
        if self.root is None:
            return False
        names = [v.name for v in self.root.evidence.subject.inputs]
        return name in names[: self.root.part.which] or name in _signal(self.root)

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
            self._spoiled.append(name)


def _signal(case: Case) -> set[str]:
    """Names of the wrong inputs of a layer, where the error signal is what is wrong.

    That is handed on to the layers before it; one line of code alone hands nothing on.
    """
    layer = layer_of(case.evidence, case.part.which)
    if layer is None:
        return set()
    inputs, wrong = case.evidence.subject.inputs, wrong_inputs(case.evidence)
    if not {layer.weight, layer.bias} <= wrong:
        return set()
    members = {layer.weight, layer.bias, layer.recurrent}
    return {inputs[which].name for which in wrong if which in members}


def _stands_alone(case: Case) -> bool:
    """Whether no bias tells the error signal of a weight from its own line."""
    layer = layer_of(case.evidence, case.part.which)
    return layer is None and len(case.variable.shape) > 1


def _by_accident(case: Case, told: list[Finding]) -> bool:
    """Whether a factor is no number that anybody writes: of one sample all have one."""
    odd = not is_written(factor(case, only_wrong=True))
    return odd and all(f.kind == BugKind.SCALE for f in told)


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
        return "" if wrong_inputs(evidence) & members else variable.name
    return ""


def _with_spoiled(finding: Finding, root: Case, spoiled: list[str]) -> Finding:
    """Name what else is wrong, and how that hangs together, as far as can be told."""
    members = _signal(root)
    mates = [name for name in spoiled if name in members]
    before = [name for name in spoiled if name not in members]
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
        verb, they = ("are", "they come") if len(mates) > 1 else ("is", "it comes")
        evidence += (
            f" {few_of(mates, _NAMED)} {verb} wrong with it: {they} from the same "
            f"error signal."
        )
    if before:
        verb = "come" if len(before) > 1 else "comes"
        evidence += (
            f" {few_of(before, _NAMED)} {verb} before it, and may be spoiled by it."
        )
        advice += " Then check again: what comes before may be right."
    return dataclasses.replace(
        finding, evidence=evidence, advice=advice, also=(*finding.also, *spoiled)
    )
