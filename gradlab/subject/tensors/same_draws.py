"""Random numbers of a copy in float64: those that the function draws itself.

``torch.rand_like(x)`` of float64 is another number than of float32, from the same seed,
and so are sixteen normal ones. A copy that adds other noise computes something else. So
its noise is drawn in the dtype of the function, and widened.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from gradlab.subject.tensors.uncompiled import uncompiled
from gradlab.subject.tensors.values import is_double

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DRAWING", "SameDraws"]

# Torch's functions of which the dtype decides which numbers are drawn.
DRAWING = frozenset(
    (
        *("rand", "rand_like", "uniform_", "bernoulli"),
        *("randn", "randn_like", "normal", "normal_"),
        *("fractional_max_pool2d", "fractional_max_pool2d_with_indices"),
        *("fractional_max_pool3d", "fractional_max_pool3d_with_indices"),
    )
)


@dataclasses.dataclass(frozen=True, slots=True)
class SameDraws:
    """Draws of a function, in the dtype that it draws in.

    Attributes
    ----------
    dtype
        Short floating dtype of torch.

    Examples
    --------
    >>> import torch
    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch._C.Generator object at ...>
    >>> short = torch.rand_like(torch.zeros(1)).double()
    >>> with torch.random.fork_rng(), SameDraws(torch.float32).left_out():
    ...     _ = torch.manual_seed(0)
    ...     bool(torch.rand_like(torch.zeros(1, dtype=torch.float64)) == short)
    True
    """

    dtype: Any

    @contextlib.contextmanager
    def left_out(self) -> Iterator[None]:
        """Leave the dtype out of what decides which numbers are drawn."""
        import torch
        from torch.overrides import TorchFunctionMode

        draws = self

        class Draw(TorchFunctionMode):
            def __torch_function__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                kwargs = kwargs or {}
                name = getattr(func, "__name__", "")
                if name not in DRAWING or {"out", "requires_grad"} & set(kwargs):
                    return func(*args, **kwargs)
                if any(map(is_double, args)):
                    return draws.drawn_into(func, name, args, kwargs)
                dtype = kwargs.get("dtype") or torch.get_default_dtype()
                if dtype is not torch.float64 or name.startswith("fractional"):
                    return func(*args, **kwargs)
                return func(*args, **{**kwargs, "dtype": draws.dtype}).to(dtype)

        with uncompiled(), Draw():
            yield

    def drawn_into(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Draw as a function does that is given tensors in float64."""
        import torch

        first, others = args[0], args[1:]
        if name.endswith("_"):
            drawn = torch.empty_like(first, dtype=self.dtype)
            return first.copy_(func(drawn, *others, **kwargs))
        if name.endswith("_like"):
            dtype = kwargs.get("dtype") or first.dtype
            short = self.dtype if dtype is torch.float64 else dtype
            return func(first, *others, **{**kwargs, "dtype": short}).to(dtype)
        if name == "bernoulli" and not others:
            return func(first.to(self.dtype), **kwargs).to(first.dtype)
        if name == "normal" and len(args) == 2:
            mean, deviation = (torch.as_tensor(each) for each in args)
            shape = (mean + deviation).shape
            drawn = torch.empty(shape, dtype=self.dtype, device=mean.device)
            drawn = drawn.normal_(**kwargs).to(torch.float64)
            return (drawn * deviation + mean).detach()
        return func(*args, **kwargs)
