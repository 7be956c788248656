"""What a layer audit hands back: one row per layer call, and who is to blame."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Any

from gradlab.comparison.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    import pandas as pd
    from matplotlib.axes import Axes

    from gradlab.diagnosis.finding import Finding
    from gradlab.presentation.plots import LayersDisplay
    from gradlab.presentation.widgets.layers import LayerBlame

__all__ = [
    "INTERRUPTED",
    "LayerAudit",
    "LayerLive",
    "LayerMistake",
    "LayerRow",
    "LayerState",
]

INTERRUPTED = "interrupted before it was looked at"  # reason of rows that are missing


class LayerState(enum.StrEnum):
    """What the audit of one piece found."""

    RIGHT = "right"  # its own VJP is its derivative
    WRONG = "wrong"  # its own VJP is not its derivative
    CONTAMINATED = "contaminated"  # right itself, fed a wrong gradient from later on
    UNCHECKED = "unchecked"  # not called, or not checkable; the reason says which


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LayerRow:
    """One call of one submodule, of one custom ``autograd.Function``, or of the loss.

    The row of a container is about its *own* code: what it does between and around
    the calls of its children, which have rows of their own.

    Parameters
    ----------
    name
        Qualified name ("blocks.7.act"); the class name for the root; "loss"; for a
        custom Function the name of the module that calls it, then a colon
        ("blocks.7.act:Swish").
    type
        Class name.
    call
        0, 1, ... for what is called several times.
    state, reason
        The answer, and one sentence for it: the measurement, or why there is none.
    error
        Worst relative error of its own VJP, from 0 (equal) to 1 (nothing in common);
        nan where it was not checked.
    bar
        Error bar of `error`; nan where it was not checked.
    piece
        The worst tensor: "input 0", "weight", "output of fc1".
    file, line
        Where the class's forward (of a Function: its backward) is defined; "" and 0
        if unknown.
    parameters
        Qualified names of its own parameters.
    depth
        Nesting depth; the root has 0.
    children
        Names of the rows directly inside.
    parents
        Names of the rows whose outputs feed this one.
    idle
        Of one that was not checked: there was nothing to check. It was not called, or
        has nothing to differentiate; what cannot be checked could still be wrong.
    """

    name: str
    type: str
    call: int
    state: LayerState
    error: float
    bar: float
    piece: str
    reason: str
    file: str
    line: int
    parameters: tuple[str, ...]
    depth: int
    children: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    idle: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class LayerMistake:
    """One layer that is wrong itself: the parts of the sentence about it.

    Parameters
    ----------
    layer
        Name of its row: "block:Swish" where the culprit is `block`, whose own code
        calls that Function.
    where
        Name of the culprit.
    statement
        That it is wrong, where it stands, and in which of its code.
    backward
        What its backward does; "" leaves that out.
    spoiled
        Which gradients are wrong for it; "" leaves that out.
    hook
        The hook without which it is right, in words; "" if it is the layer itself.
    cuts
        What cuts the graph in its forward: "detach (1x, net.py:41)".
    only_slopes
        Whether `backward` tells no more than two slopes along a random direction.
    """

    layer: str
    where: str
    statement: str
    backward: str
    spoiled: str
    hook: str = ""
    cuts: tuple[str, ...] = ()
    only_slopes: bool = False

    def sentence(self) -> str:
        """Put the parts together."""
        does = f": its backward {self.backward}" if self.backward else ""
        spoiled = f"; {self.spoiled}" if self.spoiled else ""
        told = f"{self.statement}{does}{spoiled}."
        if self.cuts:
            met = ", ".join(self.cuts)
            told += f" Its forward uses {met}, where no gradient passes."
        return told


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LayerLive:
    """What an audit was made of, to look into a layer again.

    Parameters
    ----------
    module, inputs, kwargs, loss, seed
        Arguments of `gradlab.blame`.
    mistakes
        What the findings on layers are made of, in their order.
    in_doubt
        Whether only Functions are wrong, and the gradient of the model roughly right.
    """

    module: Any
    inputs: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    loss: Callable[[Any], Any] | None
    seed: int
    mistakes: tuple[LayerMistake, ...] = ()
    in_doubt: bool = False


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LayerAudit:
    """Result of `gradlab.blame`.

    Parameters
    ----------
    rows
        One per call, in the order in which the calls began; what was never called
        comes last.
    culprits
        Names of the submodules (or "loss") that are wrong *themselves*, the root cause
        first: the one whose backward runs first, hence nearest to the loss, since what
        it hands on is the first wrong gradient. A custom Function names the module
        that calls it. A container is named only where its own code is wrong, after
        what is inside it.
    contaminated
        Names of parameters and inputs whose gradient is wrong only because a culprit
        lies between them and the loss.
    findings
        One per culprit, in the same order, then warnings.
    evaluations
        Calls of single pieces made, besides the one recorded run.
    seconds
        Wall-clock time.
    steps
        The same in training steps: forward and backward of all pieces one by one. In a
        small model, where Python takes longer than arithmetic, yours are shorter. nan
        where no piece could be run.
    live
        The model, for a closer look at single layers; None in a loaded audit.
    """

    rows: tuple[LayerRow, ...]
    culprits: tuple[str, ...]
    contaminated: tuple[str, ...]
    findings: tuple[Finding, ...]
    evaluations: int
    seconds: float
    steps: float
    live: LayerLive | None = dataclasses.field(default=None, repr=False)

    @property
    def ok(self) -> bool:
        """Whether no piece is wrong: no finding of severity "error"."""
        return all(finding.severity != "error" for finding in self.findings)

    @property
    def verdict(self) -> Verdict:
        """Undecided where a layer, or each, could not be checked and none is wrong.

        A layer that has nothing to differentiate, or was not called, leaves nothing
        open.
        """
        if not self.ok:
            return Verdict.DISAGREES
        unchecked = [row for row in self.rows if row.state == LayerState.UNCHECKED]
        blind = len(unchecked) == len(self.rows)
        left_open = blind or not all(row.idle for row in unchecked)
        return Verdict.UNDECIDED if left_open else Verdict.AGREES

    def __bool__(self) -> bool:
        """Whether every piece is right, for ``assert gl.blame(...)``; undecided is not.

        Examples
        --------
        >>> import torch
        >>> bool(gl.blame(torch.nn.Linear(2, 2), torch.ones(2)))
        True
        """
        return self.verdict == Verdict.AGREES

    @property
    def culprit(self) -> str | None:
        """The root cause, or None if nothing is wrong."""
        return self.culprits[0] if self.culprits else None

    @property
    def table(self) -> pd.DataFrame:
        """All rows, in the order of execution.

        Columns ``name, type, call, state, error, bar, piece, reason, file, line``;
        ``error`` is the worst relative error of the layer's own vector-Jacobian
        product, nan where it was not checked.
        """
        from gradlab.presentation.tables import layers_table

        return layers_table(self)

    def plot(self, ax: Axes | None = None) -> LayersDisplay:
        """Draw the layers with the guilty one lit.

        Parameters
        ----------
        ax
            Axes to draw into; default a new figure.
        """
        from gradlab.presentation.plots import LayersDisplay

        return LayersDisplay(self).plot(ax=ax)

    def explore(self) -> LayerBlame:
        """Open the live widget on this audit."""
        from gradlab.presentation.widgets.layers import LayerBlame

        return LayerBlame(self)

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """Return one self-contained page, and write it to `path` if given.

        Parameters
        ----------
        path
            Name of the file; default none is written.
        """
        from gradlab.presentation.html import page

        return page(self, path)

    # ------------------------------------------------------------- display
    def __repr__(self) -> str:
        from gradlab.presentation.layer_text import audit_text
        from gradlab.presentation.screens import printable, terminal

        return printable(audit_text(self, terminal()[0]))

    __str__ = __repr__

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from gradlab.presentation.html import mimebundle

        return mimebundle(self)
