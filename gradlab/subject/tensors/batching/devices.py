"""What a batch may take of a device's memory, and how numbers leave it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["batch_bytes", "copies", "has_no_memory", "on_host", "out_of_memory"]

_HOST = 1 << 26  # 64 MiB: a batch should not evict everything else
_CACHE = 1 << 23  # copies beyond 8 MiB fall out of the cache: measured, 3 x slower
_MOST = 1 << 30  # of a device: beyond, a larger batch is no faster
_SHARE = 16  # copies of one input are the smaller part of what a batch needs
_TOGETHER = 4096  # rows of one batch on a device


def batch_bytes(tensors: Sequence[Any]) -> int:
    """Bound the copies that are made for one batch, by the memory that is free.

    Parameters
    ----------
    tensors
        The inputs; the first that is on an accelerator decides.

    Returns
    -------
    int
        Bytes: 64 MiB on the host; on a GPU a sixteenth of what is free, 1 GiB at most.

    Examples
    --------
    >>> import torch
    >>> batch_bytes([torch.zeros(2)]) >> 20
    64
    """
    import torch

    device = next((t.device for t in tensors if t.device.type == "cuda"), None)
    if device is None:
        return _HOST
    free, _ = torch.cuda.mem_get_info(device)
    reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return max(1 << 20, min(_MOST, (free + reserved) // _SHARE))


def copies(tensor: Any, bound: int, least: int) -> int:
    """Choose how many copies of one input go into a batch.

    Parameters
    ----------
    tensor
        The input.
    bound
        Bytes, from `batch_bytes`.
    least
        Copies that are made even where they leave the cache of a processor.

    Examples
    --------
    >>> import torch
    >>> (
    ...     copies(torch.zeros(1000), 1 << 26, 64),
    ...     copies(torch.zeros(1 << 20), 1 << 26, 64),
    ... )
    (2097, 16)
    """
    size = max(int(tensor.nbytes), 1)
    on_host = tensor.device.type == "cpu"
    wanted = max(least, _CACHE // size) if on_host else _TOGETHER
    return max(1, min(wanted, bound // size))


def out_of_memory(cause: BaseException) -> bool:
    """Whether a device had no room for a batch: a smaller one may fit.

    Examples
    --------
    >>> import torch
    >>> out_of_memory(torch.OutOfMemoryError("no room")), out_of_memory(ValueError())
    (True, False)
    """
    import torch

    kind = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
    return isinstance(cause, kind)


def has_no_memory(tensor: Any) -> bool:
    """Whether a tensor is zeros of which there is no memory, and NumPy sees nothing.

    Examples
    --------
    >>> import torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> (slope,) = torch.autograd.grad(x.sgn().sum(), x)
    >>> has_no_memory(slope), has_no_memory(slope.clone())
    (True, False)
    """
    return bool(tensor._is_zerotensor())  # noqa: SLF001 - it has no other name


def on_host(tensor: Any) -> Any:
    """Give a tensor's numbers where NumPy can see them; to be let go of soon.

    From a GPU by way of page-locked memory, into which it writes by itself: many times
    as fast. Torch keeps that memory for the next one.

    Examples
    --------
    >>> import torch
    >>> x = torch.zeros(2)
    >>> on_host(x) is x
    True
    """
    import torch

    if tensor.device.type != "cuda":
        return tensor
    kind = {"dtype": tensor.dtype, "device": "cpu", "pin_memory": True}
    return torch.empty(tensor.shape, **kind).copy_(tensor)
