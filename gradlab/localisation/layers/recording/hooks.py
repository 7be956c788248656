"""Hooks on tensors, parameters and inputs: outside every forward, easily forgotten."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.products import gradients, inner
from gradlab.localisation.layers.recording.trees import take_out
from gradlab.subject.own_seeds import own_seed
from gradlab.tracebacks import code_place

if TYPE_CHECKING:
    from gradlab.localisation.layers.recording.recorder import Program

__all__ = [
    "HookedInput",
    "changes_gradient",
    "hooked_inputs",
    "hooks_of",
    "place_of_hook",
    "share_hooks",
]


def hooks_of(tensor: Any) -> list[Any]:
    """List the hooks that a tensor's gradient passes through."""
    # There is no public list.
    return list((tensor._backward_hooks or {}).values())  # noqa: SLF001


def share_hooks(tensor: Any, copy: Any) -> None:
    """Let the gradient of a copy pass through the same hooks."""
    for hook in hooks_of(tensor):
        copy.register_hook(hook)


def place_of_hook(hook: object) -> str:
    """Give the name of a hook, with file and line where Python knows them."""
    code = getattr(getattr(hook, "__func__", hook), "__code__", None)
    name = getattr(hook, "__qualname__", type(hook).__name__).split(".")[-1]
    if code is None:
        return f"`{name}`"
    return f"`{name}` ({code_place(code.co_filename, code.co_firstlineno)})"


@dataclasses.dataclass(frozen=True, slots=True)
class HookedInput:
    """An input whose hook changes its gradient.

    Parameters
    ----------
    label
        "input 0".
    hook
        The hook in words.
    error
        Relative error it makes of the gradient, from 0 to 1.
    factor
        The constant factor it applies; None if it is none.
    """

    label: str
    hook: str
    error: float
    factor: float | None


def hooked_inputs(program: Program, labels: list[str]) -> list[HookedInput]:
    """Send a gradient through each input that has hooks, and see what comes out.

    Parameters
    ----------
    program
        Its inputs are the user's own tensors.
    labels
        Names of the input tensors, in order.
    """
    import torch

    found = []
    tensors = take_out((program.args, dict(program.kwargs)), torch.Tensor)[1]
    for label, tensor in zip(labels, tensors, strict=True):
        if not changes_gradient(tensor, program.seed):
            continue
        weight, gradient = _through(tensor, program.seed)
        error = float((gradient - weight).norm() / (gradient.norm() + weight.norm()))
        hook = place_of_hook(hooks_of(tensor)[0])
        found.append(HookedInput(label, hook, error, _factor(gradient, weight)))
    return found


def changes_gradient(tensor: Any, seed: int) -> bool:
    """Whether the hooks of a tensor change a random gradient that they are given."""
    import torch

    if not tensor.requires_grad or not hooks_of(tensor):
        return False
    return not torch.equal(*_through(tensor, seed))


def _through(tensor: Any, seed: int) -> tuple[Any, Any]:
    """Send a random gradient through a tensor's hooks: what goes in, what comes out."""
    import torch

    generator = torch.Generator(device=tensor.device)
    generator.manual_seed(own_seed(seed, "hooks"))
    weight = torch.randn(
        tensor.shape, generator=generator, dtype=tensor.dtype, device=tensor.device
    )
    with torch.enable_grad():
        (gradient,) = gradients([tensor], [weight], [tensor])
    return weight, gradient


def _factor(gradient: Any, weight: Any) -> float | None:
    factor = inner(gradient, weight) / inner(weight, weight)
    apart = float((gradient - factor * weight).abs().max())
    return factor if apart <= 1e-5 * float(weight.abs().max()) else None
