"""How high the steps are that f is made of, if rounding inside it makes them.

A jump is cornered by halving the way to it. Whether casts make it or somebody who
quantises, a watched forward says, or how the spacing grows with the numbers.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.evaluation import base_row, displaced_rows, line_rows
from gradlab.differentiation.smoothness import Smoothness
from gradlab.subject.subject import SINGLE, is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.blocks import Block
    from gradlab.subject.subject import Subject

    Place = tuple[float, float]  # a step, and f there

__all__ = ["casts_seen", "height_of_steps"]

_BETWEEN = np.array([-1.7e-5, -1e-5, -4e-6, 3e-6, 9e-6, 1.6e-5])  # of the scale
_HALVINGS = 24  # of the way to a jump: a ten-millionth of it is left
_LASTS = 5e-7  # share of the contradiction that a jump keeps in a ten-millionth of it
_SINGLE = 0.3  # one jump that makes more than this of the contradiction is no rounding
_FINE = 1e-4  # share of the movement; nobody quantises to so many levels
_COARSE = 0.03  # of the scale; wider steps are no floating-point format
# powers of two, so that floating-point spacings grow exactly so
_LARGER, _SMALLER = (8.0, 4.0, 2.0), (0.125, 0.5, 0.25)
_EVEN = 0.01  # of the spacing: a quantiser keeps it, that of a format grows
_SCANNED, _PER_SPACING = 33, 4.1  # points, and how many of them in one spacing


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Along:
    """One output of f along one coordinate."""

    subject: Subject
    which: int
    position: int
    row: int
    meter: Meter

    def values(
        self, steps: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Evaluate at some steps: values, and the displacements really made."""
        positions = np.full(len(steps), self.position)
        at = self.subject, self.which, positions, steps
        rows, taken = displaced_rows(*at, self.meter)
        return rows[:, self.row], taken


def height_of_steps(
    reference: Subject,
    block: Block,
    place: tuple[int, int],
    over: tuple[float, float],
    meter: Meter,
    shares: tuple[float, ...],
) -> float | None:
    """Height of the jumps of f on both sides of the point, None if it is no rounding.

    Steps too wide for any floating-point format, or that stay as wide when all inputs
    are multiplied by eight or by an eighth, are those of a quantiser.

    Parameters
    ----------
    reference
        What is evaluated, at its point; it is there again afterwards.
    block, place
        Whose slope over small steps is contradicted: row and column.
    over
        Its slope over many steps, and the longest of these.
    meter
        Charged for every evaluation.
    shares
        Of that step, tried one after the other until a jump shows.
    """
    row, column = place
    position, scale = int(block.positions[column]), float(block.latest_scales[column])
    along = _Along(reference, block.which, position, row, meter)
    slope = float(block.value[place])
    casts = casts_seen(reference, meter)
    if casts or block.kinds[place] == Smoothness.NOISY:
        slope = _least_slope(along, scale)
    meant, reach = over

    def ends_by(slope: float) -> list[tuple[float, float]]:
        ends = []
        for end in (reach, -reach):
            found = (0.0, 0.0)
            for share in shares:  # far out f may be too curved for a jump to show
                if not found[0]:
                    found = _jump(along, share * end, slope)
            ends.append(found)
        return ends

    ends = ends_by(slope)
    if not any(height for height, _ in ends):
        # a difference over one jump is no slope of f anywhere
        least = _least_slope(along, scale)
        if least != slope:
            slope = least
            ends = ends_by(slope)
    if not all(0 < height <= _SINGLE * total for height, total in ends):
        return None
    height, total = max(ends)
    if height > _COARSE * scale * abs(meant - slope):
        return None
    if height <= _FINE * total:
        return height  # 1 + erf(-6): the last digits of float64 itself, cancelled
    if casts is not None:
        return height if casts else None
    width = height / abs(meant - slope)
    even = _evenly_spaced(reference, block, place, width, meter)
    return None if even else height


def _evenly_spaced(
    reference: Subject,
    block: Block,
    place: tuple[int, int],
    width: float,
    meter: Meter,
) -> bool:
    """Whether the spacing is the same, to a percent, at many times and at parts of x.

    Two such places are wanted, one of each if possible: one alone may be a coincidence,
    as of outputs that are rounded and do not care much for x.
    """
    here = _spacing_at(reference, block, place, 1.0, width, meter)
    if not np.isfinite(here):
        return False
    known: list[float] = []
    for factors in (_LARGER, _SMALLER):
        for factor in factors:
            found = _spacing_at(reference, block, place, factor, width, meter)
            if np.isfinite(found):  # nan: no jumps there, as of a saturated function
                known.append(found)
            if len(known) == 2 or (known and factors is _LARGER):
                break
    apart = np.abs(np.array(known) - here)
    return bool(known and (apart <= _EVEN * here).all())


