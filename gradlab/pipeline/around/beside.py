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
F. H. Clarke, *Optimization and Nonsmooth Analysis* (1983), section 2.5: the generalised
gradient is the convex hull of limits of gradients. S. Kakade and J. Lee, *Provably
correct automatic sub-differentiation* (2018): why chain rules may leave it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.differentiation.evaluation import BudgetExhausted, line_rows
from gradlab.differentiation.gradients_elsewhere import gradients_at
from gradlab.differentiation.metering import INTERRUPTED, why_stopped
from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.blocks import label_of
from gradlab.pipeline.looks.unheard import no_tie
from gradlab.subject.subject import DOUBLE, is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.differentiation.evaluation import Meter
    from gradlab.pipeline.blocks import Block, Outcome
    from gradlab.subject.subject import Subject

__all__ = ["leave_ties_open", "look_beside"]

_ASIDE = 1e-5  # of the sizes: how far beside the point
_STEP = 1e-9  # of the sizes: shorter than the way to the next tie
_TINY = 1e-9  # of the sizes: a kink farther away is none of the point itself
_SHARE = 0.1  # of the distance of the two sides: what less than that leaves open
_LOOKS = 4  # directions along which slopes may turn out not to add up
_TRIES = 14  # points whose gradient may be the one
_DIRECTIONS = 3
_LIKE = 1e-3  # relative difference of slopes at the point and so close to it
_LOUD = 100.0  # times the rounding of f, over the step
_MOST_ROWS = 256  # for which gradients beside the point are asked for


def look_beside(
    subject: Subject, outcome: Outcome, meter: Meter, seed: int
) -> list[Finding]:
    """Take back accusations that hold at the point alone, and say so.

    Parameters
    ----------
    subject
        As the user has it.
    outcome
        Judged; verdicts of its blocks are changed, and its `limits` set.
    meter
        Charged for eight evaluations, and for a hundred where f has no derivative at
        the point.
    seed
        Of the directions.
    """
    at = outcome.reference or subject
    wrong = [b for b in outcome.blocks if b.accused and _accused(b).any()]
    if not wrong:
        return []
    if outcome.stopped == INTERRUPTED:  # who pressed Stop does not want more
        leave_ties_open(subject, outcome)
        return []
    if at.epsilon > DOUBLE:
        return []
    rng = np.random.default_rng([seed, 31])
    found: list[Finding] = []
    beside = _Beside(at, outcome.blocks, outcome.base, meter, rng)
    try:
        worst = max(wrong, key=lambda block: float(beside.gap(block).max(initial=0.0)))
        if not beside.resolves(worst):
            return []  # so short a step sees the rounding inside f, and no slope
        if beside.no_derivative(worst):
            outcome.limits = beside.limits()
            found += _told(subject, wrong, outcome.limits, known=True)
            beside.kept.clear()  # other verdicts, other gaps
        left = any(_accused(block).any() for block in wrong)
        own = getattr(subject.analytic, "own_code", True)
        if left and is_torch_subject(subject) and not own:
            right = beside.right_there()
            known = outcome.limits
            outcome.limits = right if known is None else known | right
            found += _told(subject, wrong, right, known=False)
    except (BudgetExhausted, KeyboardInterrupt) as stop:
        outcome.stopped = outcome.stopped or why_stopped(stop)
        told = f"{why_stopped(stop)}: points beside the given one were not looked at"
        outcome.remarks.append(told)
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
        hasty = _accused(block) & ~(smooth & no_tie(subject, block))
        block.verdicts[hasty] = Verdict.UNDECIDED
        outcome.unheard += Counter({"central": int(hasty.sum())})


def _accused(block: Block) -> NDArray[np.bool_]:
    wrong = np.asarray(block.verdicts == Verdict.DISAGREES)
    places = np.flatnonzero(wrong)
    if not places.size:  # nor is a matrix made that nobody has asked for
        return wrong
    sides = (block.analytic.reshape(-1)[places], block.value.reshape(-1)[places])
    wrong.reshape(-1)[places] = np.isfinite(sides[0]) & np.isfinite(sides[1])
    return wrong


def _gap(block: Block) -> NDArray[np.float64]:
    """Distance of the two sides where they disagree, in units of f; else 0."""
    accused = _accused(block)
    gap = np.zeros(accused.shape)
    places = np.flatnonzero(accused)
    if places.size:
        with np.errstate(all="ignore"):
            held = (block.formula, block.side.value)  # at a kink the nearest slope
            sides = (side.reshape(-1)[places] for side in held)
            apart = np.abs(next(sides) - next(sides))
            gap.reshape(-1)[places] = apart * block.sizes[places % len(block.sizes)]
    return gap


