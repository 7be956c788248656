"""Jacobians of which most entries are zero: found out, compressed, never trusted.

An elementwise function, a row-wise softmax, a convolution: each output looks at few
coordinates of an input. Which ones is asked of the function itself, never of the
analytic side: all coordinates that share an index along one axis (or a bit of it) are
moved together, and the outputs that stay put do not depend on any of them. What an
output may depend on is thus bounded by a product of sets, one per axis. Coordinates
that no output sees together are then displaced in one evaluation (Curtis, Powell and
Reid, J. Inst. Maths Applics 13, 1974), and a random directional derivative, which
knows nothing of the pattern, has to agree with the result. Where it does not, the guess
is thrown away.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.colouring import Colouring, colouring_of, smallest_period
from gradlab.differentiation.evaluation import displaced_sets
from gradlab.differentiation.finite_difference import scales_of, step_sizes
from gradlab.differentiation.quotients import Pattern, Quotients

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.evaluation import Meter
    from gradlab.subject.subject import Subject

__all__ = ["compressed"]

_FEWEST_COLUMNS = 8  # with fewer there is nothing to save
_FEWEST_ROWS = 4  # one colour serves at most as many columns as there are rows
_WORTHWHILE = 0.7  # of the evaluations of a dense Jacobian
_SAMPLE = 6  # indices of an axis that are tried before all are
_FEW = 0.4  # of the outputs: what moves more leaves little to save
_NEARLY_ALL = 0.9  # of the outputs: a coordinate that moves them leaves nothing to save
_FAR = 2e-3  # of the scale: as far as masks are moved, in float64
_ULPS = 8.0  # of f: movements below are rounding, as batches and threads make it
_SAFETY = 8.0  # error bars by which the directional derivative may be off
_ROUND_OFF = 4.0  # as in `finite_difference.central`


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Case:
    """One input, and what does not change while it is looked at."""

    subject: Subject
    which: int
    base: NDArray[np.float64]
    scales: NDArray[np.float64]
    meter: Meter
    rng: np.random.Generator
    idle: NDArray[np.float64]  # movement seen where nothing was displaced, (rows,)

    @property
    def epsilon(self) -> float:
        return self.subject.epsilon

    def values(self, displacements: NDArray[np.float64]) -> NDArray[np.float64]:
        """Evaluate with whole rows of displacements; shape (count, rows)."""
        return displaced_sets(self.subject, self.which, displacements, self.meter)


def compressed(
    subject: Subject,
    which: int,
    base: NDArray[np.float64],
    meter: Meter,
    *,
    seed: int = 0,
) -> Quotients | None:
    """Central differences of all coordinates of one input, several at a time.

    Parameters
    ----------
    subject
        At its point; it is there again afterwards.
    which
        Number of the input.
    base
        f at the point, shape (rows,).
    meter
        Charged for every evaluation.
    seed
        Of the displacements and of the direction that verifies.

    Returns
    -------
    Quotients or None
        The same numbers as `central` gives one coordinate at a time, entries outside
        of the pattern being 0 with the bar of a difference that did not move; None
        where the pattern is not sparse enough to pay, or was found to be wrong.

    Examples
    --------
    >>> from gradlab.building import Sides, build_subject
    >>> from gradlab.differentiation.evaluation import Meter, base_row
    >>> x = np.linspace(0.1, 1.0, 100)
    >>> subject = build_subject(np.sin, (x,), Sides(jac=np.cos))
    >>> meter = Meter()
    >>> found = compressed(subject, 0, base_row(subject, meter), meter)
    >>> bool(np.allclose(np.diag(found.value), np.cos(x))), meter.evaluations < 50
    (True, True)
    """
    variable = subject.inputs[which]
    n, rows = variable.coordinates, len(base)
    if n < _FEWEST_COLUMNS or rows < _FEWEST_ROWS or not np.isfinite(base).all():
        return None
    if not np.isfinite(subject.point(which)).all() or not _affordable(meter, n):
        return None
    rng = np.random.default_rng([seed, which, 13])
    idle = np.zeros(rows)
    case = _Case(subject, which, base, scales_of(subject, which), meter, rng, idle)
    if _seen_everywhere(case):
        return None
    axes = _axes(variable.shape, n, is_complex=variable.is_complex)
    touched = _touched(case, axes)
    colouring = colouring_of(touched, axes)
    if 2 * colouring.count + 2 > _WORTHWHILE * 2 * n:
        return None
    return _measured(case, colouring)


def _affordable(meter: Meter, n: int) -> bool:
    """Whether the dense Jacobian still fits after everything that is tried here."""
    count, budget = 5 * n + 64, meter.budget
    if (
        budget.evaluations is not None
        and meter.evaluations + count > budget.evaluations
    ):
        return False
    each = meter.seconds / max(meter.evaluations, 1)
    return budget.seconds is None or meter.seconds + count * each <= budget.seconds


def _axes(
    shape: Sequence[int], n: int, *, is_complex: bool
) -> tuple[NDArray[np.intp], ...]:
    """Index of every coordinate along each axis that has more than one index."""
    shape = (*shape, 2) if is_complex else tuple(shape)
    if int(np.prod(shape)) != n:  # the stored entries of a sparse tensor
        shape = (n,)
    indices = np.unravel_index(np.arange(n), shape)
    return tuple(
        np.asarray(index, dtype=np.intp)
        for index, size in zip(indices, shape, strict=True)
        if size > 1
    )


def _touched(
    case: _Case, axes: tuple[NDArray[np.intp], ...]
) -> list[NDArray[np.bool_]]:
    """Per axis: which output may depend on which index, shape (size, rows).

    Two evaluations for each bit of an index tell outputs that depend on one index of
    the axis only. Where that leaves many colours, every index is tried by itself.
    """
    sizes = [int(axis.max()) + 1 for axis in axes]
    found = _by_bits(case, axes, sizes)
    periods = [smallest_period(may) for may in found]
    for k in np.argsort(sizes):
        axis, size = axes[k], sizes[k]
        counts = found[k].sum(axis=0)
        dense = ((counts == size) | (counts == 0)).all()  # as far as bits can tell
        saved = math.prod(periods) * (1 if dense else 2)
        if periods[k] > 1 and saved > size and _local(case, axis, size):
            found[k] = _moved(case, axis[None, :] == np.arange(size)[:, None])
            periods[k] = smallest_period(found[k])
    return found


def _local(case: _Case, axis: NDArray[np.intp], size: int) -> bool:
    """Whether single indices, of which a few are tried, move few of the outputs."""
    if size <= 2 * _SAMPLE:
        return True
    some = (np.arange(_SAMPLE) * size + size // 2) // _SAMPLE
    return bool(_moved(case, axis[None, :] == some[:, None]).mean() < _FEW)


def _by_bits(
    case: _Case, axes: tuple[NDArray[np.intp], ...], sizes: list[int]
) -> list[NDArray[np.bool_]]:
    """Bound what each output depends on by the bits of the indices; all in one go."""
    bits = [range((size - 1).bit_length()) for size in sizes]
    masks = [
        ((axis >> bit) & 1) == side
        for axis, some in zip(axes, bits, strict=True)
        for bit in some
        for side in (0, 1)
    ]
    moved = iter(_moved(case, np.array(masks)).reshape(-1, 2, len(case.base)))
    found = []
    for size, some in zip(sizes, bits, strict=True):
        index = np.arange(size)
        may = np.ones((size, len(case.base)), dtype=bool)
        for bit in some:
            may &= next(moved)[(index >> bit) & 1]
        found.append(may)
    return found


def _seen_everywhere(case: _Case) -> bool:
    """Whether one coordinate, drawn at random, moves nearly all outputs.

    One evaluation that spares a dense function a few dozen.
    """
    one = int(case.rng.integers(len(case.scales)))
    moves = np.zeros((1, len(case.scales)))
    moves[0, one] = case.scales[one] * _FAR
    with np.errstate(all="ignore"):
        moved = np.abs(case.values(moves)[0] - case.base) > _rounding(case)
    return bool(moved.mean() > _NEARLY_ALL)


def _moved(case: _Case, masks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which outputs move when the coordinates of a mask do, shape (masks, rows)."""
    sizes = case.rng.uniform(0.5, 1.0, masks.shape) * case.rng.choice(
        [-1.0, 1.0], masks.shape
    )
    reach = np.sqrt(step_sizes(np.ones(1), case.epsilon, 2))
    moves = np.where(masks, sizes * (reach * case.scales), 0.0)
    idle = np.zeros((1, len(case.scales)))  # what a batch rounds otherwise is no move
    values = case.values(np.concatenate([idle, moves, idle]))
    with np.errstate(all="ignore"):
        still = np.abs(values[[0, -1]] - case.base).max(axis=0)
        np.maximum(case.idle, still, out=case.idle)
        moved = np.abs(values[1:-1] - case.base) > _rounding(case)
        return np.asarray(moved | ~np.isfinite(values[1:-1]))


