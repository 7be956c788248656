"""Tensors compared bit by bit."""

from __future__ import annotations

from typing import Any

__all__ = ["same_bits"]


def same_bits(one: Any, two: Any) -> bool:
    """Whether two dense tensors hold the same numbers in one shape and dtype.

    Examples
    --------
    >>> import torch
    >>> same_bits(torch.tensor([torch.nan]), torch.tensor([torch.nan]))
    True
    """
    import torch

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
