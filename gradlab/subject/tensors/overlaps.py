"""Which tensors, and which entries of one, lie at the same place in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.subject.tensors.values import Cell

__all__ = ["overlaps", "sharing"]

_MOST = 1 << 22  # entries whose addresses are listed; larger ones "may" overlap
_WORK = 10_000  # of NumPy's solver, for one pair


def overlaps(tensor: Any) -> bool:
    """Whether two entries of a dense tensor lie at one address.

    Examples
    --------
    >>> import torch
    >>> overlaps(torch.ones(1).expand(3)), overlaps(torch.ones(4)[::2])
    (True, False)
    >>> overlaps(torch.arange(8.0).as_strided((3, 2), (2, 3)))
    False
    """
    reach = 0  # furthest address reached by the dimensions seen so far
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    spread = sorted(pair for pair in pairs if pair[1] > 1)
    if tensor.numel() == 0:
        return False
    for stride, size in spread:
        if stride <= reach:
            return _at_one_address(spread) if tensor.numel() <= _MOST else True
        reach += stride * (size - 1)
    return False


def _at_one_address(spread: Sequence[tuple[int, int]]) -> bool:
    """Whether indices of some (stride, size) lead to fewer addresses than there are."""
    if spread[0][0] == 0:
        return True
    places = np.zeros(1, dtype=np.int64)
    for stride, size in spread:
        places = np.add.outer(places, stride * np.arange(size)).ravel()
    return len(np.unique(places)) < len(places)


def sharing(cells: Sequence[Cell]) -> tuple[tuple[str, str], ...]:
    """Pairs of inputs that have addresses in common in the user's memory.

    Examples
    --------
    >>> import torch
    >>> from gradlab.subject.tensors.values import make_cell
    >>> rows = torch.zeros(3, 2)
    >>> cells = [make_cell("a", rows), make_cell("b", rows[0])]
    >>> sharing([*cells, make_cell("c", torch.zeros(2))])
    (('a', 'b'),)
    >>> sharing([make_cell("a", rows[:, 0]), make_cell("b", rows[:, 1])])
    ()
    """
    spans = []
    for cell in cells:
        source = cell.source
        if source.numel():
            last = sum(
                stride * (size - 1)
                for stride, size in zip(source.stride(), source.shape, strict=True)
            )
            start = source.data_ptr()
            spans.append((start, start + (last + 1) * source.element_size(), cell))
    spans.sort(key=lambda span: span[0])
    pairs = []
    for i, (_, stop, cell) in enumerate(spans):
        for start, _, other in spans[i + 1 :]:
            if start >= stop:
                break
            if _share(cell.source, other.source):
                pairs.append((cell.variable.name, other.variable.name))
    return tuple(pairs)


def _share(one: Any, two: Any) -> bool:
    """Whether an address belongs to both, and not only lies between those of both."""
    if one.device != two.device:
        return False
    try:
        some: Any = _WORK  # NumPy's stubs know two of its values
        return np.shares_memory(_addresses(one), _addresses(two), max_work=some)
    except np.exceptions.TooHardError:
        return True


def _addresses(tensor: Any) -> NDArray[Any]:
    """Array that stands where a tensor stands; nobody may look at what is in there."""
    size = tensor.element_size()

    class Place:
        __array_interface__ = {  # noqa: RUF012 - read once, here
            "data": (tensor.data_ptr(), True),
            "shape": tuple(tensor.shape),
            "strides": tuple(stride * size for stride in tensor.stride()),
            "typestr": f"|V{size}",
            "version": 3,
        }

    return np.asarray(Place())
