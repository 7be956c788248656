"""Functions of torch that turn numbers into shorter ones, seen as they are called."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from gradlab.subject.subject import DOUBLE
from gradlab.subject.tensors.calling.uncompiled import uncompiled
from gradlab.subject.tensors.in_double.same_draws import draws_by_dtype
from gradlab.subject.tensors.values import is_differentiable

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["narrowing_watched"]

# Torch's functions whose values are steps.
_ROUNDING = frozenset(
    (
        *("round", "floor", "ceil", "trunc", "fix", "frac", "int", "long", "short"),
        *("sign", "sgn", "heaviside", "bucketize", "searchsorted", "remainder", "fmod"),
        *("floor_divide", "floordiv", "mod", "quantize_per_tensor"),
        *(f"fake_quantize_per_{each}_affine" for each in ("tensor", "channel")),
    )
)


@contextlib.contextmanager
def narrowing_watched(
    epsilon: float = DOUBLE,
    drawn: list[str] | None = None,
    rounded: list[str] | None = None,
) -> Iterator[list[str]]:
    """Collect the torch functions that turn float64 into something coarser.

    With the `epsilon` of float32: what turns that into something coarser. With
    `drawn`, names of those that draw numbers which depend on the dtype are put there,
    in `rounded` those that round on purpose.

    At the level of Python's calls: that is where a user's casts stand. (A dispatch
    mode would see a little more, and load torch's compiler, which takes seconds.)

    Examples
    --------
    >>> import torch
    >>> with narrowing_watched() as narrowed:
    ...     y = torch.ones(2, dtype=torch.float64).float().double()
    >>> narrowed
    ['float']
    """
    from torch.overrides import TorchFunctionMode

    narrowed: list[str] = []

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            name = getattr(func, "__name__", "")
            if drawn is not None and draws_by_dtype(name, args):
                drawn.append(name)
            if rounded is not None and name.strip("_") in _ROUNDING:
                rounded.append(name)
            if name.startswith("new_") or name.endswith("_like"):
                return result  # takes a shape, no values
            came = [*args, *(kwargs or {}).values()]
            # writing into a tensor, x[i] = y, returns nothing: look at the target
            left = args[:1] if result is None else [result]
            if any(map(_is_wide, came)) and any(map(_is_narrow, left)):
                narrowed.append(name)
            return result

    def _is_wide(value: object) -> bool:
        return is_differentiable(value) and _epsilon(value) <= epsilon

    def _is_narrow(value: object) -> bool:
        return is_differentiable(value) and _epsilon(value) > epsilon

    with uncompiled(), Watch():
        yield narrowed


def _epsilon(tensor: Any) -> float:
    import torch

    return float(torch.finfo(tensor.dtype).eps)
