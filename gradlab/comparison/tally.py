"""What is kept of a block that is too large to keep: counts, extremes, tiles.

A streamed comparison sees every entry once, a few columns at a time. Of each tile of
the matrix the worst entry stays, so that a picture of the whole can be drawn in which
no wrong entry is averaged away.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.relative_errors import (
    RELATIVE_FLOOR,
    relative_error,
    told_error,
)
from gradlab.comparison.tiling import bands
from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gradlab.comparison.comparison import Comparison

__all__ = ["Packed", "Tally", "Tallying"]

_TILES = 240  # down and across: as many as a picture has pixels for
_PLANES = ("analytic", "numeric", "numeric_error", "allowed")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """All entries of a block, of which only some columns were kept.

    Parameters
    ----------
    shape
        Rows and columns of the whole block.
    looked
        Columns that were looked at; fewer than all if the check was cut short.
    counts
        Entries that agree, are undecided, disagree.
    max_abs_error, max_rel_error
        As of `Comparison`.
    finite_power
        `Comparison.power`, undecided entries left out.
    rows, columns
        True position of the worst entry of each tile, shape (down, across); -1 where
        nothing was looked at.
    analytic, numeric, numeric_error, allowed, verdicts
        Of that entry.
    """

    shape: tuple[int, int]
    looked: int
    counts: tuple[int, int, int]
    max_abs_error: float
    max_rel_error: float
    finite_power: float
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    analytic: NDArray[Any]
    numeric: NDArray[Any]
    numeric_error: NDArray[np.float64]
    allowed: NDArray[np.float64]
    verdicts: NDArray[np.int8]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of any entry."""
        worst = [k for k, count in enumerate(self.counts) if count]
        return Verdict(max(worst, default=0))

    @property
    def power(self) -> float:
        """Smallest error of a single entry that would have been caught."""
        return float("inf") if self.counts[1] else self.finite_power


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """A block that is mostly zeros on both sides: its entries, laid side by side.

    Attributes
    ----------
    columns, valid
        Of every entry, (m, k); where `valid` is False there is none.
    analytic, numeric, numeric_error, allowed, verdicts
        As of `Comparison`, of these entries.
    bars, forgiven
        Error bar, and what the tolerance forgives, of the zeros in some rows and
        columns.
    caught
        Error of a zero of each row that would have been caught wherever it is, (m,).
    left_out
        Columns that are not here; no entry of theirs is valid.
    """

    columns: NDArray[np.intp]
    valid: NDArray[np.bool_]
    analytic: NDArray[Any]
    numeric: NDArray[Any]
    numeric_error: NDArray[np.float64]
    allowed: NDArray[np.float64]
    verdicts: NDArray[np.int8]
    bars: Callable[[NDArray[np.intp], NDArray[np.intp]], NDArray[np.float64]]
    forgiven: Callable[[NDArray[np.intp], NDArray[np.intp]], NDArray[np.float64]]
    caught: NDArray[np.float64]
    left_out: NDArray[np.intp]


