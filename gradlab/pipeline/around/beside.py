"""Accusations at a point where f has no derivative: what is right beside it.

Of three equal numbers the middle one stands still when any of them moves, to both
sides, and still its gradient is that of one of them: of a sort that breaks the tie.
No slope along an axis shows that: the slopes along the axes do not add up to that of
any other direction. Where it is so, at the point itself, a gradient that is the one of
a point right beside it is a sub-gradient of f, and no mistake. Where operations of
torch alone give another one, as for ``relu(x) - relu(-x)`` at 0, there is a convention
to blame and no formula: those entries are undecided, as long as the gradient beside the
point is right.

References
----------
S. Kakade and J. Lee, *Provably correct automatic sub-differentiation* (2018): why chain
rules may leave the generalised gradient, for which see `between.py`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.analytic.gradients_elsewhere import gradients_at
from gradlab.differentiation.evaluation import base_row
from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.differentiation.noise.analytic_noise import rows_together
from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.around.between import between_points
from gradlab.pipeline.around.told_beside import accused, told_beside, told_stale
from gradlab.pipeline.around.ways import Ways
from gradlab.pipeline.looks.unheard import no_tie
from gradlab.subject.subject import DOUBLE, has_own_code, unit_vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.diagnosis.finding import Finding
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Judged, Outcome
    from gradlab.subject.subject import Subject

    _Shifts = list[NDArray[np.float64]]
    _Rows = NDArray[np.bool_]

__all__ = ["leave_ties_open", "look_beside"]

_ASIDE = 1e-5  # of the sizes: how far beside the point
_STEP = 1e-9  # of the sizes: a kink farther away is none of the point itself
_LONGEST = 1e-4  # of the sizes: the same where rounding hides what a shorter step shows
_NEAR = 1e4  # own sizes of inputs that f hardly notices: far less than to another sign
_SEVERAL = (1.0, 0.6, 1.7)  # steps: over one rounding may show any slope
_APART = 16.0  # steps, from one coordinate that is moved aside to the next
_NEARER = 4.0  # times as near: beside a kink a gradient is the same there
_WAY = 20.0  # steps, that coordinates move which are not looked at: past all of a tie
_SHORT = 1e-7  # of the sizes: after longer steps what is curved looks like a tie
_SHARE = 0.1  # of the distance of the two sides: what less than that leaves open
_LOOKS = 4  # directions along which slopes may turn out not to add up
_TRIES = 40  # points whose gradient may be the one
_ANYWHERE = (_TRIES, _TRIES + 2)  # two points at random, where all is moved
_TWICE = 2  # points beside at which the gradient has to be right
_DIRECTIONS = 3
_LIKE = 1e-3  # relative difference of slopes at the point and so close to it
_LOUD = 100.0  # times the rounding of f, over the step
_MOST_ROWS = 256  # for which gradients beside the point are asked for


def look_beside(judged: Judged) -> list[Finding]:
    """Take back accusations that hold at the point alone, and say so.

    Some fourteen evaluations, and a hundred at a kink; the outcome's `limits` are set.
    """
    subject, outcome, meter = judged.subject, judged.outcome, judged.meter
    at = judged.at
    wrong = [block for block in judged.wrong if accused(block).any()]
    if not wrong:
        return []
    if outcome.interrupted:
        leave_ties_open(subject, outcome)
        return []
    if at.epsilon > DOUBLE:
        return []
    rng = np.random.default_rng([judged.seed, 31])
    found: list[Finding] = []
    ways = Ways(at, outcome.blocks, meter, rng)
    try:
        # over so short a step the rounding of short arithmetic would be any slope
        base = outcome.base if at is subject else base_row(at, meter)
        beside = _Beside(at, outcome.blocks, base, meter, rng, ways)
        worst = max(wrong, key=lambda block: float(beside.gap(block).max(initial=0.0)))
        beside.lengthen(worst)
        if not beside.resolves(worst):
            return []  # so short a step sees the rounding inside f, and no slope
        if beside.no_derivative(worst):
            if beside.remembers(worst):
                return list(told_stale(subject, wrong))
            outcome.limits = beside.limits()
            found += told_beside(subject, wrong, outcome.limits, known=True)
            beside.kept.clear()  # other verdicts, other gaps
        left = any(accused(block).any() for block in wrong)
        if left and not has_own_code(subject):
            known, right = outcome.limits, beside.right_there()
            outcome.limits = right if known is None else known | right
            found += told_beside(subject, wrong, right, known=False)
    except (BudgetExhausted, KeyboardInterrupt) as stop:
        outcome.cut_short(stop, "points beside the given one were not looked at")
        leave_ties_open(subject, outcome)
        return []
    return found


def leave_ties_open(subject: Subject, outcome: Outcome) -> None:
    """Accuse nobody where f may have no derivative, and nothing is left to look.

    Of what it is smooth in, along the axis, that takes a number which is zero or which
    another one equals.
    """
    for block in outcome.blocks:
        if not block.accused:
            continue
        smooth = np.isin(block.kinds, (-1, Smoothness.SMOOTH))
        hasty = accused(block) & ~(smooth & no_tie(subject, block))
        outcome.leave_unheard(block, hasty, "central")


@dataclasses.dataclass(slots=True, eq=False)
class _Beside:
    """Slopes of f at points right beside the one that is checked."""

    subject: Subject
    blocks: list[Block]
    base: NDArray[np.float64]
    meter: Meter
    rng: np.random.Generator
    ways: Ways
    kept: dict[int, NDArray[np.float64]] = dataclasses.field(default_factory=dict)
    step: float = _STEP
    aside: float = _ASIDE

    def gap(self, block: Block) -> NDArray[np.float64]:
        """Return how far sides are apart, found once for the verdicts of a block."""
        if block.which not in self.kept:
            self.kept[block.which] = block.apart(accused(block))
        return self.kept[block.which]

    def worst_row(self, block: Block) -> int:
        """Return the row with the largest gap."""
        return int(np.argmax(self.gap(block).max(axis=1, initial=0.0)))

    def lengthen(self, block: Block) -> None:
        """Choose the shortest steps that tell what is accused from rounding."""
        row, least = self.worst_row(block), 2 * _LOUD / _SHARE * self.subject.epsilon
        needed = np.inf
        for near in (_NEAR, np.inf):
            for part in self.blocks:
                part.near = near
            self.kept.clear()  # by other units, other gaps
            with np.errstate(all="ignore"):
                needed = least * abs(self.base[row]) / self.gap(block)[row].max()
            if needed <= _LONGEST:
                break
        if _STEP < needed <= _LONGEST:
            most = max(variable.coordinates for variable in self.subject.inputs)
            self.step = float(needed)
            self.aside = max(_ASIDE, _APART * most * self.step)

    def resolves(self, block: Block) -> bool:
        """Whether steps as short as these see the slope at the point that is known."""
        gap = self.gap(block)
        row, column = divmod(int(np.argmax(gap)), gap.shape[1])
        along = [np.zeros(len(b.positions)) for b in self.blocks]
        along[self.blocks.index(block)][column] = 1.0
        here = float(block.value[row, column] * block.units[column])
        for factor in _SEVERAL:
            slope, noise = self._slope(None, along, factor)
            if abs(slope[row] - here) > _SHARE * gap[row, column] + noise[row]:
                return False
        return True

    def no_derivative(self, block: Block) -> bool:
        """Whether the slopes along the axes do not add up at the point itself.

        On a way so short that no kink nearby is met, and nothing curved is seen: then
        f is not differentiable there, whatever holds beside it. Nor is it where any
        coordinate stands at a kink, or where those that are not looked at change it.
        """
        gap, row = self.gap(block), self.worst_row(block)
        if any((part.kinds[row] == Smoothness.KINK).any() for part in self.blocks):
            return True
        rounding = _LOUD * self.subject.epsilon * abs(self.base[row]) / self.step
        counts = [(len(b.positions), len(self.ways.sizes(b))) for b in self.blocks]
        some = self.step <= _SHORT and any(few < all_ for few, all_ in counts)
        for number in range(_LOOKS):
            shifts = self.ways.aside(number, row)
            pairs = zip(self.blocks, shifts, strict=True)
            along = self.ways.along() if some else [s[b.positions] for b, s in pairs]
            start = [_WAY * self.step * shift for shift in shifts] if some else None
            up, down = self._ends([self.step * direction for direction in along], start)
            told, bar = 0.0, rounding
            with np.errstate(all="ignore"):
                slopes = [(up - self.base) / self.step, (self.base - down) / self.step]
                if some:
                    slopes = [(slopes[0] + slopes[1]) / 2]
                for part, direction in zip(self.blocks, along, strict=True):
                    moved = direction * part.units
                    told += float(part.value[row] @ moved)
                    bar += float(part.error[row] @ np.abs(moved))
                off = max(abs(float(slope[row]) - told) for slope in slopes)
            if off > _SHARE * gap[row].max() + bar:
                return True
        return False

    def remembers(self, block: Block) -> bool:
        """Whether f moves with what is accused only where the rest moves as well.

        Beside the point too, where the gradient foretells what all of it does: as a
        function does that keeps its values under a key which leaves that out.
        """
        row, columns = self.worst_row(block), [b.formula * b.units for b in self.blocks]
        only = np.arange(len(self.base)) == row
        for number in _ANYWHERE:
            aside = self._aside(number)
            pairs = zip(self.blocks, columns, strict=True)
            along = self.ways.of([accused(b)[row] * np.sign(c[row]) for b, c in pairs])
            told = sum(c[row] @ d for c, d in zip(columns, along, strict=True))
            if not told > _SHARE * self.gap(block)[row].max():
                return False
            up, down = self._ends([self.step * d for d in along], aside)
            if up[row] != down[row] or not self._like(aside, columns, only)[row]:
                return False
        return True

    def limits(self) -> NDArray[np.bool_]:
        """Rows whose gradient is the one of a point beside, or between, (rows,)."""
        found = np.zeros(len(self.base), dtype=bool)
        columns = [b.formula * b.units for b in self.blocks]
        rows = np.any([accused(b).any(axis=1) for b in self.blocks], axis=0)
        for number in range(_TRIES):
            if not found[rows].all():
                found |= self._limit(self._aside(number), columns, rows & ~found)
        for way in self.ways.apart():
            if not found[rows].all():  # where all come apart, all are told
                found |= self._limit(self._scaled(way), columns, ~found)
        there, rest = (self.blocks, self.base), rows & ~found
        return found | between_points(self.subject, there, rest, self.meter, self.rng)

    def _limit(self, aside: _Shifts, columns: _Shifts, rows: _Rows) -> _Rows:
        """Of some rows of a Jacobian those that foretell slopes all the way there.

        What f bends by on the way may make any gradient right at some point.
        """
        like = self._like(aside, columns, rows)
        if not like.any():
            return like
        return self._like([shift / _NEARER for shift in aside], columns, like)

    def right_there(self) -> NDArray[np.bool_]:
        """Rows whose gradient beside the point is right, at two points, (rows,).

        Of six: at one two eigenvalues may come so close that nothing foretells slopes,
        and at several the gradient may happen to be the one of the point.
        """
        right = np.any([accused(b).any(axis=1) for b in self.blocks], axis=0)
        analytic = self.subject.analytic
        if analytic is None or not analytic.takes_cotangents:
            return np.zeros_like(right)
        rows = np.flatnonzero(right)[:_MOST_ROWS]
        right[np.setdiff1d(np.flatnonzero(right), rows)] = False
        another = np.zeros_like(right)  # at one of the points at least
        times = np.zeros(len(right), dtype=int)
        for number in (0, *range(_TRIES, _TRIES + 10, 2)):  # in order, and at random
            if (another & (times >= _TWICE))[right].all():
                break
            aside = self._aside(number)
            columns = self._formula_at(aside, rows)
            if columns is None:
                return np.zeros_like(right)
            times += self._like(aside, columns, right)
            another |= self._another(columns)
        return np.asarray(right & another & (times >= _TWICE))

    def _formula_at(self, aside: _Shifts, rows: NDArray[np.intp]) -> _Shifts | None:
        """Read some rows of the analytic side beside the point; None if none are."""
        columns = [np.zeros(block.value.shape) for block in self.blocks]
        there = {
            block.which: self.subject.point(block.which) + by * self.ways.sizes(block)
            for block, by in zip(self.blocks, aside, strict=True)
        }
        together = rows_together(self.subject, self.meter)
        for some in np.split(rows, range(together, len(rows), together)):
            cotangents = unit_vectors(len(self.base), some)
            pulled = gradients_at(self.subject, there, cotangents)
            if pulled is None:
                return None
            for block, matrix in zip(self.blocks, columns, strict=True):
                matrix[some] = pulled[block.which][:, block.positions] * block.units
        return columns

    def _another(self, columns: _Shifts) -> NDArray[np.bool_]:
        """Rows with something accused that are others in a Jacobian than at the point.

        Not in these entries alone: of an eigenvector that a tie lets turn another may
        share a component.
        """
        another = np.zeros(len(self.base), dtype=bool)
        for block, matrix in zip(self.blocks, columns, strict=True):
            gap = self.gap(block).max(axis=1, initial=0.0)
            apart = np.abs(matrix - block.formula * block.units).max(
                axis=1, initial=0.0
            )
            another |= (apart > 0.5 * gap) & (gap > 0)
        return another

    def _like(self, aside: _Shifts, columns: _Shifts, rows: _Rows) -> _Rows:
        """Find rows of a Jacobian that foretell slopes beside the point, at random.

        Of accused inputs: others may have kinks, or slopes that outweigh these.
        """
        like = rows.copy()
        gap = np.max([self.gap(b).max(axis=1, initial=0.0) for b in self.blocks], 0)
        gap = np.where(gap > 0, gap, gap.max(initial=0.0))
        wrong = [float(accused(block).any()) for block in self.blocks]
        for _ in range(_DIRECTIONS):
            along = [k * by for k, by in zip(wrong, self.ways.along(), strict=True)]
            slope, noise = self._slope(aside, along)
            moved = list(zip(columns, along, strict=True))
            with np.errstate(all="ignore"):
                told = np.sum([c @ d for c, d in moved], axis=0)
                size = np.sum([np.abs(c) @ np.abs(d) for c, d in moved], axis=0)
                allowed = np.minimum(_LIKE * size, 0.05 * gap) + noise
                like &= np.asarray(np.abs(slope - told) <= allowed)
                like &= noise < _SHARE * gap  # or nothing could be told apart
            if not like.any():  # most points show it at once
                break
        return like

    def _slope(
        self, aside: _Shifts | None, along: _Shifts, factor: float = 1.0
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Slope of every output beside the point, and what rounding does to it."""
        step = factor * self.step
        ends = self._ends([step * d for d in along], aside)
        with np.errstate(all="ignore"):
            slope = (ends[0] - ends[1]) / (2 * step)
            noise = _LOUD * self.subject.epsilon * np.abs(self.base) / step
        return slope, noise

    def _aside(self, number: int) -> _Shifts:
        worst = max(self.blocks, key=lambda b: float(self.gap(b).max(initial=0.0)))
        return self._scaled(self.ways.aside(number, self.worst_row(worst)))

    def _scaled(self, shifts: _Shifts) -> _Shifts:
        return [self.aside * shift for shift in shifts]

    def _ends(self, moves: _Shifts, aside: _Shifts | None = None) -> _Shifts:
        """Values of f forth and back, from the point or from one beside it."""
        counts = [self.subject.inputs[b.which].coordinates for b in self.blocks]
        start = aside or [np.zeros(count) for count in counts]
        ends = []
        for sign in (1.0, -1.0):
            shifts = [shift.copy() for shift in start]
            for block, shift, move in zip(self.blocks, shifts, moves, strict=True):
                shift[block.positions] += sign * move
            ends.append(self.ways.at(shifts))
        return ends
