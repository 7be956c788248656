"""Slopes between two jumps of a solver that stops early.

An iteration that ends at a tolerance, an integrator that chooses its steps: from here
to there f takes the same number of steps and is smooth, and beyond it takes one more
and jumps back towards what is meant. The slope in between is off by what the jumps
make up for, and it is off by something else beyond the next one: what a formula has
wrong is the same on both sides of a jump, or the same part of the slope. A slight
accusation counts only where it is more than a few times what changes there; a formula
that is wrong by more than a percent stays wrong. A jump of more than a percent is none
of a tolerance: a branch, an argmax, or a table makes those.

References
----------
J. Moré and S. Wild, *Estimating computational noise*, SIAM Journal on Scientific
Computing 33 (2011): deterministic noise of iterations that stop at a tolerance.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.rule import tops_of
from gradlab.comparison.tolerance import CARE, SAFETY
from gradlab.differentiation.analytic.gradients_elsewhere import gradients_at
from gradlab.differentiation.evaluation import line_of, line_rows
from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.looks.following import Lanes, nearest_jump, next_jump
from gradlab.pipeline.sides.early_ends import early_ends
from gradlab.pipeline.sides.lines_run import path_of
from gradlab.subject.subject import is_torch_subject, unit_vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.blocks import Block

__all__ = [
    "SLIGHT",
    "WIDE",
    "Jumps",
    "jumps_of",
    "takes_other_steps",
    "widen_as_others",
    "widen_by_jumps",
    "widen_by_lines",
    "widen_for_good",
]

SLIGHT = 1e-2  # of the largest entry of the row: more is no matter of a tolerance
_MANY = 1.0  # times as many columns accused of more
_SAW = 30.0  # times what the slope is off by up to the jump: a higher one is another's
WIDE = 2.0  # jumps: how far f may be from what it is meant to be, on both ends
_LOOKS = 4  # columns that are followed before all are believed
_BELOW = 32.0  # jumps nearer than that part of a step are noise to differences
_FARTHEST = 2.0  # scales that steps grow to
_ON = 8.0  # scales that one column is followed on to, in equal steps
# Of the way to a jump, but no more of a scale: how far before and behind it slopes are.
_ASIDE, _LONGEST = 2.0**-3, 2.0**-8
_UNTOLD = 1.01 * CARE / SAFETY  # of an entry: a bar just too wide to tell it
# Of 48 fixed points that stop early accusations were up to nine times what jumps made
# along other axes.
_REST = 32.0
_BEHIND = 1.01  # times the way to a jump
_ALIKE = 0.05  # of the gap: slopes over half the step and a quarter, without a jump
_ASKED = 64  # outputs whose gradients are asked for there; others are held to be steady


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Jumps:
    """What looks along some inputs have told of each output; written to as they go.

    Attributes
    ----------
    spoiled
        Accused of much, or followed, and did not jump, (rows,): what is wrong there is
        the formula.
    change
        By how much of it moving a coordinate by its scale is another matter behind a
        jump, (rows,).
    share
        Of what matters most to it: what slopes were seen to be off by, (rows,).
    """

    spoiled: NDArray[np.bool_]
    change: NDArray[np.float64]
    share: NDArray[np.float64]

    def note(
        self, block: Block, bars: NDArray[np.float64], slight: NDArray[np.bool_]
    ) -> None:
        """Remember what bars of slight accusations, (rows, n), say of their outputs."""
        top = tops_of(block.value, block.sizes).effect
        with np.errstate(all="ignore"):
            effect = np.where(slight, bars * block.latest_scales, 0.0)
            seen = effect.max(axis=1, initial=0.0) / top[:, 0]
        np.fmax(self.share, np.nan_to_num(seen, posinf=0.0), out=self.share)


def jumps_of(blocks: list[Block]) -> Jumps:
    """Begin with outputs that have an entry wrong by more than a solver can be."""
    much = [(block.wrong & ~_slight(block)[1]).any(axis=1) for block in blocks]
    spoiled = np.asarray(np.any(much, axis=0))
    return Jumps(spoiled, np.zeros(len(spoiled)), np.zeros(len(spoiled)))


def widen_by_jumps(origin: Origin, block: Block, meter: Meter, jumps: Jumps) -> bool:
    """Widen the bars of slight accusations by the nearest jumps of f.

    Parameters
    ----------
    origin
        What the numeric side of this block evaluates.
    block
        Judged. Its bars are widened, and it remembers a jump.
    meter
        Charged for every evaluation: none where nothing is slightly wrong, else about
        a hundred for each of at most four columns, and two hundred where none jumps
        and f is curved.
    jumps
        Of this check; gets what is found here.

    Returns
    -------
    bool
        Whether any bar was widened.
    """
    gap, slight = _slight(block)
    slight[jumps.spoiled] = False
    if not slight.any():
        return False
    effect = np.where(slight, gap * block.latest_scales, 0.0)
    columns = np.flatnonzero(slight.any(axis=0))
    columns = columns[np.argsort(-effect[:, columns].max(axis=0), kind="stable")]
    now = columns[:_LOOKS]
    rows = effect[:, now].argmax(axis=0)
    least = np.where(slight, gap, 0.0)[rows, now]
    lanes = Lanes(origin, block, now, rows, meter, gap=least)
    height, away, curved = nearest_jump(lanes, farthest=_FARTHEST, below=_BELOW)
    followed = rows
    if curved[0] and np.isnan(away).all():
        now, rows = now[:1], rows[:1]
        height, away = next_jump(lanes.some(np.array([0])), farthest=_ON)
    if np.isnan(away).all():  # all upheld: so are the rest, and along other inputs
        jumps.spoiled[followed] = True
        return False
    top = tops_of(block.value, block.sizes).effect[:, 0]
    tall = height.max(axis=1) > SLIGHT * np.fmax(np.abs(origin.base), top)
    slight[tall] = False
    change = _changes(lanes.some(np.arange(len(now))), away, slight, meter)
    change = (change * block.latest_scales[now]).max(axis=1, initial=0.0)
    change[tall] = 0.0
    np.fmax(jumps.change, change, out=jumps.change)
    # along all axes the solver is off by as much, over as short a way
    highest = height.max(axis=1)
    nearest = np.nanmin(np.abs(away) / block.latest_scales[now])
    most = effect.max(axis=1)
    with np.errstate(all="ignore"):
        reach = np.fmax(nearest * block.latest_scales, np.abs(block.step))
        # slips that do not add up to a fair part of the jump: it is none of a tolerance
        tooth = highest[:, None] <= _SAW * most[:, None] * reach / block.latest_scales
        bar = np.where(tooth, WIDE * highest[:, None] / reach, 0.0)
    bar = np.fmax(bar, change[:, None] / block.latest_scales)
    jumps.note(block, bar, slight)
    widened = block.blame_noise(bar, slight)
    if widened:
        first = int(np.nanargmin(np.abs(away)))
        highest_one = float(height[rows[first], first])
        block.jump = (highest_one, float(abs(away[first])), int(now[first]))
    return widened


def _changes(
    lanes: Lanes,
    away: NDArray[np.float64],
    slight: NDArray[np.bool_],
    meter: Meter,
) -> NDArray[np.float64]:
    """Tell by how much the distance of the sides is another behind a jump, (rows, n).

    Of lanes with a jump at a signed distance `away`, and slopes that no other jump
    spoils; else 0.
    """
    block, gap = lanes.block, np.asarray(lanes.gap)
    change = np.zeros((slight.shape[0], len(lanes.columns)))
    with np.errstate(all="ignore"):
        aside = _ASIDE * np.abs(away)
        aside = np.fmin(aside, _LONGEST * block.latest_scales[lanes.columns])
    for k in np.flatnonzero(np.isfinite(away)):
        lane = lanes.some(np.array([k]))
        ends = away[k] + np.array([-1.0, 1.0]) * aside[k]
        slopes = [_slopes(lane, end, aside[k] / 2) for end in ends]
        shorter = [_slopes(lane, end, aside[k] / 4) for end in ends]
        with np.errstate(all="ignore"):
            found = np.abs(np.subtract(shorter, slopes))[:, lane.rows[0]]
            if not (found <= _ALIKE * gap[k]).all():
                continue
            moved = np.abs(np.subtract(*shorter))
        rows = np.flatnonzero(slight.any(axis=1) & np.isfinite(moved))[:_ASKED]
        before, behind = (_formula_at(lane, end, rows, meter) for end in ends)
        if before is not None and behind is not None:
            gaps = shorter[0][rows] - before, shorter[1][rows] - behind
            with np.errstate(all="ignore"):
                # a factor that is wrong is the same part of another slope
                scaled = gaps[0] / shorter[0][rows] * shorter[1][rows]
            moved[rows] = np.abs(gaps[1] - gaps[0])
            moved[rows] = np.fmin(moved[rows], np.abs(gaps[1] - scaled))
        change[:, k] = np.nan_to_num(moved)
    return change


def _slopes(lane: Lanes, centre: float, step: float) -> NDArray[np.float64]:
    """Central differences of all outputs elsewhere on a lane, (rows,)."""
    ends = [lane.at(np.array([centre + end]))[0] for end in (step, -step)]
    with np.errstate(all="ignore"):
        return np.asarray((ends[0] - ends[1]) / (2 * step))


def _formula_at(
    lane: Lanes, away: float, rows: NDArray[np.intp], meter: Meter
) -> NDArray[np.float64] | None:
    """Read some rows of the analytic side elsewhere on a lane; None if none are."""
    subject, block = lane.origin.subject, lane.block
    position = int(block.positions[lane.columns[0]])
    point = subject.point(block.which).copy()
    point[position] += away
    cotangents = unit_vectors(len(lane.origin.base), rows)
    pulled = gradients_at(subject, {block.which: point}, cotangents)
    if pulled is None:
        return None
    if not is_torch_subject(subject):
        meter.owe(len(rows))
    return np.asarray(pulled[block.which][:, position])


def widen_as_others(block: Block, jumps: Jumps) -> bool:
    """Widen bars of slight accusations by what jumps changed along any input."""
    slight = _slight(block)[1] & ~jumps.spoiled[:, None]
    bar = jumps.change[:, None] / block.latest_scales
    jumps.note(block, bar, slight)
    return block.blame_noise(bar, slight)


def takes_other_steps(origin: Origin, block: Block, meter: Meter) -> bool:
    """Whether f runs other lines behind the jump that a block remembers, as solvers do.

    Three evaluations; none where there is no jump. What rounds inside, or compares,
    jumps in the middle of the same lines.
    """
    if block.jump is None:
        return False
    _, away, column = block.jump
    positions, moves = block.positions[[column]], np.array([_BEHIND * away])
    line = line_of(origin.subject, [(block.which, positions, moves)])
    with meter.overlooking():  # beyond a jump f may raise
        paths = [
            path_of(lambda s=step: line_rows(origin.subject, line, [s], meter))[1]  # type: ignore[misc]
            for step in (0.0, 1.0, -1.0)
        ]
    return len(set(paths)) > 1


def widen_for_good(block: Block, spoiled: NDArray[np.bool_], jumps: Jumps) -> bool:
    """Widen bars of all slight accusations of an f that is known to stop early.

    How far its slopes are off is measured along a few axes; along the others, where it
    takes no other number of steps as far as it was followed, they may be off by more.
    A hundredth of what matters most to an output is all that is claimed then, and two
    of an entry: its bar is too wide for a verdict.

    Parameters
    ----------
    block
        Judged after all other looks.
    spoiled
        Outputs accused of much, (rows,).
    jumps
        Of this check. What is off by far more than they made of any output is a slip.
    """
    gap, slight = _slight(block)
    slight &= ~spoiled[:, None]
    top = tops_of(block.value, block.sizes).effect
    with np.errstate(all="ignore"):
        most = _REST * jumps.share.max(initial=0.0) * top
        slight &= gap * block.latest_scales <= most
    if not slight.any():
        return False
    with np.errstate(all="ignore"):
        size = np.fmax(np.abs(block.formula), np.abs(block.value))
        bars = np.fmax(SLIGHT * top / block.latest_scales, _UNTOLD * size)
    return block.blame_noise(bars, slight)


def widen_by_lines(
    origin: Origin,
    block: Block,
    meter: Meter,
    spoiled: NDArray[np.bool_],
    jumps: Jumps,
) -> bool:
    """Widen bars of slight accusations where f runs other lines farther on, and jumps.

    Along one axis a solver may take as many steps as far as f is followed. Four
    evaluations where the lines are the same, else some seventy.

    Parameters
    ----------
    origin, block, meter
        As for `widen_by_jumps`.
    spoiled
        Outputs accused of much, (rows,).
    jumps
        Of this check; gets what is found here.
    """
    slight = _slight(block)[1] & ~spoiled[:, None]
    if not slight.any():
        return False
    off = early_ends(origin, block.which, meter)[:, block.positions]
    jumps.note(block, off, slight)
    return block.blame_noise(off, slight)


def _slight(block: Block) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Distance between the sides, and where it is an accusation of little, (rows, n).

    Not in columns that are accused of much, and nowhere where those are far more. The
    distance is told of what is accused of little, and 0 elsewhere.
    """
    wrong = block.wrong
    gap, slight = np.zeros(wrong.shape), np.zeros(wrong.shape, dtype=bool)
    rows, columns = np.nonzero(wrong)
    if not rows.size:
        return gap, slight
    with np.errstate(all="ignore"):
        apart = np.abs(block.formula[rows, columns] - block.value[rows, columns])
        top = tops_of(block.value, block.sizes).effect[rows, 0]
        little = apart * block.latest_scales[columns] <= SLIGHT * top
        little &= apart > SAFETY * block.error[rows, columns]
    little &= ~np.isin(block.kinds[rows, columns], (Smoothness.KINK, Smoothness.EDGE))
    much = np.zeros(wrong.shape[1], dtype=bool)
    much[columns[~little]] = True
    little &= ~much[columns]
    if np.count_nonzero(much) > _MANY * len(np.unique(columns[little])):
        return gap, slight
    slight[rows, columns] = little
    gap[rows, columns] = np.where(little, apart, 0.0)
    return gap, slight
