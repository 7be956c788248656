"""Functions of torch by what they mean for a tensor of which little has changed."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Words",
    "is_batched",
    "is_transformed",
    "over_leaves",
    "tensors_in",
    "words",
]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Words:
    """Functions of torch by what they mean here."""

    single: frozenset[Any]  # of every entry by itself
    pairs: frozenset[Any]  # of the entries of two tensors
    linear: frozenset[Any]
    products: frozenset[Any]
    swapped: frozenset[Any]  # products whose second argument stands on the left
    lookups: frozenset[Any]  # rows of a table by their numbers
    turned: frozenset[Any]  # transposes
    harmless: frozenset[Any]  # what says nothing of the entries


_SINGLE = """
    tanh sigmoid relu exp exp2 expm1 log log1p log2 sin cos tan sinh cosh asinh atan
    erf erfc sqrt rsqrt square abs neg reciprocal gelu silu elu celu selu softplus
    softsign leaky_relu relu6 hardtanh hardsigmoid hardswish logsigmoid mish
    tanhshrink softshrink hardshrink clamp __neg__ __abs__
"""
_PAIRS = """
    add sub mul div true_divide subtract multiply divide pow __add__ __radd__ __sub__
    __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __pow__ __rpow__
"""


@functools.cache
def words() -> Words:
    """Give the functions that are known; torch is imported for them."""
    import torch

    tensor = torch.Tensor
    homes = (torch, tensor, torch.nn.functional, torch.special)

    def named(names: str) -> frozenset[Any]:
        found = [getattr(home, name, None) for home in homes for name in names.split()]
        return frozenset(each for each in found if each is not None)

    return Words(
        single=named(_SINGLE),
        pairs=named(_PAIRS),
        linear=frozenset((torch.nn.functional.linear,)),
        products=named("matmul mm __matmul__"),
        swapped=frozenset((tensor.__rmatmul__,)),
        lookups=frozenset(
            (
                torch.nn.functional.embedding,
                torch.index_select,
                tensor.index_select,
                tensor.__getitem__,
            )
        ),
        turned=frozenset((torch.t, tensor.t, *map(_getter, ("T", "mT")))),
        harmless=_harmless(),
    )


def _getter(name: str) -> Any:
    """Give the getter of an attribute, by which torch announces that it is read."""
    import torch

    return getattr(torch.Tensor, name).__get__


def _harmless() -> frozenset[Any]:
    """Give the functions of torch that say nothing of the entries."""
    import torch

    tensor = torch.Tensor
    attributes = ("shape", "dtype", "device", "layout", "requires_grad", "ndim")
    return frozenset(
        (
            *map(_getter, attributes),
            *map(_getter, ("is_cuda", "is_sparse", "is_quantized", "is_nested")),
            *(tensor.size, tensor.dim, tensor.numel, tensor.__len__),
            *(tensor.is_contiguous, tensor.is_floating_point, tensor.is_complex),
        )
    )


def tensors_in(tree: Any) -> Iterator[Any]:
    """All tensors in nested tuples, lists and dicts."""
    import torch

    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from tensors_in(value)
    elif isinstance(tree, tuple | list):
        for value in tree:
            yield from tensors_in(value)


def over_leaves(change: Callable[[Any], Any], tree: Any) -> Any:
    """Change all leaves of nested tuples, lists and dicts."""
    if isinstance(tree, dict):
        return {key: over_leaves(change, value) for key, value in tree.items()}
    if type(tree) in (tuple, list):
        return type(tree)(over_leaves(change, value) for value in tree)
    return change(tree)


def is_batched(value: Any) -> bool:
    """Whether a tensor has other entries in every evaluation of a batch."""
    import torch

    return bool(torch._C._functorch.is_batchedtensor(value))  # noqa: SLF001 - torch's only way


def is_transformed(value: Any) -> bool:
    """Whether a tensor lives only inside a transform of `torch.func`, such as vmap."""
    import torch

    return bool(torch._C._functorch.is_functorch_wrapped_tensor(value))  # noqa: SLF001 - as above
