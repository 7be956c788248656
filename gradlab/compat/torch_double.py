"""Second order: the gradient of a function, as a function to be checked itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.compat.torch_machinery import is_tensor, machinery, random_like, selector
from gradlab.compat.torch_report import Told
from gradlab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["gradient_function"]


def gradient_function(
    func: Callable[..., Any], inputs: Any, grad_outputs: Any, *, non_contiguous: bool
) -> tuple[Callable[..., tuple[Any, ...]], tuple[Any, ...], Told]:
    """Build ``(inputs..., grad_outputs...) -> gradients``, its point and its names.

    Parameters
    ----------
    func, inputs
        As in gradcheck.
    grad_outputs
        Cotangents, or None to draw them.
    non_contiguous
        Whether those drawn are non-contiguous.

    Raises
    ------
    InputError
        If no output requires grad.
    """
    gc = machinery()
    point = gc._as_tuple(inputs)  # noqa: SLF001
    chosen, _, _ = selector(func, func(*point))
    outputs = gc._differentiable_outputs(chosen(*point))  # noqa: SLF001
    # forward mode is fed detached inputs, so what requires grad is noted now
    wanted = {i for i, x in enumerate(point) if is_tensor(x) and x.requires_grad}
    if wanted and not outputs:  # torch: a TypeError about missing arguments
        msg = (
            "gradgradcheck expects at least one output that requires grad, got none: "
            "there is no gradient to differentiate"
        )
        raise InputError(msg)
    if grad_outputs is None:
        seeds = tuple(random_like(o, non_contiguous=non_contiguous) for o in outputs)
    else:
        seeds = gc._as_tuple(grad_outputs)  # noqa: SLF001
    count = len(seeds)
    wanted_seeds = {i for i, x in enumerate(seeds) if x.requires_grad}

    def pulled(*arguments: Any) -> tuple[Any, ...]:
        split = len(arguments) - count
        here = tuple(
            x.requires_grad_() if i in wanted else x
            for i, x in enumerate(arguments[:split])
        )
        outputs = gc._differentiable_outputs(chosen(*here))  # noqa: SLF001
        cotangents = tuple(
            x.requires_grad_() if i in wanted_seeds else x
            for i, x in enumerate(arguments[split:])
        )
        gradients = gc.torch.autograd.grad(
            outputs,
            tuple(here[i] for i in sorted(wanted)),
            cotangents,
            create_graph=True,
            allow_unused=True,  # such a gradient is None, and left out
        )
        return tuple(g for g in gradients if g is not None)

    return pulled, point + seeds, Told.second_order(func, len(point), count)
