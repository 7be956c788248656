"""Tensors whose memory a function has let go of, to make it again in its backward.

A reversible layer does that with what it is given, to save memory. The tensor keeps its
shape; whoever reads it then reads memory that is no longer there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradlab.subject.tensors.values import Cell

__all__ = ["changed", "freed"]


def freed(tensor: Any) -> bool:
    """Whether a tensor reaches beyond the memory that is left of it.

    Examples
    --------
    >>> import torch
    >>> x = torch.ones(3)
    >>> _ = x.untyped_storage().resize_(0)
    >>> freed(x), freed(torch.ones(3))
    (True, False)
    """
    import torch

    if tensor.layout is not torch.strided or not tensor.numel():
        return False
    return bool(_bytes(tensor) > tensor.untyped_storage().nbytes())


def changed(cell: Cell, version: int) -> bool:
    """Whether a function wrote to a private copy, or freed it (there is room again).

    Parameters
    ----------
    cell
        Whose values are to be put back if so.
    version
        Of its values before the function was called.
    """
    values = cell.values
    if freed(values):
        values.untyped_storage().resize_(_bytes(values))
        return True
    return bool(values._version != version)  # noqa: SLF001 - torch's only mark of a change


def _bytes(tensor: Any) -> int:
    """Where the last entry of a tensor that has any ends in its memory."""
    if tensor.is_contiguous():  # asked of every parameter after every evaluation
        return int(tensor.storage_offset() * tensor.element_size() + tensor.nbytes)
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    last = tensor.storage_offset() + sum((size - 1) * step for size, step in pairs)
    return int((last + 1) * tensor.element_size())
