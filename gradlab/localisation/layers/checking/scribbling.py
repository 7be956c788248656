"""Custom Functions whose backward writes to the gradient that it is given.

That gradient is not its own: a residual branch gets the same one, and that of a sum is
one number that stands for all entries. Run by itself, with a gradient of its own, such
a Function is right. In the model it is wrong if the gradients are other ones once it is
handed a copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.audited import LayerState
from gradlab.localisation.layers.checking.call_outcome import CallOutcome
from gradlab.localisation.layers.checking.kind import Character
from gradlab.localisation.layers.recording.record import run_with_sums
from gradlab.localisation.layers.recording.scribbles import node_of
from gradlab.localisation.layers.replaying.replay import Piece
from gradlab.subject.tensors.graph import graph_nodes

if TYPE_CHECKING:
    from gradlab.localisation.layers.recording.frames import Frame
    from gradlab.localisation.layers.recording.record import Recording
    from gradlab.localisation.layers.recording.recorder import Program

__all__ = ["write_to_gradients"]

_DIGITS = 1e4  # roundings, by which another order of summation may differ
_SURE = 0.99


def write_to_gradients(
    program: Program, recording: Recording
) -> list[tuple[Frame, CallOutcome]]:
    """Find Functions that spoil a gradient by writing to what they are given.

    Where one was seen to write, runs the model once more, and goes back once, and once
    for each that does.

    Parameters
    ----------
    program, recording
        A model, of which all calls are right by themselves.
    """
    calls = [frame for frame in recording.all if frame.scribbles]
    if not calls:
        return []
    try:
        return _found(program, calls)
    except Exception:  # noqa: BLE001 - the user's code, run as it has not been before
        return []


def _found(program: Program, calls: list[Frame]) -> list[tuple[Frame, CallOutcome]]:
    twins, sums = run_with_sums(program)
    nodes = {twin.number: node_of(twin) for twin in twins}
    leaves = [
        node.variable
        for node in graph_nodes(total.grad_fn for total in sums)
        if hasattr(node, "variable")
    ]
    as_is = _gradients(sums, leaves)
    found = []
    for frame in calls:
        if (node := nodes.get(frame.number)) is None:
            continue
        hook = node.register_prehook(_copies)
        try:
            copied = _gradients(sums, leaves)
        finally:
            hook.remove()
        if _differ(as_is, copied):
            found.append((frame, _outcome(program, frame)))
    return found


def _outcome(program: Program, frame: Frame) -> CallOutcome:
    words = (
        "writes to the gradient that it is given, which is not its own (another branch "
        "gets the same, or a sum hands one number to all entries): with a copy in its "
        "place, other gradients come out"
    )
    return CallOutcome(
        LayerState.WRONG,
        f"its backward {words}",
        wrong=Piece(frame, program.owners).variables(),
        character=Character("mutates_input", words, _SURE),
    )


def _copies(gradients: Any) -> tuple[Any, ...]:
    import torch

    plain = torch.contiguous_format  # one place in memory for each entry
    return tuple(None if g is None else g.clone(memory_format=plain) for g in gradients)


def _gradients(sums: list[Any], leaves: list[Any]) -> list[Any]:
    import torch

    return list(torch.autograd.grad(sums, leaves, retain_graph=True, allow_unused=True))


def _differ(one: list[Any], two: list[Any]) -> bool:
    """Whether any gradient is another one, by more than another order of summation."""
    import torch

    for a, b in zip(one, two, strict=True):
        if a is None or b is None:
            if (a is None) is not (b is None):
                return True
            continue
        size = float(b.abs().max()) if b.numel() else 0.0
        apart = float((a - b).abs().max()) if b.numel() else 0.0
        if not apart <= _DIGITS * torch.finfo(b.dtype).eps * size:
            return True
    return False
