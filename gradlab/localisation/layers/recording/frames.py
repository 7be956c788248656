"""One call inside a model: what went in, what came out, what it called itself."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.localisation.layers.recording.state import (
        Attributes,
        Entry,
        RandomState,
    )

__all__ = [
    "Frame",
    "Slot",
    "dissolve",
    "may_use_others",
    "owner_name",
    "parameters_handed_in",
    "same_target",
    "source_of",
    "walk",
]


@dataclasses.dataclass(slots=True, eq=False)
class Slot:
    """One tensor that crossed the border of a call.

    Parameters
    ----------
    value
        The tensor without history; the very memory that the model used, unless that
        was overwritten later, in which case it is a copy from the right moment.
    edge
        Where it hung in the graph (``torch.autograd.graph.GradientEdge``) or None.
    wanted
        Whether gradients have to pass here: it required grad, or depends on something
        that does, through code that does not record.
    version
        Version counter at that moment.
    source
        The tensor itself; only while recording.
    parameter
        Whether it is a parameter just as it is registered, without a hook: handing it
        on cannot be wrong.
    """

    label: str
    value: Any
    edge: Any
    wanted: bool
    version: int
    source: Any = None
    parameter: bool = False


@dataclasses.dataclass(slots=True, eq=False)
class Frame:
    """One call of a module, of a custom Function, or of the loss.

    Parameters
    ----------
    number
        Position in the order in which calls began.
    kind, target, name, type, call
        What was called, and what it is called in reports.
    template
        (args, kwargs) with holes for `inputs`.
    result
        What was returned, with holes for `outputs`.
    overwritten
        Positions of inputs that the call changed in place.
    aliases
        ``aliases[k] = i`` where output k is the very object that was input i.
    entry, exit_random
        State on entry (random, attributes, buffers), and random state on return.
    cotangents
        Gradient that arrived at each output in the recorded backward, or None.
    input_cotangents
        Gradient that the call handed on to each input: filled in by its own check.
    within
        Modules that a custom Function calls, which are part of it.
    adds_up
        Whether its backward adds to the ``.grad`` of their parameters, as that of a
        reversible block does; None before it was run.
    """

    number: int
    kind: Literal["module", "function", "loss"]
    target: Any
    name: str
    type: str
    call: int
    template: Any
    inputs: list[Slot]
    entry: Entry
    parent: Frame | None
    autocast: Any = None  # the dtype that torch casts to meanwhile, if it does
    packed: bool = False  # whether hooks kept what it saves: a checkpoint runs it again
    began: int = 0  # how many nodes of graphs there were when the run began
    aside: Attributes | None = None  # what the run left in modules that it did not call
    result: Any = None
    outputs: list[Slot] = dataclasses.field(default_factory=list)
    overwritten: frozenset[int] = frozenset()
    aliases: dict[int, int] = dataclasses.field(default_factory=dict)
    exit_random: RandomState | None = None
    children: list[Frame] = dataclasses.field(default_factory=list)
    cotangents: list[Any] = dataclasses.field(default_factory=list)
    input_cotangents: list[Any] = dataclasses.field(default_factory=list)
    within: list[Any] = dataclasses.field(default_factory=list)
    scribbles: bool = False  # whether its backward writes to the gradient it is given
    adds_up: bool | None = None

    @property
    def depth(self) -> int:
        """Nesting depth; 0 for the root and the loss."""
        return 0 if self.parent is None else self.parent.depth + 1

    @property
    def reached(self) -> bool:
        """Whether the recorded backward brought a gradient to any output."""
        return any(cotangent is not None for cotangent in self.cotangents)

    @property
    def low(self) -> bool:
        """Whether it, or a call that it makes, computes in less than double."""
        import torch

        low = {torch.float32, torch.float16, torch.bfloat16, torch.complex64}
        handed = [slot for child in self.children for slot in child.outputs]
        slots = (*self.inputs, *self.outputs, *handed)
        return any(slot.value.dtype in low for slot in slots)

    @property
    def unfit(self) -> str:
        """Why it cannot be run by itself at moved inputs; "" if nothing speaks against.

        Of nested tensors torch has neither sums nor a comparison, entry by entry.
        """
        slots = (*self.inputs, *self.outputs)
        unfit = any(slot.value.is_nested for slot in slots)
        return "takes or returns nested tensors (torch.nested)" if unfit else ""

    @property
    def unasked(self) -> list[int]:
        """Positions of inputs of floating point that the model asks no gradient of.

        Dense ones: the gradient of a sparse matrix, as that of a graph, is sparse, too,
        and what handed it on is not weighted with such.
        """
        import torch

        return [
            k
            for k, slot in enumerate(self.inputs)
            if not slot.wanted and self.parent is not None
            if slot.value.is_floating_point() or slot.value.is_complex()
            if slot.value.layout is torch.strided
        ]

    @property
    def title(self) -> str:
        """Name, with the call where there are several, as written in sentences."""
        return f"`{self.name}`" + (f" (call {self.call})" if self.call else "")


def walk(frames: list[Frame]) -> Iterator[Frame]:
    """Yield frames and all below, in the order in which the calls began."""
    for frame in frames:
        yield frame
        yield from walk(frame.children)


def dissolve(frame: Frame) -> None:
    """Cut the run that a call belongs to into single calls, which go when they may.

    Parents and children keep each other alive, and with them every tensor of the run.
    """
    while frame.parent is not None:
        frame = frame.parent
    for call in list(walk([frame])):
        call.parent, call.children = None, []


def parameters_handed_in(frame: Frame) -> dict[int, Any]:
    """Find the parameters that a custom Function gets, by position of the input.

    It may reach the same ones through a module that it gets as well: the adjoint of an
    integrator gets both, and its gradient is that by either way.
    """
    if frame.kind != "function":
        return {}
    return {
        k: slot.edge.node.variable
        for k, slot in enumerate(frame.inputs)
        if slot.parameter and slot.edge is not None
    }


def same_target(one: Any, two: Any) -> bool:
    """Whether two calls are of the same thing; a Function may be made for each call."""
    if one is two:
        return True
    codes = [
        [getattr(getattr(each, name, None), "__code__", None) for each in (one, two)]
        for name in ("forward", "backward")
    ]
    made = isinstance(one, type) and isinstance(two, type)
    return made and all(a is b is not None for a, b in codes)


def owner_name(frame: Frame) -> str:
    """Name of the module that answers for a call: a Function's caller, else its own."""
    while frame.kind == "function" and frame.parent is not None:
        frame = frame.parent
    return frame.name


def source_of(frame: Frame) -> tuple[str, int]:
    """File and line of the class's forward, or of the Function's backward.

    Where the forward is inherited from torch's base classes, or compiled, the class
    itself; ("", 0) if Python does not know.
    """
    try:
        if frame.kind == "function":
            wanted: Any = getattr(frame.target, "backward", frame.target)
        elif frame.kind == "module":
            wanted = type(frame.target).forward
        elif inspect.isroutine(frame.target):
            wanted = frame.target
        else:
            kind: Any = type(frame.target)
            wanted = getattr(kind, "forward", kind.__call__)
        code = inspect.unwrap(wanted).__code__
    except AttributeError:  # compiled, or written in C
        return "", 0
    return str(code.co_filename), int(code.co_firstlineno)


def may_use_others(frame: Frame) -> bool:
    """Whether own code of a call can reach parameters registered in other modules."""
    if frame.kind == "module":
        return next(frame.target.children(), None) is not None
    return frame.kind == "loss"