def _rounding(case: _Case) -> NDArray[np.float64]:
    """Movement of each output that is nothing but rounding."""
    return np.asarray(_ULPS * case.epsilon * np.abs(case.base) + 2 * case.idle)


def _measured(case: _Case, colouring: Colouring) -> Quotients | None:
    """Displace all columns of a colour together; hand each row to its own column.

    A random direction is walked along in the same batch; None where it disagrees.
    """
    n, rows = len(case.scales), len(case.base)
    steps = step_sizes(case.scales, case.epsilon, 2)
    point = case.subject.point(case.which)
    own = np.arange(colouring.count)[:, None] == colouring.colours[None, :]
    pairs = np.repeat(np.where(own, steps, 0.0), 2, axis=0)
    pairs[1::2] *= -1
    direction = steps * case.rng.choice([-1.0, 1.0], n)
    direction *= case.rng.uniform(0.5, 1.0, n)
    values = case.values(np.concatenate([pairs, [direction, -direction]]))
    dtype = case.subject.inputs[case.which].dtype
    right, left = (_taken(point, sign * steps, dtype) for sign in (1.0, -1.0))
    outside = _rounding(case) / np.sqrt(step_sizes(np.ones(1), case.epsilon, 2)) * 2
    seen = _packed(colouring.pattern, outside)
    j, width = seen.columns, right - left
    i = np.arange(rows)[:, None]
    up, down = (values[2 * colouring.colours[j] + k, i] for k in (0, 1))
    base = case.base[:, None]
    with np.errstate(all="ignore"):
        slopes = (up - base) / right[j] - (down - base) / left[j]
        size = np.maximum(np.maximum(np.abs(up), np.abs(down)), np.abs(base))
        bars = _ROUND_OFF * case.epsilon * size / np.abs(width[j]) * 2 + np.abs(
            slopes
        ) * np.sqrt(case.epsilon)
        inside = (up - down) / width[j]
        value, bend = np.zeros((rows, n)), np.zeros((rows, n))
        # outside of the pattern: what moving a whole mask, by more than a central
        # difference would, cannot have hidden
        error = np.multiply.outer(outside, 1 / case.scales)
        for whole, part in ((value, inside), (bend, slopes), (error, bars)):
            whole[i, j] = np.where(
                seen.valid[:, :1], part, whole[i, j]
            )  # of some rows: none
        step = np.broadcast_to(width / 2, (rows, n))  # no memory before it is needed
        expected = np.where(seen.valid, inside * direction[j], 0.0).sum(axis=1)
        errors = np.where(seen.valid, bars * np.abs(direction[j]), 0.0).sum(axis=1)
        errors += outside * (np.abs(direction) / case.scales).sum()
    if not _holds(case, expected, errors, values[-2:]):
        return None
    return Quotients(value, error, step, bend, seen)


