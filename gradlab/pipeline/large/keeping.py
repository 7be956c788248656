"""The worst columns of a block that comes a few columns at a time."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.pipeline.blocks import Block

__all__ = ["Keeper", "spread_step"]

_SPREAD = 16  # columns from all over that are kept beside the worst
_WRONG = 1e30  # a verdict weighs more than any excess


def spread_step(columns: int, most: int, *, pairs: bool) -> int:
    """Choose the distance between columns to keep whatever they are.

    They are half of the `most` that are kept, or fewer: the others are the worst.

    Examples
    --------
    >>> spread_step(100, 8, pairs=False), spread_step(100, 8, pairs=True)
    (25, 50)
    """
    each = 2 if pairs else 1
    units = max(1, min(_SPREAD, most // 2) // each)
    return each * -(-columns // (each * units))


class Keeper:
    """Keeps some columns of one input: those that must be, then the worst.

    Parameters
    ----------
    most
        Number of columns (real coordinates) to keep.
    pairs
        Whether two neighbours are one complex entry, and stay together.
    always
        Coordinates to keep whatever they are, so that a report shows some of all.
    """

    def __init__(self, most: int, *, pairs: bool, always: NDArray[np.intp]) -> None:
        self._most = most - most % 2 if pairs else most
        self._pairs, self._always = pairs, always
        self._score: NDArray[np.float64] = np.empty(0)
        self.block: Block | None = None

    def offer(self, block: Block) -> None:
        """Take in what is worse than the least of what is kept."""
        fresh = self._scores(block)
        chosen = _largest(fresh, self._most)
        if len(self._score) >= self._most:  # copies are made of what displaces others
            chosen = chosen[fresh[chosen] > self._score.min()]
            if not chosen.size:
                return
        best, score = _picked(block, chosen), fresh[chosen]
        if self.block is not None:
            both = np.concatenate([self._score, score])
            kept = _largest(both, self._most)
            best, score = _picked(_joined(self.block, best), kept), both[kept]
        order = np.argsort(best.positions, kind="stable")
        self.block, self._score = _picked(best, order), score[order]

    def _scores(self, block: Block) -> NDArray[np.float64]:
        """How bad each column is: by its worst verdict, then by its largest excess."""
        verdict = block.verdicts.max(axis=0, initial=0)
        score = np.minimum(block.excess(), 1e9) + _WRONG * verdict
        score = np.where(np.isin(block.positions, self._always), np.inf, score)
        if self._pairs:
            score = np.repeat(score.reshape(-1, 2).max(axis=1), 2)
        return np.asarray(score, dtype=np.float64)


def _largest(score: NDArray[np.float64], most: int) -> NDArray[np.intp]:
    return np.sort(np.argsort(-score, kind="stable")[:most])


def _fields(block: Block) -> dict[str, NDArray[Any]]:
    """Arrays of a block that have one value per column, or one per entry."""
    found = {
        field.name: getattr(block, field.name) for field in dataclasses.fields(block)
    }
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, np.ndarray)
        and name not in {"still", "slack", "height", "grain"}
    }


def _wide_slack(block: Block) -> NDArray[np.float64]:
    return np.broadcast_to(block.slack, block.value.shape)


def _picked(block: Block, columns: NDArray[np.intp]) -> Block:
    """Copy some columns of a block."""
    parts: dict[str, Any] = {
        name: np.ascontiguousarray(value[..., columns])
        for name, value in _fields(block).items()
    }
    parts["slack"] = _wide_slack(block)[:, columns].copy()
    return dataclasses.replace(block, **parts)


def _joined(one: Block, other: Block) -> Block:
    """Put the columns of two blocks of the same input side by side."""
    left, right = _fields(one), _fields(other)
    parts: dict[str, Any] = {
        name: np.concatenate([left[name], right[name]], axis=-1)
        for name in left
        if name in right
    }
    for name in left.keys() ^ right.keys():  # there for some columns only
        halves = (_whole(block, name) for block in (one, other))
        parts[name] = np.concatenate(list(halves), axis=-1)
    parts["grain"] = other.grain if one.grain is None else one.grain
    parts["slack"] = np.concatenate([one.slack, other.slack], axis=1)
    return dataclasses.replace(one, **parts)


def _whole(block: Block, name: str) -> NDArray[Any]:
    """Return a field that may be there for some columns only, for all of a block."""
    value = getattr(block, name)
    if isinstance(value, np.ndarray):
        return value
    if name == "own_scales":
        return block.latest_scales
    if name == "precise":
        return block.formula
    if name == "upheld":
        return np.zeros(len(block.positions), dtype=bool)
    if name == "walked":
        return np.zeros(len(block.positions))
    return np.zeros(block.value.shape)  # what is excused of an entry: nothing
