"""Run a model once and note every call: inputs, outputs, and the gradient it got."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from gradlab.errors import InputError, InputTypeError, SubjectError
from gradlab.labels import tensor_wanted
from gradlab.localisation.layers.products import (
    all_finite,
    any_nonzero,
    refuses_grad,
    weighted_sums,
)
from gradlab.localisation.layers.recording.frames import Frame, walk
from gradlab.localisation.layers.recording.intercept import intercepting
from gradlab.localisation.layers.recording.recorder import Program, Recorder, Stale
from gradlab.localisation.layers.recording.scribbles import noting_scribbles
from gradlab.localisation.layers.recording.state import kept_attributes
from gradlab.localisation.layers.recording.trees import (
    fill,
    leaves,
    map_leaves,
    take_out,
)
from gradlab.subject.own_seeds import own_seed
from gradlab.subject.tensors.graph import graph_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "Recording",
    "calls_again",
    "gradients_behind_cuts",
    "loss_depends_on",
    "record",
    "run_again",
    "run_with_sums",
    "same_outputs",
]

_NUDGE = 1e-3  # relative size of the change that tells whether the loss depends on it
_DIGITS = 8.0  # last digits of a number, where these are more


@dataclasses.dataclass(slots=True, eq=False)
class Recording:
    """All calls of one run.

    Parameters
    ----------
    frames
        The root's frame, then the loss's where there is a loss.
    raised
        What the backward raised, in words; "" if nothing.
    """

    frames: list[Frame]
    raised: str = ""

    @property
    def all(self) -> list[Frame]:
        """Every frame, in the order in which the calls began."""
        return list(walk(self.frames))


def record(program: Program) -> Recording:
    """Run forward and backward once.

    The forward is run a second time, with copies made at the right moments, if the
    model overwrites tensors in place: only then is it known which.

    Returns
    -------
    Recording
        With a cotangent for every output that the backward reached.

    Raises
    ------
    InputError, InputTypeError
        If the loss is not a scalar tensor, or nobody can listen to the model's calls.
    SubjectError
        If the model or the loss raises.
    """
    recorder, output = _run(program)
    if not recorder.frames or recorder.frames[0].target is not program.module:
        raise InputError(
            f"{program.title} answers calls by a __call__ of its own, past "
            "torch.nn.Module.__call__, where an audit listens to its layers; compare "
            "the gradients of its parameters by gradlab.check"
        )
    recording = _backward(program, recorder, output)
    if program.attributes is not None:
        called = {id(frame.target) for frame in recording.all}
        aside = program.attributes.only(lambda module: id(module) not in called)
        for frame in recording.all:
            frame.aside = aside
    return recording


def run_again(program: Program) -> list[Frame]:
    """Run forward once more, and list its calls with their graph still whole."""
    return list(walk(_forward(program, set())[0].frames))


def run_with_sums(program: Program) -> tuple[list[Frame], list[Any]]:
    """Run forward once more: its calls, and the sums whose gradient is the VJP."""
    recorder, output = _forward(program, set())
    return list(walk(recorder.frames)), weighted_sums(*_weighted(program, output))


def calls_again(program: Program) -> list[Frame]:
    """Run forward once more, and list its calls."""
    with kept_attributes(program.module):
        recorder, _ = _run(program)
    return list(walk(recorder.frames))


def _run(program: Program) -> tuple[Recorder, Any]:
    """Run forward; again where tensors were overwritten that had only been noted."""
    recorder, output = _forward(program, set())
    stale = recorder.stale()
    return _forward(program, stale) if stale else (recorder, output)


def _forward(
    program: Program,
    stale: Stale,
    changes: Mapping[int, Callable[[Any], Any]] | None = None,
) -> tuple[Recorder, Any]:
    import torch

    recorder = Recorder(program, stale, changes or {})
    args, kwargs = own_inputs(program)
    program.begin()
    with torch.enable_grad(), intercepting(recorder):
        try:
            output = program.module(*args, **kwargs)
        except (InputError, InputTypeError):
            raise
        except Exception as error:
            raise SubjectError(
                f"{program.title} raised {type(error).__name__} when it was called "
                f"with the inputs of blame: {error}{tensor_wanted(error)}"
            ) from error
        if program.loss is not None:
            output = _loss_of(program, recorder, output)
    return recorder, output


def _loss_of(program: Program, recorder: Recorder, output: Any) -> Any:
    import torch

    assert program.loss is not None  # noqa: S101 - told to mypy, known to the caller
    try:
        value = recorder.loss_called(program.loss, output)
    except Exception as error:
        raise SubjectError(
            f"the loss raised {type(error).__name__} when it was called with the "
            f"model's output: {error}"
        ) from error
    if not isinstance(value, torch.Tensor):
        raise InputTypeError(
            f"the loss must return a tensor with one entry, got "
            f"{type(value).__name__}; return the tensor, without .item()"
        )
    if value.numel() != 1:
        raise InputError(
            f"the loss must be a scalar, got shape {tuple(value.shape)}; add .mean() "
            "or .sum(), or leave loss out to audit all outputs"
        )
    return value


def own_inputs(program: Program) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Copy the inputs, so that a model that overwrites them leaves the user's alone."""
    import torch

    template, tensors = take_out((program.args, dict(program.kwargs)), torch.Tensor)
    copies = []
    for tensor in tensors:
        if tensor.requires_grad:
            # A clone of the leaf, for only a leaf may not be changed in place.
            copies.append(tensor.detach().requires_grad_().clone())
        else:
            copies.append(tensor.detach().clone())
    args, kwargs = fill(template, copies)
    return args, kwargs