def _packed(pattern: NDArray[np.bool_], outside: NDArray[np.float64]) -> Pattern:
    """List the columns of every row side by side."""
    i, j = np.nonzero(pattern)
    counts = np.bincount(i, minlength=len(pattern))
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    most = max(int(counts.max(initial=0)), 1)
    valid = np.arange(most) < counts[:, None]
    columns = np.zeros((len(pattern), most), dtype=np.intp)
    columns[i, np.arange(len(i)) - first[i]] = j
    columns = np.where(valid, columns, columns[:, :1])
    return Pattern(columns, valid & (counts > 0)[:, None], outside)


def _taken(
    point: NDArray[np.float64], steps: NDArray[np.float64], dtype: str
) -> NDArray[np.float64]:
    """Displacements as the arithmetic of the input makes them."""
    kinds = {"float32": np.float32, "float16": np.float16, "complex64": np.float32}
    kind = kinds.get(dtype, np.float64)
    there = (point + steps).astype(kind).astype(np.float64)
    return np.asarray(there - point)


def _holds(
    case: _Case,
    expected: NDArray[np.float64],
    errors: NDArray[np.float64],
    ends: NDArray[np.float64],
) -> bool:
    """Whether a random directional derivative agrees with the compressed Jacobian."""
    up, down = ends
    # the third derivative, which neither bar nor bend shows, moves f by a rounding of
    # its own scale: that of all rows, since a row may be small where it is
    scale = np.abs(ends).max(initial=0.0)
    truncation = _SAFETY * _ROUND_OFF * case.epsilon * scale
    with np.errstate(all="ignore"):
        off = np.abs((up - down) / 2 - expected)
        return bool((off <= _SAFETY * errors + truncation).all())
