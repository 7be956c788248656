"""Many accusations of one input upheld at once: by a ladder along one direction.

Where most columns of an input disagree by many error bars, one line of its backward is
wrong, and each column alone says the same again. Moving all of them together, each to
the side on which the gradient is too small, the adaptive ladder measures the sum of
their slopes. Were the cheap differences of some columns wrong, and the gradient right,
that sum would be another one: their errors add up, and never cancel. So one ladder
hears every accusation whose distance between the sides stands out of what the ladder
leaves open, in all of its outputs (of several, each column goes by a random mixture:
in one of them errors may cancel by luck). What does not stand out, what is off by
little, and all where the ladder contradicts the bars of the differences or f is not
smooth along that line, has ladders of its own.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import CLEAR, SAFETY
from gradlab.differentiation.adaptive_columns import adaptive_line
from gradlab.differentiation.evaluation import line_of
from gradlab.differentiation.method import Adaptive
from gradlab.differentiation.sizes.small_coordinates import OWN_SCALE
from gradlab.differentiation.smoothness import Smoothness
from gradlab.subject.subject import DOUBLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.blocks import Block

__all__ = ["upheld_together"]

_STANDS_OUT = 10.0  # times what the ladder and the differences are apart
_AMPLIFIED = 10.0  # noise of f in an extrapolation, in units of noise / longest step
_SLIGHT = 1e-2  # relative: a smaller slip has a ladder of its own
_MOST = 0.9  # of the outputs: where more contradict their bars, these mean nothing
_SEVERAL = 3  # columns: of fewer each has its own ladder


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Accused:
    """The clear accusations of one input.

    Attributes
    ----------
    rows, columns, gap
        Entries that disagree, and by how much, (k,).
    shift
        How far each column of the block is moved along the line, half of its scale to
        all of it, forth or back; 0 where nothing is clearly wrong, (n,).
    """

    block: Block
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    gap: NDArray[np.float64]
    shift: NDArray[np.float64]


def upheld_together(
    reference: Origin,
    blocks: list[Block],
    noise: NDArray[np.float64],
    meter: Meter,
    seed: int,
) -> list[NDArray[np.float64]]:
    """Say how far one ladder moves the columns whose accusations it upholds.

    All inputs that are wrong as a whole are moved along the same line. Where that says
    nothing, each of them along one of its own.

    Parameters
    ----------
    reference
        What the numeric side evaluates.
    blocks
        Judged.
    noise
        Of every output, (rows,).
    meter
        Charged for some twenty evaluations a line.
    seed
        Of the line.

    Returns
    -------
    list of ndarray
        Of each block, (n,): 0 for columns that it does not uphold, which are all of
        them where f along the line is not smooth, or noisy.
    """
    walked = [np.zeros(len(block.positions)) for block in blocks]
    if not any(map(_is_wrong_as_a_whole, blocks)):
        return walked
    if reference.subject.epsilon > DOUBLE or not np.isfinite(reference.base).all():
        return walked
    rng = np.random.default_rng([seed, 41])
    count = len(reference.base)
    mixture = rng.choice([-1.0, 1.0], count) * rng.uniform(0.5, 1.0, count)
    found = [_accused(block, mixture, rng) for block in blocks]
    accused = [one for one in found if one is not None]
    told = _along(reference, accused, noise, meter) if accused else []
    if len(accused) > 1 and not any(moved.any() for moved in told):
        told = [_along(reference, [one], noise, meter)[0] for one in accused]
    heard = {one.block.which: moved for one, moved in zip(accused, told, strict=True)}
    return [heard.get(b.which, none) for b, none in zip(blocks, walked, strict=True)]


def _is_wrong_as_a_whole(block: Block) -> bool:
    """Whether more than half of the columns have an entry that disagrees."""
    columns = np.count_nonzero(block.wrong.any(axis=0))
    return bool(2 * columns > len(block.positions))


def _accused(
    block: Block, mixture: NDArray[np.float64], rng: np.random.Generator
) -> _Accused | None:
    """Find the clear accusations of an input that is wrong as a whole.

    `mixture` weighs the outputs, (rows,), where they have to choose a column's side.
    """
    if block.grain is not None or not np.isfinite(block.value).all():
        return None
    if not _is_wrong_as_a_whole(block):
        return None
    wrong = block.wrong
    rows, places = np.nonzero(wrong)
    with np.errstate(all="ignore"):
        value = block.value[rows, places]
        missing = value - block.formula[rows, places]
        gap = np.abs(missing)
        clear = (gap > CLEAR * block.error[rows, places]) & np.isfinite(gap)
        # what is off by little may be off by what the difference truncates
        clear &= gap > _SLIGHT * np.abs(value)
    # a line in units of the tensor says nothing about what lives on a scale of its own
    clear &= (block.units >= OWN_SCALE * block.scales)[places]
    count = len(block.positions)
    told = np.zeros(count, dtype=bool)
    told[places] = True
    told[places[~clear]] = False  # every entry of a column has to be
    inside = told[places]
    rows, places, missing = rows[inside], places[inside], missing[inside]
    columns = np.flatnonzero(told)
    if len(columns) <= _SEVERAL or 2 * len(columns) <= count:
        return None
    gap = np.abs(missing)
    largest = np.zeros(len(wrong))
    np.maximum.at(largest, rows, gap)
    side = np.zeros(count)
    np.add.at(side, places, mixture[rows] * missing / largest[rows])
    lengths = block.scales * rng.uniform(0.5, 1.0, count)
    return _Accused(block, rows, places, gap, np.sign(side) * lengths)


def _along(
    reference: Origin,
    accused: list[_Accused],
    noise: NDArray[np.float64],
    meter: Meter,
) -> list[NDArray[np.float64]]:
    """Climb one ladder through all of them; return how far it moves what it upholds."""
    moves = [(one.block.which, one.block.positions, one.shift) for one in accused]
    meter.expect(Adaptive.cost)
    found = adaptive_line(reference, line_of(reference.subject, moves), meter)
    touched = np.unique(np.concatenate([one.rows for one in accused]))
    nothing = [np.zeros(len(one.shift)) for one in accused]
    smooth = found.kind[:, 0] == Smoothness.SMOOTH
    if not (smooth & np.isfinite(found.error[:, 0]))[touched].all():
        return nothing
    with np.errstate(all="ignore"):
        bar = np.fmax(found.error[:, 0], _AMPLIFIED * noise / np.abs(found.step[:, 0]))
        expected, room = np.zeros(len(bar)), bar.copy()
        for one in accused:
            expected += one.block.value @ one.shift
            room += one.block.error @ np.abs(one.shift)
        apart = np.abs(expected - found.value[:, 0])
        kept = apart <= SAFETY * room  # no bar of a difference was too small there
        if np.mean(kept[touched]) < _MOST:
            return nothing
        least = np.where(kept, _STANDS_OUT * (apart + bar), np.inf)
    walked = [np.abs(found.step[touched, 0]).min() * np.abs(a.shift) for a in accused]
    for one, moved in zip(accused, walked, strict=True):
        told = one.gap * np.abs(one.shift[one.columns]) > least[one.rows]
        moved[one.columns[~told]] = 0.0  # every entry of a column has to stand out
    return walked
