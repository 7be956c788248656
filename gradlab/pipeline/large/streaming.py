"""A full check of Jacobians that do not fit into memory: every entry once, few kept.

Columns are compared a slab at a time, by the same steps as in a check that keeps
everything. Of each slab the counts, the extremes and the worst entry of every tile go
into a `Tally`; its worst columns are kept for the report and for diagnosis; the rest is
dropped. The first slab is a spread of columns from all over: verdicts need the scale of
each row, and learn it there. What does not agree in the kept columns is judged again at
the end, when the scale of each row is known for certain.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.rule import tops_of
from gradlab.comparison.tally import Tallying
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.pipeline.around.excuses import taken_back
from gradlab.pipeline.assembling import comparisons_of
from gradlab.pipeline.comparing import (
    AnalyticColumns,
    analytic_columns,
    begun,
    compare_blocks,
    compare_columns,
)
from gradlab.pipeline.coverage import WHOLE
from gradlab.pipeline.large.keeping import Keeper, spread_step
from gradlab.pipeline.large.sparse_streams import compare_entries, laid_out
from gradlab.pipeline.looks.closer import CLOSE_LOOKS
from gradlab.pipeline.outcome import Judged, Known, Outcome
from gradlab.pipeline.sides.analytic_side import AnalyticSide
from gradlab.pipeline.verdicts import judge_all, matters_of
from gradlab.subject.subject import analytic_of, block_slices, output_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from gradlab.comparison.comparison import Comparison
    from gradlab.comparison.tally import Tally
    from gradlab.diagnosis.finding import Finding
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.large.sparse_streams import Laid
    from gradlab.pipeline.plan import Check, Plan

__all__ = ["Streamed", "run_streamed"]

_SLAB = 260  # `WHOLE` of a slab, whose differences are made all at once
_FEWEST, _MOST = 8, 512  # columns kept
_PROOFS, _FEW_LOOKS = 2, 1  # slabs to confirm accusations in; columns in those after


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Streamed:
    """What `run_streamed` found.

    Attributes
    ----------
    outcome
        The kept columns, as `run_full` would have left them.
    tallies
        All entries, by numbers of (output, input).
    excuses
        Of what is not the derivative on purpose.
    """

    outcome: Outcome
    tallies: dict[tuple[int, int], Tally]
    excuses: list[Finding]

    def with_tallies(self, comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
        """Put the tally of its block beside each comparison, in the subject's order."""
        return tuple(
            dataclasses.replace(
                comparison,
                tally=tally,
                coverage="full" if tally.looked == tally.shape[1] else "sample",
            )
            for comparison, (_, tally) in zip(
                comparisons, sorted(self.tallies.items()), strict=True
            )
        )


def run_streamed(
    own: Origin, plan: Plan, meter: Meter, columns: list[NDArray[np.intp]]
) -> Streamed:
    """Compare all coordinates `columns`, within ``plan.memory`` bytes.

    Parameters are those of `gradlab.pipeline.comparing.run_full`.
    """
    stream = _Stream(begun(own, plan, meter), columns)
    try:
        if stream.take_entries():
            return stream.result()
        for part in stream.parts():
            analytic = analytic_columns(stream.check, part)
            for slab, cut in stream.slabs(part, analytic):
                if stream.take(stream.compared(slab, cut)):
                    return stream.result()
                del cut
            del analytic  # before the next is read
    except (BudgetExhausted, KeyboardInterrupt) as stop:
        if stream.kept is None:
            raise
        stream.kept.cut_short(stop)
    return stream.result()


def _cut(analytic: AnalyticColumns, which: int, some: slice) -> AnalyticColumns:
    """Take some columns of one input; the other inputs have none here."""

    def of(
        matrices: tuple[NDArray[np.float64], ...],
    ) -> tuple[NDArray[np.float64], ...]:
        return tuple(
            np.ascontiguousarray(m[:, some]) if k == which else m
            for k, m in enumerate(matrices)
        )

    side = AnalyticSide(of(analytic.side.values), analytic.side.problems)
    precise = analytic.precise and AnalyticSide(of(analytic.precise.values), ())
    return AnalyticColumns(side, precise, None)


