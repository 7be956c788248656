"""What a torch function returned, as named outputs and as rows of real numbers.

Floating and complex tensors count, wherever they stand in nested tuples, lists, dicts
and dataclasses; integers, booleans, None and Python numbers among them do not.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.errors import InputError, SubjectError
from gradlab.subject.subject import Variable
from gradlab.subject.tensors.values import (
    dtype_name,
    is_differentiable,
    is_torch,
    real_numbers,
)
from gradlab.subject.tree import leaves_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    _Told = tuple[str, tuple[int, ...], Any]  # name, shape, dtype

__all__ = [
    "Observed",
    "cotangent_tensors",
    "no_more_the_same",
    "observe",
    "scalar_loss",
    "stack_of_rows",
    "to_row",
    "variables_of",
]

_REAL_PART = {"complex128": "float64", "complex64": "float32", "complex32": "float16"}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """Floating and complex outputs, dense, in order."""

    names: tuple[str, ...]
    tensors: tuple[Any, ...]

    def signature(self) -> list[tuple[str, tuple[int, ...], Any]]:
        """Give what must stay the same from one evaluation to the next."""
        pairs = zip(self.names, self.tensors, strict=True)
        return [(name, tensor.shape, tensor.dtype) for name, tensor in pairs]

    def only(self, kept: Sequence[int]) -> Observed:
        """Leave out all outputs but some."""
        names = tuple(self.names[k] for k in kept)
        return Observed(names, tuple(self.tensors[k] for k in kept))


def observe(result: object, root: str = "out") -> Observed:
    """Pick the differentiable outputs out of a result.

    Raises
    ------
    SubjectError
        If there is none.

    Examples
    --------
    >>> import torch
    >>> values, places = torch.ones(3).max(0)
    >>> observe({"best": values, "where": places}).names
    ('out.best',)
    """
    if is_differentiable(result):
        return Observed((root,), (_dense(root, result),))
    found = [
        (name, _dense(name, value))
        for name, value in _all_leaves(result, root)
        if is_differentiable(value)
    ]
    if not found:
        if result is None:
            msg = "the function returned None; let it end with return and a tensor"
            raise SubjectError(msg)
        came = [_describe(value) for _, value in _all_leaves(result, root)]
        msg = (
            f"the function returned no floating or complex tensor but "
            f"{', '.join(came) or 'an empty container'}; return tensors "
            f"(no .item(), .numpy() or argmax) to have something to differentiate"
        )
        raise SubjectError(msg)
    return Observed(tuple(name for name, _ in found), tuple(t for _, t in found))


def scalar_loss(result: object) -> Any:
    """Check what ``loss=`` returned; give it back as a 0-d tensor.

    Raises
    ------
    InputError
        If it is not one real floating number in a tensor.

    Examples
    --------
    >>> import torch
    >>> scalar_loss(torch.ones(1)).shape
    torch.Size([])
    """
    if (
        not is_differentiable(result)
        or result.numel() != 1  # type: ignore[attr-defined] # a tensor
        or result.dtype.is_complex  # type: ignore[attr-defined] # a tensor
    ):
        msg = (
            f"loss= must map the output to one real number in a floating tensor, "
            f"got {_describe(result)}; reduce it, for example by .sum()"
        )
        raise InputError(msg)
    return result.reshape(())  # type: ignore[attr-defined] # a tensor


def variables_of(observed: Observed) -> tuple[Variable, ...]:
    """Output variables; a complex tensor gives two, its real and imaginary part."""
    variables: list[Variable] = []
    for name, size, dtype in observed.signature():
        word = dtype_name(dtype)
        shape = tuple(size)  # torch.Size would leak into reports
        if word in _REAL_PART:
            variables.append(Variable(f"{name}.real", shape, _REAL_PART[word]))
            variables.append(Variable(f"{name}.imag", shape, _REAL_PART[word]))
        else:
            variables.append(Variable(name, shape, word))
    return tuple(variables)


def to_row(tensors: Sequence[Any]) -> NDArray[np.float64]:
    """All outputs as one row: per tensor its entries, or real then imaginary parts."""
    if len(tensors) == 1 and not tensors[0].dtype.is_complex:
        return real_numbers(tensors[0])
    pieces = [real_numbers(part) for tensor in tensors for part in _parts(tensor)]
    return np.concatenate(pieces)


def stack_of_rows(tensors: Sequence[Any], count: int) -> NDArray[np.float64]:
    """Like `to_row` for outputs with a leading batch dimension: (count, rows)."""
    pieces = [
        real_numbers(part).reshape(count, part[0].numel() if count else 0)
        for tensor in tensors
        for part in _parts(tensor)
    ]
    return np.concatenate(pieces, axis=1) if len(pieces) > 1 else pieces[0]


def cotangent_tensors(cotangents: Any, tensors: Sequence[Any]) -> list[Any]:
    """Real cotangents of shape (..., rows) as one tensor for each output.

    They are an array, or a tensor, through which torch can differentiate then.

    A complex output gets ``c_real + i c_imag``, which is torch's convention for the
    gradient of ``c_real . Re z + c_imag . Im z``.
    """
    import torch

    lead = cotangents.shape[:-1]
    result, start = [], 0

    def take(tensor: Any) -> Any:
        nonlocal start
        count = tensor.numel()
        block = cotangents[..., start : start + count]
        start += count
        if isinstance(block, np.ndarray):
            block = torch.from_numpy(np.array(block))
        return block.reshape((*lead, *tensor.shape))

    for tensor in tensors:
        seed = take(tensor)
        if tensor.dtype.is_complex:
            seed = torch.complex(seed, take(tensor))
        result.append(seed.to(device=tensor.device, dtype=tensor.dtype))
    return result


def _parts(tensor: Any) -> tuple[Any, ...]:
    if not tensor.dtype.is_complex:
        return (tensor,)
    plain = tensor.detach()
    return (plain.real, plain.imag)


def _dense(name: str, tensor: Any) -> Any:
    import torch

    if tensor.is_nested:
        msg = (
            f"output {name!r} is a nested tensor, which has no one shape; let the "
            "function end with .to_padded_tensor(0.0) of it, or give a loss="
        )
        raise SubjectError(msg)
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def _all_leaves(result: object, root: str) -> list[tuple[str, Any]]:
    """Leaves with their paths; dataclasses count as containers here."""
    leaves: list[tuple[str, Any]] = []
    for leaf in leaves_of(result, root):
        value = leaf.value
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            inner = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
            leaves.extend(_all_leaves(inner, leaf.name))
        else:
            leaves.append((leaf.name, value))
    return leaves


def _describe(value: object) -> str:
    if is_torch(value):
        shape, dtype = tuple(value.shape), value.dtype  # type: ignore[attr-defined] # a tensor
        return f"a tensor of shape {shape}, {dtype_name(dtype)}"
    if value is None:
        return "None"
    if hasattr(value, "shape"):
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    shown = repr(value)
    plain = len(shown) <= 40 and not shown.startswith("<")
    return f"{type(value).__name__} {shown}" if plain else type(value).__name__


def no_more_the_same(first: Sequence[_Told], then: Sequence[_Told]) -> SubjectError:
    """Make the error of outputs that changed from one evaluation to the next.

    Examples
    --------
    >>> float32 = "torch.float32"
    >>> print(no_more_the_same([("out", (2, 3), float32)], [("out", (2,), float32)]))
    the outputs changed from one evaluation to the next: first out (2, 3) torch.float32,
    then out (2,) torch.float32; a function can only be differentiated where its outputs
    keep their shape
    """
    before, now = (
        ", ".join(f"{name} {tuple(shape)} {dtype}" for name, shape, dtype in signature)
        for signature in (first, then)
    )
    return SubjectError(
        f"the outputs changed from one evaluation to the next: first {before}, then "
        f"{now}; a function can only be differentiated where its outputs keep their "
        f"shape"
    )
