"""Functions that write to what they are given behind the back of autograd.

``scratch.data[k] = value`` counts for no version, so that nobody knows of it. What such
a Function was given is not what it was recorded with, and its output is the very memory
that the next call writes to: by itself it cannot be run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradlab.localisation.layers.recording.intercept import call_function
from gradlab.localisation.layers.recording.trees import fill
from gradlab.localisation.layers.replaying.elsewhere import run_elsewhere

if TYPE_CHECKING:
    from gradlab.localisation.layers.replaying.replay import Piece

__all__ = ["writes_unseen"]


def writes_unseen(piece: Piece) -> bool:
    """Whether a custom Function changes an input without its version; one evaluation.

    Only one that returns memory which it was given is asked, with other values there.
    """
    import torch

    frame = piece.frame
    if frame.kind != "function":
        return False
    returned = {slot.value.untyped_storage().data_ptr() for slot in frame.outputs}
    shared = [
        k
        for k, slot in enumerate(frame.inputs)
        if slot.value.untyped_storage().data_ptr() in returned
    ]
    if not shared:
        return False
    inputs = [slot.value.detach().clone() for slot in frame.inputs]
    for k in shared:
        inputs[k] = inputs[k] + 1
    before = {k: (inputs[k].clone(), inputs[k]._version) for k in shared}  # noqa: SLF001 - torch's only mark of a change
    piece.evaluations += 1
    args, kwargs = fill(frame.template, inputs)
    with torch.no_grad():
        run_elsewhere(lambda: call_function(frame.target, args, kwargs))
    return any(
        inputs[k]._version == version and not torch.equal(inputs[k], value)  # noqa: SLF001 - the same
        for k, (value, version) in before.items()
    )
