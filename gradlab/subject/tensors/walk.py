"""Large inputs displaced in place, a piece at a time, without a second copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.tensors.values import bare

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.subject.tensors.values import Cell

__all__ = ["displace", "keep_on_devices"]


def displace(
    cell: Cell, start: int, moves: NDArray[np.float64], factor: float = 1.0
) -> None:
    """Write ``point + factor * moves`` from one coordinate of a cell on, nothing else.

    Parameters
    ----------
    cell
        Its private copy is written to.
    start
        First real coordinate.
    moves, factor
        Displacements, shape (count,), and what they are multiplied by.

    Examples
    --------
    >>> import torch
    >>> from gradlab.subject.tensors.values import make_cell
    >>> cell = make_cell("x", torch.zeros(4))
    >>> displace(cell, 1, np.array([0.5, 0.25]))
    >>> cell.values
    tensor([0.0000, 0.5000, 0.2500, 0.0000])
    """
    import torch

    if cell.parked and cell.lending is not None:
        cell.lending.moves[start] = moves, factor
        return
    with torch.no_grad():
        real, origin = cell.real(), bare(cell.source.detach())
        if origin.dtype.is_complex:
            origin = torch.view_as_real(origin.resolve_conj())
        there = _on_device(moves, real.device)
        part = slice(start, start + len(moves))
        if real.is_contiguous() and origin.is_contiguous():
            here, target = origin.view(-1)[part], real.view(-1)[part]
            if here.dtype is target.dtype:  # one pass over memory
                torch.add(here, there, alpha=factor, out=target)
            else:
                target.copy_(here).add_(there, alpha=factor)
            return
        index = np.unravel_index(np.arange(part.start, part.stop), tuple(real.shape))
        where = tuple(torch.from_numpy(axis).to(real.device) for axis in index)
        real[where] = (origin[where].double() + factor * there).to(real.dtype)


# Arrays that live as long as the process and that nobody writes to, by their ids, and
# the copies of each by device.
_kept: dict[int, dict[Any, Any]] = {}


def keep_on_devices(pool: NDArray[np.float64]) -> None:
    """Let displacements that are cut from an array be copied to a device once.

    A transfer for each piece of 65,536 numbers takes longer than a training step.

    Parameters
    ----------
    pool
        Owns its memory, shape (count,); from now on neither written to nor let go.
    """
    _kept[id(pool)] = {}


def _on_device(moves: NDArray[np.float64], device: Any) -> Any:
    """Give displacements as a tensor on a device."""
    import torch

    pool: Any = moves.base
    if device.type == "cpu" or id(pool) not in _kept:
        return torch.from_numpy(moves).to(device)
    copies = _kept[id(pool)]
    if device not in copies:
        copies[device] = torch.from_numpy(pool).to(device)
    first = (moves.ctypes.data - pool.ctypes.data) // pool.itemsize
    return copies[device][first : first + len(moves)]
