"""One entry of a weight displaced, without a copy of the weight.

A product is linear in each factor: with one entry of `w` displaced by `h`, ``x @ w``
changes by `h` times one column of `x`, in one column. Of a matrix of thousands of
entries that costs a thousandth of a perturbed copy. `one_entry` stands over an
evaluation of the user's function, lets the products of that weight through with the
change added, and refuses every other use of its memory: then copies have to do. The
values are those of the function itself, up to the order of summation, which is checked
against single evaluations (`gradlab.subject.torch_batches`). Nothing here knows of
derivatives.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["OtherUseError", "one_entry", "suitable"]

_FEWEST = 256  # entries; copies of anything smaller cost nothing


class OtherUseError(Exception):
    """The weight is used in some other way than in a product; never shown."""


def suitable(values: Any) -> bool:
    """Whether a tensor may be displaced this way: a float64 matrix, large enough."""
    import torch

    fits = values.dim() == 2 and values.layout is torch.strided
    return bool(fits and values.dtype is torch.float64 and values.numel() >= _FEWEST)


def one_entry(
    values: Any, row: Any, column: Any, step: Any, call: Callable[[], Any]
) -> Any:
    """Call with one entry of a matrix displaced in every product that it is part of.

    Parameters
    ----------
    values
        The matrix, as the function that `call` calls gets it.
    row, column
        Index of the entry, integer tensors of shape (); batched under vmap.
    step
        Displacement, shape ().

    Raises
    ------
    OtherUseError
        If the matrix is used otherwise.

    Examples
    --------
    >>> import torch
    >>> w, one = torch.ones(2, 3), torch.tensor(1)
    >>> one_entry(w, one, one, torch.tensor(0.5), lambda: torch.ones(1, 2) @ w)
    tensor([[2.0000, 2.5000, 2.0000]])
    """
    watch = _Watch(values, row, column, step)
    with _mode()(watch.answer):
        return call()


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


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Words:
    """Functions of torch by what they mean here."""

    linear: tuple[Any, ...]
    products: tuple[Any, ...]
    swapped: tuple[Any, ...]  # products whose second argument stands on the left
    turned: tuple[Any, ...]  # transposes
    harmless: tuple[Any, ...]  # what says nothing of the entries


@functools.cache
def _words() -> _Words:
    import torch

    tensor = torch.Tensor
    attributes = ("shape", "dtype", "device", "layout", "requires_grad", "ndim")
    return _Words(
        linear=(torch.nn.functional.linear,),
        products=(torch.matmul, torch.mm, tensor.matmul, tensor.mm, tensor.__matmul__),
        swapped=(tensor.__rmatmul__,),
        turned=(torch.t, tensor.t, _getter("T"), _getter("mT")),
        harmless=(
            *map(_getter, attributes),
            *map(_getter, ("is_cuda", "is_sparse", "is_quantized", "is_nested")),
            *(tensor.size, tensor.dim, tensor.numel, tensor.__len__),
            *(tensor.is_contiguous, tensor.is_floating_point, tensor.is_complex),
        ),
    )


class _Watch:
    """Answers for the functions that are called with one matrix."""

    def __init__(self, values: Any, row: Any, column: Any, step: Any) -> None:
        self.plain, self.step = values, step
        self.place, self.turned_place = (row, column), (column, row)
        self.turned: list[Any] = []  # transposes that were asked for

    def answer(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call a function; with the change added, where the matrix is a factor."""
        words = _words()
        met = [a for a in _tensors((args, kwargs)) if _shares(a, self.plain)]
        if not met or func in words.harmless:
            return func(*args, **kwargs)
        if len(met) > 1:
            raise OtherUseError
        if func in words.turned and self._known(met[0]) is not None:
            found = func(*args, **kwargs)
            if met[0] is not self.plain:
                return self.plain
            self.turned.append(found)
            return found
        if func in words.linear:
            return self._linear(func, args, kwargs)
        if func in words.products and len(args) == 2 and not kwargs:
            return self._product(func, args, args)
        if func in words.swapped and len(args) == 2 and not kwargs:
            return self._product(func, args, args[::-1])
        raise OtherUseError

    def _known(self, weight: Any) -> tuple[Any, Any] | None:
        """Row and column of the entry in the matrix or in its transpose."""
        if weight is self.plain:
            return self.place
        if any(weight is each for each in self.turned):
            return self.turned_place
        return None

    def _linear(self, func: Any, args: Any, kwargs: Any) -> Any:
        given = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
        place = self._known(given["weight"])
        if place is None:
            raise OtherUseError
        out = self._exact(func(*args, **kwargs))
        change = _column(given["input"], place[1]) * self.step
        return out + change * _unit(place[0], out)

    def _product(self, func: Any, args: Any, factors: Any) -> Any:
        import torch

        left, right = factors
        place = self._known(right)
        if place is not None and left.dim() > 0:
            out = self._exact(func(*args))
            change = _column(left, place[0]) * self.step
            if left.dim() == 1:
                change = change.reshape(())
            return out + change * _unit(place[1], out)
        place = self._known(left)
        if place is None or right.dim() != 2:
            raise OtherUseError
        out = self._exact(func(*args))
        change = torch.index_select(right, 0, place[1].reshape(1)) * self.step
        rows = torch.arange(out.shape[0], device=out.device)
        return out + (rows == place[0]).to(out.dtype)[:, None] * change

    def _exact(self, out: Any) -> Any:
        if out.dtype is not self.plain.dtype:  # under autocast, for one
            raise OtherUseError
        return out


def _getter(name: str) -> Any:
    """Give the getter of an attribute, by which torch announces that it is read."""
    import torch

    return getattr(torch.Tensor, name).__get__


def _column(values: Any, index: Any) -> Any:
    """One index of the last axis, as an axis of length 1."""
    import torch

    return torch.index_select(values, -1, index.reshape(1))


def _unit(index: Any, like: Any) -> Any:
    """Give the unit vector along the last axis of a result."""
    import torch

    return (torch.arange(like.shape[-1], device=like.device) == index).to(like.dtype)


def _tensors(tree: Any) -> Iterator[Any]:
    """All tensors in nested tuples, lists and dicts."""
    import torch

    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _tensors(value)
    elif isinstance(tree, tuple | list):
        for value in tree:
            yield from _tensors(value)


def _shares(tensor: Any, values: Any) -> bool:
    """Whether a tensor shows memory of another; batches are copies of their own."""
    import torch

    if torch._C._functorch.is_batchedtensor(tensor):  # noqa: SLF001 - torch's only way
        return False
    if tensor.layout is not torch.strided:
        return False
    try:
        own = tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return False
    return bool(own and own == values.untyped_storage().data_ptr())
