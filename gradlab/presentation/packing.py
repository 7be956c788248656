"""Blocks as the page wants them: names and numbers as JSON, matrices as float32.

The page draws one cell per entry, or, for a matrix beyond the budget, the worst entry
of every tile together with its true position. Differences are taken in float64 here,
before the cast: the page must show an error of 1e-12 although it holds 7 digits.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.relative_errors import RELATIVE_FLOOR, relative_error
from gradlab.comparison.tolerance import SAFETY
from gradlab.presentation.pictures import tolerance_of
from gradlab.presentation.tiles import LARGE, arrangement, digest, largest_size
from gradlab.presentation.views import log_error, untold, worst_entry, worst_relative
from gradlab.subject.subject import EPSILON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.comparison.comparison import Comparison
    from gradlab.report import Report
    from gradlab.sweeps import Sweep

__all__ = [
    "LIVE_ENTRIES",
    "Packed",
    "number",
    "pack_adaptive",
    "pack_block",
    "pack_slices",
    "pack_tile",
]

# A live view, which saves nothing, takes this many entries without reduction.
LIVE_ENTRIES = LARGE
_MAX_TILES = 400_000  # more than a screen has pixels for: 10 MB, sent once


@dataclasses.dataclass(frozen=True, slots=True)
class Packed:
    """What a page is made of: a JSON-ready state, and planes of numbers by block."""

    state: dict[str, Any]
    blobs: dict[str, dict[str, bytes]]


def number(value: float) -> float | str:
    """Return a float that JSON can carry; nan and inf travel as words.

    Examples
    --------
    >>> number(float("inf"))
    'Infinity'
    """
    value = float(value)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _planes(
    comparison: Comparison, pick: tuple[Any, Any] | None, unit: float
) -> dict[str, bytes]:
    """Cut the planes of a block, or of the entries `pick`, as little-endian bytes."""

    def take(values: NDArray[Any]) -> NDArray[Any]:
        return values if pick is None else values[pick]

    analytic, numeric = take(comparison.analytic), take(comparison.numeric)
    with np.errstate(all="ignore"):
        difference = analytic - numeric
    parts = {"a": analytic, "n": numeric, "d": difference}
    if np.iscomplexobj(difference):
        parts = {
            "a": analytic.real,
            "ai": np.imag(analytic),
            "n": numeric.real,
            "ni": np.imag(numeric),
            "d": np.abs(difference),
        }
    parts["e"] = take(comparison.numeric_error)
    with np.errstate(all="ignore"):
        planes = {
            key: np.ascontiguousarray(values / unit, "<f4").tobytes()
            for key, values in parts.items()
        }
    planes["v"] = np.ascontiguousarray(take(comparison.verdicts), "u1").tobytes()
    return planes


def _layout_index(
    row: NDArray[np.intp],
    column: NDArray[np.intp],
    shape: tuple[int, int],
    columns: int,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Turn positions in the picture into positions in the matrix."""
    m, n = shape
    if m == 1:
        flat = row * columns + column
        return np.zeros_like(flat), flat
    if n == 1:
        flat = row * columns + column
        return flat, np.zeros_like(flat)
    return row, column


