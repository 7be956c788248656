"""One block as an image: in the shape that people recognise, worst entry per pixel.

A gradient (one output) is laid out in the shape of its parameter; a Jacobian has one
row per output entry and one column per input entry. The error that is drawn is
*graded*: relative to the larger of both values, but never told apart more finely than
tolerance and error bar allow, so that a pixel is above the tolerance exactly where the
verdict is `DISAGREES`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.tolerance import SAFETY, default_rtol
from gradlab.comparison.verdict import Verdict
from gradlab.presentation.tiles import LARGE, arrangement, digest, worst_of_tiles
from gradlab.subject.subject import EPSILON

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gradlab.comparison.comparison import Comparison
    from gradlab.comparison.tally import Tally

__all__ = ["Picture", "picture", "tolerance_of"]

# Entries of a gradient are put into the parameter's shape up to this many; beyond, the
# map from pixels to entries would cost more than the gradient itself.
_ARRANGED = 4_000_000
_LOWEST_TOLERANCE = 1e-16  # the join of the two ramps must stay on the scale
_JUST = 1e-9  # relative shift that puts an error on the right side of the tolerance


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """Planes of numbers, shape (down, across), one per pixel.

    Parameters
    ----------
    shape
        Rows and columns of the full image, of which each pixel is a tile.
    rows, columns
        Position of the entry shown, in the full image.
    analytic, numeric
        Values; magnitudes for complex derivatives.
    error
        Graded error; nan and inf as such, 0 where both sides are equal.
    verdicts
        `Verdict` of the entry shown, -1 where nothing was looked at.
    tolerance
        Graded error at which a difference becomes a disagreement.
    scale
        Largest finite magnitude of either side.
    xlabel, ylabel
        What columns and rows are.
    magnitude
        Whether values are magnitudes.
    """

    shape: tuple[int, int]
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    analytic: NDArray[np.float64]
    numeric: NDArray[np.float64]
    error: NDArray[np.float64]
    verdicts: NDArray[np.int8]
    tolerance: float
    scale: float
    xlabel: str
    ylabel: str
    magnitude: bool

    @property
    def failing(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows and columns, in the full image, of the pixels that disagree."""
        wrong = self.verdicts == Verdict.DISAGREES
        return self.rows[wrong], self.columns[wrong]


def tolerance_of(comparison: Comparison, epsilon: float = EPSILON) -> float:
    """Relative tolerance in force at the largest entry of a block.

    Where nothing has a size to be relative to, the default of arithmetic of round-off
    `epsilon`.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> round(tolerance_of(report["x"]), 9)
    1e-06
    """
    pick: Any = ...
    if comparison.allowed.size > LARGE:  # the worst of the tiles are many enough
        found = digest(comparison)
        flat = found.rows * found.shape[1] + found.columns
        pick = np.unravel_index(flat, comparison.shape)
    sizes = np.maximum(
        np.abs(comparison.analytic[pick]), np.abs(comparison.numeric[pick])
    )
    sizes = np.where(np.isfinite(sizes), sizes, 0.0)
    if sizes.size:
        place = np.unravel_index(int(sizes.argmax()), sizes.shape)
        allowed = float(comparison.allowed[pick][place])
        if sizes[place] > 0 and 0 < allowed < math.inf:
            return max(allowed / float(sizes[place]), _LOWEST_TOLERANCE)
    return default_rtol(epsilon)


Take = Any  # an index of rows and columns: slices for a band, arrays for pixels


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Sheet:
    """Where the entries of a comparison lie in the full image."""

    shape: tuple[int, int]
    xlabel: str
    ylabel: str
    # position in the image -> column of the comparison, -1 for none; or None where
    # the planes themselves have the shape of the image
    where: NDArray[np.intp] | None

    def take(self, plane: NDArray[Any], rows: Take, columns: Take) -> NDArray[Any]:
        """Read a plane of the comparison through the arrangement."""
        if self.where is not None:
            return np.asarray(plane[0][self.where[rows, columns]])
        return np.asarray(plane.reshape(self.shape)[rows, columns])

    def seen(self, rows: Take, columns: Take) -> NDArray[np.bool_] | None:
        """Which of these were looked at; None for all."""
        if self.where is None:
            return None
        return np.asarray(self.where[rows, columns] >= 0)