class Tallying:
    """Adds up a block that comes a few columns at a time.

    Parameters
    ----------
    shape
        Rows and columns of the whole block.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> tally = Tallying((1, 3))
    >>> tally.add(report["x"])
    >>> tally.result().counts, tally.result().max_abs_error.__round__(6)
    ((0, 0, 3), 1.0)
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        self.down, self.across = min(shape[0], _TILES), min(shape[1], _TILES)
        grid = (self.down, self.across)
        self.counts = np.zeros(3, dtype=np.int64)
        self.looked = 0
        self.extremes = {"abs": 0.0, "rel": 0.0, "power": 0.0}
        self._rank = np.full(grid, -np.inf)
        self._at = np.full((2, *grid), -1, dtype=np.intp)
        self._planes: dict[str, NDArray[Any]] = {}
        self._verdicts = np.zeros(grid, dtype=np.int8)
        self._scale = 0.0

    def add(self, part: Comparison) -> None:
        """Take in some columns; `part.columns` says which."""
        m, n = part.shape
        if not m or not n:
            return
        columns = np.arange(n) if part.columns is None else part.columns
        self.looked += n
        self.counts += np.bincount(part.verdicts.ravel(), minlength=3)[:3]
        self._scale = max(self._scale, part.scale)
        rank = np.empty((m, n), dtype=np.float32)
        for band in bands((m, n)):
            rank[band] = self._measured(part, band)
        self._place(part, rank, columns)

    def add_packed(self, part: Packed) -> None:
        """Take in columns of a block of which only the entries are known; first."""
        m, n = self.shape
        here = n - len(part.left_out)
        if not m or not here:
            return
        self.looked += here
        counts = np.bincount(part.verdicts[part.valid], minlength=3)[:3]
        self.counts += counts
        self.counts[0] += m * here - counts.sum()
        size = np.abs(part.numeric)
        self._scale = max(
            self._scale, float(size.max(initial=0.0, where=np.isfinite(size)))
        )
        rank = np.empty((m, part.columns.shape[1]))
        for band in bands((m, rank.shape[1])):
            rank[band] = self._measured(part, band)
        self._extreme("power", part.caught[np.isfinite(part.caught)])
        self._place_packed(part, rank)

    def _place_packed(self, part: Packed, rank: NDArray[np.float64]) -> None:
        """Let the worst entry of each tile stand for it; where none is, a zero."""
        (m, n), down, across = self.shape, self.down, self.across
        top, here = np.arange(down) * m // down, np.ones(n, dtype=bool)
        here[part.left_out] = False
        seen = np.flatnonzero(here)
        some, first = np.unique(seen * across // n, return_index=True)
        rows, columns = np.meshgrid(top, seen[first], indexing="ij")
        self._planes = self._blank(part)
        self._planes["numeric_error"][:, some] = part.bars(rows, columns)
        self._planes["allowed"][:, some] = part.forgiven(rows, columns)
        self._at[:, :, some] = rows, columns
        self._rank[:, some] = -1.0  # any entry tells more than a zero
        i, k = np.nonzero(part.valid)
        order = np.argsort(rank[i, k], kind="stable")  # the last one written is worst
        i, k = i[order], k[order]
        j = part.columns[i, k]
        tile = np.searchsorted(top, i, side="right") - 1, j * across // n
        self._at[0][tile], self._at[1][tile] = i, j
        self._rank[tile] = rank[i, k]
        self._verdicts[tile] = part.verdicts[i, k]
        for name, plane in self._planes.items():
            plane[tile] = getattr(part, name)[i, k]

    def _blank(self, part: Comparison | Packed) -> dict[str, NDArray[Any]]:
        """Tiles of each matrix, with nothing in them."""
        kinds = {name: getattr(part, name).dtype for name in _PLANES}
        return {name: np.zeros(self._rank.shape, kind) for name, kind in kinds.items()}

    def _measured(self, part: Comparison | Packed, band: slice) -> NDArray[np.float64]:
        """Note the extremes of some rows; return how bad each entry is."""
        a, b = part.analytic[band], part.numeric[band]
        bars, allowed = part.numeric_error[band], part.allowed[band]
        verdicts = part.verdicts[band]
        with np.errstate(all="ignore"):
            error = np.abs(a - b).astype(np.float64)
            agrees = verdicts == Verdict.AGREES
            relative = relative_error(a, b, RELATIVE_FLOOR * self._scale)
            # as in `Comparison.power`
            bound = np.maximum(2 * allowed, SAFETY * bars) + np.where(agrees, error, 0)
            bound = np.where(verdicts == Verdict.UNDECIDED, 0.0, bound)
        self._extreme("abs", error)
        self._extreme("rel", told_error(a, b, bars, allowed, verdicts, self._scale))
        self._extreme("power", bound[np.isfinite(bound)])
        rank = relative + 8.0 * verdicts
        return np.where(np.isnan(error), 5.0 + 8.0 * verdicts, rank)

    def _extreme(self, name: str, values: NDArray[np.float64]) -> None:
        known = self.extremes[name]
        self.extremes[name] = float(np.maximum(known, np.max(values, initial=0.0)))

    def _place(
        self, part: Comparison, rank: NDArray[np.float32], columns: NDArray[np.intp]
    ) -> None:
        """Let the worst entry of each tile stand for it."""
        if not self._planes:
            self._planes = self._blank(part)
        tile = columns * self.across // self.shape[1]
        top = np.arange(self.down + 1) * self.shape[0] // self.down
        for i in range(self.down):
            strip = rank[top[i] : top[i + 1]]
            row = strip.argmax(axis=0)
            worst = strip[row, np.arange(len(columns))]
            order = np.argsort(worst, kind="stable")  # the last one written is worst
            best = np.full(self.across, -1, dtype=np.intp)
            best[tile[order]] = order
            k = best[best >= 0]
            k = k[worst[k] > self._rank[i, tile[k]]]
            to, place = tile[k], (top[i] + row[k], k)
            self._rank[i, to] = worst[k]
            self._at[0, i, to], self._at[1, i, to] = place[0], columns[k]
            self._verdicts[i, to] = part.verdicts[place]
            for name, plane in self._planes.items():
                plane[i, to] = getattr(part, name)[place]

    def corrected(self, before: Comparison, after: Comparison) -> None:
        """Replace verdicts of some columns that were judged again."""
        for sign, part in ((-1, before), (1, after)):
            self.counts += sign * np.bincount(part.verdicts.ravel(), minlength=3)[:3]
        columns = np.arange(after.shape[1]) if after.columns is None else after.columns
        where = np.searchsorted(columns, self._at[1])
        where = np.minimum(where, len(columns) - 1)
        known = (self._at[1] >= 0) & (columns[where] == self._at[1])
        pick = self._at[0][known], where[known]
        self._verdicts[known] = after.verdicts[pick]

    def result(self) -> Tally:
        """Return what has come so far."""
        none = np.zeros(self._rank.shape)
        planes = {name: self._planes.get(name, none) for name in _PLANES}
        return Tally(
            shape=self.shape,
            looked=self.looked,
            counts=(int(self.counts[0]), int(self.counts[1]), int(self.counts[2])),
            max_abs_error=self.extremes["abs"],
            max_rel_error=self.extremes["rel"],
            finite_power=self.extremes["power"],
            rows=self._at[0],
            columns=self._at[1],
            verdicts=self._verdicts,
            **planes,
        )
