"""What each output depends on, asked of the function itself.

All coordinates that share an index along one axis, or a bit of it, are moved together:
outputs that stay put do not depend on any of them. What an output may depend on is thus
bounded by a product of sets, one per axis.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.evaluation import displaced_sets
from gradlab.differentiation.noise.noise import rounding_of
from gradlab.differentiation.sizes.scales import step_sizes
from gradlab.differentiation.sparse.colouring import smallest_period
from gradlab.differentiation.sparse.entries import Entries
from gradlab.subject.subject import side_by_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.subject.subject import Subject

__all__ = [
    "Case",
    "axes_of",
    "hidden_by_rounding",
    "near_by",
    "seen_everywhere",
    "signs",
    "stirred",
    "touched_by",
    "touched_in",
]

_SAMPLE = 6  # indices of an axis that are tried before all are
_FEW = 0.4  # of the outputs: what moves more leaves little to save
_NEARLY_ALL = 0.9  # of the outputs: a coordinate that moves them leaves nothing to save
_FAR = 2e-3  # of the scale: as far as masks are moved, in float64
_ULPS = 8.0  # of f: movements below are rounding, as batches and threads make it
_SIGNS = np.array([-1.0, 1.0])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One input, or several, and what does not change while they are looked at.

    Coordinates of several inputs stand side by side.
    """

    subject: Subject
    inputs: tuple[int, ...]
    base: NDArray[np.float64]
    scales: NDArray[np.float64]
    meter: Meter
    rng: np.random.Generator
    idle: NDArray[np.float64]  # movement seen where nothing was displaced, (rows,)
    digits: NDArray[np.float64] = dataclasses.field(init=False)  # `rounding_of` base

    def __post_init__(self) -> None:
        object.__setattr__(self, "digits", rounding_of(self.base, self.epsilon))

    @property
    def epsilon(self) -> float:
        """Unit round-off of the arithmetic of f."""
        return self.subject.epsilon

    def values(self, displacements: NDArray[np.float64]) -> NDArray[np.float64]:
        """Evaluate with whole rows of displacements; shape (count, rows)."""
        return displaced_sets(self.subject, self.inputs, displacements, self.meter)

    @property
    def slots(self) -> list[slice]:
        """Slice of each input in a row of displacements."""
        inputs = self.subject.inputs
        return side_by_side(inputs[which].coordinates for which in self.inputs)


def axes_of(
    shape: Sequence[int], n: int, *, is_complex: bool
) -> tuple[NDArray[np.intp], ...]:
    """Index of every coordinate along each axis that has more than one index."""
    shape = (*shape, 2) if is_complex else tuple(shape)
    if int(np.prod(shape)) != n:  # the stored entries of a sparse tensor
        shape = (n,)
    if not shape:
        return ()  # one number has no axis
    indices = np.unravel_index(np.arange(n), shape)
    return tuple(
        np.asarray(index, dtype=np.intp)
        for index, size in zip(indices, shape, strict=True)
        if size > 1
    )