def casts_seen(subject: Subject, meter: Meter) -> bool | None:
    """Whether a torch function casts to less; None where nobody can watch.

    Where a cast is seen there is nothing to infer, and where none is, steps are meant.
    What a kernel of the user's rounds is not seen, such as a product in TensorFloat-32,
    but rounding in torch's words is.
    """
    if not is_torch_subject(subject) or subject.epsilon > SINGLE:
        return None
    from gradlab.subject.tensors.in_double.narrowing import narrowing_watched

    rounded: list[str] = []
    with narrowing_watched(subject.epsilon, rounded=rounded) as narrowed:
        base_row(subject, meter)
    own_code = subject.analytic is not None and subject.analytic.own_code
    unseen = own_code and not rounded
    return True if narrowed else None if unseen else False


def _least_slope(along: _Along, scale: float) -> float:
    """Slope between two jumps: the median of five, of which two may meet a jump."""
    values, taken = along.values(scale * _BETWEEN)
    slopes = np.diff(values) / np.diff(taken)
    return float(np.median(slopes))


def _jump(along: _Along, end: float, slope: float) -> tuple[float, float]:
    """Corner a jump of f beyond a given slope between the point and `end`.

    Returns
    -------
    height, total
        Of the jump, 0 if what was cornered shrinks as something continuous does; and
        how far f is from its tangent at the end.
    """

    def stray(step: float) -> float:
        values, taken = along.values(np.array([step]))
        return float(values[0] - slope * taken[0])

    ends = (0.0, stray(0.0)), (end, stray(end))
    total = abs(ends[1][1] - ends[0][1])
    (_, at_low), (high, at_high) = _cornered(stray, *ends, _HALVINGS)
    height = abs(at_high - at_low)
    noise = 100 * along.subject.epsilon * abs(at_high + slope * high)
    lasting = height > max(_LASTS * total, noise)
    return (height if lasting else 0.0), total


def _cornered(
    f: Callable[[float], float], low: Place, high: Place, halvings: int
) -> tuple[Place, Place]:
    """Halve the way between two places, towards where f moves by more."""
    for _ in range(halvings):
        middle = (low[0] + high[0]) / 2
        there = middle, f(middle)
        if abs(there[1] - low[1]) > abs(high[1] - there[1]):
            high = there
        else:
            low = there
    return low, high


def _spacing_at(
    subject: Subject,
    block: Block,
    place: tuple[int, int],
    factor: float,
    width: float,
    meter: Meter,
) -> float:
    """Mean spacing of the jumps where all inputs are multiplied by a factor.

    Eight spacings are scanned, and the first and the last jump among them cornered.

    Parameters
    ----------
    width
        What the spacing is expected to be.

    Returns
    -------
    float
        nan if fewer than three jumps are found.
    """
    row, column = place
    position = int(block.positions[column])
    points = [subject.point(k) for k in range(len(subject.inputs))]

    def value_at(step: float) -> float:
        there = [(factor - 1) * point for point in points]
        there[block.which][position] += step
        return float(line_rows(subject, there, (1.0,), meter)[0, row])

    # jumps closer than the points look like few that are further apart, as spokes of a
    # wheel in a film: those of floating-point numbers are closer where these are small
    finer = max(round(1 / factor), 1)
    steps = width * np.arange(finer * _SCANNED + 1) / (finer * _PER_SPACING)
    steps = steps.tolist()
    values = [value_at(step) for step in steps]
    if not np.isfinite(values).all():  # half precision overflows early
        return float("nan")
    moves = np.diff(values)
    if not np.isfinite(moves).all():
        return float("nan")
    usual = float(np.median(moves))
    strays = np.abs(moves - usual)
    jumps = np.flatnonzero(strays > 0.5 * strays.max())
    if strays.max() == 0 or len(jumps) < 3:
        return float("nan")
    ends = []
    for jump in (jumps[0], jumps[-1]):
        low, high = ((steps[k], values[k]) for k in (jump, jump + 1))
        ends.append(_cornered(value_at, low, high, _HALVINGS // 2)[0][0])
    return (ends[1] - ends[0]) / (len(jumps) - 1)
