"""What stands for inputs that only products may use.

An evaluation gets tensors without memory in place of matrices, and every function of
torch that meets one of them is looked at: a product is known by its factors, and who
asked may put another tensor in its place. Whatever else is done with a matrix is known
as well, so that nobody takes for a factor what is more.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, Literal

from gradlab.subject.tensors.differing import (
    OtherUseError,
    answered,
    exact,
    is_differing,
    whole,
    without_memory,
)
from gradlab.subject.tensors.narrow import called
from gradlab.subject.tensors.uncompiled import uncompiled
from gradlab.subject.tensors.words import over_leaves, tensors_in, words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Met", "standing_in"]

_ZEROS = 2**23  # numbers of a lookup that is written as a product: 64 MiB


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Met:
    """A product that one of the matrices is part of.

    Attributes
    ----------
    place
        Which of the matrices.
    number
        Which product of the evaluation, from 1.
    side
        Where the matrix stands: ``other @ matrix`` or ``matrix @ other``; "added" where
        it is the bias of a linear map. Rows of a table are a product with zeros and
        ones.
    turned
        Whether its transpose does.
    other
        The other factor; None beside a bias.
    out
        The product.
    """

    place: int
    number: int
    side: Literal["left", "right", "added"]
    turned: bool
    other: Any
    out: Any


def standing_in(
    matrices: Sequence[Any],
    meet: Callable[[Met], Any],
    call: Callable[[list[Any]], tuple[Any, ...]],
    refused: set[int] | None = None,
) -> tuple[Any, ...]:
    """Call with something in place of matrices that only products may use.

    Parameters
    ----------
    matrices
        These; a vector may be the bias of a linear map.
    meet
        Gives what takes the place of each product that one of them is part of.
    call
        Evaluates, with what it gets in place of the matrices; returns tensors.
    refused
        Gets the places of those that are used otherwise; without it, that is an error.

    Raises
    ------
    OtherUseError
        If a matrix is used otherwise, and nobody asked which; or by code that bypasses
        the functions of torch.

    Examples
    --------
    >>> import torch
    >>> met = []
    >>> x, w = torch.ones(1, 2), torch.ones(2, 3)
    >>> standing_in(
    ...     [w], lambda each: met.append(each) or each.out, lambda given: [x @ given[0]]
    ... )
    (tensor([[2., 2., 2.]]),)
    >>> met[0].side, met[0].turned
    ('right', False)
    """
    watch = _Watch(meet, refused)
    made = [_stand_in()(each, place) for place, each in enumerate(matrices)]
    with uncompiled(), _mode()(watch.answer):
        found = call(made)
    out = [each for each in tensors_in(found) if type(each) is _stand_in()]
    if out:
        watch.refuse(out)
    return tuple(_memory(tensor) for tensor in found)


@functools.cache
def _stand_in() -> Any:
    """Make the class of what stands for a matrix."""

    class StandIn(without_memory()):  # type: ignore[misc] # made when asked for
        """Knows the matrix, or its transpose."""

        def __init__(self, plain: Any, place: int, turned: bool = False) -> None:  # noqa: FBT001, FBT002 - only here
            self.plain, self.place, self.turned = plain, place, turned

    return StandIn


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


def _plain(value: Any) -> Any:
    return value.plain if type(value) is _stand_in() else whole(value)


def _memory(tree: Any) -> Any:
    """Give the matrices behind what stands for them, and the whole of what differs."""
    return over_leaves(_plain, tree)


class _Watch:
    """Answers for the functions that are called in one evaluation."""

    def __init__(self, meet: Callable[[Met], Any], refused: set[int] | None) -> None:
        self.meet, self.refused = meet, refused
        self.products = 0  # so far, with and without one of the matrices

    def answer(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call a function; products of a matrix are what `meet` makes of them."""
        known = words()
        linear = func in known.linear
        product = func in known.products or func in known.swapped
        lookup = func in known.lookups
        self.products += linear or product or lookup
        given = list(tensors_in((args, kwargs)))
        met = [value for value in given if type(value) is _stand_in()]
        if not met:
            if any(map(is_differing, given)):
                return answered(func, args, kwargs)
            return called(func, args, kwargs)
        if func in known.harmless:
            return func(*_memory(args), **kwargs)
        if func in known.turned and len(args) == 1:
            (one,) = met
            return _stand_in()(func(one.plain), one.place, not one.turned)
        once = len({each.place for each in met}) == len(met)
        factors = None
        if once and linear:
            factors = _of_linear(args, kwargs)
        elif once and product and len(args) == 2 and not kwargs:
            factors = _of_product(*(args[::-1] if func in known.swapped else args))
        elif once and lookup:
            factors = _of_lookup(func, args, kwargs)
        if factors is None:
            self.refuse(met)
            return called(func, _memory(args), _memory(kwargs))
        out = exact(func(*_memory(args), **_memory(kwargs)), met[0].plain)
        for matrix, side, turned, other in factors:
            met_one = Met(matrix.place, self.products, side, turned, other, out)
            out = self.meet(met_one)
        return out

    def refuse(self, met: Sequence[Any]) -> None:
        """Take down that matrices are used otherwise."""
        if self.refused is None:
            raise OtherUseError
        self.refused.update(each.place for each in met)


def _of_linear(args: Any, kwargs: Any) -> list[tuple[Any, ...]] | None:
    """Matrices that are part of a linear map: each, its side, turned, and the other.

    None where it maps to one number, or adds more than a vector.
    """
    given = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
    bias = given.get("bias")
    if given["weight"].dim() != 2 or (bias is not None and bias.dim() != 1):
        return None
    factors = []
    for name, value in given.items():
        if type(value) is not _stand_in():
            continue
        if name == "weight":
            factor = value, "right", not value.turned, _memory(given["input"])
        elif name == "input":
            factor = value, "left", value.turned, _memory(given["weight"]).mT
        else:
            factor = value, "added", value.turned, None
        factors.append(factor)
    return factors


def _of_product(left: Any, right: Any) -> list[tuple[Any, ...]] | None:
    """Matrices that are factors, as `_of_linear`; None where the right one is none."""
    if left.dim() == 0 or right.dim() != 2:
        return None
    factors = []
    if type(left) is _stand_in():
        if left.dim() > 2:
            return None
        factors.append((left, "left", left.turned, _memory(right)))
    if type(right) is _stand_in():
        factors.append((right, "right", right.turned, _memory(left)))
    return factors


def _of_lookup(func: Any, args: Any, kwargs: Any) -> list[tuple[Any, ...]] | None:
    """Table of which rows are taken: a product with rows of zeros and a one.

    None where it is not rows, or so many that those zeros would not fit.
    """
    import torch

    functional = torch.nn.functional
    if func is functional.embedding and kwargs.get("max_norm") is None:
        index, table = args  # torch hands them on in this order, the rest by name
    elif func is torch.Tensor.__getitem__:
        table, index = args
    elif len(args) == 3 and args[1] == 0:
        table, _, index = args
    else:
        return None
    if type(table) is not _stand_in() or table.turned or table.dim() != 2:
        return None
    if not isinstance(index, torch.Tensor) or index.dtype is not torch.int64:
        return None
    if type(index) is _stand_in() or index.numel() * len(table) > _ZEROS:
        return None
    rows = torch.where(index < 0, index + len(table), index)
    return [
        (table, "right", False, functional.one_hot(rows, len(table)).to(table.dtype))
    ]
