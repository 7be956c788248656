"""The layer audit with a kernel behind it: a layer opens its own Jacobian."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gradlab.presentation.layer_text import audit_text
from gradlab.presentation.packing_results import layers_state, pack_inner
from gradlab.presentation.widgets.host import LiveView, shows

if TYPE_CHECKING:
    from gradlab.localisation.layers.audited import LayerAudit
    from gradlab.presentation.widgets.host import Answer
    from gradlab.report import Report

__all__ = ["LayerBlame"]

_KEPT = 8  # local reports; as many as one goes back and forth between


class LayerBlame(LiveView):
    """The network from input to loss: which layer is wrong, which contaminated.

    A click on a layer checks it by itself, on the inputs and the incoming gradient that
    it really had, and opens that report below.

    Parameters
    ----------
    audit
        What `gradlab.blame` returned.

    Attributes
    ----------
    picked
        Name of the layer that is opened.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Linear(3, 2).double()
    >>> widget = gl.LayerBlame(gl.blame(net, torch.ones(4, 3).double()))
    >>> widget.kind, widget.local("Linear")["weight"].shape
    ('layers', (8, 6))
    """

    settable = ("picked",)

    def __init__(self, audit: LayerAudit, **values: Any) -> None:
        shows(self, audit, "rows", "the audit of a model: gl.blame(...)", values)
        self._audit = audit
        self._local: dict[tuple[str, int | None], Report] = {}
        super().__init__(
            kind="layers",
            page=layers_state(audit),
            can_recompute=audit.live is not None,
            **values,
        )
        self._answers |= {"layer": self._answer_layer}

    def _choices(self, trait: str) -> tuple[str, ...] | None:
        """Name the layers of the audit."""
        rows = self._audit.rows
        return tuple(row.name for row in rows) if trait == "picked" else None

    @property
    def audit(self) -> LayerAudit:
        """The audit that is shown."""
        return self._audit

    def local(self, layer: str, call: int | None = None) -> Report:
        """Check one layer by itself: the report that a click on it opens.

        Parameters
        ----------
        layer
            Name of a row of the audit.
        call
            Which call of it; None takes the first that is wrong, else the first.

        Returns
        -------
        Report
            Its local Jacobian, outputs by inputs and parameters.

        Raises
        ------
        InputError
            If the audit was loaded from a file, or has no such layer, or the layer was
            not called.
        SubjectError
            If the layer cannot be run by itself.
        """
        known = self._local.get((layer, call))
        if known is None:
            # late and by name: it measures, and stands above all presentation
            look = importlib.import_module(
                "gradlab.pipeline.local_reports"
            ).local_report
            known = look(self._audit, layer, call=call)
            self._local[layer, call] = known
            for old in list(self._local)[:-_KEPT]:
                del self._local[old]
        return known

    def _answer_layer(self, message: dict[str, Any]) -> Answer:
        state, planes = pack_inner(self.local(message["name"], int(message["call"])))
        return {"page": state}, planes

    def __repr__(self) -> str:
        return audit_text(self._audit)
