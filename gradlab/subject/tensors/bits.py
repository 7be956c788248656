"""Tensors compared bit by bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.subject.guarding.torch_state import fingerprint

if TYPE_CHECKING:
    from gradlab.subject.tensors.values import Cell

__all__ = ["Before", "same_bits"]

_COPIED = 1 << 16  # numbers of an input up to which a copy is kept


def same_bits(one: Any, two: Any) -> bool:
    """Whether two dense or nested tensors hold the same numbers in one shape and dtype.

    Examples
    --------
    >>> import torch
    >>> same_bits(torch.tensor([torch.nan]), torch.tensor([torch.nan]))
    True
    """
    import torch

    if one.is_nested and two.is_nested:
        parts = one.unbind(), two.unbind()
        return len(parts[0]) == len(parts[1]) and all(map(same_bits, *parts))
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    try:
        if torch.equal(one, two):
            return True
    except (RuntimeError, NotImplementedError):  # dtypes without arithmetic
        pass
    flat = (
        part.detach().resolve_conj().resolve_neg().reshape(-1) for part in (one, two)
    )
    return torch.equal(*(part.contiguous().view(torch.uint8) for part in flat))


class Before:
    """What an input held before a call that may write to it where nothing counts it.

    Of a large one no copy is kept: it holds what the user's own holds. Where it no
    longer does, sums tell which of the two was written to.

    Parameters
    ----------
    cell
        At the point, as a rule; a large one that is displaced is put back there.
    """

    __slots__ = ("_cell", "_copy", "_sums")

    def __init__(self, cell: Cell) -> None:
        values, source = cell.values.detach(), cell.source
        beside = (
            values.numel() > _COPIED
            and (cell.pattern is None and values.dtype == source.dtype)
            and values.is_contiguous()
            and not (values.is_conj() or values.is_neg())
        )
        self._cell = cell
        self._copy = None if beside else values.clone()
        self._sums = _sums(values) if beside else None

    def written(self) -> bool:
        """Whether it holds something else now."""
        values = self._cell.values.detach()
        if self._copy is not None:
            return not same_bits(values, self._copy)
        if same_bits(values, self._cell.source):
            return False
        return not _sums(values).equal(self._sums)

    def put_back(self) -> None:
        """Let it hold what it held."""
        kept = self._cell.source if self._copy is None else self._copy
        self._cell.values.detach().copy_(kept)


def _sums(values: Any) -> Any:
    """Fingerprint of a contiguous tensor."""
    import torch

    return fingerprint(values.view(-1).view(torch.uint8))