@dataclasses.dataclass(slots=True, eq=False)
class _Beside:
    """Slopes of f at points right beside the one that is checked."""

    subject: Subject
    blocks: list[Block]
    base: NDArray[np.float64]
    meter: Meter
    rng: np.random.Generator
    kept: dict[int, NDArray[np.float64]] = dataclasses.field(default_factory=dict)

    def gap(self, block: Block) -> NDArray[np.float64]:
        """Return `_gap` of a block, which is found once for the verdicts it has."""
        if block.which not in self.kept:
            self.kept[block.which] = _gap(block)
        return self.kept[block.which]

    def worst_row(self, block: Block) -> int:
        """Return the row with the largest gap."""
        gap = self.gap(block)
        return int(np.argmax(gap.max(axis=1, initial=0.0)))

    def resolves(self, block: Block) -> bool:
        """Whether steps as short as these see the slope at the point that is known."""
        gap = self.gap(block)
        row, column = divmod(int(np.argmax(gap)), gap.shape[1])
        still = [np.zeros(len(b.positions)) for b in self.blocks]
        along = [shift.copy() for shift in still]
        along[self.blocks.index(block)][column] = 1.0
        here = float(block.value[row, column] * block.sizes[column])
        slope, noise = self._slope(still, along)
        return bool(abs(slope[row] - here) <= _SHARE * gap[row, column] + noise[row])

    def no_derivative(self, block: Block) -> bool:
        """Whether the slopes along the axes do not add up at the point itself.

        On a way so short that no kink nearby is met, and nothing curved is seen: then
        f is not differentiable there, whatever holds beside it. Nor is it where what is
        accused stands at a kink already.
        """
        gap, row = self.gap(block), self.worst_row(block)
        if (block.kinds[row, gap[row] > 0] == Smoothness.KINK).any():
            return True
        rounding = _LOUD * self.subject.epsilon * abs(self.base[row]) / _TINY
        for number in range(_LOOKS):
            along = [shift / _ASIDE for shift in self._aside(number)]
            ends = self._ends([_TINY * direction for direction in along])
            told, bar = 0.0, rounding
            with np.errstate(all="ignore"):
                for part, direction in zip(self.blocks, along, strict=True):
                    moved = direction * part.sizes
                    told += float(part.value[row] @ moved)
                    bar += float(part.error[row] @ np.abs(moved))
                sides = (ends[0] - self.base, self.base - ends[1])
                off = max(abs(float(side[row]) / _TINY - told) for side in sides)
            if off > _SHARE * gap[row].max() + bar:
                return True
        return False

    def limits(self) -> NDArray[np.bool_]:
        """Rows whose gradient is the one of a point beside, (rows,)."""
        found = np.zeros(len(self.base), dtype=bool)
        columns = [b.formula * b.sizes for b in self.blocks]
        rows = np.any([_accused(b).any(axis=1) for b in self.blocks], axis=0)
        for number in range(_TRIES):
            found |= self._like(self._aside(number), columns)
            if found[rows].all():
                break
        return found

    def right_there(self) -> NDArray[np.bool_]:
        """Rows whose gradient beside the point is right, at two points, (rows,)."""
        right = np.any([_accused(b).any(axis=1) for b in self.blocks], axis=0)
        analytic = self.subject.analytic
        if analytic is None or not analytic.takes_cotangents:
            return np.zeros_like(right)
        rows = np.flatnonzero(right)[:_MOST_ROWS]
        right[np.setdiff1d(np.flatnonzero(right), rows)] = False
        another = np.zeros_like(right)  # at one of the points at least
        for number in (0, _LOOKS):  # in order, and at random
            aside = self._aside(number)
            cotangents = np.zeros((len(rows), len(self.base)))
            cotangents[np.arange(len(rows)), rows] = 1.0
            shifts = self._whole(aside).items()
            there = {which: self.subject.point(which) + by for which, by in shifts}
            pulled = gradients_at(self.subject, there, cotangents)
            if pulled is None:
                return np.zeros_like(right)
            columns = []
            for block in self.blocks:
                matrix = np.zeros((len(self.base), len(block.positions)))
                matrix[rows] = pulled[block.which][:, block.positions] * block.sizes
                columns.append(matrix)
            right &= self._like(aside, columns)
            another |= self._another(columns)
        return np.asarray(right & another)

    def _another(self, columns: list[NDArray[np.float64]]) -> NDArray[np.bool_]:
        """Rows whose accused entries are others in a Jacobian than at the point."""
        another = np.zeros(len(self.base), dtype=bool)
        for block, matrix in zip(self.blocks, columns, strict=True):
            gap = self.gap(block)
            apart = np.abs(matrix - block.formula * block.sizes) > 0.5 * gap
            another |= (apart & (gap > 0)).any(axis=1)
        return another

    def _like(
        self, aside: list[NDArray[np.float64]], columns: list[NDArray[np.float64]]
    ) -> NDArray[np.bool_]:
        """Rows of a Jacobian that foretell the slopes there, along random ones."""
        like = np.ones(len(self.base), dtype=bool)
        gaps = [self.gap(block).max(axis=1, initial=0.0) for block in self.blocks]
        gap = np.max(gaps, axis=0)
        for _ in range(_DIRECTIONS):
            along = [
                self.rng.choice([-1.0, 1.0], len(w))
                * self.rng.uniform(0.5, 1.5, len(w))
                for w in aside
            ]
            slope, noise = self._slope(aside, along)
            pairs = list(zip(columns, along, strict=True))
            with np.errstate(all="ignore"):
                told = np.sum([c @ d for c, d in pairs], axis=0)
                size = np.sum([np.abs(c) @ np.abs(d) for c, d in pairs], axis=0)
                allowed = np.minimum(_LIKE * size, 0.05 * gap) + noise
                like &= np.asarray(np.abs(slope - told) <= allowed)
                like &= noise < _SHARE * gap  # or nothing could be told apart
        return like

    def _slope(
        self, aside: list[NDArray[np.float64]], along: list[NDArray[np.float64]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Slope of every output beside the point, and what rounding does to it."""
        ends = self._ends([_STEP * d for d in along], aside)
        with np.errstate(all="ignore"):
            slope = (ends[0] - ends[1]) / (2 * _STEP)
            noise = _LOUD * self.subject.epsilon * np.abs(self.base) / _STEP
        return slope, noise

    def _ends(
        self,
        moves: list[NDArray[np.float64]],
        aside: list[NDArray[np.float64]] | None = None,
    ) -> list[NDArray[np.float64]]:
        """Values of f forth and back, from the point or from one beside it."""
        ends = []
        for sign in (1.0, -1.0):
            moved = [sign * move for move in moves]
            if aside is not None:
                moved = [a + b for a, b in zip(aside, moved, strict=True)]
            whole = self._whole(moved)
            directions = [whole.get(k) for k in range(len(self.subject.inputs))]
            ends.append(line_rows(self.subject, directions, (1.0,), self.meter)[0])
        return ends

    def _whole(
        self, moved: list[NDArray[np.float64]]
    ) -> dict[int, NDArray[np.float64]]:
        """Shifts of the columns, in units of their sizes, as shifts of inputs."""
        whole = {}
        for block, shift in zip(self.blocks, moved, strict=True):
            size = self.subject.inputs[block.which].coordinates
            whole[block.which] = np.zeros(size)
            whole[block.which][block.positions] = shift * block.sizes
        return whole

    def _aside(self, number: int) -> list[NDArray[np.float64]]:
        """Ties are broken by order, as sorts do it; then half up, half down; at random.

        Every second time, what the worst gradient hangs on stays in the middle.
        """
        shifts = []
        for block in self.blocks:
            count = len(block.positions)
            order = (np.arange(count) + 1.0) / max(count, 1)
            if number in {0, 2}:
                shifts.append(_ASIDE * order * (1.0 - number))
                continue
            free = np.ones(count, dtype=bool)
            if number % 2 and count:
                row = self.worst_row(block)
                free[int(np.argmax(np.abs(block.formula[row])))] = False
            shift = np.zeros(count)
            half = np.where(np.arange(int(free.sum())) % 2, 1.0, -1.0)
            shift[free] = self.rng.permutation(half) * self.rng.permutation(order[free])
            shifts.append(_ASIDE * shift)
        return shifts


def _told(
    subject: Subject, blocks: list[Block], rows: NDArray[np.bool_], *, known: bool
) -> Iterator[Finding]:
    """Change the verdicts of some rows, and put it in words."""
    for block in blocks:
        taken_back = _accused(block) & rows[:, None]
        if not taken_back.any():
            continue
        row, column = (int(i) for i in np.argwhere(taken_back)[0])
        block.verdicts[taken_back] = Verdict.AGREES if known else Verdict.UNDECIDED
        block.accepted = block.accepted | (taken_back & known)
        values = f"slope {block.value[row, column]:.6g}, "
        values += f"analytic {block.analytic[row, column]:.6g}"
        yield Finding(
            BugKind.NONDIFFERENTIABLE,
            "note" if known else "warning",
            subject.inputs[block.which].name,
            0.85,
            f"The function has no derivative at the point, where entries are equal or "
            f"zero; at {label_of(subject, block, column)}: {values}. "
            + (
                "The gradient is that of a point right beside it, a sub-gradient."
                if known
                else "Several kinks meet there, and what torch gives for each of them "
                "by convention does not add up to a slope; right beside the point "
                "the gradient is right."
            ),
            "To check formulas, move the point: add a little noise to the input.",
        )
