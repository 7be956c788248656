"""One entry of a weight displaced, without a copy of the weight.

A product is linear in each factor: with one entry of `w` displaced by `h`, ``x @ w``
changes by `h` times one column of `x`, in one column. Of a matrix of thousands of
entries that costs a thousandth of a perturbed copy, and what follows the product may
go on with that column alone (`gradlab.subject.tensors.differing`). `one_entry` stands
over an evaluation of the user's function, hands it a tensor without memory in place of
the weight, lets the products of that through with the change added, and refuses every
other use: then copies have to do. The values are those of the function itself, up to
the order of summation, which is checked against single evaluations
(`gradlab.subject.tensors.batches`). Nothing here knows of derivatives.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from gradlab.subject.tensors.differing import (
    OtherUseError,
    answered,
    differing,
    exact,
    is_differing,
    whole,
    without_memory,
)
from gradlab.subject.tensors.narrow import called
from gradlab.subject.tensors.uncompiled import uncompiled
from gradlab.subject.tensors.words import is_batched, tensors_in, words

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OtherUseError", "one_entry", "suitable"]

_FEWEST = 256  # entries; copies of anything smaller cost nothing


def suitable(values: Any) -> bool:
    """Whether a tensor may be displaced this way: a float64 matrix, large enough."""
    import torch

    fits = values.dim() == 2 and values.layout is torch.strided
    return bool(fits and values.dtype is torch.float64 and values.numel() >= _FEWEST)


def one_entry(
    values: Any,
    row: Any,
    column: Any,
    step: Any,
    call: Callable[[Any], tuple[Any, ...]],
    sizes: list[int] | None = None,
) -> tuple[Any, ...]:
    """Call with one entry of a matrix displaced in every product that it is part of.

    Parameters
    ----------
    values
        The matrix.
    row, column
        Index of the entry, integer tensors of shape (); batched under vmap.
    step
        Displacement, shape ().
    call
        Evaluates, with what it gets in place of the matrix; returns tensors.
    sizes
        Gets the size of every tensor that has to be filled in the course of it.

    Raises
    ------
    OtherUseError
        If the matrix is used otherwise.

    Examples
    --------
    >>> import torch
    >>> w, one = torch.ones(2, 3), torch.tensor(1)
    >>> one_entry(w, one, one, torch.tensor(0.5), lambda w: (torch.ones(1, 2) @ w,))
    (tensor([[2.0000, 2.5000, 2.0000]]),)
    """
    watch = _Watch(values, row, column, step, [] if sizes is None else sizes)
    with uncompiled(), _mode()(watch.answer):
        found = call(_stand_in()(values, False))
    return tuple(whole(tensor) for tensor in found)


@functools.cache
def _stand_in() -> Any:
    """Make the class of what stands for the matrix."""

    class StandIn(without_memory()):  # type: ignore[misc] # made when asked for
        """Knows the matrix, or its transpose."""

        def __init__(self, plain: Any, turned: bool) -> None:  # noqa: FBT001 - only here
            self.plain, self.turned = plain, turned

    return StandIn


def _memory(value: Any) -> Any:
    """Give the matrix behind its stand-in; anything else as `whole` does."""
    return value.plain if type(value) is _stand_in() else whole(value)


@functools.cache
def _mode() -> Any:
    """Make the class that torch asks about every function; it needs torch itself."""
    from torch.overrides import TorchFunctionMode

    class Answered(TorchFunctionMode):
        def __init__(self, answer: Callable[..., Any]) -> None:
            super().__init__()
            self.answer = answer

        def __torch_function__(
            self, func: Any, _types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return self.answer(func, args, kwargs or {})

    return Answered


class _Watch:
    """Answers for the functions that are called with one matrix."""

    def __init__(
        self, values: Any, row: Any, column: Any, step: Any, sizes: list[int]
    ) -> None:
        self.plain, self.step, self.sizes = values, step, sizes
        row, column = row.reshape(1), column.reshape(1)
        self.place, self.turned_place = (row, column), (column, row)

    def answer(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call a function; with the change added, where the matrix is a factor."""
        known = words()
        given = list(tensors_in((args, kwargs)))
        met = [value for value in given if type(value) is _stand_in()]
        if not met:
            if any(map(is_differing, given)):
                return answered(func, args, kwargs)
            return called(func, args, kwargs)
        if len(met) > 1:
            raise OtherUseError
        if func in known.harmless:
            return func(*map(_memory, args), **kwargs)
        if func in known.turned and len(args) == 1:
            return _stand_in()(func(met[0].plain), not met[0].turned)
        if func in known.linear:
            return self._linear(func, args, kwargs)
        if func in known.products and len(args) == 2 and not kwargs:
            return self._product(func, args, args)
        if func in known.swapped and len(args) == 2 and not kwargs:
            return self._product(func, args, args[::-1])
        raise OtherUseError

    def _known(self, weight: Any) -> tuple[Any, Any] | None:
        """Row and column of the entry in the matrix or in its transpose."""
        if type(weight) is not _stand_in():
            return None
        return self.turned_place if weight.turned else self.place

    def _linear(self, func: Any, args: Any, kwargs: Any) -> Any:
        asked = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
        given = {name: _memory(value) for name, value in asked.items()}
        place = self._known(asked["weight"])
        if place is not None:
            out = exact(func(**given), self.plain)
            return self._moved(out, -1, place[0], _column(given["input"], place[1]))
        place = self._known(asked["input"])
        if place is None:
            raise OtherUseError
        out = exact(func(**given), self.plain)
        return self._moved(out, -2, place[0], _column(given["weight"], place[1]).mT)

    def _product(self, func: Any, args: Any, factors: Any) -> Any:
        left, right = map(_memory, factors)
        given = tuple(map(_memory, args))
        place = self._known(factors[1])
        if place is not None and left.dim() > 0:
            out = exact(func(*given), self.plain)
            return self._moved(out, -1, place[1], _column(left, place[0]))
        place = self._known(factors[0])
        if place is None or right.dim() != 2:
            raise OtherUseError
        out = exact(func(*given), self.plain)
        return self._moved(out, -2, place[0], _row(right, place[1]))

    def _moved(self, out: Any, axis: int, index: Any, slope: Any) -> Any:
        """Give a product of which one slice moves, by the step times a slope."""
        if is_batched(out):  # an earlier product has changed all of it
            self.sizes.append(out.numel())
            return out + (_numbers(out, axis) == index) * (slope * self.step)
        cut = _column if axis == -1 else _row
        part = cut(out, index) + slope * self.step
        return differing(out, axis, index, part, self.sizes)


def _numbers(values: Any, axis: int) -> Any:
    """Give numbers to the slices along an axis, shaped to be broadcast."""
    import torch

    numbers = torch.arange(values.shape[axis], device=values.device)
    return numbers if axis == -1 else numbers[:, None]


def _column(values: Any, index: Any) -> Any:
    """One index of the last axis, as an axis of length 1."""
    import torch

    return torch.index_select(values, -1, index)


def _row(values: Any, index: Any) -> Any:
    """One index of the axis before the last, as an axis of length 1."""
    import torch

    return torch.index_select(values, -2, index)
