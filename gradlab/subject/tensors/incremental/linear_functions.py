"""Functions of torch that are linear in some of their arguments.

One line each: its name, and those of its arguments by position, with a dash for one in
which it is not linear, or in which one entry of the result takes an entry of it more
than once.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import TYPE_CHECKING, Any, Literal

from gradlab.subject.tensors.incremental.words import tensors_in, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Word", "linear_in", "linear_words", "replayed", "unsigned", "usual"]

_OTHERWISE = ("alpha", "beta", "out", "rounding_mode", "max_norm")
_Kind = Literal["move", "sum", "scale", "product"]

_MOVES = """
    t transpose swapaxes permute movedim reshape view view_as reshape_as flatten
    unflatten ravel squeeze unsqueeze chunk split unbind narrow select diagonal expand
    expand_as broadcast_to contiguous clone to double
    cat stack
"""
_ROWS = {
    "index_select __getitem__": "input",
    "embedding": "- weight",
}
_SUMS = """
    add __add__ __radd__ sub subtract __sub__ __rsub__
"""
_SCALES = {
    "mul multiply __mul__ __rmul__": "input other",
    "div divide true_divide __truediv__": "input -",
    "neg negative __neg__": "input",
}
_PRODUCTS = {
    "linear conv1d conv2d conv3d": "input weight bias - - - -",
    "conv_transpose1d conv_transpose2d conv_transpose3d": "input weight bias - - - - -",
    "matmul mm bmm mv dot inner outer __matmul__ __rmatmul__": "input other",
    "addmm addmv addbmm baddbmm": "input left right",
    "tensordot": "left right -",
    "einsum": "- left right",
    "bilinear": "- - weight bias",
    "sum": "input - -",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Word:
    """A function that is linear in some of its arguments.

    Attributes
    ----------
    kind
        A "move" puts entries elsewhere; a "sum" adds those of two tensors; a "scale"
        multiplies each by itself; a "product" adds up several.
    names
        Of the arguments by position, None where it is not linear.
    rows
        Whether it may take an entry more than once.
    """

    kind: _Kind
    names: tuple[str | None, ...]
    rows: bool = False


@functools.cache
def linear_words() -> dict[Any, Word]:
    """Give the functions that are known; torch is imported for them."""
    import torch

    functional = torch.nn.functional
    homes = (torch, torch.Tensor, functional)
    found: dict[Any, Word] = {}

    def note(
        kind: _Kind, functions: str, arguments: str, *, rows: bool = False
    ) -> None:
        names = tuple(None if name == "-" else name for name in arguments.split())
        for name in functions.split():
            for home in homes:
                func = getattr(home, name, None)
                if func is not None:
                    found[func] = Word(kind, names, rows)

    note("move", _MOVES, "input")
    note("sum", _SUMS, "input other")
    for functions, arguments in _ROWS.items():
        note("move", functions, arguments, rows=True)
    for functions, arguments in _SCALES.items():
        note("scale", functions, arguments)
    for functions, arguments in _PRODUCTS.items():
        note("product", functions, arguments)
    found.update(dict.fromkeys(words().turned, Word("move", ("input",))))
    return found


def usual(word: Word, args: Any, kwargs: Any) -> bool:
    """Whether a call has no options by which it would be another function."""
    if any(kwargs.get(name) is not None for name in _OTHERWISE):
        return False
    if args and isinstance(args[0], str) and not _takes_each_once(args[0]):
        return False
    return word.kind == "move" or len(args) <= len(word.names)


def _takes_each_once(equation: str) -> bool:
    """Whether each index of an einsum is shared by operands, or one of the result.

    Over one that only one operand has, another operand's entry is taken several times.

    Examples
    --------
    >>> _takes_each_once("ij,jk->ik"), _takes_each_once("ij,jk->i")
    (True, False)
    """
    given, arrow, result = re.sub(r"[\s.]", "", equation).partition("->")
    operands = given.split(",")
    kept = result if arrow else [index for index in given if given.count(index) == 1]
    return all(
        index in kept or sum(index in operand for operand in operands) > 1
        for index in set(given) - {","}
    )


def linear_in(word: Word, args: Any, kwargs: Any) -> Iterator[Any]:
    """Give the arguments in which a function is linear, each of them by itself."""
    for name, value in zip(word.names, args, strict=False):
        if name is not None:
            yield from tensors_in(value)
    for name, value in kwargs.items():
        if name in word.names:
            yield from tensors_in(value)


@functools.cache
def replayed() -> dict[Any, Callable[..., Any]]:
    """Give what comes to the same as functions whose gradient is not their own."""
    import torch

    def rows(index: Any, table: Any, *_: Any, **__: Any) -> Any:
        return table[index]

    return {torch.nn.functional.embedding: rows}  # of padding there is no gradient


@functools.cache
def unsigned() -> dict[Any, Callable[..., Any]]:
    """Give what functions with a factor of -1 of their own are without the sign."""
    import torch

    def same(tensor: Any) -> Any:
        return tensor

    tensor = torch.Tensor
    without: dict[Any, Callable[..., Any]] = dict.fromkeys(
        (torch.sub, torch.subtract, tensor.sub, tensor.subtract), torch.add
    )
    without |= {tensor.__sub__: torch.add, tensor.__rsub__: torch.add}
    for name in ("neg", "negative", "__neg__"):
        for home in (torch, tensor):
            if hasattr(home, name):
                without[getattr(home, name)] = same
    return without
