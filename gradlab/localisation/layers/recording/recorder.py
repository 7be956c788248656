"""The interceptor that takes notes: one frame for every call of a run."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.recording.frames import Frame, Slot, walk
from gradlab.localisation.layers.recording.hooks import hooks_of
from gradlab.localisation.layers.recording.intercept import call_function, call_module
from gradlab.localisation.layers.recording.owners import Owners
from gradlab.localisation.layers.recording.state import (
    Attributes,
    entry_of,
    random_now,
)
from gradlab.localisation.layers.recording.trees import Hole, leaves, take_out
from gradlab.subject.tensors.calling.freed import freed
from gradlab.subject.tensors.graph import nodes_so_far

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gradlab.localisation.layers.audited import LayerLive
    from gradlab.localisation.layers.recording.state import RandomState
    from gradlab.subject.guarding.random_state import SavedRandom

__all__ = ["Program", "Recorder", "Stale"]

# Which tensors have to be copied at once, because the model overwrites them later:
# (number of the call, "input" or "output", position).
Stale = set[tuple[int, str, int]]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Program:
    """What is audited: a model at one point, and the loss that is differentiated.

    Parameters
    ----------
    module, args, kwargs
        The model and what it is called with; tensors are the user's.
    loss
        Callable from the model's output to a scalar; None stands for a fixed random
        weight per output entry.
    start
        Random state in which every run begins.
    seed
        Seed of the weights.
    owners
        Where the model's parameters are registered.
    known_wrong
        Whether a check has found gradients of the model wrong already.
    attributes
        Of all modules, as every run finds them; None where a layer is put into the
        state of its call.
    """

    module: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    loss: Callable[[Any], Any] | None
    start: RandomState
    seed: int
    owners: Owners
    known_wrong: bool = False
    attributes: Attributes | None = None

    @classmethod
    def of(cls, live: LayerLive, generators: Sequence[SavedRandom]) -> Program:
        """Make what is audited of the arguments of `gradlab.blame`.

        With the random generators of their own.
        """
        module, loss = live.module, live.loss
        start, owners = random_now(generators=generators), Owners(module)
        return cls(
            module,
            live.inputs,
            live.kwargs,
            loss,
            start,
            live.seed,
            owners,
            attributes=Attributes(module),
        )

    def begin(self) -> None:
        """Put back what a run before has drawn and what its modules remember of it."""
        self.start.put_back()
        if self.attributes is not None:
            self.attributes.put_back()

    @property
    def title(self) -> str:
        """Name of the root in rows and sentences."""
        return type(self.module).__name__


class Recorder:
    """Interceptor that lets everything happen and takes notes.

    Parameters
    ----------
    program
        What is run.
    stale
        Tensors to copy at once.
    changes
        What to do to the results of calls, by their numbers.
    """

    backward = False  # the recorded backward runs after the notes are taken

    def __init__(
        self,
        program: Program,
        stale: Stale,
        changes: Mapping[int, Callable[[Any], Any]],
    ) -> None:
        import torch

        self._names = {
            id(module): name or program.title
            for name, module in program.module.named_modules()
        }
        self._trainable = {
            id(module)
            for module in program.module.modules()
            if any(parameter.requires_grad for parameter in module.parameters())
        }
        self._parameters = program.owners.names
        self._is_piece = program.owners.is_piece
        self._tensor = torch.Tensor
        self._stale = stale
        self._changes = changes
        self._stack: list[Frame] = []
        self._calls: dict[str, int] = {}
        self._copies: dict[int, tuple[Any, int, Any]] = {}
        self._live: set[int] = set()  # tensors that should carry a gradient, and do not
        self._random = program.start
        self._began = nodes_so_far()
        self.frames: list[Frame] = []
        self.count = 0

    # ------------------------------------------------------------- Interceptor
    def module_called(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Note the call of a module of the model; let all others pass."""
        name = self._names.get(id(module))
        if name is not None and self._inside_function():
            self._stack[-1].within.append(module)
            return call_module(module, args, kwargs)
        if name is None or not self._is_piece(module):
            return call_module(module, args, kwargs)
        return self._note("module", module, name, args, kwargs)

    def function_applied(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Note the application of a custom Function, if the model does it."""
        if self._inside_function() or not self._stack:
            return call_function(function, args, kwargs)
        name = f"{self._stack[-1].name}:{function.__name__}"
        return self._note("function", function, name, args, kwargs)

    def loss_called(self, loss: Callable[[Any], Any], output: Any) -> Any:
        """Call the loss as a piece of its own."""
        return self._note("loss", loss, "loss", (output,), {})

    # ------------------------------------------------------------- notes
    def _inside_function(self) -> bool:
        return bool(self._stack) and self._stack[-1].kind == "function"

    def _note(
        self,
        kind: Any,
        target: Any,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        frame = self._open(kind, target, name, args, kwargs)
        self._stack.append(frame)
        try:
            if kind == "module":
                result = call_module(target, args, kwargs)
            elif kind == "function":
                result = call_function(target, args, kwargs)
            else:
                result = target(*args)
        finally:
            self._stack.pop()
        if frame.number in self._changes:
            result = self._changes[frame.number](result)
        self._close(frame, result)
        return result

    def _open(
        self,
        kind: Any,
        target: Any,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Frame:
        import torch

        number, self.count = self.count, self.count + 1
        call = self._calls.get(name, 0)
        self._calls[name] = call + 1
        template, tensors = take_out((args, kwargs), self._tensor)
        parent = self._stack[-1] if self._stack else None
        self._random = random_now(self._random)
        labels = _input_labels(template, len(tensors))
        # Under no_grad nothing requires grad any more, but what was computed from
        # parameters a line before still should.
        lost = not torch.is_grad_enabled() and any(
            slot.wanted and slot.edge is None
            for sibling in (parent.children if parent else [])
            for slot in sibling.outputs
        )
        inputs = [
            self._slot(tensor, labels[k], (number, "input", k), lost=lost)
            for k, tensor in enumerate(tensors)
        ]
        frame = Frame(
            number=number,
            kind=kind,
            target=target,
            name=name,
            type=_type_name(kind, target),
            call=call,
            template=template,
            inputs=inputs,
            entry=entry_of(target, self._random, self._copies),
            parent=parent,
            autocast=_autocast_of(tensors),
            packed=_are_packed(),
            began=self._began,
        )
        (parent.children if parent else self.frames).append(frame)
        return frame

    def _close(self, frame: Frame, result: Any) -> None:
        number = frame.number
        frame.result, tensors = take_out(result, self._tensor)
        wanted = any(slot.wanted for slot in frame.inputs) or (
            id(frame.target) in self._trainable
        )
        many = len(tensors) > 1
        frame.outputs = [
            self._slot(
                tensor,
                f"output {k}" if many else "output",
                (number, "output", k),
                lost=wanted,
            )
            for k, tensor in enumerate(tensors)
        ]
        self._live |= {id(slot.source) for slot in frame.outputs if slot.wanted}
        frame.overwritten = frozenset(
            k for k, slot in enumerate(frame.inputs) if _changed(slot)
        )
        places = {id(slot.source): k for k, slot in enumerate(frame.inputs)}
        frame.aliases = {
            k: places[id(slot.source)]
            for k, slot in enumerate(frame.outputs)
            if id(slot.source) in places
        }
        self._random = random_now(self._random)
        frame.exit_random = self._random

    def _slot(
        self, tensor: Any, label: str, key: tuple[int, str, int], *, lost: bool
    ) -> Slot:
        import torch

        differentiable = tensor.is_floating_point() or tensor.is_complex()
        edge = None
        if tensor.requires_grad:
            edge = torch.autograd.graph.get_gradient_edge(tensor)
        value = tensor.detach()
        return Slot(
            label=label,
            value=value.clone() if key in self._stale else value,
            edge=edge,
            wanted=differentiable
            and (tensor.requires_grad or lost or id(tensor) in self._live),
            version=_version(tensor),
            source=tensor,
            parameter=id(tensor) in self._parameters
            and torch.is_grad_enabled()
            and not hooks_of(tensor),
        )

    def stale(self) -> Stale:
        """Name the tensors that were overwritten after they had been noted."""
        found: Stale = set()
        for frame in walk(self.frames):
            for side, slots in (("input", frame.inputs), ("output", frame.outputs)):
                found |= {
                    (frame.number, side, k)
                    for k, slot in enumerate(slots)
                    if _changed(slot)
                }
        return found


def _changed(slot: Slot) -> bool:
    """Whether a tensor that was noted has been written to since, or freed."""
    return _version(slot.source) != slot.version or freed(slot.source)


def _version(tensor: Any) -> int:
    return 0 if tensor.is_inference() else int(tensor._version)  # noqa: SLF001


def _type_name(kind: str, target: Any) -> str:
    if kind == "module":
        return type(target).__name__
    name = getattr(target, "__name__", type(target).__name__)
    return "lambda" if name == "<lambda>" else str(name)


def _input_labels(template: Any, count: int) -> list[str]:
    """Name inputs: "input 0" for positions, "input mask" for keywords."""
    args, kwargs = template
    labels = [f"input {k}" for k in range(count)]
    for key, argument in [*enumerate(args), *kwargs.items()]:
        holes = leaves(argument, Hole)
        for k, hole in enumerate(holes):
            within = f".{k}" if len(holes) > 1 else ""
            labels[hole.index] = f"input {key}{within}"
    return labels


def _autocast_of(tensors: Sequence[Any]) -> Any:
    """Return the dtype that autocast computes in where they are, if it is on."""
    import torch

    kind = tensors[0].device.type if tensors else "cpu"
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def _are_packed() -> bool:
    """Whether hooks are in force for saved tensors, as inside a checkpoint."""
    import torch

    top: Any = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)  # noqa: SLF001
    return top is not None and top(True) is not None
