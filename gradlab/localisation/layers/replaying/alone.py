"""One recorded call as something that can be called, and checked, by itself.

Also on less of its input: one sample shows a slip as well as a batch.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.recording.frames import parameters_handed_in
from gradlab.localisation.layers.recording.trees import fill, leaves
from gradlab.subject.tree import argument_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradlab.localisation.layers.recording.frames import Frame, Slot

__all__ = ["alone", "any_asked", "one_sample", "weighted_by_cotangents"]

_SMALL = 256  # entries of inputs that nobody needs to cut further
_CLOSE = 1e4  # units of round-off by which kernels of other shapes may differ


def alone(
    frame: Frame,
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, str] | None]:
    """Make a recorded call into a function, its inputs, and other names for those.

    Parameters
    ----------
    frame
        The call; its tensors are copied.

    Returns
    -------
    fn, inputs, names
        For `gradlab.subject.tensors.subjects.torch_subject`. Inputs through which a
        gradient had to pass require grad.
    """
    args, kwargs = fill(frame.template, _leaves(frame))
    if kwargs:
        return _bound(frame)
    if frame.kind == "function":
        return frame.target.apply, args, None
    return frame.target, args, None


def any_asked(inputs: tuple[Any, ...]) -> bool:
    """Whether a gradient is asked of any tensor among the inputs of a call.

    Examples
    --------
    >>> import torch
    >>> any_asked((torch.ones(2), 3.0)), any_asked((torch.ones(2).requires_grad_(),))
    (False, True)
    """
    import torch

    return any(tensor.requires_grad for tensor in leaves(inputs, torch.Tensor))


def _leaves(frame: Frame) -> list[Any]:
    """Copy the inputs; those by which the call is to be judged require grad.

    Not by parameters of a module that a Function gets as well: it finds them there, and
    a copy beside it moves nothing.
    """
    import torch

    modules = leaves(frame.template, torch.nn.Module)
    found = {id(p) for module in modules for p in module.parameters()}
    reached = {k for k, p in parameters_handed_in(frame).items() if id(p) in found}
    copies = [slot.value.detach().clone() for slot in frame.inputs]
    return [
        copy.requires_grad_() if slot.wanted and k not in reached else copy
        for k, (slot, copy) in enumerate(zip(frame.inputs, copies, strict=True))
    ]


def _bound(
    frame: Frame,
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, str] | None]:
    """Bind what is no tensor, keyword arguments above all, into a module of our own."""
    import torch

    target, template = frame.target, frame.template

    class Bound(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if frame.kind == "module":
                self.layer = target
                self.training = target.training  # train() would reach the layer

        def forward(self, *tensors: Any) -> Any:
            args, kwargs = fill(template, tensors)
            if frame.kind == "function":
                return target.apply(*args, **kwargs)
            return target(*args, **kwargs)

    Bound.__name__ = frame.type
    inputs = tuple(_leaves(frame))
    fn = Bound()
    chosen = {name: p for name, p in fn.named_parameters() if p.requires_grad}
    names = {name: name.removeprefix("layer.") for name in chosen}
    own = argument_names(target, len(template[0]))
    for k, (slot, leaf) in enumerate(zip(frame.inputs, inputs, strict=True)):
        if leaf.requires_grad:
            names[f"x{k}"] = _name(slot.label.removeprefix("input "), own)
    return fn, inputs, names if len(set(names.values())) == len(names) else None


def _name(label: str, own: list[str]) -> str:
    """Read "0" as the name of the first argument, and keep the names of keywords."""
    return own[int(label)] if label.isdigit() and int(label) < len(own) else label


def weighted_by_cotangents(frame: Frame) -> Callable[[Any], Any]:
    """Return what weights the outputs of a call with the gradients that arrived.

    The result is one real number, whose gradient is the vector-Jacobian product that
    the model really took.
    """
    import torch

    def weighted(result: Any) -> Any:
        total: Any = 0.0
        for output, weight in zip(
            leaves(result, torch.Tensor), frame.cotangents, strict=True
        ):
            if weight is not None:
                product = output * weight.to(output.dtype).conj()
                total = (
                    total + (product.real if product.is_complex() else product).sum()
                )
        return total

    return weighted


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
