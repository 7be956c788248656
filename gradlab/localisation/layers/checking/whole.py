"""A model whose calls are all right by themselves, checked with what is inside.

Every operation belongs to one call, and each call answers for what it takes and for the
parameters that it holds. A parameter that another call reads detached, a gradient taken
inside forward without its graph: those are nobody's, and show where the parameters of a
whole model move together. An output that a call returns detached, and that is read by
what comes after, is that call's: the backward never came there. Nobody's, again, are
calls that spoil what another one counts on: a gradient that a backward overwrites while
a second path still needs it, a value that a module keeps from the last of its calls, a
checkpoint that draws other random numbers when it runs again.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from gradlab.labels import few_of
from gradlab.localisation.layers.audited import LayerState
from gradlab.localisation.layers.checking.call_outcome import CallOutcome
from gradlab.localisation.layers.checking.in_half import wrong_in_half
from gradlab.localisation.layers.checking.kept import overwritten_since
from gradlab.localisation.layers.checking.scribbling import write_to_gradients
from gradlab.localisation.layers.recording.frames import walk
from gradlab.localisation.layers.recording.record import gradients_behind_cuts
from gradlab.localisation.layers.recording.trees import fill

if TYPE_CHECKING:
    from gradlab.localisation.layers.checking.check import Checker
    from gradlab.localisation.layers.recording.frames import Frame, Slot
    from gradlab.localisation.layers.recording.record import Recording
    from gradlab.localisation.layers.recording.recorder import Program

__all__ = ["can_disturb", "has_own_code", "wrong_together"]


_CUT = 0.85  # confidence that what is wrong only as a whole is cut somewhere
_LARGE = "its parameters are too large to be moved at once"
_UNKNOWN = 0.3  # where nothing is: no cause is known


def has_own_code(frames: list[Frame]) -> bool:
    """Whether any call of a module does more than hand values from layer to layer."""
    import torch

    return any(
        frame.kind == "module"
        and frame.children
        and type(frame.target) is not torch.nn.Sequential
        for frame in frames
    )


def can_disturb(frames: list[Frame]) -> bool:
    """Whether a call may spoil what another one counts on in its backward.

    Backwards of torch do not. One that somebody wrote may, and what a checkpoint runs
    again need not be what ran before. Where one runs layers that autograd does not see,
    their gradients come to them by another way, and no VJP has them.
    """
    if any(frame.within for frame in frames):
        return False
    return any(frame.kind == "function" or frame.packed for frame in frames)


def wrong_together(
    program: Program, recording: Recording, checker: Checker, *, cut: bool
) -> list[tuple[Frame, CallOutcome]]:
    """Find the innermost call that is wrong together with what is inside it.

    Or all that return a tensor cut off, which is used.

    Parameters
    ----------
    program, recording
        A model, of which all calls are right by themselves.
    checker
        That found them so.
    cut
        Whether something hands values on without their gradient.

    Returns
    -------
    list
        The call and what is wrong about it; the root and why it is open, where that
        cannot be told; nothing where the model as a whole is right, or leaves a padding
        row out of its gradient on purpose.
    """
    root = recording.frames[0]
    if any(_pads(frame) for frame in recording.all):
        return []
    if own := (
        write_to_gradients(program, recording)
        or wrong_in_half(program, recording, checker)
    ):
        return own
    _ask_the_loss(program, recording)
    found = _asked(root, checker, cut=cut)
    if found is None:
        return []
    if found.state is not LayerState.WRONG:
        return [(root, found)]
    if own := (
        _return_cut(program, recording, checker)
        or overwritten_since(program, recording, checker)
    ):
        return own
    inside = [frame for frame in walk(root.children) if frame.children]
    for frame in reversed(inside):  # a call comes before those that it makes
        deeper = _asked(frame, checker, cut=cut)
        if deeper is not None and deeper.state is LayerState.WRONG:
            return [(frame, deeper)]
    return [(root, found)]


def _return_cut(
    program: Program, recording: Recording, checker: Checker
) -> list[tuple[Frame, CallOutcome]]:
    """Find calls inside that are wrong in what they return without its graph."""
    called = [frame for frame in recording.all if frame.parent is not None]
    cut = {
        frame.number: places
        for frame in called
        if (places := [k for k, slot in enumerate(frame.outputs) if _is_lost(slot)])
    }
    if not cut:
        return []
    gradients = gradients_behind_cuts(program, cut)
    found = []
    for frame in called:
        brought = {k: g for (n, k), g in gradients.items() if n == frame.number}
        if not brought:
            continue
        arrived = frame.cotangents
        frame.cotangents = [brought.get(k) for k in range(len(frame.outputs))]
        outcome = checker.check(frame, sound=True)
        frame.cotangents = [brought.get(k, c) for k, c in enumerate(arrived)]
        if outcome.state is LayerState.WRONG and outcome.character is not None:
            told = few_of([frame.outputs[k].label for k in brought], 3)
            words = f"{outcome.character.words}: {told} is returned without its graph"
            character = dataclasses.replace(outcome.character, words=words)
            found.append((frame, dataclasses.replace(outcome, character=character)))
    return found


def _asked(frame: Frame, checker: Checker, *, cut: bool) -> CallOutcome | None:
    """Check a call with what is inside; a cut is what is wrong, where there is one.

    None where it is right, or calls nothing.
    """
    if not frame.children or frame.kind != "module":
        return None
    if not checker.can_be_whole(frame):
        return CallOutcome(LayerState.UNCHECKED, _LARGE)
    outcome = checker.together(frame)
    if outcome.state is LayerState.RIGHT:
        return None
    if outcome.state is not LayerState.WRONG:
        return outcome
    if outcome.character is None or outcome.hook:
        return outcome
    kind, confidence = ("detached", _CUT) if cut else ("unknown", _UNKNOWN)
    told = dataclasses.replace(outcome.character, kind=kind, confidence=confidence)
    return dataclasses.replace(outcome, character=told)


def _pads(frame: Frame) -> bool:
    import torch

    bags = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    return isinstance(frame.target, bags) and frame.target.padding_idx is not None


def _ask_the_loss(program: Program, recording: Recording) -> None:
    """Weigh the outputs that autograd does not reach by what the loss makes of them.

    The recorded backward brought them nothing, for they are detached.
    """
    import torch

    root, *after = recording.frames
    cut = [k for k, slot in enumerate(root.outputs) if _is_cut(slot)]
    if not cut or not after or program.loss is None:
        return
    after[0].entry.random.put_back()
    with torch.enable_grad():
        leaves = [slot.value.detach().clone() for slot in root.outputs]
        chosen = [leaves[k].requires_grad_() for k in cut]
        value: Any = program.loss(fill(root.result, leaves))
        if not value.requires_grad:
            return
        gradients = torch.autograd.grad(value.sum(), chosen, allow_unused=True)
    for k, gradient in zip(cut, gradients, strict=True):
        if gradient is not None and bool(gradient.isfinite().all() & gradient.any()):
            root.cotangents[k] = gradient


def _is_lost(slot: Slot) -> bool:
    """Whether an output has no graph, though gradients have to pass there."""
    return slot.wanted and slot.edge is None


def _is_cut(slot: Slot) -> bool:
    value = slot.value
    return slot.edge is None and (value.is_floating_point() or value.is_complex())
