"""Accusations of little: which they are, and how f slopes there."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.pipeline.blocks import Block
    from gradlab.subject.subject import Subject

__all__ = ["least_first", "off", "slope_at", "unasked_point", "weights"]

_BESIDE = 2e-9  # of a coordinate: far beyond its rounding, and nothing to f
_ROWS = 64  # outputs that are asked: those that are off by least come first


def off(block: Block) -> NDArray[np.bool_]:
    """Accusations of finite numbers."""
    return np.asarray(block.wrong & np.isfinite(block.gap))


def least_first(wrong: list[Block], close: float) -> NDArray[np.intp]:
    """Find outputs of which something is accused, by how far off they are.

    Parameters
    ----------
    close
        Of a gradient: what is farther off than that is asked nothing.
    """
    with np.errstate(all="ignore"):
        far = [weights(block).max(axis=1) for block in wrong]
        own = [np.abs(b.formula * b.sizes).max(axis=1) for b in wrong]
        share = np.max(far, axis=0) / np.fmax(np.max(own, axis=0), np.finfo(float).tiny)
    order = np.argsort(share, kind="stable")
    near = (share[order] > 0) & (share[order] < close)
    return np.asarray(order[near][:_ROWS])


def weights(block: Block) -> NDArray[np.float64]:
    """How far accused entries are off, times their sizes; 0 where nobody is accused."""
    with np.errstate(invalid="ignore"):
        return np.where(off(block), block.gap * block.sizes, 0.0)


def slope_at(
    subject: Subject, block: Block, column: int, step: float
) -> NDArray[np.float64]:
    """Slopes of all outputs along one coordinate, by a central difference, (rows,)."""
    place, which = block.positions[column], block.which
    point, step = subject.point(which), step * float(block.sizes[column])
    ends = []
    try:
        for way in (1.0, -1.0):
            there = point.copy()
            there[place] += way * step
            subject.place(which, there)
            ends.append(subject.row())
    finally:
        subject.place(which, None)
    return np.asarray((ends[0] - ends[1]) / (2 * step))


@contextlib.contextmanager
def unasked_point(subject: Subject, count: int) -> Iterator[None]:
    """Let a subject stand a little beside its point, where nobody has evaluated it.

    A function that keeps its results gives back what it has, and runs no line for it.

    Parameters
    ----------
    count
        A number of its own for each such point.
    """
    every = range(len(subject.inputs))
    try:
        for which in every:
            point = subject.point(which)
            away = _BESIDE * (1 + count) * np.where(point == 0, 1.0, point)
            subject.place(which, point + away)
        yield
    finally:
        for which in every:
            subject.place(which, None)
