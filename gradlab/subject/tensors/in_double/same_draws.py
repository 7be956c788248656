"""Random numbers of a copy in float64: those that the function draws itself.

``torch.rand_like(x)`` of float64 is another number than of float32, from the same seed,
and so are sixteen normal ones; on a GPU so is the mask of a dropout. A copy that adds
other noise computes something else. So its noise is drawn in the dtype of the function,
and widened.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from gradlab.subject.tensors.calling.uncompiled import uncompiled
from gradlab.subject.tensors.values import is_double

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SameDraws", "draws_by_dtype"]

# Torch's functions of which the dtype decides which numbers are drawn.
_DRAWING = frozenset(
    (
        *("rand", "rand_like", "uniform_", "bernoulli"),
        *("randn", "randn_like", "normal", "normal_"),
        *("fractional_max_pool2d", "fractional_max_pool2d_with_indices"),
        *("fractional_max_pool3d", "fractional_max_pool3d_with_indices"),
    )
)
# Those of which it decides that on a GPU alone, where threads draw several at once.
_DROPPING = frozenset(
    ("dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "feature_dropout")
)
_DRAWING_THERE = _DROPPING | {
    *("bernoulli_", "exponential_", "log_normal_", "cauchy_", "geometric_", "poisson")
}


def draws_by_dtype(name: str, arguments: tuple[Any, ...]) -> bool:
    """Whether a torch function draws numbers that depend on the dtype.

    Parameters
    ----------
    name
        Of the function.
    arguments
        Positional ones: where the first tensor lies decides about some.

    Examples
    --------
    >>> import torch
    >>> draws_by_dtype("rand", (3,)), draws_by_dtype("dropout", (torch.zeros(2), 0.5))
    (True, False)
    """
    if name in _DRAWING:
        return True
    first = arguments[0] if arguments else None
    return name in _DRAWING_THERE and getattr(first, "is_cuda", False)


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
                drawn = draws_by_dtype(name, args)
                if not drawn or {"out", "requires_grad"} & set(kwargs):
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
        if name in _DROPPING:
            return self.dropped(func, args, kwargs)
        if name.endswith("_"):
            drawn = torch.empty_like(first, dtype=self.dtype)
            return first.copy_(func(drawn, *others, **kwargs))
        if name.endswith("_like"):
            dtype = kwargs.get("dtype") or first.dtype
            short = self.dtype if dtype is torch.float64 else dtype
            return func(first, *others, **{**kwargs, "dtype": short}).to(dtype)
        if name == "poisson" or (name == "bernoulli" and not others):
            return func(first.to(self.dtype), **kwargs).to(first.dtype)
        if name == "normal" and len(args) == 2:
            mean, deviation = (torch.as_tensor(each) for each in args)
            shape = (mean + deviation).shape
            drawn = torch.empty(shape, dtype=self.dtype, device=mean.device)
            drawn = drawn.normal_(**kwargs).to(torch.float64)
            return (drawn * deviation + mean).detach()
        return func(*args, **kwargs)

    def dropped(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Drop the entries that a dropout drops in the short dtype.

        Examples
        --------
        >>> import torch
        >>> x, dropout = torch.ones(8, dtype=torch.float64), torch.nn.functional.dropout
        >>> _ = torch.manual_seed(0)
        >>> expected = dropout(x.float(), p=0.3) != 0
        >>> _ = torch.manual_seed(0)
        >>> kept = SameDraws(torch.float32).dropped(dropout, (x,), {"p": 0.3})
        >>> bool(((kept == 1 / 0.7) == expected).all())
        True
        """
        import torch

        first, others = args[0], (*args[1:], *(0.5, True)[len(args) - 1 :])
        share = kwargs.get("p", others[0])
        training = kwargs.get("training", kwargs.get("train", others[1]))
        ones = torch.ones_like(first, dtype=self.dtype)
        kept = func(ones, *args[1:], **kwargs) != 0
        # in float64, the factor is no longer rounded
        factor = 1.0 / (1.0 - share) if training and share < 1 else 1.0
        result = torch.where(kept, first * factor, torch.zeros_like(first))
        written = kwargs.get("inplace") or getattr(func, "__name__", "").endswith("_")
        return first.copy_(result) if written else result