def pack_block(
    comparison: Comparison,
    name: str,
    max_entries: int = LIVE_ENTRIES,
    epsilon: float = EPSILON,
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Pack one block: what the page says about it, and its planes of numbers.

    Parameters
    ----------
    comparison, name
        The block and what the report calls it.
    max_entries
        Above this, the worst entry of each tile stands for the tile.
    epsilon
        Unit round-off of the analytic side, for the tolerance that was in force.

    Returns
    -------
    meta, planes
        JSON-ready words and numbers; bytes by plane: analytic, numeric, difference,
        error bar (float32, divided by ``meta["unit"]``) and verdict.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> meta, planes = pack_block(report["x"], "x")
    >>> meta["counts"], len(planes["a"])
    ([0, 0, 3], 12)
    """
    rows, columns, kind = arrangement(comparison)
    count = comparison.analytic.size
    pick, grid = None, None
    extra: dict[str, bytes] = {}
    if count > max_entries:
        if kind == "fold":
            rows, columns, kind = *comparison.shape, "matrix"
        found = digest(comparison, _grid(rows, columns, max_entries))
        at, scale = (found.rows, found.columns), found.scale
        pick, grid = _layout_index(*at, comparison.shape, columns), list(at[0].shape)
        for letter, values in zip(("ri", "ci"), at, strict=True):
            extra[letter] = _positions(values)
    else:
        scale = largest_size(comparison.numeric)
    top = scale or largest_size(comparison.analytic)
    unit = 2.0 ** round(math.log2(top)) if top > 0 else 1.0
    planes = _planes(comparison, pick, unit) | extra
    if comparison.columns is not None:
        planes["cols"] = _positions(comparison.columns)
    if comparison.input.support is not None:
        planes["support"] = _positions(comparison.input.support)
    meta = {
        "key": name,
        "name": name,
        "output": {"name": comparison.output.name, "shape": comparison.output.shape},
        "input": {"name": comparison.input.name, "shape": comparison.input.shape},
        "shape": list(comparison.shape),
        "rows": rows,
        "columns": columns,
        "kind": kind,
        "grid": grid,
        "counts": list(comparison.counts),
        "verdict": int(comparison.verdict),
        "complex": bool("ai" in planes),
        "unit": unit,
        "floor": RELATIVE_FLOOR * scale / unit,
        "scale": number(top),
        "rtol": tolerance_of(comparison, epsilon),
        "safety": SAFETY,
        "method": comparison.method,
        "coverage": comparison.coverage,
        "escalated": comparison.escalated,
        "worst": _worst(comparison),
    }
    return meta, planes


def _positions(values: NDArray[np.intp]) -> bytes:
    return np.ascontiguousarray(values, "<u4").tobytes()


def _grid(rows: int, columns: int, entries: int) -> tuple[int, int]:
    """Choose tiles down and across for a picture of so many entries at most."""
    tiles = min(entries, _MAX_TILES)
    side = max(8, math.isqrt(tiles))
    if rows <= side:  # a flat picture may use the tiles that it does not need downwards
        return rows, tiles // rows
    across = min(side, columns)
    return tiles // across, across


def _worst(comparison: Comparison) -> dict[str, Any] | None:
    """Describe the worst entry, the one that the list of blocks shows."""
    place = worst_entry(comparison)
    if place is None:
        return None
    with np.errstate(all="ignore"):
        error = abs(comparison.analytic[place] - comparison.numeric[place])
    return {
        "index": list(place),
        "label": comparison.label(*place),
        "rel": number(worst_relative(comparison)),
        "told": not untold(comparison, place),
        "abs": number(float(error)),
        "step": number(float(comparison.step[place])),
    }


def pack_slices(
    analytic: NDArray[Any], numeric: NDArray[Any], shape: tuple[int, ...]
) -> tuple[dict[str, int], dict[str, bytes]]:
    """Pack the logarithm of the relative error of every entry, step by step.

    Parameters
    ----------
    analytic, numeric
        Two Jacobians, or numeric ones at several steps, shape (S, m, n).
    shape
        Of the input, in which the gradient of a scalar is drawn.

    Returns
    -------
    place, planes
        Rows and columns of the picture; float32 in the plane "s".

    Examples
    --------
    >>> place, planes = pack_slices(np.ones((1, 6)), np.ones((4, 1, 6)), (2, 3))
    >>> place, len(planes["s"])
    ({'rows': 2, 'columns': 3}, 96)
    """
    size = np.abs(numeric)
    scale = float(size[np.isfinite(size)].max(initial=0.0))
    error = relative_error(analytic, numeric, RELATIVE_FLOOR * scale)
    rows, columns = numeric.shape[-2:]
    if rows == 1 and len(shape) > 1 and math.prod(shape) == columns:
        rows, columns = shape[0], columns // shape[0]
    place = {"rows": int(rows), "columns": int(columns)}
    return place, {"s": np.ascontiguousarray(log_error(error), "<f4").tobytes()}


def pack_tile(
    comparison: Comparison, meta: dict[str, Any], window: tuple[int, int, int, int]
) -> dict[str, bytes]:
    """Cut a part of the picture at full resolution.

    Parameters
    ----------
    comparison, meta
        The block, and what `pack_block` said about it.
    window
        First row, row after the last, first column, column after the last, of the
        picture.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones((3, 4)), grad=lambda x: x)
    >>> meta, _ = pack_block(report["x"], "x")
    >>> len(pack_tile(report["x"], meta, (1, 3, 0, 2))["a"])
    16
    """
    top, bottom, left, right = window
    row, column = np.mgrid[top:bottom, left:right]
    pick = _layout_index(row, column, comparison.shape, meta["columns"])
    return _planes(comparison, pick, meta["unit"])


def pack_adaptive(
    state: dict[str, Any],
    blobs: dict[str, dict[str, bytes]],
    sweep: Sweep,
    reports: Sequence[Report],
) -> None:
    """Add the adaptive method to a packed sweep.

    Parameters
    ----------
    state, blobs
        What `pack_sweep` returned for `sweep`; both are added to.
    reports
        One check of each input of the sweep, by the adaptive method.

    Examples
    --------
    >>> from gradlab.presentation.packing_results import pack_sweep
    >>> check = lambda: gl.check(np.sum, np.ones(2), grad=np.ones_like)
    >>> report = check()
    >>> sweep = report.sweep()
    >>> packed = pack_sweep(sweep)
    >>> pack_adaptive(packed.state, packed.blobs, sweep, [report])
    >>> packed.state["methods"], packed.state["matrices"][-1]["method"]
    (['central', 'adaptive'], 'adaptive')
    """
    state["methods"] = [*state["methods"], "adaptive"]
    state["theory"]["adaptive"] = []
    state["loud"]["adaptive"] = state["loud"][sweep.methods[0]]
    state["curves"]["adaptive"] = []
    state["adaptive"] = []
    for which, report in enumerate(reports):
        blocks = report.comparisons
        error = float(np.max([worst_relative(block) for block in blocks], initial=0.0))
        state["curves"]["adaptive"].append([number(error)] * len(sweep.steps))
        steps = np.concatenate([block.step.ravel() for block in blocks])
        steps = steps[np.isfinite(steps) & (steps > 0)]
        ends = np.quantile(steps, [0, 0.5, 1]) if steps.size else [np.nan] * 3
        low, typical, high = (number(float(end)) for end in ends)
        state["adaptive"].append({"low": low, "typical": typical, "high": high})
        analytic = np.concatenate([block.analytic for block in blocks])
        numeric = np.concatenate([block.numeric for block in blocks])
        key = f"adaptive{which}"
        place, blobs[key] = pack_slices(analytic, numeric, blocks[0].input.shape)
        state["matrices"].append(
            {"key": key, "method": "adaptive", "input": which, **place}
        )
