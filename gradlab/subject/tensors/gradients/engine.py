"""Torch's backward engine, entered where nothing else is loaded on the way.

``torch.autograd.grad`` compares the shapes of cotangents with its symbolic shapes and
loads them, sympy included, as soon as it is given any: a quarter of a second, in which
a small check is over several times. Cotangents that are known to fit go to the engine
directly, in the way that function does it itself. Where a version of torch has no such
door, that function is called.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from gradlab.subject.tensors.batching.levels import (
    map_backward,
    map_forward,
    unannounced,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["run_backward"]


def run_backward(
    outputs: Sequence[Any],
    cotangents: Sequence[Any],
    leaves: Sequence[Any],
    *,
    keep: bool,
    batched: bool,
    at_once: bool = False,
) -> tuple[Any, ...]:
    """Gradients of some leaves, None for those that no path leads to.

    Parameters
    ----------
    outputs
        Tensors that require grad.
    cotangents
        One for each output: same shape, dtype and device; with a leading axis, the
        same for all, where `batched`.
    leaves
        What to differentiate by.
    keep
        Whether the graph may be run through again.
    batched
        Whether many cotangents go backwards together, by vmap.
    at_once
        Whether by the newer one of torch's two, whose answers are to be confirmed:
        see `map_backward`.

    Raises
    ------
    Exception
        Whatever a backward raises; batched, whatever vmap does not allow.

    Examples
    --------
    >>> import torch
    >>> x = torch.ones(2, requires_grad=True, device="cpu")
    >>> run_backward([3 * x], [torch.eye(2)], [x], keep=False, batched=True)[0]
    tensor([[3., 0.],
            [0., 3.]])
    """
    engine = _engine()
    if engine is None:
        return _publicly(outputs, cotangents, leaves, keep=keep, batched=batched)
    ends = tuple(outputs)
    found: tuple[Any, ...]

    def pull(seeds: tuple[Any, ...]) -> Any:
        return engine(
            ends,
            seeds,
            keep,
            False,
            tuple(leaves),
            allow_unreachable=True,
            accumulate_grad=False,
        )

    if not batched:
        found = pull(tuple(cotangents))
        return found
    with unannounced():
        if at_once:
            together = lambda *seeds: pull(seeds)  # noqa: E731 - as short as that
            return map_forward(together, cotangents, randomness="error")
        return map_backward(pull, cotangents)


@functools.cache
def _engine() -> Callable[..., Any] | None:
    """Find the engine that ``torch.autograd.grad`` enters, and try it; once."""
    try:
        from torch.autograd.graph import _engine_run_backward
    except ImportError:
        return None
    import torch

    x = torch.ones(2, requires_grad=True, device="cpu")
    try:  # its arguments are nobody's promise either
        with torch.enable_grad():
            y = 2 * x
        (found,) = map_backward(
            lambda rows: _engine_run_backward(
                (y,),
                rows,
                False,
                False,
                (x,),
                allow_unreachable=True,
                accumulate_grad=False,
            ),
            [torch.ones(3, 2, device="cpu")],
        )
        fits = found.shape == (3, 2) and bool((found == 2).all())
    except Exception:  # noqa: BLE001 - another version of torch: anything may come
        return None
    return _engine_run_backward if fits else None


def _publicly(
    outputs: Sequence[Any],
    cotangents: Sequence[Any],
    leaves: Sequence[Any],
    *,
    keep: bool,
    batched: bool,
) -> tuple[Any, ...]:
    import torch

    with unannounced() if batched else contextlib.nullcontext():
        found: tuple[Any, ...] = torch.autograd.grad(
            list(outputs),
            list(leaves),
            list(cotangents),
            retain_graph=keep,
            allow_unused=True,
            is_grads_batched=batched,
        )
    return found
