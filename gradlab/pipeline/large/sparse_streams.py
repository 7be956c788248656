"""Jacobians too large to keep of which most is zero: compared whole, by their entries.

The entries of both sides are a few columns of every row, and fit where a matrix would
not. What agrees at once needs no more evaluations, and no matrix but that of columns
that are kept; columns with entries that leave a doubt are for the long way.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.judge import Tops, tops_of
from gradlab.comparison.tally import Packed
from gradlab.differentiation.method import Auto
from gradlab.differentiation.row_groups import grouped_rows
from gradlab.pipeline.blocks import Known, Outcome
from gradlab.pipeline.checking import AnalyticColumns, add_analytic
from gradlab.pipeline.first_pass import Wanted, sparse_passes
from gradlab.pipeline.judging import judge_block, matters_of
from gradlab.pipeline.sides.analytic_side import AnalyticSide, batch_bytes
from gradlab.pipeline.sparse_verdicts import (
    doubtful_columns,
    packed_entries,
    settled_at_once,
    some_columns,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.comparison.tolerance import Tolerance
    from gradlab.differentiation.evaluation import Meter
    from gradlab.differentiation.quotients import Pattern
    from gradlab.pipeline.blocks import Block, Origin, Plan
    from gradlab.subject.subject import Subject

__all__ = ["compare_entries", "laid_out"]

_ENTRY = 400  # bytes for each entry of a sparse Jacobian while it is compared
_PART = 4  # of the bound: what patterns may take, a byte for each place of a matrix


def compare_entries(
    own: Origin,
    plan: Plan,
    meter: Meter,
    columns: list[NDArray[np.intp]],
) -> tuple[Outcome, list[NDArray[np.intp]]] | None:
    """Compare a Jacobian by its entries, if it has few.

    Parameters
    ----------
    own
        What is compared, and differenced as well.
    plan, meter, columns
        As for `gradlab.pipeline.checking.run_full`.

    Returns
    -------
    outcome, doubtful
        Blocks without matrices, and the columns of each in which an entry deserves a
        second look; all others agree. None where there are too many entries.
    """
    subject, base = own.subject, own.base
    names = [variable.name for variable in subject.inputs]
    auto = all(isinstance(plan.method_of(name), Auto) for name in names)
    auto &= not any(variable.is_complex for variable in subject.inputs)
    sizes = [variable.coordinates for variable in subject.inputs]
    whole = [len(part) for part in columns] == sizes
    rows, memory = len(base), plan.memory
    analytic = subject.analytic
    if not (auto and whole and analytic is not None and analytic.takes_cotangents):
        return None
    if rows * max(sizes, default=0) > memory // _PART:
        return None
    most = memory // _PART
    grouped = grouped_rows(subject, batch_bytes(meter), memory=most, meter=meter)
    if grouped is None:
        return None
    entries, problems = grouped
    if _ENTRY * sum(each.value.size for each in entries) > memory // 2:
        return None
    wanted = [
        Wanted(own, which, positions, plan.method_of(names[which]), guess)
        for which, (positions, guess) in enumerate(zip(columns, entries, strict=True))
    ]
    blocks = sparse_passes(wanted, plan.seed, meter)
    if blocks is None:
        return None
    sides = AnalyticColumns(AnalyticSide(entries, problems), None, None)
    for block in blocks:
        add_analytic(block, sides, len(block.positions), chosen=True)
    outcome = Outcome(blocks, base, problems, None)
    if settled_at_once(subject, own, outcome, plan, meter):
        return outcome, [np.zeros(0, dtype=np.intp) for _ in blocks]
    doubtful = doubtful_columns(subject, outcome, plan)
    return None if doubtful is None else (outcome, doubtful)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Laid:
    """A block, and its entries side by side, but for those in doubtful columns."""

    block: Block
    small: Block
    pattern: Pattern
    doubtful: NDArray[np.intp]
    plain: Block  # all entries side by side

    @classmethod
    def of(cls, block: Block, doubtful: NDArray[np.intp]) -> Laid | None:
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
                value=np.where(hidden, 0.0, plain.value),
                error=np.where(hidden, 0.0, plain.error),
                bend=np.where(hidden, 0.0, plain.bend),
            )
            left = dataclasses.replace(support, valid=support.valid & ~hidden)
            pattern = dataclasses.replace(pattern, support=left)
        return cls(block, small, pattern, doubtful, plain)

    def tops(self) -> Tops:
        """Largest entries of each row."""
        return tops_of(self.small.value, self.small.scales)

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

        return Packed(
            columns=pattern.support.columns[rows],
            valid=pattern.support.valid[rows],
            analytic=small.analytic[rows],
            numeric=small.value[rows],
            numeric_error=small.error[rows],
            allowed=small.allowed[rows],
            verdicts=small.verdicts[rows],
            bars=bars,
            forgiven=forgiven,
            scales=scales,
            elsewhere=self.doubtful,
        )

    def worst(self, most: int, spread: int) -> Block:
        """Make the matrices of the worst columns, and of a spread of others."""
        support, small = self.pattern.support, self.small
        n = support.width
        each, score = small.excesses(), np.zeros(n)
        np.maximum.at(score, support.columns[support.valid], each[support.valid])
        score[:: -(-n // spread)] = np.inf
        score[self.doubtful] = -np.inf
        most = min(most, n - len(self.doubtful))
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
    found = [laid for pair in pairs if (laid := Laid.of(*pair)) is not None]
    matters = matters_of([each.small for each in found])
    for each in found:
        judge_block(subject, each.small, plan, matters, outcome)
    return found, Known(matters, {each.block.which: each.tops() for each in found})
