"""Tensors that differ from another one in a single row or column.

Displacing one entry of a weight changes one column of a product, and an activation of
that changes nowhere else. Evaluating only what changes costs a hundredth of evaluating
all of it. A tensor of this kind looks to the user's function like any other: functions
of single entries and products go by the change alone, everything else gets the whole
tensor, and code that bypasses torch's functions raises, so that the caller takes
another way.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from gradlab.subject.tensors.incremental.short_softmax import called
from gradlab.subject.tensors.incremental.words import (
    is_batched,
    over_leaves,
    tensors_in,
    words,
)

__all__ = [
    "OtherUseError",
    "answered",
    "differing",
    "exact",
    "is_differing",
    "whole",
    "without_memory",
]

_NUMBERS = (int, float)


class OtherUseError(Exception):
    """A tensor is used in a way that cannot be followed.

    Only who keeps such a tensor beyond the evaluation that made it ever sees this.
    """

    def __init__(self) -> None:
        super().__init__(
            "this tensor was made while gradlab did many evaluations at once, and has "
            "no entries outside of them; keep a tensor of a call of your own"
        )


@dataclasses.dataclass(slots=True, eq=False)
class _Change:
    """Where a tensor differs, and what stands there."""

    base: Any
    axis: int  # -1: in a column, -2: in a row
    index: Any  # of that column or row, a tensor of shape (1,)
    part: Any  # as base, of size 1 along the axis
    sizes: list[int]  # of tensors that every evaluation has had to fill
    dense: Any = None  # the whole, once somebody has asked for it
    turned: _Change | None = None  # what this is the transpose of: a view of it

    def of(self, other: Any) -> Any:
        """Cut the same slice out of a tensor that is broadcast to this one."""
        import torch

        if other.dim() < -self.axis or other.shape[self.axis] == 1:
            return other
        return torch.index_select(other, self.axis, self.index)

    @property
    def filled(self) -> bool:
        """Whether the whole is in memory, where it may be written to."""
        if self.dense is not None:
            return True
        return self.turned is not None and self.turned.filled

    def whole(self) -> Any:
        """Give every entry; a transpose in the memory of what was transposed."""
        import torch

        if self.dense is None and self.turned is not None:
            self.dense = self.turned.whole().mT
        elif self.dense is None:
            size = self.base.shape[self.axis]
            here = torch.arange(size, device=self.base.device) == self.index
            here = here if self.axis == -1 else here[:, None]
            self.dense = torch.where(here, self.part, self.base)
            self.sizes.append(self.base.numel())
        return self.dense

    def step(self) -> Any:
        """How much the slice differs from that of the base."""
        return self.part - self.of(self.base)


def differing(
    base: Any, axis: int, index: Any, part: Any, sizes: list[int] | None = None
) -> Any:
    """Make a tensor that is `base` but for one slice.

    Parameters
    ----------
    base
        Dense.
    axis
        -1 for a column, -2 for a row.
    index
        Number of the slice, integer tensor of shape (1,).
    part
        What stands there: as `base`, of size 1 along the axis.
    sizes
        Gets the size of every tensor that has to be filled in the course of it.

    Examples
    --------
    >>> import torch
    >>> found = differing(torch.ones(2, 3), -1, torch.tensor([1]), torch.zeros(2, 1))
    >>> whole(found)
    tensor([[1., 0., 1.],
            [1., 0., 1.]])
    """
    change = _Change(base, axis, index, part, [] if sizes is None else sizes)
    return _kind()(base, change)


def is_differing(value: Any) -> bool:
    """Whether a value was made by `differing`."""
    return type(value) is _kind()


def whole(value: Any) -> Any:
    """Give the tensor with every entry in memory; anything else as it is.

    From then on its whole is what counts: a view of it may be written to.
    """
    return value.change.whole() if is_differing(value) else value


def answered(func: Any, args: Any, kwargs: Any) -> Any:
    """Call a function of torch, some of whose arguments were made by `differing`."""
    met = [t.change for t in tensors_in((args, kwargs)) if is_differing(t)]
    if not any(change.filled for change in met):
        if func in words().harmless:
            return func(*args, **kwargs)
        found = (
            NotImplemented if _writes(args, kwargs) else _by_change(func, args, kwargs)
        )
        if found is not NotImplemented:
            return found
    return called(func, over_leaves(whole, args), over_leaves(whole, kwargs))


def _by_change(func: Any, args: Any, kwargs: Any) -> Any:
    """Go by the change alone; NotImplemented where that does not do."""
    known = words()
    if func in known.single:
        return _single(func, args, kwargs)
    if func in known.pairs:
        return _pair(func, args, kwargs)
    if func in known.linear:
        given = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
        return _linear(func, **given)
    if func in known.products and len(args) == 2 and not kwargs:
        return _product(func, *args)
    if func in known.turned and len(args) == 1:
        return _turned(func, args[0])
    return NotImplemented


@functools.cache
def without_memory() -> Any:
    """Make a class of tensors that look like another; it needs torch itself.

    Whatever does not ask by one of torch's functions is refused: compiled code, scripts
    and extensions would take the memory as it is.
    """
    import torch

    class WithoutMemory(torch.Tensor):
        """Of the shape, dtype and device of another, and no more."""

        @staticmethod
        def __new__(cls: Any, like: Any, *_: Any) -> Any:
            made = torch.Tensor._make_wrapper_subclass(  # noqa: SLF001 - torch's way to a tensor without memory
                cls,
                like.shape,
                strides=like.stride(),  # whoever asks whether it is contiguous
                dtype=like.dtype,
                device=like.device,
            )
            # an error instead of a null pointer, as in torch's own FakeTensor
            torch._C._set_throw_on_mutable_data_ptr(made)  # noqa: SLF001 - as above
            return made

        __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment] # noqa: SLF001 - as torch documents it

        @classmethod
        def __torch_dispatch__(cls, *_: Any, **__: Any) -> Any:
            raise OtherUseError

    return WithoutMemory


@functools.cache
def _kind() -> Any:
    """Make the class of tensors that know what they differ from; it needs torch."""

    class Differing(without_memory()):  # type: ignore[misc] # made when asked for
        """Knows what it differs from, and where."""

        def __init__(self, _: Any, change: _Change) -> None:
            self.change = change

    return Differing


def _writes(args: Any, kwargs: Any) -> bool:
    """Whether one of the functions followed here may write to an argument."""
    flags = (*args, *kwargs.values())  # such as relu(x, True)
    return "out" in kwargs or any(flag is True for flag in flags)


def _like(change: _Change, base: Any, part: Any) -> Any:
    return differing(base, change.axis, change.index, part, change.sizes)


def _single(func: Any, args: Any, kwargs: Any) -> Any:
    """Apply a function of single entries to the base and to the slice."""
    if not args or not is_differing(args[0]) or any(tensors_in((args[1:], kwargs))):
        return NotImplemented
    change, rest = args[0].change, args[1:]
    base = func(change.base, *rest, **kwargs)
    part = func(change.part, *rest, **kwargs)
    if base is change.base:  # in place, by a flag that is no bool
        return args[0]
    return _like(change, base, part)


def _pair(func: Any, args: Any, kwargs: Any) -> Any:
    """Join two tensors, entry by entry, of which at least one differs in a slice."""
    if len(args) != 2 or any(tensors_in(kwargs)):
        return NotImplemented
    change = next(value.change for value in args if is_differing(value))
    bases, parts = [], []
    for value in args:
        if isinstance(value, _NUMBERS):
            base = part = value
        elif is_differing(value):
            own = value.change
            if (
                own.axis != change.axis
                or own.index is not change.index
                or own.base.shape != change.base.shape
            ):
                return NotImplemented
            base, part = own.base, own.part
        elif _fits(value, change.base):
            base, part = value, change.of(value)
        else:
            return NotImplemented
        bases.append(base)
        parts.append(part)
    return _like(change, func(*bases, **kwargs), func(*parts, **kwargs))


def _fits(value: Any, base: Any) -> bool:
    """Whether a tensor, the same for all, is broadcast to the shape of another."""
    import torch

    if not isinstance(value, torch.Tensor) or value.dtype is not base.dtype:
        return False
    if is_batched(value) or value.dim() > base.dim():
        return False
    ends = zip(reversed(value.shape), reversed(base.shape), strict=False)
    return all(own in (1, there) for own, there in ends)


def _is_plain_matrix(value: Any, base: Any) -> bool:
    """Whether a factor is an ordinary matrix of the same precision."""
    import torch

    return (
        isinstance(value, torch.Tensor)
        and not is_differing(value)
        and value.dim() == 2
        and value.dtype is base.dtype
    )


def _linear(func: Any, input: Any, weight: Any, bias: Any = None) -> Any:  # noqa: A002 - torch's own names
    if not is_differing(input) or is_differing(bias):
        return NotImplemented
    change = input.change
    if not _is_plain_matrix(weight, change.base):
        return NotImplemented
    out = exact(func(change.base, weight, bias), change.base)
    if change.axis == -2:
        return _like(change, out, func(change.part, weight, bias))
    change.sizes.append(out.numel())
    return out + change.step() * change.of(weight)[:, 0]


def _product(func: Any, left: Any, right: Any) -> Any:
    """Multiply; what differs along the axis that is summed changes everything."""
    import torch

    if is_differing(left):
        change = left.change
        if change.base.dim() < 2 or not _is_plain_matrix(right, change.base):
            return NotImplemented
        out = exact(func(change.base, right), change.base)
        if change.axis == -2:
            return _like(change, out, func(change.part, right))
        change.sizes.append(out.numel())
        return out + change.step() * torch.index_select(right, -2, change.index)
    change = right.change
    if change.base.dim() != 2 or not _is_plain_matrix(left, change.base):
        return NotImplemented
    out = exact(func(left, change.base), change.base)
    if change.axis == -1:
        return _like(change, out, func(left, change.part))
    change.sizes.append(out.numel())
    return out + torch.index_select(left, -1, change.index) * change.step()


def _turned(func: Any, value: Any) -> Any:
    change = value.change
    if change.base.dim() != 2:
        return NotImplemented
    axis = -3 - change.axis
    base, part = func(change.base), func(change.part)
    turned = differing(base, axis, change.index, part, change.sizes)
    turned.change.turned = change
    return turned


def exact(out: Any, like: Any) -> Any:
    """Refuse a product that is less precise than its factors."""
    if out.dtype is not like.dtype:  # under autocast, for one
        raise OtherUseError
    return out
