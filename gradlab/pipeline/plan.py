"""How to check, what a user's call brings along, and a check under way."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from gradlab.differentiation.method import Adaptive, Auto
from gradlab.errors import InputError
from gradlab.labels import chosen_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradlab.comparison.tolerance import Tolerance
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.method import Method
    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.layers import Layers
    from gradlab.subject.state_guard import StateGuard
    from gradlab.subject.subject import Subject, Variable

__all__ = ["BESIDE", "KEPT", "Call", "Check", "Plan"]

BESIDE = 10  # evaluations that tell whether f has a derivative at the point
KEPT = 22 + BESIDE  # evaluations of a budget: those, and a ladder


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """How to check: the options of `gradlab.check` that are not about the subject."""

    method: Method
    tolerance: Tolerance
    coverage: str = "full"
    seed: int = 0
    methods: Mapping[str, Method] = dataclasses.field(default_factory=dict, hash=False)
    memory: int = 1 << 30  # bytes

    def method_of(self, name: str) -> Method:
        """Return the method for one input: its own, or that of all others."""
        return chosen_for(name, self.methods, self.method)

    def finds_steps(self, name: str) -> bool:
        """Whether the method for one input finds its own steps."""
        return isinstance(self.method_of(name), Auto | Adaptive)

    def steps_asked_for(self, inputs: Sequence[Variable]) -> dict[str, float]:
        """Return the steps that the user gave, by the names of their inputs."""
        steps = {v.name: getattr(self.method_of(v.name), "step", None) for v in inputs}
        return {name: float(step) for name, step in steps.items() if step is not None}

    def first_method(self, name: str) -> str:
        """Say by which method an input is differentiated first."""
        method = self.method_of(name)
        return "central" if isinstance(method, Auto) else method.name

    def refuse_unknown(self, names: list[str]) -> None:
        """Refuse options for inputs that there are not.

        Raises
        ------
        InputError
            Naming the inputs that there are.
        """
        for option, table in (
            ("method", self.methods),
            ("rtol or atol", self.tolerance.own),
        ):
            for key in table:
                if not any(chosen_for(name, {key: True}, False) for name in names):
                    known = ", ".join(map(repr, names))
                    msg = (
                        f"{option} is given for {key!r}, which is none of the inputs "
                        f"that are checked: {known}"
                    )
                    raise InputError(msg)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call of `gradlab.check`: all that its steps share beside the subject.

    Attributes
    ----------
    plan
        How to check.
    meter
        Counts, bounds and shows the evaluations.
    roots
        Everything the user passed, to be searched for hidden state.
    guard
        The guard that watches over `roots`, if one was entered.
    explain
        Whether to look for causes.
    layers
        Of a module: what a wrong one spoils needs no cause of its own.
    """

    plan: Plan
    meter: Meter
    roots: tuple[object, ...]
    guard: StateGuard | None = None
    explain: bool = True
    layers: Layers | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Check:
    """A check under way: what is compared, how, and at what cost.

    Attributes
    ----------
    own
        The subject as the user has it.
    reference
        What methods that find their own steps evaluate: the same, or the same in
        float64.
    plan
        How to check.
    meter
        Charged for every evaluation.
    """

    own: Origin
    reference: Origin
    plan: Plan
    meter: Meter

    @property
    def subject(self) -> Subject:
        """As the user has it."""
        return self.own.subject

    @property
    def twin(self) -> Subject | None:
        """The subject in float64, where that is another one."""
        reference = self.reference.subject
        return None if reference is self.own.subject else reference
