"""Rows of the table of an audit: one for each call, module never called, and hook."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.audited import LayerRow, LayerState
from gradlab.localisation.layers.flow import feeders
from gradlab.localisation.layers.recording.frames import (
    source_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradlab.localisation.layers.checking.call_outcome import CallOutcome
    from gradlab.localisation.layers.recording.frames import Frame
    from gradlab.localisation.layers.recording.hooks import HookedInput
    from gradlab.localisation.layers.recording.owners import Owners
    from gradlab.localisation.layers.recording.record import Recording
    from gradlab.localisation.layers.recording.recorder import Program

__all__ = ["hooked_row", "rows_of"]


def rows_of(
    program: Program,
    recording: Recording,
    outcomes: Mapping[int, CallOutcome],
    polluted: set[int],
    through: str,
) -> list[LayerRow]:
    """Make the rows of all calls, in their order, then of modules never called.

    Parameters
    ----------
    program, recording
        The model, and its calls.
    outcomes
        What was found of each call, by its number.
    polluted
        Numbers of the calls whose gradient comes through a wrong one.
    through
        The name of that.
    """
    frames = recording.all
    parents: dict[int, tuple[str, ...]] = {}
    for group in (recording.frames, *(frame.children for frame in frames)):
        parents |= feeders(group)
    rows = [
        _row(
            frame,
            _answered_for(frame, outcomes),
            program.owners,
            parents[frame.number],
            through=through if frame.number in polluted else "",
        )
        for frame in frames
    ]
    called = {id(frame.target) for frame in frames}
    within = {id(module): frame for frame in frames for module in frame.within}
    for name, module in program.module.named_modules():
        if id(module) not in called and not _is_mere_list(module):
            caller = within.get(id(module))
            rows.append(_never_called(program.owners, name, module, caller))
    return rows


def _row(
    frame: Frame,
    outcome: CallOutcome,
    owners: Owners,
    parents: tuple[str, ...],
    *,
    through: str,
) -> LayerRow:
    state, reason = outcome.state, outcome.reason
    if outcome.hook:
        reason = f"{outcome.hook} changes the gradient: {reason}"
    if state is LayerState.RIGHT and through:
        state = LayerState.CONTAMINATED
        reason = (
            f"right itself, but its gradient comes through `{through}`, which is wrong"
        )
    file, line = source_of(frame)
    measure = outcome.measure
    own = owners.by_module.get(id(frame.target), [])
    return LayerRow(
        name=frame.name,
        type=frame.type,
        call=frame.call,
        state=state,
        error=float("nan") if measure is None else measure.error,
        bar=float("nan") if measure is None else measure.relative_bar,
        piece="" if measure is None else measure.label,
        reason=reason,
        file=file,
        line=line,
        parameters=tuple(owners.name(parameter) for parameter in own),
        depth=frame.depth,
        children=tuple(dict.fromkeys(child.name for child in frame.children)),
        parents=parents,
        idle=outcome.empty,
    )


def _answered_for(frame: Frame, outcomes: Mapping[int, CallOutcome]) -> CallOutcome:
    """Let a module answer for the custom Functions that it calls itself."""
    outcome = outcomes[frame.number]
    if outcome.state is LayerState.WRONG:
        return outcome
    for child in frame.children:
        inner = outcomes[child.number]
        if child.kind == "function" and inner.state is LayerState.WRONG:
            reason = f"its custom Function `{child.type}` is wrong: {inner.reason}"
            return dataclasses.replace(inner, reason=reason)
    return outcome


def _never_called(
    owners: Owners, name: str, module: Any, caller: Frame | None
) -> LayerRow:
    """Make the row of a module that was not called, or inside a Function alone."""
    own = owners.by_module.get(id(module), [])
    reason, open_ = "was not called in this run", False
    if caller is not None:
        reason = f"was called inside the Function `{caller.type}` alone"
        left = {id(parameter) for parameter in owners.within(caller)}
        open_ = not caller.adds_up and any(id(parameter) in left for parameter in own)
    if open_:
        reason += (
            ", which is not given its parameters: gl.check compares their gradients"
        )
    return LayerRow(
        name=name,
        type=type(module).__name__,
        call=0,
        state=LayerState.UNCHECKED,
        error=float("nan"),
        bar=float("nan"),
        piece="",
        reason=reason,
        file="",
        line=0,
        parameters=tuple(owners.name(parameter) for parameter in own),
        depth=name.count(".") + 1,
        idle=not open_,
    )


def hooked_row(hooked: HookedInput) -> LayerRow:
    """Make the row of an input whose hook changes its gradient."""
    return LayerRow(
        name=hooked.label,
        type="Tensor",
        call=0,
        state=LayerState.WRONG,
        error=hooked.error,
        bar=0.0,
        piece=hooked.label,
        reason=f"the hook {hooked.hook} registered on it changes its gradient",
        file="",
        line=0,
        parameters=(),
        depth=0,
    )


def _is_mere_list(module: Any) -> bool:
    """Whether a module only holds others (``ModuleList``): it is never called."""
    import torch

    nn = torch.nn
    lists = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
    return isinstance(module, lists)
