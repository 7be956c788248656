"""Jacobians too large to keep of which most is zero: compared whole, by their entries.

The entries of both sides are a few columns of every row, and fit where a matrix would
not. What agrees at once needs no more evaluations, and no matrix but that of columns
that are kept; columns with entries that leave a doubt are for the long way.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.rule import Tops, tops_of
from gradlab.comparison.tally import Packed
from gradlab.differentiation.method import Auto
from gradlab.differentiation.sparse.dependence import axes_of
from gradlab.differentiation.sparse.row_groups import grouped_rows
from gradlab.pipeline.comparing import AnalyticColumns, add_analytic
from gradlab.pipeline.first_pass import Wanted, sparse_passes
from gradlab.pipeline.large.counting import caught_anywhere, in_pairs
from gradlab.pipeline.large.keeping import spread_step
from gradlab.pipeline.outcome import Known, Outcome
from gradlab.pipeline.sides.analytic_side import AnalyticSide, batch_bytes
from gradlab.pipeline.sides.trusting import trusted
from gradlab.pipeline.sparse_verdicts import (
    doubtful_columns,
    packed_entries,
    settled_at_once,
    some_columns,
)
from gradlab.pipeline.verdicts import judge_block, matters_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.comparison.tolerance import Tolerance
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.quotients import Pattern
    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.plan import Check, Plan
    from gradlab.subject.subject import Subject

__all__ = ["Laid", "compare_entries", "laid_out"]

_ENTRY = 400  # bytes for each entry of a sparse Jacobian while it is compared
_PART = 4  # of the bound: what patterns may take


def compare_entries(
    check: Check, columns: list[NDArray[np.intp]]
) -> tuple[Outcome, list[NDArray[np.intp]]] | None:
    """Compare a Jacobian by its entries, if it has few.

    Parameters
    ----------
    columns
        As for `gradlab.pipeline.comparing.run_full`.

    Returns
    -------
    outcome, doubtful
        Blocks without matrices, and the columns of each in which an entry deserves a
        second look; all others agree. None where there are too many entries.
    """
    subject, base = check.subject, check.own.base
    plan, meter = check.plan, check.meter
    names = [variable.name for variable in subject.inputs]
    auto = all(isinstance(plan.method_of(name), Auto) for name in names)
    sizes = [variable.coordinates for variable in subject.inputs]
    whole = [len(part) for part in columns] == sizes
    most = plan.memory // _PART
    if not (auto and whole) or _pattern_bytes(subject, len(base)) > most:
        return None
    side = _few_entries(subject, plan, meter)
    if side is None:
        return None
    precise = None
    if check.twin is not None:
        wide = _few_entries(check.twin, plan, meter)
        if wide is None:
            return None
        precise = trusted(wide, side)
    guesses = (precise or side).sides
    wanted = [
        Wanted(check.reference, which, positions, plan.method_of(names[which]), guess)
        for which, (positions, guess) in enumerate(zip(columns, guesses, strict=True))
    ]
    blocks = sparse_passes(wanted, plan.seed, meter)
    if blocks is None:
        return None
    alone = AnalyticColumns(side, None, None)
    for block in blocks:
        add_analytic(block, alone, len(block.positions), chosen=True)
        if precise is not None:
            block.precise_entries = precise.entries(block.which)
    outcome = Outcome(blocks, base, side.problems, check.twin)
    if settled_at_once(check, outcome):
        return outcome, [np.zeros(0, dtype=np.intp) for _ in blocks]
    doubtful = doubtful_columns(subject, outcome, plan)
    if doubtful is None:
        return None
    inputs = [subject.inputs[block.which] for block in blocks]
    return outcome, [
        variable.coordinates_of(np.unique(some // 2)) if variable.is_complex else some
        for some, variable in zip(doubtful, inputs, strict=True)
    ]


def _pattern_bytes(subject: Subject, rows: int) -> int:
    """Bytes that patterns take: one for each row and index of an axis, or bits."""
    most = 0
    for variable in subject.inputs:
        n = variable.coordinates
        axes = axes_of(variable.shape, n, is_complex=variable.is_complex)
        longest = max((int(axis[-1]) + 1 for axis in axes if axis.size), default=0)
        most = max(most, longest, n // 8)
    return rows * most


def _few_entries(subject: Subject, plan: Plan, meter: Meter) -> AnalyticSide | None:
    """Read out the analytic side by its entries; None if it has too many."""
    if subject.analytic is None or not subject.analytic.takes_cotangents:
        return None
    most = plan.memory // _PART
    grouped = grouped_rows(subject, batch_bytes(meter), memory=most, meter=meter)
    if grouped is None:
        return None
    size = _ENTRY * sum(each.value.size for each in grouped[0])
    return AnalyticSide(*grouped) if size <= plan.memory // 2 else None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Laid:
    """A block, and its entries side by side, but for those in doubtful columns."""

    block: Block
    small: Block
    pattern: Pattern
    doubtful: NDArray[np.intp]
    plain: Block  # all entries side by side
    pairs: bool  # two neighbours are one complex entry

    @classmethod
    def of(
        cls, block: Block, doubtful: NDArray[np.intp], *, pairs: bool
    ) -> Laid | None:
        """Lay a block out; None if it has no pattern, or no columns."""
        plain, pattern = packed_entries(block), block.pattern
        if plain is None or pattern is None or not len(block.positions):
            return None
        small, support = plain, pattern.support
        hidden = np.isin(support.columns, doubtful)
        if hidden.any():
            small = dataclasses.replace(
                plain,
                analytic=np.where(hidden, 0.0, plain.analytic),
                precise=(
                    None
                    if plain.precise is None
                    else np.where(hidden, 0.0, plain.precise)
                ),
                value=np.where(hidden, 0.0, plain.value),
                error=np.where(hidden, 0.0, plain.error),
                bend=np.where(hidden, 0.0, plain.bend),
            )
            left = dataclasses.replace(support, valid=support.valid & ~hidden)
            pattern = dataclasses.replace(pattern, support=left)
        return cls(block, small, pattern, doubtful, plain, pairs)

    def tops(self) -> Tops:
        """Largest entries of each row."""
        return tops_of(self.plain.value, self.plain.sizes)

    def packed(self, rows: slice, tolerance: Tolerance, epsilon: float) -> Packed:
        """Hand over the entries of some rows, for counting."""
        small, pattern, scales = self.small, self.pattern, self.block.scales
        tops, outside = self.tops(), pattern.outside[rows]

        def bars(i: NDArray[np.intp], j: NDArray[np.intp]) -> NDArray[np.float64]:
            with np.errstate(all="ignore"):
                return np.asarray(outside[i] / scales[j])

        def forgiven(i: NDArray[np.intp], j: NDArray[np.intp]) -> NDArray[np.float64]:
            size, effect = (each[rows, 0][i] for each in (tops.size, tops.effect))
            with np.errstate(all="ignore"):
                largest = np.minimum(size, effect / scales[j])
            return tolerance.absolute(largest, epsilon)

        halves = Packed(
            columns=pattern.support.columns[rows],
            valid=pattern.support.valid[rows],
            analytic=small.analytic[rows],
            numeric=small.value[rows],
            numeric_error=small.error[rows],
            allowed=small.allowed[rows],
            verdicts=small.verdicts[rows],
            bars=bars,
            forgiven=forgiven,
            caught=caught_anywhere(bars, forgiven, scales, len(outside)),
            left_out=self.doubtful,
        )
        return in_pairs(halves) if self.pairs else halves

    def columns(self, some: NDArray[np.intp]) -> Block:
        """Make the matrices of some columns, doubtful or not."""
        return some_columns(self.plain, self.block, some)

    def worst(self, most: int) -> Block | None:
        """Make the matrices of the worst columns that agree, and of a spread of them.

        None where all are doubtful.
        """
        support, small = self.pattern.support, self.small
        n = support.width
        each, score = small.excesses(), np.zeros(n)
        np.maximum.at(score, support.columns[support.valid], each[support.valid])
        score[:: spread_step(n, most, pairs=self.pairs)] = np.inf
        score[self.doubtful] = -np.inf
        if self.pairs:
            score = np.repeat(score.reshape(-1, 2).max(axis=1), 2)
            most -= most % 2
        most = min(most, n - len(self.doubtful))
        if not most:
            return None
        columns = np.sort(np.argsort(-score, kind="stable")[:most])
        return some_columns(small, self.block, columns)


def laid_out(
    subject: Subject, plan: Plan, outcome: Outcome, doubtful: list[NDArray[np.intp]]
) -> tuple[list[Laid], Known]:
    """Lay the entries of every block side by side, judged; what they show of each row.

    Parameters
    ----------
    outcome, doubtful
        Of `compare_entries`.
    """
    pairs = zip(outcome.blocks, doubtful, strict=True)
    found = [
        laid
        for block, some in pairs
        if (laid := Laid.of(block, some, pairs=subject.inputs[block.which].is_complex))
    ]
    matters = matters_of([each.plain for each in found])
    for each in found:
        judge_block(subject, each.small, plan, matters, outcome)
    return found, Known(matters, {each.block.which: each.tops() for each in found})
