"""The layers of a model that is checked, audited once, when something is wrong.

A wrong layer spoils every gradient before it. A check that knows it need not look for
the cause of each of these, nor for the entries of them that are wrong.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from gradlab.errors import GradlabError
from gradlab.pipeline.layer_errors import mistakes_of, was_interrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.localisation.layers.audited import LayerAudit
    from gradlab.localisation.layers.recording.state import Attributes
    from gradlab.pipeline.local_reports import LooksAlone

__all__ = ["Layers", "blames_layers_alone"]

_AUDIT = 12  # evaluations that an audit costs: four steps, forward and backward
_OVER = 1.1  # times its seconds that a budget may come to, for knowing the layer


@dataclasses.dataclass(slots=True, eq=False)
class Layers:
    """Those of a module, and what an audit says of them.

    Attributes
    ----------
    module, inputs, loss
        As given to `gradlab.check`.
    meter
        Of the check, whose budget of seconds an audit has to fit into.
    names
        Of all inputs that are checked, the parameters among them.
    rewind
        Rewinds generators to the draw that the check compares: a dropout may hide a
        mistake from another one.
    begun
        What its modules remember as the check begins: caches of evaluations at other
        points, or of another dtype, are none of the model that is audited.
    audit
        What was found; None before, and where it could not be made.
    refusal
        Why it could not.
    looks
        That the audit took at single calls.
    """

    module: Any
    inputs: tuple[Any, ...]
    loss: Callable[..., Any] | None
    meter: Meter
    names: tuple[str, ...]
    rewind: Callable[[], None] | None
    begun: Attributes = dataclasses.field(init=False)
    audit: LayerAudit | None = None
    refusal: str = ""
    looks: LooksAlone | None = None

    def __post_init__(self) -> None:
        from gradlab.localisation.layers.recording.state import Attributes

        self.begun = Attributes(self.module)

    @property
    def affordable(self) -> bool:
        """Whether there is an audit, or one still fits into a budget of seconds."""
        meter = self.meter
        if meter.budget.seconds is None or self.audit is not None:
            return True
        each = meter.seconds / max(meter.evaluations, 1)
        return meter.seconds + _AUDIT * each <= _OVER * meter.budget.seconds

    def audited(self) -> LayerAudit | None:
        """Audit them, if that was not done before."""
        from gradlab.auditing import audited
        from gradlab.localisation.layers.audited import LayerLive
        from gradlab.pipeline.local_reports import LooksAlone

        if self.audit is None and not self.refusal:
            if self.rewind is not None:
                self.rewind()
            self.begun.put_back()
            try:
                live = LayerLive(self.module, self.inputs, {}, self.loss, 0)
                self.looks = looks = LooksAlone()
                self.audit = audited(live, looks.left_open, meter=self.meter)
            except GradlabError as cause:
                self.refusal = f"the layers were not audited: {cause}"
        return self.audit

    def spoiled(self) -> frozenset[str]:
        """Name the parameters and inputs that are wrong because a layer behind them is.

        Raises
        ------
        KeyboardInterrupt
            If the audit was interrupted: so is the check then.
        """
        audit = self.audited() if self.affordable else None
        if audit is None:
            return frozenset()
        if was_interrupted(audit):
            raise KeyboardInterrupt
        parameters = {name for row in audit.rows for name in row.parameters}
        spoiled = parameters.intersection(audit.contaminated)
        if blames_layers_alone(audit):
            spoiled.update(name for name in self.names if name not in parameters)
        return frozenset(spoiled)


def blames_layers_alone(audit: LayerAudit) -> bool:
    """Whether layers are wrong, and all that leads to them from the inputs is right.

    So the gradient of an input has no other mistake than theirs.
    """
    from gradlab.localisation.layers.audited import LayerState

    # a module answers for its custom Functions: its own code may be right
    own = {mistake.layer for mistake in mistakes_of(audit)} - {"loss"}
    return not any(
        (row.state is LayerState.UNCHECKED and not row.idle)
        or (row.state is LayerState.WRONG and row.depth == 0 and row.name in own)
        for row in audit.rows
    )
