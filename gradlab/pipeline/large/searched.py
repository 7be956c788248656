"""Entries that a search measured one by one, shown without another evaluation."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.rule import tops_of
from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.sizes.scales import scales_of
from gradlab.localisation.searching.accused import VISIBLE
from gradlab.pipeline.blocks import Block
from gradlab.pipeline.looks.steadiness import scatter_of
from gradlab.pipeline.looks.unheard import far_apart, no_tie
from gradlab.pipeline.outcome import Outcome
from gradlab.pipeline.sides.analytic_side import analytic_side

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.localisation.searching.columns import Column
    from gradlab.localisation.tensors import TensorProbes

__all__ = ["as_looked_at", "with_found"]


def as_looked_at(own: Origin, meter: Meter, probes: TensorProbes) -> Outcome:
    """Show all that the search looked at, if f repeats itself at the point."""
    looked = probes.columns or {}
    blocks = [_block(own, *each) for each in sorted(looked.items())]
    outcome = Outcome(blocks, own.base, probes.located.problems, probes.reference)
    scatter = scatter_of(own, meter)
    if scatter.any():
        outcome.unsteady = scatter
        for block in outcome.blocks:
            block.distrust()
            block.leave_open((slice(None),))
    return outcome


def with_found(
    outcome: Outcome | None, own: Origin, probes: TensorProbes
) -> Outcome | None:
    """Show wrong entries that the search found, where a closer look got to none.

    That look was cut short, or not taken: what the search itself measured is what is
    known of them. It accuses where that is beyond doubt.
    """
    if outcome is not None and outcome.unsteady is not None:
        return outcome
    seen = {} if outcome is None else {b.which: b for b in outcome.blocks}
    shown = dict(seen)
    for which, columns in probes.found.items():
        block = seen.get(which)
        here = block is not None and np.isin(block.positions, list(columns))
        if block is None or not block.looked[here].any():
            shown[which] = _block(own, which, columns)
            _spare(own, shown[which], columns)
    blocks = [shown[which] for which in sorted(shown)]
    if not blocks:
        return outcome
    if outcome is None:
        return Outcome(blocks, own.base, probes.located.problems, probes.reference)
    return dataclasses.replace(outcome, blocks=blocks)


def _spare(own: Origin, block: Block, columns: Mapping[int, Column]) -> None:
    """Leave open what noise, a jump, or a kink at the point may explain."""
    subject, which = own.subject, block.which
    found = [columns[position] for position in block.positions.tolist()]
    scales, sizes = scales_of(subject, which), np.abs(subject.point(which))
    gradient = analytic_side(subject).value(which)
    top = tops_of(gradient, np.fmin(scales, sizes)).effect
    smooth = np.array([column.means is None for column in found])
    far = far_apart(block.gap, block.error, scales[block.positions], top)
    sure = far & (smooth & no_tie(subject, block))
    block.leave_open(~sure & block.wrong)


def _block(own: Origin, which: int, columns: Mapping[int, Column]) -> Block:
    """Lay out measured entries of one input, of one output row, in their order."""
    positions = np.array(sorted(columns), dtype=np.intp)
    found = [columns[position] for position in positions.tolist()]
    row = (1, len(found))
    value = np.array([column.expected for column in found]).reshape(row)
    unknown, ones = np.full(row, np.nan), np.ones(len(found))
    return Block(
        which=which,
        name=own.subject.inputs[which].name,
        positions=positions,
        scales=ones,
        sizes=ones,
        height=np.ones((1, 1)),
        analytic=np.array([column.analytic for column in found]).reshape(row),
        slack=np.zeros(row),
        value=value,
        error=np.array([column.bar for column in found]).reshape(row),
        step=np.array([column.step.max() for column in found]).reshape(row),
        kinds=np.full(row, -1, dtype=np.int8),
        left=unknown,
        right=unknown,
        verdicts=np.array([_verdict(c) for c in found], dtype=np.int8).reshape(row),
        allowed=np.array([column.allowed for column in found]).reshape(row),
        accepted=np.zeros(row, dtype=bool),
        looked=np.zeros(len(found), dtype=bool),
        still=np.zeros((1, 1)),
        bend=unknown,
    )


def _verdict(column: Column) -> Verdict:
    if column.wrong:
        return Verdict.DISAGREES
    if column.analytic == column.expected == 0.0:
        return Verdict.AGREES  # nothing changed over a step as long as it gets
    seen = max(column.allowed, VISIBLE * abs(column.expected))
    return Verdict.AGREES if SAFETY * column.bar <= seen else Verdict.UNDECIDED
