"""One entry of a weight displaced, without a copy of the weight.

A product is linear in each factor: with one entry of `w` displaced by `h`, ``x @ w``
changes by `h` times one column of `x`, in one column. Of a matrix of thousands of
entries that costs a thousandth of a perturbed copy, and what follows the product may
go on with that column alone (`differing`). `one_entry` stands
over an evaluation of the user's function, hands it a tensor without memory in place of
the weight, lets the products of that through with the change added, and refuses every
other use: then copies have to do. The values are those of the function itself, up to
the order of summation, which is checked against single evaluations
(`gradlab.subject.tensors.batching.batches`). Nothing here knows of derivatives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.subject.tensors.incremental.differing import differing
from gradlab.subject.tensors.incremental.standing_in import Met, standing_in
from gradlab.subject.tensors.incremental.words import is_batched

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["one_entry", "suitable"]

_FEWEST = 256  # entries; copies of anything smaller cost nothing


def suitable(values: Any) -> bool:
    """Whether a tensor may be displaced this way: a float64 matrix, large enough."""
    import torch

    fits = values.dim() == 2 and values.layout is torch.strided
    return bool(fits and values.dtype is torch.float64 and values.numel() >= _FEWEST)


def one_entry(
    values: Any,
    row: Any,
    column: Any,
    step: Any,
    call: Callable[[Any], tuple[Any, ...]],
    sizes: list[int] | None = None,
) -> tuple[Any, ...]:
    """Call with one entry of a matrix displaced in every product that it is part of.

    Parameters
    ----------
    values
        The matrix.
    row, column
        Index of the entry, integer tensors of shape (); batched under vmap.
    step
        Displacement, shape ().
    call
        Evaluates, with what it gets in place of the matrix; returns tensors.
    sizes
        Gets the size of every tensor that has to be filled in the course of it.

    Raises
    ------
    OtherUseError
        If the matrix is used otherwise.

    Examples
    --------
    >>> import torch
    >>> w, one = torch.ones(2, 3), torch.tensor(1)
    >>> one_entry(w, one, one, torch.tensor(0.5), lambda w: (torch.ones(1, 2) @ w,))
    (tensor([[2.0000, 2.5000, 2.0000]]),)
    """
    sizes = [] if sizes is None else sizes
    index = row.reshape(1), column.reshape(1)

    def meet(met: Met) -> Any:
        row, column = index[::-1] if met.turned else index
        if met.side == "right":
            return _moved(met.out, -1, column, _column(met.other, row) * step, sizes)
        return _moved(met.out, -2, row, _row(met.other, column) * step, sizes)

    return standing_in(values, meet, call)


def _moved(out: Any, axis: int, index: Any, by: Any, sizes: list[int]) -> Any:
    """Give a product of which one slice moves."""
    if is_batched(out):  # an earlier product has changed all of it
        sizes.append(out.numel())
        return out + (_numbers(out, axis) == index) * by
    part = (_column if axis == -1 else _row)(out, index) + by
    return differing(out, axis, index, part, sizes)


def _numbers(values: Any, axis: int) -> Any:
    """Give numbers to the slices along an axis, shaped to be broadcast."""
    import torch

    numbers = torch.arange(values.shape[axis], device=values.device)
    return numbers if axis == -1 else numbers[:, None]


def _column(values: Any, index: Any) -> Any:
    """One index of the last axis, as an axis of length 1."""
    import torch

    return torch.index_select(values, -1, index)


def _row(values: Any, index: Any) -> Any:
    """One index of the axis before the last, as an axis of length 1."""
    import torch

    return torch.index_select(values, -2, index)