def _weighted(program: Program, output: Any) -> tuple[list[Any], list[Any]]:
    """Tensors to differentiate with their weights: 1 for a loss, else random."""
    import torch

    roots = [
        leaf
        for leaf in leaves(output, torch.Tensor)
        if leaf.is_floating_point() or leaf.is_complex()
    ]
    if not roots:
        raise InputTypeError(
            f"{program.title} returned {type(output).__name__} without any "
            "floating-point tensor: there is nothing to differentiate"
        )
    if program.loss is not None:
        return roots, [torch.ones_like(roots[0])]
    if any(root.is_nested for root in roots):
        raise InputTypeError(
            f"{program.title} returned a nested tensor, which has no one shape to "
            "draw weights of; give a loss that makes one number of it"
        )
    return roots, _random_weights(roots, program.seed)


def _random_weights(tensors: list[Any], seed: int) -> list[Any]:
    import torch

    generator = torch.Generator("cpu").manual_seed(own_seed(seed, "weights"))
    weights = []
    for tensor in tensors:
        weight = torch.randn(tensor.shape, generator=generator, **_drawn())
        weights.append(weight.to(device=tensor.device, dtype=tensor.dtype))
    return weights


def _backward(program: Program, recorder: Recorder, output: Any) -> Recording:
    import torch

    roots, weights = _weighted(program, output)
    frames = list(walk(recorder.frames))
    slots = [(f, k) for f in frames for k, s in enumerate(f.outputs) if s.edge]
    for frame in frames:
        frame.cotangents = [None] * len(frame.outputs)
        frame.input_cotangents = [None] * len(frame.inputs)
    sums, raised = weighted_sums(roots, weights), ""
    if sums and slots:
        gradients: Sequence[Any]
        # The code is the user's; the check of the call that raises tells of it.
        try:
            edges = [frame.outputs[k].edge for frame, k in slots]
            with noting_scribbles(frames) as behind:
                edges += behind
                gradients = torch.autograd.grad(sums, edges, allow_unused=True)
            gradients = gradients[: len(slots)]
        except Exception as error:  # noqa: BLE001 - whatever that code raises
            first = str(error).partition("\n")[0].partition("; expected")[0]
            if not refuses_grad(error):  # which training does not ask for
                raised = f"{type(error).__name__}: {first}"
            gradients = _any_gradients(program, slots, sums)
        for (frame, k), gradient in zip(slots, gradients, strict=True):
            frame.cotangents[k] = _meaningful(gradient)
    for frame in frames:
        for slot in (*frame.inputs, *frame.outputs):
            slot.source = None
    return Recording(recorder.frames, raised)


