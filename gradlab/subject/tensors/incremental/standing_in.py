"""What stands for a matrix that only products may use.

An evaluation gets a tensor without memory in place of a matrix, and every function of
torch that meets it is looked at: a product is known by its factors, and who asked may
put another tensor in its place. Whatever else is done with the matrix is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import TYPE_CHECKING, Any, Literal

from gradlab.subject.tensors.calling.uncompiled import uncompiled
from gradlab.subject.tensors.incremental.differing import (
    OtherUseError,
    answered,
    exact,
    is_differing,
    whole,
    without_memory,
)
from gradlab.subject.tensors.incremental.short_softmax import called
from gradlab.subject.tensors.incremental.words import over_leaves, tensors_in, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Met", "standing_in", "watching"]

_ZEROS = 2**23  # numbers of a lookup that is written as a product: 64 MiB


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Met:
    """A product that the matrix is part of.

    Attributes
    ----------
    side
        Where the matrix stands: ``other @ matrix`` or ``matrix @ other``. Rows of a
        table are a product with zeros and ones.
    turned
        Whether its transpose does.
    other
        The other factor.
    out
        The product.
    """

    side: Literal["left", "right"]
    turned: bool
    other: Any
    out: Any


def standing_in(
    matrix: Any, meet: Callable[[Met], Any], call: Callable[[Any], tuple[Any, ...]]
) -> tuple[Any, ...]:
    """Call with something in place of a matrix that only products may use.

    Parameters
    ----------
    meet
        Gives what takes the place of each product that it is part of.
    call
        Evaluates, with what it gets in place of the matrix; returns tensors.

    Raises
    ------
    OtherUseError
        If the matrix is used otherwise, or by code that bypasses the functions of
        torch.

    Examples
    --------
    >>> import torch
    >>> met = []
    >>> x, w = torch.ones(1, 2), torch.ones(2, 3)
    >>> standing_in(w, lambda each: met.append(each) or each.out, lambda w: [x @ w])
    (tensor([[2., 2., 2.]]),)
    >>> met[0].side, met[0].turned
    ('right', False)
    """
    with watching(functools.partial(_answer, meet)):
        found = call(_stand_in()(matrix))
    if any(type(each) is _stand_in() for each in tensors_in(found)):
        raise OtherUseError
    return tuple(whole(tensor) for tensor in found)


@contextlib.contextmanager
def watching(answer: Callable[[Any, Any, Any], Any]) -> Iterator[None]:
    """Let somebody answer for every function of torch, by its arguments."""
    with uncompiled(), _mode()(answer):
        yield


@functools.cache
def _stand_in() -> Any:
    """Make the class of what stands for a matrix."""

    class StandIn(without_memory()):  # type: ignore[misc] # made when asked for
        """Knows the matrix, or its transpose."""

        def __init__(self, plain: Any, turned: bool = False) -> None:  # noqa: FBT001, FBT002 - only here
            self.plain, self.turned = plain, turned

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


def _answer(meet: Callable[[Met], Any], func: Any, args: Any, kwargs: Any) -> Any:
    """Call a function; products of the matrix are what `meet` makes of them."""
    known = words()
    given = list(tensors_in((args, kwargs)))
    met = [value for value in given if type(value) is _stand_in()]
    if not met:
        if any(map(is_differing, given)):
            return answered(func, args, kwargs)
        return called(func, args, kwargs)
    if func in known.harmless:
        return func(*_memory(args), **kwargs)
    if len(met) > 1:
        raise OtherUseError
    (one,) = met
    if func in known.turned and len(args) == 1:
        return _stand_in()(func(one.plain), not one.turned)
    if func in known.linear:
        factor = _of_linear(args, kwargs)
    elif func in known.products and len(args) == 2 and not kwargs:
        factor = _of_product(*args)
    elif func in known.swapped and len(args) == 2 and not kwargs:
        factor = _of_product(*args[::-1])
    elif func in known.lookups:
        factor = _of_lookup(func, args, kwargs)
    else:
        factor = None
    if factor is None:
        raise OtherUseError
    out = exact(func(*_memory(args), **_memory(kwargs)), one.plain)
    return meet(Met(*factor, out))


def _of_linear(args: Any, kwargs: Any) -> tuple[Any, Any, Any] | None:
    """Side of the matrix in a linear map, whether it is turned, and the other factor.

    None where it maps to one number, or adds more than a vector.
    """
    given = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
    bias = given.get("bias")
    if given["weight"].dim() != 2 or (bias is not None and bias.dim() != 1):
        return None
    if type(given["weight"]) is _stand_in():
        return "right", not given["weight"].turned, _memory(given["input"])
    if type(given["input"]) is _stand_in():
        return "left", given["input"].turned, _memory(given["weight"]).mT
    return None


def _of_product(left: Any, right: Any) -> tuple[Any, Any, Any] | None:
    """Do as `_of_linear` for a product; None where its right factor is no matrix."""
    if left.dim() == 0 or right.dim() != 2:
        return None
    if type(right) is _stand_in():
        return "right", right.turned, _memory(left)
    return None if left.dim() > 2 else ("left", left.turned, _memory(right))


def _of_lookup(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any] | None:
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
    if index.numel() * len(table) > _ZEROS:
        return None
    rows = torch.where(index < 0, index + len(table), index)
    return "right", False, functional.one_hot(rows, len(table)).to(table.dtype)
