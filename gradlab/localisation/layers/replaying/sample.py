"""The same call on less of its input: one sample shows a slip as well as a batch."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.recording.trees import leaves
from gradlab.localisation.layers.replaying.alone import alone

if TYPE_CHECKING:
    from gradlab.localisation.layers.recording.frames import Frame, Slot

__all__ = ["one_sample"]

_SMALL = 256  # entries of inputs that nobody needs to cut further
_CLOSE = 1e4  # units of round-off by which kernels of other shapes may differ


def one_sample(frame: Frame) -> Frame | None:
    """Cut a call down to its first sample, where that gives the same outputs.

    Along each axis but the last, in turn, as long as the inputs are large.

    Parameters
    ----------
    frame
        A call whose state on entry holds now; it is called again.

    Returns
    -------
    Frame or None
        None where samples are not independent, or everything is small already.
    """
    if not frame.outputs or not frame.outputs[0].value.is_floating_point():
        return None
    found, shape = frame, frame.outputs[0].value.shape
    for axis, length in enumerate(shape[:-1]):
        if _entries(found) <= _SMALL:
            break
        if length < 2:
            continue
        for first in (False, True):  # all that is as long, or the first input alone
            cut = _cut(found, axis, length, first=first)
            if cut is not None and _gives_the_same(cut):
                found = cut
                break
    return None if found is frame else found


def _entries(frame: Frame) -> int:
    return sum(slot.value.numel() for slot in frame.inputs if slot.wanted)


def _cut(frame: Frame, axis: int, length: int, *, first: bool) -> Frame | None:
    def short(value: Any) -> bool:
        return bool(value.dim() > axis and value.shape[axis] == length)

    def cut(slot: Slot) -> Slot:
        return dataclasses.replace(slot, value=slot.value.narrow(axis, 0, 1))

    some = [
        short(slot.value) and (k == 0 or not first)
        for k, slot in enumerate(frame.inputs)
    ]
    if not any(some) or not all(short(slot.value) for slot in frame.outputs):
        return None
    return dataclasses.replace(
        frame,
        inputs=[
            cut(slot) if chosen else slot
            for slot, chosen in zip(frame.inputs, some, strict=True)
        ],
        outputs=[cut(slot) for slot in frame.outputs],
        cotangents=[
            None if weight is None else weight.narrow(axis, 0, 1)
            for weight in frame.cotangents
        ],
    )


def _gives_the_same(frame: Frame) -> bool:
    """Whether the call returns what it returned for these samples among others."""
    import torch

    fn, inputs, _ = alone(frame)
    try:
        with torch.no_grad():
            outputs = leaves(fn(*inputs), torch.Tensor)
    except Exception:  # noqa: BLE001 - the user's code may want them all
        return False
    finally:
        frame.entry.random.put_back()
    if len(outputs) != len(frame.outputs):
        return False
    return all(
        output.shape == slot.value.shape and _close(output, slot.value)
        for output, slot in zip(outputs, frame.outputs, strict=True)
    )


def _close(output: Any, value: Any) -> bool:
    import torch

    if not value.is_floating_point():
        return bool(torch.equal(output, value))
    slack = _CLOSE * torch.finfo(value.dtype).eps
    size = float(value.abs().max()) if value.numel() else 0.0
    return bool(torch.allclose(output, value, rtol=slack, atol=slack * size))