def _any_gradients(
    program: Program, slots: list[tuple[Frame, int]], sums: list[Any]
) -> list[Any]:
    """Make up what a backward that raised did not bring: random weights.

    Of all that it would have come to, so that every call is tried, with what it hands
    on to those inside it.
    """
    on_the_way = set(graph_nodes(total.grad_fn for total in sums))
    found = [frame.outputs[k] for frame, k in slots]
    weights = _random_weights([slot.value for slot in found], program.seed)
    return [
        weight if slot.edge.node in on_the_way else None
        for slot, weight in zip(found, weights, strict=True)
    ]


def _meaningful(gradient: Any) -> Any:
    """None for a gradient that is zero or not finite: it would hide every mistake."""
    if gradient is not None and gradient.is_nested:  # torch does not sum those
        return gradient.detach()
    if gradient is None or not any_nonzero(gradient):
        return None
    return gradient.detach() if all_finite(gradient) else None


def same_outputs(one: Frame, two: Frame) -> bool:
    """Whether two runs of one call returned the same, up to rounding."""
    import torch

    return len(one.outputs) == len(two.outputs) and all(
        a.value.shape == b.value.shape
        and torch.allclose(a.value, b.value, rtol=1e-5, equal_nan=True)
        for a, b in zip(one.outputs, two.outputs, strict=True)
    )


def loss_depends_on(program: Program, frame: Frame) -> bool:
    """Whether the loss moves when what a call returned, and hands back, is changed.

    A force is the gradient of an energy: such a loss depends on a backward alone.

    Parameters
    ----------
    program
        Is run twice.
    frame
        A call that got no gradient.
    """
    import torch

    root = frame.parent is None
    if frame.kind == "loss" or (root and program.loss is None):
        return True
    generator = torch.Generator("cpu").manual_seed(own_seed(program.seed, "nudges"))

    def shifted(tensor: Any) -> Any:
        if not (tensor.is_floating_point() or tensor.is_complex()):
            return tensor
        noise = torch.rand(tensor.shape, generator=generator, **_drawn())
        size = float(tensor.detach().abs().max()) if tensor.numel() else 0.0
        part = max(_NUDGE, _DIGITS * torch.finfo(tensor.dtype).eps) * (0.5 + noise)
        shift = (size or 1.0) * part
        own = (1.0 + part).to(tensor.device, tensor.dtype)
        return tensor * own + shift.to(tensor.device, tensor.dtype)

    def change(result: Any) -> Any:
        return map_leaves(result, torch.Tensor, shifted)

    values = []
    for changes in ({}, {frame.number: change}):
        with kept_attributes(program.module):
            output = _forward(program, set(), changes)[1]
        roots, weights = _weighted(program, output)
        values.append(
            sum(
                float((root.detach() * weight.conj()).sum().real)
                for root, weight in zip(roots, weights, strict=True)
            )
        )
    return values[0] != values[1]


def gradients_behind_cuts(
    program: Program, cut: Mapping[int, Sequence[int]]
) -> dict[tuple[int, int], Any]:
    """Pull back to outputs of calls that autograd does not reach, as if it did.

    The model runs once more, and what these calls return is a leaf to what comes after.

    Parameters
    ----------
    program
        A model.
    cut
        Of calls, by their numbers: which outputs.

    Returns
    -------
    dict
        Gradients by call and output, where there is one that is not zero.
    """
    import torch

    reached: dict[tuple[int, int], Any] = {}

    def freed_from(number: int) -> Callable[[Any], Any]:
        def change(result: Any) -> Any:
            template, tensors = take_out(result, torch.Tensor)
            for k in cut[number]:
                leaf = tensors[k].detach().requires_grad_()
                reached[number, k] = leaf
                tensors[k] = leaf.clone()  # which the model may overwrite
            return fill(template, tensors)

        return change

    changes = {number: freed_from(number) for number in cut}
    try:
        roots, weights = _weighted(program, _forward(program, set(), changes)[1])
        gradients = torch.autograd.grad(
            weighted_sums(roots, weights), list(reached.values()), allow_unused=True
        )
    except Exception:  # noqa: BLE001 - the user's code, of which too much is asked
        return {}
    found = zip(reached, map(_meaningful, gradients), strict=True)
    return {place: gradient for place, gradient in found if gradient is not None}


def _drawn() -> dict[str, Any]:
    """Draw on the CPU, whatever torch's default device is: there the generator is."""
    import torch

    return {"dtype": torch.float64, "device": "cpu"}
