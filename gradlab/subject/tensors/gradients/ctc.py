"""A CTC loss with its derivative, in place of the gradient that torch gives it.

With respect to a log-probability torch hands on the probability too much, summed over
what comes in: a ``log_softmax`` before it takes that away again. Nothing else does.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any

from gradlab.subject.tensors.calling.uncompiled import uncompiled

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["with_its_derivative"]

_REDUCTIONS = ("none", "mean", "sum")  # by the numbers that ``torch.ctc_loss`` takes


@contextlib.contextmanager
def with_its_derivative() -> Iterator[None]:
    """Give every CTC loss that is computed meanwhile the gradient that it has.

    Examples
    --------
    >>> import torch
    >>> x = torch.zeros(2, 1, 3, dtype=torch.float64, requires_grad=True)
    >>> lengths = torch.tensor([2]), torch.tensor([1])
    >>> with with_its_derivative():
    ...     loss = torch.nn.functional.ctc_loss(x, torch.tensor([[1]]), *lengths)
    >>> slopes = torch.autograd.grad(loss, x)[0].sum(dim=-1)  # -1 is moved in all
    >>> [round(float(slope), 9) for slope in slopes]
    [-1.0, -1.0]
    """
    from torch.overrides import TorchFunctionMode

    class Right(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            del types
            result = func(*args, **(kwargs or {}))
            if getattr(func, "__name__", "") != "ctc_loss":
                return result
            return result - _too_much(args, kwargs or {})

    with uncompiled(), Right():
        yield


def _too_much(args: Any, kwargs: Any) -> Any:
    """Zero, with the gradient that a log_softmax would take away."""
    import torch

    bound = inspect.signature(torch.nn.functional.ctc_loss).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    logs = given["log_probs"]
    long, goals = (
        torch.as_tensor(given[f"{name}_lengths"], device=logs.device)
        for name in ("input", "target")
    )
    with torch.no_grad():
        alone = {**given, "log_probs": logs.detach(), "reduction": "none"}
        alone["zero_infinity"] = False
        known = torch.nn.functional.ctc_loss(**alone).isfinite()
    if logs.dim() == 2:
        long, goals = long.reshape(()), goals.reshape(())
    times = torch.arange(len(logs), device=logs.device)
    inside = times.reshape(-1, *[1] * long.dim()) < long
    total = torch.where(inside, logs.exp().sum(dim=-1), 0).sum(dim=0)
    rest = torch.where(known, total - total.detach(), 0)
    reduction = given["reduction"]
    reduction = reduction if isinstance(reduction, str) else _REDUCTIONS[reduction]
    if reduction == "mean":
        return (rest / goals.clamp(min=1)).mean()
    return rest.sum() if reduction == "sum" else rest