def _sheet(comparison: Comparison) -> _Sheet:
    """Choose the arrangement: the parameter's shape if there is one output row."""
    m, n = comparison.shape
    name, shape = comparison.input.name, comparison.input.shape
    entries = f"entry of {name}"
    if comparison.coverage == "probe":
        return _Sheet(
            (m, n), f"random direction in {name}", comparison.output.name, None
        )
    if m != 1:
        return _Sheet((m, n), entries, f"entry of {comparison.output.name}", None)
    total = math.prod(shape)
    partly = comparison.columns is not None or comparison.input.support is not None
    if total > _ARRANGED or total == 0:
        if partly or len(shape) < 2:
            return _Sheet((1, n), entries, "", None)
        return _Sheet(
            arrangement(comparison)[:2], "other axes", f"axis 0 of {name}", None
        )
    flat = np.full(total, -1, np.intp)
    entry = np.arange(n) if comparison.columns is None else comparison.columns
    if comparison.input.support is not None:
        entry = comparison.input.support[entry]
    flat[entry] = np.arange(n)
    if len(shape) == 4:  # a grid of kernels, as convolutions are drawn
        down, across = shape[0] * shape[2], shape[1] * shape[3]
        grid = flat.reshape(shape).transpose(0, 2, 1, 3).reshape(down, across)
        return _Sheet((down, across), f"{name}: axes 1 and 3", "axes 0 and 2", grid)
    if len(shape) < 2:
        return _Sheet((1, total), entries, "", flat.reshape(1, total))
    where = flat.reshape(-1, shape[-1])
    ylabel = f"row of {name}" if len(shape) == 2 else "other axes"
    xlabel = f"column of {name}" if len(shape) == 2 else f"last axis of {name}"
    return _Sheet((where.shape[0], where.shape[1]), xlabel, ylabel, where)


def _graded(
    comparison: Comparison | Tally,
    take: Callable[[NDArray[Any]], NDArray[Any]],
    tolerance: float,
) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
    """Graded error and verdict of some entries."""
    analytic, numeric = take(comparison.analytic), take(comparison.numeric)
    verdict = take(comparison.verdicts).astype(np.int8)
    with np.errstate(all="ignore"):
        error = np.abs(analytic - numeric).astype(np.float64)
        size = np.maximum(np.abs(analytic), np.abs(numeric))
        bound = np.maximum(
            take(comparison.allowed), SAFETY * take(comparison.numeric_error)
        )
        graded = np.where(
            bound > 0, tolerance * error / np.where(bound > 0, bound, 1), error / size
        )
    graded = np.where(error == 0, 0.0, graded)
    graded = np.where(np.isinf(error), np.inf, graded)
    graded = np.where(np.isnan(error), np.nan, graded)
    low, high = tolerance * (1 - _JUST), tolerance * (1 + _JUST)
    agrees = (verdict == Verdict.AGREES) & np.isfinite(graded)
    graded = np.where(agrees, np.minimum(graded, low), graded)
    wrong = (verdict == Verdict.DISAGREES) & np.isfinite(graded)
    return np.where(wrong, np.maximum(graded, high), graded), verdict