def touched_in(
    case: Case, axes: tuple[NDArray[np.intp], ...]
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
            found[k] = stirred(case, axis[None, :] == np.arange(size)[:, None])
            periods[k] = smallest_period(found[k])
    return found


def touched_by(
    guess: NDArray[np.float64] | Entries, axes: tuple[NDArray[np.intp], ...]
) -> list[NDArray[np.bool_]]:
    """Per axis: which row has an entry at which index, shape (size, rows)."""
    if isinstance(guess, Entries):
        i, j = guess.nonzero()
    else:  # several times as fast as asking whole axes, where most entries are zero
        i, j = np.divmod(np.flatnonzero(guess != 0), guess.shape[1])
    found = []
    for axis in axes:
        last = int(axis[-1])  # they rise: the largest of them
        may = np.zeros((last + 1, len(guess)), dtype=bool)
        may.reshape(-1)[axis[j] * len(guess) + i] = True  # twice as fast as two indices
        found.append(may)
    return found


def seen_everywhere(case: Case) -> bool:
    """Whether one coordinate, drawn at random, moves nearly all outputs.

    One evaluation that spares a dense function a few dozen.
    """
    one = int(case.rng.integers(len(case.scales)))
    moves = np.zeros((1, len(case.scales)))
    moves[0, one] = case.scales[one] * _FAR
    with np.errstate(all="ignore"):
        moved = np.abs(case.values(moves)[0] - case.base) > _rounding(case)
    return bool(moved.mean() > _NEARLY_ALL)


def _local(case: Case, axis: NDArray[np.intp], size: int) -> bool:
    """Whether single indices, of which a few are tried, move few of the outputs."""
    if size <= 2 * _SAMPLE:
        return True
    some = (np.arange(_SAMPLE) * size + size // 2) // _SAMPLE
    return bool(stirred(case, axis[None, :] == some[:, None]).mean() < _FEW)


def _by_bits(
    case: Case, axes: tuple[NDArray[np.intp], ...], sizes: list[int]
) -> list[NDArray[np.bool_]]:
    """Bound what each output depends on by the bits of the indices; all in one go."""
    bits = [range((size - 1).bit_length()) for size in sizes]
    masks = [
        ((axis >> bit) & 1) == side
        for axis, some in zip(axes, bits, strict=True)
        for bit in some
        for side in (0, 1)
    ]
    moved = iter(stirred(case, np.array(masks)).reshape(-1, 2, len(case.base)))
    found = []
    for size, some in zip(sizes, bits, strict=True):
        index = np.arange(size)
        may = np.ones((size, len(case.base)), dtype=bool)
        for bit in some:
            may &= next(moved)[(index >> bit) & 1]
        found.append(may)
    return found


def near_by(case: Case) -> float:
    """How far masks are moved, in units of the scale: many steps, but no farther."""
    return float(np.sqrt(step_sizes(np.ones(1), case.epsilon, 2))[0])


def stirred(
    case: Case, masks: NDArray[np.bool_], reach: float | None = None
) -> NDArray[np.bool_]:
    """Which outputs move when the coordinates of a mask do, shape (masks, rows).

    By so much of their scale; default as of `near_by`.
    """
    sizes = case.rng.uniform(0.5, 1.0, masks.shape) * signs(case.rng, masks.shape)
    reach = near_by(case) if reach is None else reach
    moves = np.where(masks, sizes * (reach * case.scales), 0.0)
    idle = np.zeros((1, len(case.scales)))  # what a batch rounds otherwise is no move
    values = case.values(np.concatenate([idle, moves, idle]))
    with np.errstate(all="ignore"):
        still = np.abs(values[[0, -1]] - case.base).max(axis=0)
        np.maximum(case.idle, still, out=case.idle)
        moved = np.abs(values[1:-1] - case.base) > _rounding(case)
        return np.asarray(moved | ~np.isfinite(values[1:-1]))


def _rounding(case: Case) -> NDArray[np.float64]:
    """Movement of each output that is nothing but rounding."""
    return _ULPS * case.digits + 2 * case.idle


def signs(
    rng: np.random.Generator, shape: int | tuple[int, ...]
) -> NDArray[np.float64]:
    """Draw 1 and -1, the numbers that ``rng.choice`` draws, in half its time.

    Examples
    --------
    >>> one, two = np.random.default_rng(0), np.random.default_rng(0)
    >>> bool((signs(one, 9) == two.choice([-1.0, 1.0], 9)).all())
    True
    """
    return np.asarray(_SIGNS[rng.integers(0, 2, shape)])


def hidden_by_rounding(case: Case, reach: float | None = None) -> NDArray[np.float64]:
    """Bar of zeros that stood still far from the point, times their scale; (rows,).

    As far as that, in units of the scale; default as of `near_by`.
    """
    return _rounding(case) / (near_by(case) if reach is None else reach) * 2
