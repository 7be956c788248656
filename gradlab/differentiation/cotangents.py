"""Cotangents multiplied into a Jacobian; most ask for single rows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["contracted", "rows_picked"]


def rows_picked(cotangents: NDArray[np.float64]) -> NDArray[np.intp] | None:
    """Say which rows of a Jacobian some cotangents pick, if that is all they do.

    Parameters
    ----------
    cotangents
        Shape (count, rows).

    Returns
    -------
    ndarray or None
        Shape (count,); None where a cotangent is no row of the identity.

    Examples
    --------
    >>> rows_picked(np.eye(3)[[2, 0]])
    array([2, 0])
    >>> rows_picked(2 * np.eye(3)) is None
    True
    """
    where, rows = np.nonzero(cotangents)
    plain = len(where) == len(cotangents) and np.array_equal(
        where, np.arange(len(cotangents))
    )
    return rows if plain and (cotangents[where, rows] == 1).all() else None


def contracted(
    cotangents: NDArray[np.float64], blocks: Sequence[NDArray[np.float64]]
) -> tuple[NDArray[np.float64], ...]:
    """Multiply cotangents into the blocks of a Jacobian, one per input.

    Rows that are picked are copied: a product with the identity would turn one nan into
    a row of them. Rows that nobody asks for are left out for the same reason.
    """
    rows = rows_picked(cotangents)
    if rows is not None:
        return tuple(np.asarray(block[rows]) for block in blocks)
    asked = cotangents.any(axis=0)
    with np.errstate(all="ignore"):
        if asked.all():
            return tuple(np.asarray(cotangents @ block) for block in blocks)
        return tuple(np.asarray(cotangents[:, asked] @ b[asked]) for b in blocks)
