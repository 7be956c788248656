"""Random directions that are regenerated from seeds instead of being stored."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.products import inner, length
from gradlab.subject.own_seeds import own_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Direction", "Scratch", "typical_size"]

# From this size on a direction is an outer product of two vectors: as random as needed
# (entries have independent signs in pairs, and E[<g, v>^2] = |g|^2), and it costs a
# thousandth of the random numbers.
_LARGE = 1 << 12
_SAMPLE = 1 << 12  # entries looked at to find the size of a tensor, to a percent
_ODD = 0x9E37_79B9_7F4A_7C15  # of distinct seeds all multiples are distinct


class Scratch:
    """Memory for moved copies of large tensors, used again and again.

    Fresh memory costs more than the arithmetic, for the system clears each page.
    """

    def __init__(self) -> None:
        self._rooms: dict[Any, list[Any]] = {}
        self._taken: dict[Any, int] = {}

    def reset(self) -> None:
        """Give all rooms free for the next evaluation."""
        self._taken.clear()

    def like(self, tensor: Any, dtype: Any) -> Any:
        """Return a room of the shape of a tensor, with any content."""
        key = dtype, tensor.device
        rooms, number = self._rooms.setdefault(key, []), self._taken.get(key, 0)
        self._taken[key] = number + 1
        if number == len(rooms):
            rooms.append(None)
        if rooms[number] is None or rooms[number].numel() < tensor.numel():
            rooms[number] = None  # before the larger one is asked for
            rooms[number] = tensor.new_empty(tensor.numel(), dtype=dtype)
        return rooms[number][: tensor.numel()].view(tensor.shape)


class Direction:
    """A random tensor ``v`` of the shape and the typical size of another.

    Parameters
    ----------
    base
        Tensor to move; read only.
    seed
        Same seed, same direction.
    dtype
        Of what it makes; that of `base` if None.
    mask
        None for all entries; else a tensor of zeros and ones.
    relative
        Whether each entry moves in proportion to itself, where the tensor spans many
        orders of magnitude.
    size
        Of its entries; the typical one of `base` if None.
    """

    def __init__(
        self,
        base: Any,
        seed: int,
        *,
        dtype: Any = None,
        mask: Any = None,
        relative: bool = False,
        size: float | None = None,
    ) -> None:
        self._base = base
        self._dtype = dtype or base.dtype
        self._rows: Any = None
        self._dense: Any = None
        self.size = size or typical_size(base)
        large = base.numel() >= _LARGE and base.dim() >= 2 and base.is_contiguous()
        if large and mask is None and not relative:
            matrix = base.view(_balanced(base.shape))
            self._matrix = matrix
            drawn = _normal(matrix, (sum(matrix.shape),), seed, self._dtype)
            self._rows = drawn[: matrix.shape[0]]
            self._columns = drawn[matrix.shape[0] :] * self.size
            return
        dense = _normal(base, tuple(base.shape), seed, self._dtype)
        # one size for all would be that of the largest, which may move nothing
        self._sizes: Any = base.abs() if relative else self.size
        dense = dense * self._sizes
        self._dense = dense if mask is None else dense * mask

    def move(self, step: float, scratch: Scratch | None = None) -> Callable[[], Any]:
        """Return what makes ``base + step * v``, in `scratch` if that is given."""

        def moved() -> Any:
            if self._rows is None:
                return self._base + step * self._dense
            import torch

            matrix, rows, columns = self._matrix, self._rows, self._columns
            room = (Scratch() if scratch is None else scratch).like(matrix, self._dtype)
            if matrix.dtype == self._dtype:
                new = torch.addr(matrix, rows, columns, alpha=step, out=room)
            else:  # faster than to let `addr` widen entry by entry
                new = room.copy_(matrix).addr_(rows, columns, alpha=step)
            return new.view(self._base.shape)

        return moved

    def plus(self, other: Direction, step: float) -> Callable[[], Any]:
        """Return what makes ``base + step * (v + w)`` for another direction w."""

        def moved() -> Any:
            new = self.move(step)()
            if other._rows is None:
                return new + step * other._dense
            matrix = new.view(other._matrix.shape)
            matrix.addr_(other._rows, other._columns, alpha=step)
            return new

        return moved

    def slope(self, gradient: Any) -> tuple[float, float]:
        """Inner product with a gradient, and the size it typically has.

        Parameters
        ----------
        gradient
            Of the shape of `base`; None for zero.

        Returns
        -------
        slope, typical
            ``<gradient, v>``, and about ``|gradient|`` times the size of ``v``.
        """
        if gradient is None:
            return 0.0, 0.0
        if self._rows is None:
            size = self._sizes
            if isinstance(size, float):
                return inner(gradient, self._dense), length(gradient) * size
            return inner(gradient, self._dense), length(gradient * size)
        matrix = gradient.reshape(self._matrix.shape)
        row = self._rows.to(matrix.dtype) @ matrix
        return inner(row, self._columns), length(row) * self.size


def _balanced(shape: Sequence[int]) -> tuple[int, int]:
    """Split axes in two groups, so that rows plus columns are few."""
    cuts = [
        (math.prod(shape[:cut]), math.prod(shape[cut:])) for cut in range(1, len(shape))
    ]
    return min(cuts, key=sum)


def _normal(like: Any, shape: tuple[int, ...], seed: int, kind: Any) -> Any:
    import torch

    generator = torch.Generator(device=like.device)
    generator.manual_seed((_first_seed() + _ODD * seed) % (1 << 63))
    dtype = kind
    if dtype not in {torch.float64, torch.complex128, torch.complex64}:
        dtype = torch.float32
    drawn = torch.randn(shape, generator=generator, dtype=dtype, device=like.device)
    return drawn.to(kind)


@functools.cache
def _first_seed() -> int:
    return own_seed(0, "directions")


def typical_size(tensor: Any) -> float:
    """Estimate the root mean square of a tensor; 1 where it is zero."""
    flat = tensor.reshape(-1) if tensor.is_contiguous() else tensor.flatten()
    if flat.numel() > _SAMPLE:
        flat = flat[:: flat.numel() // _SAMPLE]
    if not flat.numel():
        return 1.0
    size = length(flat) / math.sqrt(flat.numel())
    return size if 0 < size < float("inf") else 1.0
