"""Slips that hide in the bars of a solver: told where it is asked for more digits.

Where f jumps beside the point, as solvers do, bars are as wide as a jump makes a slope,
and up to a percent of a gradient has room in them. With a smaller tolerance jumps are
smaller, and so is the distance to a gradient that is right. What stays is a slip.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.around.loose_tolerances import (
    SHRINKS,
    told_at,
    with_other_numbers,
    words_of,
)
from gradlab.pipeline.around.slight_errors import slope_at
from gradlab.pipeline.around.tolerance_numbers import TOO_LONG, tolerances_of, value_of
from gradlab.pipeline.blocks import label_of
from gradlab.pipeline.sides.lines_run import way_of
from gradlab.subject.subject import analytic_of, holds_numbers, output_rows
from gradlab.subject.tolerances_off import (
    called_defaults,
    small_numbers,
    with_smaller,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.around.tolerance_numbers import Tolerances
    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Judged
    from gradlab.pipeline.sides.lines_run import Way
    from gradlab.subject.library_defaults import Default
    from gradlab.subject.subject import Subject

__all__ = ["tell_behind_solvers"]

_ENTRIES = 4  # that are measured again
_STEPS = (5e-4, 1e-3, 2e-3)  # of the size of an entry: jumps are some on each of them
_LEFT = 0.1  # of the error of a solver, along any axis: less may be left of it
_AS_LOOSE = 0.1  # times a tolerance of f: one of the gradient that may explain as much


class _Slip(NamedTuple):
    """An entry, as it is with a smaller tolerance."""

    block: Block
    place: tuple[int, int]  # row and column
    slope: float
    spread: float  # of slopes over several steps, and with another tolerance
    told: float  # by the analytic side

    @property
    def left(self) -> float:
        """How far the sides are apart."""
        return abs(self.told - self.slope)

    @property
    def solver(self) -> float:
        """By how much the slope was another one before."""
        return abs(float(self.block.value[self.place]) - self.slope)

    @property
    def stays(self) -> bool:
        """Whether the sides are as far apart as before, and slopes tell it."""
        shrinks = SHRINKS * self.left < float(self.block.gap[self.place])
        return self.left > SAFETY * self.spread and not shrinks

    def effect(self, slope: float) -> float:
        """Say how far f moves by a slope, where the entry moves by its size."""
        return slope * float(self.block.sizes[self.place[1]])

    def since(self, looser: _Slip) -> _Slip:
        """Be no surer than a looser tolerance leaves it: it may be still on its way."""
        moved = abs(self.slope - looser.slope)
        return self._replace(spread=max(self.spread, looser.spread, moved))


def tell_behind_solvers(judged: Judged) -> Iterator[Finding]:
    """Accuse what agrees, or is undecided, for the jumps of a solver alone.

    Only where nothing else is accused, and the sides are farther apart than the
    tolerance of the check: the bars of right gradients through solvers are asked, too.

    Parameters
    ----------
    judged
        Entries that are told get better numbers and another verdict. Its meter is
        charged for an evaluation and two for each small number that f has, of the
        first eight, and for twelve for each of four entries.
    """
    subject, outcome, meter = judged.subject, judged.outcome, judged.meter
    hidden = [(block, _hidden(block, early=outcome.early)) for block in outcome.blocks]
    hidden = [(block, mask) for block, mask in hidden if mask.any()]
    if not (hidden and judged.exact) or judged.wrong or outcome.interrupted:
        return

    def ask() -> tuple[Tolerances, list[_Slip]]:
        found = tolerances_of(subject, meter)
        slips = _slips(subject, hidden, meter, found) if found.numbers else []
        return found, slips

    asked = with_other_numbers(subject, outcome, ask)
    if asked is None:
        return
    found, slips = asked
    for block, mask in hidden:
        own = [slip for slip in slips if slip.block is block]
        if own:
            block.leave_open(mask)  # the others are likely off by as much
            yield _told(subject, own, found)


def _hidden(block: Block, *, early: bool) -> NDArray[np.bool_]:
    """Entries that bars of jumps alone keep from being accused, (rows, n)."""
    if block.jump is None and not early:
        return np.zeros(block.verdicts.shape, dtype=bool)
    gap = block.gap
    apart = np.isfinite(gap) & (gap > block.allowed) & ~block.accepted
    return np.asarray(apart & (block.kinds == Smoothness.NOISY) & ~block.wrong)


def _slips(
    subject: Subject,
    hidden: list[tuple[Block, NDArray[np.bool_]]],
    meter: Meter,
    found: Tolerances,
) -> list[_Slip]:
    """Pick what stays as far apart with a smaller tolerance, of f and of its gradient.

    And is more than what that leaves of the largest error that a solver makes here.
    The gradient may come of a solver as well, with a tolerance of its own.
    """
    count = min(max(1, found.affordable // len(_STEPS)), _ENTRIES)
    pulled = _pulled(subject)
    most = max(found.most, TOO_LONG * pulled.lines)
    places = _worst(hidden)[:count]
    with with_smaller(subject, found.numbers, math.sqrt(found.factor)):
        before = [_measured(subject, *each, meter, most) for each in places]
    with with_smaller(subject, found.numbers, found.factor):
        slips = [_measured(subject, *each, meter, most) for each in places]
    slips = [slip.since(one) for slip, one in zip(slips, before, strict=True)]
    off = max(slip.effect(slip.solver) for slip in slips)
    slips = [s for s in slips if s.stays and s.effect(s.left) > _LEFT * off]
    others = _of_the_gradient(subject, pulled, found) if slips else []
    if others:
        with with_smaller(subject, [*found.numbers, *others], found.factor):
            again = [_measured(subject, *s[:2], meter, most) for s in slips]
        slips = [one for one, other in zip(slips, again, strict=True) if other.stays]
    return slips


def _pulled(subject: Subject) -> Way:
    """Tell what the analytic side runs, as it is."""
    analytic, rows = analytic_of(subject), output_rows(subject.outputs)
    return way_of(lambda: analytic.pull(np.ones((1, rows))))[1]


def _worst(
    hidden: list[tuple[Block, NDArray[np.bool_]]],
) -> list[tuple[Block, tuple[int, int]]]:
    """Order entries by how far their gaps move f, the farthest first."""
    found = []
    for block, mask in hidden:
        weight = np.where(mask, block.gap * block.sizes, 0.0)
        for flat in np.argsort(-weight, axis=None, kind="stable")[:_ENTRIES]:
            row, column = divmod(int(flat), mask.shape[1])
            if mask[row, column]:
                found.append((float(weight[row, column]), block, (row, column)))
    found.sort(key=lambda one: -one[0])
    return [(block, place) for _, block, place in found]


def _measured(
    subject: Subject, block: Block, place: tuple[int, int], meter: Meter, most: float
) -> _Slip:
    row, column = place
    meter.spend(2 * len(_STEPS))
    slopes = [
        way_of(lambda s=step: slope_at(subject, block, column, s), 2 * most)[0][row]  # type: ignore[misc]
        for step in _STEPS
    ]
    told = told_at(subject, block, place, most)
    return _Slip(block, place, float(np.median(slopes)), float(np.ptp(slopes)), told)


def _of_the_gradient(
    subject: Subject, pulled: Way, found: Tolerances
) -> list[float | Default]:
    """List other small numbers that may be its tolerances, and are as loose as f's."""
    every: list[float | Default]
    every = [*called_defaults(pulled.called), *small_numbers(subject)]
    least = _AS_LOOSE * found.least
    return [n for n in every if n not in found.numbers and value_of(n) >= least]


def _told(subject: Subject, own: list[_Slip], found: Tolerances) -> Finding:
    """Write down what was measured, and say so."""
    slip, block = own[0], own[0].block
    bar = float(block.error[slip.place])
    entry = label_of(subject, block, slip.place[1])
    given = holds_numbers(subject)
    if not given:
        for each in own:
            block.value[each.place] = each.slope
            block.error[each.place] = each.spread
            block.verdicts[each.place] = Verdict.DISAGREES
    reason = (
        "what is given may be of the solver as it is"
        if given
        else "that is no error of the solver"
    )
    numbers, them, times = words_of(found)
    return Finding(
        BugKind.LOW_PRECISION,
        "warning",
        block.name,
        0.9,
        f"The function iterates, to a tolerance or in steps of {numbers}, and jumps: "
        f"its slope at {entry} is good for {bar:.2g}. With {them} {times} times "
        f"smaller it is {slip.slope:.6g} ± {slip.spread:.1g}, and the sides stay "
        f"{abs(slip.told - slip.slope):.2g} apart: {reason}.",
        "Check with the smaller number (tol, rtol, xtol, a step size): then bars are "
        "narrow, and every entry is told.",
    )
