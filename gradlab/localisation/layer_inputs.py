"""Hooks on the user's own input tensors: outside every module, and easily forgotten."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from gradlab.localisation.layer_trees import take_out

if TYPE_CHECKING:
    from gradlab.localisation.layer_recorder import Program

__all__ = ["HookedInput", "hooked_inputs"]


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

    from gradlab.localisation.layer_check import place_of_hook

    found = []
    tensors = take_out((program.args, dict(program.kwargs)), torch.Tensor)[1]
    for label, tensor in zip(labels, tensors, strict=True):
        hooks = tensor._backward_hooks  # noqa: SLF001 - there is no public list
        if not hooks or not tensor.requires_grad:
            continue
        generator = torch.Generator(device=tensor.device).manual_seed(program.seed)
        weight = torch.randn(
            tensor.shape, generator=generator, dtype=tensor.dtype, device=tensor.device
        )
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad((tensor * weight).sum(), tensor)
        if torch.equal(gradient, weight):
            continue
        error = float((gradient - weight).norm() / (gradient.norm() + weight.norm()))
        factor = _factor(gradient, weight)
        hook = place_of_hook(next(iter(hooks.values())))
        found.append(HookedInput(label, hook, error, factor))
    return found


def _factor(gradient: Any, weight: Any) -> float | None:
    factor = float((gradient * weight).sum() / (weight * weight).sum())
    apart = float((gradient - factor * weight).abs().max())
    return factor if apart <= 1e-5 * float(weight.abs().max()) else None