class _Stream:
    """The state of a streamed comparison."""

    def __init__(self, check: Check, columns: list[NDArray[np.intp]]) -> None:
        self.check, self.columns = check, columns
        self.subject, self.plan = check.subject, check.plan
        self.rows = output_rows(self.subject.outputs)
        self.kept: Outcome | None = None
        self.keepers: dict[int, Keeper] = {}
        self.known: Known | None = None
        self.tallying: dict[tuple[int, int], Tallying] = {}
        self.excuses: list[Finding] = []
        self.looked = 0
        self.upheld = 0  # slabs whose accusations were confirmed
        self.stood: Counter[int] = Counter()  # slabs that are wrong for sure, by input
        memory = self.plan.memory
        self.width = max(2, memory // 4 // (_SLAB * max(self.rows, 1)))
        most = memory // 8 // (WHOLE * max(self.rows, 1))
        self.most = min(max(most, _FEWEST), _MOST)

    # ------------------------------------------------------------- cutting
    def parts(self) -> Iterator[list[NDArray[np.intp]]]:
        """Columns whose analytic side is held at a time; a spread of all first."""
        first = [self._spread(k) for k in range(len(self.columns))]
        yield first
        twice = 1 if self.check.twin is None else 2
        room = (self.plan.memory - analytic_of(self.subject).held()) // 3
        most = max(self.width, room // (8 * twice * max(self.rows, 1)))
        for which, positions in enumerate(self.columns):
            rest = np.setdiff1d(positions, first[which])
            size = most - most % 2  # the two halves of a complex entry stay together
            for start in range(0, len(rest), size):
                part = [p[:0] for p in self.columns]
                part[which] = rest[start : start + size]
                yield part

    def _spread(self, which: int) -> NDArray[np.intp]:
        positions = self.columns[which]
        variable = self.subject.inputs[which]
        each = 2 if variable.is_complex else 1
        units = len(positions) // each
        wanted = max(1, self.width // each // len(self.columns))
        chosen = np.unique(np.linspace(0, units - 1, min(wanted, units)).astype(int))
        if not units:
            chosen = chosen[:0]
        return np.asarray(positions[variable.coordinates_of(chosen)])

    def slabs(
        self, part: list[NDArray[np.intp]], analytic: AnalyticColumns
    ) -> Iterator[tuple[list[NDArray[np.intp]], AnalyticColumns]]:
        """Cut a part into what is compared at a time."""
        size = self.width - self.width % 2
        if sum(map(len, part)) <= self.width:
            yield part, analytic
            return
        which = max(range(len(part)), key=lambda k: len(part[k]))
        for start in range(0, len(part[which]), size):
            some = slice(start, start + size)
            slab = [p[some] if k == which else p for k, p in enumerate(part)]
            yield slab, _cut(analytic, which, some)

    # ------------------------------------------------------------- comparing
    def compared(
        self, slab: list[NDArray[np.intp]], analytic: AnalyticColumns
    ) -> Outcome:
        """Compare the columns of one slab with differences of them."""
        return compare_columns(self.check, slab, analytic, known=self.known)

    def take(self, outcome: Outcome) -> bool:
        """Count one slab and keep the worst of it; True if it was cut short."""
        outcome.blocks = [b for b in outcome.blocks if b.positions.size]
        self._hear(outcome)
        self._learn(outcome)
        for (output, which), part in self._comparisons(outcome):
            if (output, which) not in self.tallying:
                entries = self.subject.inputs[which].size
                self.tallying[output, which] = Tallying((part.shape[0], entries))
            self.tallying[output, which].add(part)
        self.looked += outcome.looked
        self._keep(outcome)
        return bool(outcome.stopped)

    def take_entries(self) -> bool:
        """Compare everything by its few entries; what they leave open, in slabs."""
        found = compare_entries(self.check, self.columns)
        if found is None:
            return False
        whole, doubtful = found
        laid, self.known = laid_out(self.subject, self.plan, whole, doubtful)
        for each in laid:
            which = each.block.which
            tolerance = self.plan.tolerance.of(self.subject.inputs[which].name)
            for output, rows in enumerate(block_slices(self.subject.outputs)):
                shape = rows.stop - rows.start, self.subject.inputs[which].size
                tallying = self.tallying[output, which] = Tallying(shape)
                epsilon = self.subject.epsilon
                tallying.add_packed(each.packed(rows, tolerance, epsilon))
        whole.blocks = [block for each in laid if (block := each.worst(self.most))]
        self._keep(whole)
        for blocks in self._doubtful(laid):
            seen = whole.base, whole.problems, whole.reference
            slab = Outcome(blocks, *seen, known=self.known)
            compare_blocks(self.check, slab)
            if self.take(slab):
                break
        return True

    def _doubtful(self, laid: list[Laid]) -> Iterator[list[Block]]:
        """Make the matrices of columns that are in doubt, as many as fit at a time."""
        if sum(len(each.doubtful) for each in laid) <= self.width:
            found = [each.columns(each.doubtful) for each in laid if each.doubtful.size]
            if found:
                yield found
            return
        size = self.width - self.width % 2
        for each in laid:
            for start in range(0, len(each.doubtful), size):
                yield [each.columns(each.doubtful[start : start + size])]

    def _comparisons(
        self, outcome: Outcome
    ) -> list[tuple[tuple[int, int], Comparison]]:
        found = comparisons_of(
            self.subject,
            outcome.blocks,
            method=self.plan.first_method,
            coverage="full",
        )
        names = [
            (output, block.which)
            for output in range(len(self.subject.outputs))
            for block in outcome.blocks
        ]
        return list(zip(names, found, strict=True))

    def _hear(self, outcome: Outcome) -> None:
        """Take back what is no mistake, and remember each reason once for an input.

        Not of inputs of which enough could not be taken back.
        """
        wrong = [block for block in outcome.blocks if block.accused]
        if all(self.stood[block.which] >= _PROOFS for block in wrong):
            return
        self._take_back(outcome)
        self.stood.update(block.which for block in wrong if block.accused)

    def _take_back(self, outcome: Outcome) -> None:
        judged = Judged(self.subject, outcome, self.check.meter, self.plan.seed)
        found = taken_back(judged)
        told = {(excuse.kind, excuse.where) for excuse in self.excuses}
        self.excuses += [one for one in found if (one.kind, one.where) not in told]

    def _learn(self, outcome: Outcome) -> None:
        """Remember how far each output moves, and its largest entries."""
        if not outcome.blocks:
            return
        tops = dict(self.known.tops) if self.known else {}
        for block in outcome.blocks:
            known = tops.get(block.which)
            tops[block.which] = tops_of(block.value, block.sizes, known)
        looked = any(b.looked.any() for b in outcome.blocks)
        wrong = any(block.accused for block in outcome.blocks)
        # slabs that were looked at closely, and upheld, vouch for those that follow
        self.upheld += looked and wrong
        looks = CLOSE_LOOKS if self.upheld < _PROOFS else _FEW_LOOKS
        self.known = Known(matters_of(outcome.blocks, self.known), tops, looks)

    def _keep(self, outcome: Outcome) -> None:
        """Keep the worst columns of this slab and of those before, and a spread."""
        if self.kept is None:
            self.kept = Outcome(
                [], self.check.own.base, outcome.problems, outcome.reference
            )
        kept, fresh = self.kept, outcome.unsteady
        kept.stopped = outcome.stopped
        kept.overruled += outcome.overruled
        kept.unheard += outcome.unheard
        kept.rough = tuple(dict.fromkeys((*kept.rough, *outcome.rough)))
        if fresh is not None:
            old = kept.unsteady
            kept.unsteady = fresh if old is None else np.fmax(old, fresh)
        for block in outcome.blocks:
            if block.which not in self.keepers:
                pairs = self.subject.inputs[block.which].is_complex
                step = spread_step(len(block.positions), self.most, pairs=pairs)
                self.keepers[block.which] = Keeper(
                    self.most, pairs=pairs, always=block.positions[::step]
                )
            self.keepers[block.which].offer(block)

    # ------------------------------------------------------------- the end
    def result(self) -> Streamed:
        """Judge the kept columns by all that is known now, and close the books."""
        kept = self.kept or Outcome([], self.check.own.base, (), None)
        kept.blocks = [
            keeper.block
            for _, keeper in sorted(self.keepers.items())
            if keeper.block is not None
        ]
        kept.known = self.known
        self._judge_again(kept)
        tallies = {key: part.result() for key, part in self.tallying.items()}
        kept.remarks = list(self._remarks(kept, tallies))
        return Streamed(kept, tallies, self.excuses)

    def _judge_again(self, kept: Outcome) -> None:
        """Not where the user chose the steps: there, second opinions were heard.

        Nobody is accused who was not before: what was taken back stays so. What is
        still accused is heard beside the worst of all other slabs.
        """
        before = self._comparisons(kept)
        own = [block for block in kept.blocks if self.plan.finds_steps(block.name)]
        again = dataclasses.replace(kept, blocks=own)
        told = [block.verdicts.copy() for block in own]
        judge_all(self.subject, again, self.plan)
        for block, was in zip(own, told, strict=True):
            anew = block.wrong & (was != Verdict.DISAGREES)
            block.verdicts[anew] = was[anew]
        self._take_back(kept)
        after = self._comparisons(kept)
        for (key, old), (_, new) in zip(before, after, strict=True):
            self.tallying[key].corrected(old, new)

    def _remarks(
        self, kept: Outcome, tallies: dict[tuple[int, int], Tally]
    ) -> Iterator[str]:
        shown = sum(len(block.positions) for block in kept.blocks)
        total = sum(map(len, self.columns))
        looked = sum(t.looked for (output, _), t in tallies.items() if output == 0)
        done = f"{looked:,} of {total:,}" if kept.stopped else f"{total:,}"
        yield from kept.met()
        if kept.stopped:
            yield kept.stopped
        yield (
            f"streamed within {self.plan.memory / 2**20:,.0f} MiB: {done} "
            f"coordinates compared, the {shown:,} worst and a spread of others kept"
        )
        if self.looked:
            yield f"{self.looked:,} looked at again with the adaptive ladder"
        beyond = sum(sum(t.counts[1:]) for t in tallies.values()) - sum(
            int((block.verdicts != Verdict.AGREES).sum()) for block in kept.blocks
        )
        if beyond > 0:
            yield (
                f"{beyond:,} entries that do not agree are counted, but not kept; "
                f"raise memory= to see them"
            )
