"""The worst entry of every tile of a matrix that is too large to draw whole.

A picture that averages or drops entries hides the very entry one is looking for. Here a
tile is represented by its worst entry: disagreeing before undecided before agreeing,
then NaN before inf before any number. Matrices are read in bands, so that 10^8 entries
need no copy of themselves; and a large one is read once for page, picture and text
together (`digest`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.relative_errors import (
    RELATIVE_FLOOR,
    told_error,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gradlab.comparison.comparison import Comparison

__all__ = [
    "LARGE",
    "Digest",
    "arrangement",
    "badness",
    "digest",
    "largest_size",
    "worst_of_tiles",
]

# Entries from which on a block is read once, and every view takes the worst of its
# tiles from there; sorting or masking as many costs a second.
LARGE = 1_000_000
# Entries of one band: a few temporaries of as many float64 fit a cache.
_BAND = 300_000
_GRID = (240, 240)  # tiles down and across, where nobody says how many
_FOLD = 48  # a vector longer than this is folded into lines
_TINY = float(np.finfo(np.float64).tiny)


# ------------------------------------------------------------------ tiles
def _edges(length: int, tiles: int) -> NDArray[np.intp]:
    """Bounds of `tiles` nearly equal tiles of 0..length, shape (tiles + 1,)."""
    return (np.arange(tiles + 1) * length // max(tiles, 1)).astype(np.intp)


def worst_of_tiles(
    key: Callable[[slice, slice], NDArray[np.floating[Any]]],
    shape: tuple[int, int],
    out: tuple[int, int],
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find the worst entry of every tile, reading the matrix in bands.

    Parameters
    ----------
    key
        ``key(rows, columns)`` returns how bad the entries of that part are; nan
        counts as worse than inf, inf as worse than any number.
    shape
        Rows and columns of the whole matrix.
    out
        Tiles at most, down and across.

    Returns
    -------
    tuple of ndarray
        Row and column of the worst entry of each tile.

    Examples
    --------
    >>> error = np.zeros((4, 4))
    >>> error[2, 1] = 1
    >>> rows, columns = worst_of_tiles(lambda r, c: error[r, c], (4, 4), (2, 2))
    >>> (int(rows[1, 0]), int(columns[1, 0]))
    (2, 1)
    """
    down, across = (min(n, limit) for n, limit in zip(shape, out, strict=True))
    top, left = _edges(shape[0], down), _edges(shape[1], across)
    rows = np.zeros((down, across), np.intp)
    columns = np.zeros((down, across), np.intp)
    for i in range(down):
        height = int(top[i + 1] - top[i])
        start = 0
        while start < across:
            limit = left[start] + max(_BAND // height, 1)
            stop = int(np.searchsorted(left, limit, side="right")) - 1
            stop = min(max(stop, start + 1), across)
            part = key(
                slice(int(top[i]), int(top[i + 1])),
                slice(int(left[start]), int(left[stop])),
            )
            edges = left[start : stop + 1] - left[start]
            row, column = _worst_in_band(_ranked(part), edges)
            rows[i, start:stop] = top[i] + row
            columns[i, start:stop] = left[start] + column
            start = stop
    return rows, columns


def _ranked(key: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """Make keys comparable: nan above inf above every number."""
    if np.isfinite(key.max(initial=0.0)):  # nan would show here
        return key
    key = np.array(key, dtype=np.float64)
    key[np.isposinf(key)] = np.finfo(np.float64).max
    key[np.isnan(key)] = np.inf
    return key


def _worst_in_band(
    key: NDArray[np.floating[Any]], edges: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Position of the largest key in every tile of one band."""
    # down first: rows lie one after another in memory, so that is a fast pass
    strip = key.max(axis=0)
    width = np.diff(edges)
    offset = np.arange(int(width.max()))
    inside = offset < width[:, None]
    position = np.where(inside, edges[:-1, None] + offset, 0)
    column = edges[:-1] + np.where(inside, strip[position], -np.inf).argmax(axis=1)
    return key[:, column].argmax(axis=0), column


# ------------------------------------------------------------------ how bad
def badness(
    analytic: NDArray[Any],
    numeric: NDArray[Any],
    verdicts: NDArray[np.int8],
    floor: float,
) -> NDArray[np.float32]:
    """Order entries: verdict first, then NaN > inf > relative error.

    Examples
    --------
    >>> agrees = np.zeros(3, np.int8)
    >>> badness(np.array([1.0, np.nan, 3.0]), np.ones(3), agrees, 0.0)
    array([0. , 5. , 0.5], dtype=float32)
    """
    with np.errstate(all="ignore"):
        # differences in double precision, whatever the matrices are stored in
        error = np.abs(np.subtract(analytic, numeric, dtype=_wide(analytic, numeric)))
        size = np.abs(analytic)
        size = size + np.abs(numeric)
        np.maximum(size, floor or _TINY, out=size)
        rank: NDArray[np.float32] = np.divide(error, size).astype(np.float32)
    if not np.isfinite(rank.max(initial=0.0)):  # masks only where they are needed
        rank[np.isinf(error)] = 3
        rank[np.isnan(error)] = 5
    if verdicts.any():
        rank += verdicts * np.float32(8)
    return rank


def _wide(*sides: NDArray[Any]) -> np.dtype[Any]:
    return np.result_type(np.float64, *sides)


def largest_size(values: NDArray[Any]) -> float:
    """Largest finite size, without a temporary as large as the matrix.

    Examples
    --------
    >>> largest_size(np.array([[1.0, -3.0, np.inf]]))
    3.0
    """
    if values.size == 0:
        return 0.0
    if not np.iscomplexobj(values):
        largest = max(float(values.max()), -float(values.min()))
        if math.isfinite(largest):
            return largest
    largest = 0.0
    step = max(1, _BAND // max(1, values.shape[1]))
    for r in range(0, values.shape[0], step):
        size = np.abs(values[r : r + step])
        largest = max(largest, float(size[np.isfinite(size)].max(initial=0.0)))
    return largest


# ------------------------------------------------------------------ the layout
def arrangement(comparison: Comparison) -> tuple[int, int, str]:
    """Choose rows and columns of the picture: ``(rows, columns, kind)``.

    "matrix" is the Jacobian itself. The gradient of a scalar is drawn in the shape of
    its input ("input"), the derivative with respect to a scalar in the shape of its
    output ("output"), and a long vector in lines like a text ("fold").
    """
    m, n = comparison.shape
    if (m != 1 and n != 1) or m * n == 0:
        return m, n, "matrix"
    kind, variable = (
        ("input", comparison.input) if m == 1 else ("output", comparison.output)
    )
    count = m * n
    shape = tuple(length for length in variable.shape if length != 1)
    whole = variable.support is None and math.prod(variable.shape) == count
    if kind == "input":
        whole = whole and comparison.columns is None and comparison.coverage != "probe"
    if whole and len(shape) > 1:
        return shape[0], count // shape[0], kind
    if _FOLD < count <= LARGE:
        columns = _line_length(count)
        return math.ceil(count / columns), columns, "fold"
    return m, n, "matrix"


def _line_length(count: int) -> int:
    """Entries in a line: about twice as many as lines, without a gap in the last.

    A gap looks like entries that are equal; there is one if no length near that fits.
    """
    ideal = math.sqrt(2 * count)
    lengths = range(math.ceil(ideal / 1.5), int(1.5 * ideal) + 1)
    even = [length for length in lengths if count % length == 0]
    # of 8 and 16 for 64, as near as each other, the longer
    off = {length: round(abs(math.log(length / ideal)), 9) for length in even}
    return min(even, key=lambda n: (off[n], -n), default=math.ceil(ideal))


# ------------------------------------------------------------------ all in one
@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Digest:
    """What all views of a large block need, from reading it once.

    Parameters
    ----------
    shape
        Rows and columns of the picture, see `arrangement`.
    out
        Tiles asked for, down and across.
    rows, columns
        Position in the picture of the worst entry of each tile.
    worst
        Row and column, in the Jacobian, of the worst of all.
    relative
        Largest relative error among those of the tiles that stand out of the noise.
    scale
        Largest finite size of the numeric side.
    """

    shape: tuple[int, int]
    out: tuple[int, int]
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    worst: tuple[int, int]
    relative: float
    scale: float


# By the arrays that were read, and gone with them.
_KNOWN: dict[tuple[int, int, int], Digest] = {}


def digest(comparison: Comparison, out: tuple[int, int] | None = None) -> Digest:
    """Read a block once: the worst entries of its tiles, and the worst of all.

    What was read of a large block is kept while its arrays live: the page, its
    picture and its text look at the same matrix within a second.

    Parameters
    ----------
    comparison
        The block, which is not empty.
    out
        Tiles down and across at most; None takes what is there.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> digest(report["x"]).worst
    (0, 0)
    """
    arrays = (comparison.analytic, comparison.numeric, comparison.verdicts)
    name = (id(arrays[0]), id(arrays[1]), id(arrays[2]))
    known = _KNOWN.get(name)
    if known is not None and out in (None, known.out):
        return known
    fresh = _read(comparison, out or _GRID)
    if comparison.analytic.size > LARGE:
        if known is None:
            for array in arrays:
                weakref.finalize(array, functools.partial(_KNOWN.pop, name, None))
        _KNOWN[name] = fresh
    return fresh


def _read(comparison: Comparison, out: tuple[int, int]) -> Digest:
    height, width, _ = arrangement(comparison)
    if height * width != comparison.analytic.size:  # a folded vector has loose ends
        height, width = comparison.shape
    scale = largest_size(comparison.numeric)
    analytic, numeric, verdicts = (
        plane.reshape(height, width)
        for plane in (comparison.analytic, comparison.numeric, comparison.verdicts)
    )

    def key(rows: Any, columns: Any) -> NDArray[np.float32]:
        at = (rows, columns)
        return badness(analytic[at], numeric[at], verdicts[at], RELATIVE_FLOOR * scale)

    rows, columns = worst_of_tiles(key, (height, width), out)
    rank = key(rows, columns)
    place = np.unravel_index(int(rank.argmax()), rank.shape)
    flat = int(rows[place]) * width + int(columns[place])
    pick = np.unravel_index(rows * width + columns, comparison.shape)
    return Digest(
        shape=(height, width),
        out=out,
        rows=rows,
        columns=columns,
        worst=divmod(flat, comparison.shape[1]),
        relative=_largest_told(comparison, pick, scale),
        scale=scale,
    )


def _largest_told(comparison: Comparison, pick: tuple[Any, ...], scale: float) -> float:
    """Take `Comparison.max_rel_error` of some entries."""
    analytic, numeric, bars, allowed, verdicts = (
        plane[pick]
        for plane in (
            comparison.analytic,
            comparison.numeric,
            comparison.numeric_error,
            comparison.allowed,
            comparison.verdicts,
        )
    )
    told = told_error(analytic, numeric, bars, allowed, verdicts, scale)
    return float(np.max(told, initial=0.0))