def _tiles(
    comparison: Comparison,
    sheet: _Sheet,
    key: Callable[[Any, Any], NDArray[np.float64]],
    out: tuple[int, int],
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find what each pixel shows; of a large block, among the worst of its tiles."""
    if comparison.analytic.size > LARGE and sheet.where is None:
        found = digest(comparison)
        if found.shape == sheet.shape:
            bad = key(found.rows, found.columns)
            grid = (int(bad.shape[0]), int(bad.shape[1]))
            at = worst_of_tiles(lambda r, c: bad[r, c], grid, out)
            return found.rows[at], found.columns[at]
    return worst_of_tiles(key, sheet.shape, out)


def picture(comparison: Comparison, out: tuple[int, int] = (240, 240)) -> Picture:
    """Reduce a block to at most `out` pixels, each its tile's worst entry.

    Parameters
    ----------
    comparison
        The block.
    out
        Pixels down and across at most; default 240, because a drawing library would
        drop rows of an image that is larger than its axes.

    Examples
    --------
    >>> report = gl.check(lambda W: (W**2).sum(), np.ones((3, 4)), grad=lambda W: W)
    >>> picture(report["W"]).shape
    (3, 4)
    """
    if comparison.tally is not None:
        return _of_tally(comparison, comparison.tally, out)
    sheet = _sheet(comparison)
    tolerance = tolerance_of(comparison)

    def key(rows: Any, columns: Any) -> NDArray[np.float64]:
        """How bad: nan, inf, wrong, undecided, right, equal, not looked at."""
        graded, verdict = _graded(
            comparison, lambda plane: sheet.take(plane, rows, columns), tolerance
        )
        undecided = (verdict == Verdict.UNDECIDED) & ~np.isnan(graded)
        graded = np.where(undecided, tolerance, graded)
        seen = sheet.seen(rows, columns)
        return graded if seen is None else np.where(seen, graded, -1.0)

    rows, columns = _tiles(comparison, sheet, key, out)

    def take(plane: NDArray[Any]) -> NDArray[Any]:
        return sheet.take(plane, rows, columns)

    error, verdicts = _graded(comparison, take, tolerance)
    seen = sheet.seen(rows, columns)
    if seen is not None:
        verdicts = np.where(seen, verdicts, -1).astype(np.int8)
    return _drawn(
        [take(side) for side in (comparison.analytic, comparison.numeric)],
        shape=sheet.shape,
        rows=rows,
        columns=columns,
        error=error,
        verdicts=verdicts,
        tolerance=tolerance,
        xlabel=sheet.xlabel,
        ylabel=sheet.ylabel,
    )


def _drawn(sides: list[NDArray[Any]], **others: Any) -> Picture:
    """Finish a picture: sizes in place of complex values, and a common scale."""
    magnitude = any(map(np.iscomplexobj, sides))
    values = [np.asarray(np.abs(s) if magnitude else s, np.float64) for s in sides]
    sizes = [np.abs(side[np.isfinite(side)]) for side in values]
    return Picture(
        analytic=values[0],
        numeric=values[1],
        scale=max(float(size.max(initial=0.0)) for size in sizes),
        magnitude=magnitude,
        **others,
    )


def _of_tally(comparison: Comparison, tally: Tally, out: tuple[int, int]) -> Picture:
    """Draw the tiles of a block that was too large to keep."""
    tolerance = tolerance_of(comparison)
    graded, verdicts = _graded(tally, lambda plane: plane, tolerance)
    seen = tally.rows >= 0
    undecided = (verdicts == Verdict.UNDECIDED) & ~np.isnan(graded)
    key = np.where(seen, np.where(undecided, tolerance, graded), -1.0)
    grid = (int(key.shape[0]), int(key.shape[1]))
    at = worst_of_tiles(lambda r, c: key[r, c], grid, out)
    return _drawn(
        [tally.analytic[at], tally.numeric[at]],
        shape=tally.shape,
        rows=tally.rows[at],
        columns=tally.columns[at],
        error=graded[at],
        verdicts=np.where(seen[at], verdicts[at], -1).astype(np.int8),
        tolerance=tolerance,
        xlabel=f"entry of {comparison.input.name}",
        ylabel=f"entry of {comparison.output.name}" if tally.shape[0] > 1 else "",
    )
