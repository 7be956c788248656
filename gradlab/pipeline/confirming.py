"""Entries that a search accuses, heard as a full check hears its own.

A search differentiates every entry by itself before it names it. A full check does
more before it accuses: it measures the noise of f, climbs a second ladder, looks for
jumps of rounding and of solvers, for a kink at the very point, and for digits that the
analytic side has not. What a search names has to stand all of that, beside the largest
entries of its input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.rule import tops_of
from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.pipeline.around.excuses import taken_back
from gradlab.pipeline.assembling import comparisons_of
from gradlab.pipeline.comparing import (
    add_analytic,
    analytic_columns,
    begun,
    compare_blocks,
    compare_columns,
)
from gradlab.pipeline.coverage import readable
from gradlab.pipeline.first_pass import Wanted, first_passes
from gradlab.pipeline.looks.unheard import far_apart
from gradlab.pipeline.outcome import Judged, Outcome
from gradlab.subject.mirrors import with_mirrored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from gradlab.comparison.comparison import Comparison
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.localisation.located import WrongEntry
    from gradlab.localisation.searching.columns import Column
    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.plan import Check, Plan
    from gradlab.subject.subject import Subject

__all__ = ["examined", "upheld"]

_BESIDE = 16  # largest entries of an input: of as many outputs, where there are many


def upheld(
    named: Sequence[WrongEntry],
    measured: Mapping[tuple[int, int], Column],
    own: Origin,
    plan: Plan,
    meter: Meter,
) -> list[bool]:
    """Say which entries a full check would accuse as well.

    Parameters
    ----------
    named
        By a search.
    measured
        By input and coordinate: what the search has measured there.
    own
        The subject, at its point.
    plan
        Of such a check.
    meter
        Charged for every evaluation.

    Returns
    -------
    list of bool
        One for each; all of them of a Jacobian that is too large to be read out.
    """
    subject = own.subject
    if not named or not readable(subject):
        return [True] * len(named)
    check = begun(own, plan, meter)
    analytic = analytic_columns(check)
    blocks = []
    for which, values in enumerate(analytic.side.values):
        positions = _columns(subject, which, values, named)
        if positions.size:
            wanted = Wanted(check.reference, which, positions, plan.method, None)
            ((block, stop),) = first_passes([wanted], check.reference, plan.seed, meter)
            if stop is not None:
                raise stop
            add_analytic(block, analytic, len(positions), chosen=True)
            _put_in(block, measured)
            blocks.append(block)
    outcome = Outcome(blocks, own.base, analytic.side.problems, check.twin)
    compare_blocks(check, outcome)
    looked = _compared(check, outcome)
    return [_verdict(entry, looked) == Verdict.DISAGREES for entry in named]


def examined(
    own: Origin, some: Mapping[int, NDArray[np.intp]], plan: Plan, meter: Meter
) -> tuple[Sequence[Comparison], str]:
    """Compare coordinates of some inputs one by one, as a check does.

    Beside the largest of the same input.

    Parameters
    ----------
    own
        The subject, at its point.
    some
        By input: which of its coordinates.
    plan
        Of such a check.
    meter
        Charged for every evaluation.

    Returns
    -------
    comparisons
        One for each output and input.
    stopped
        Why it was cut short; "" if it was not.
    """
    check = begun(own, plan, meter)
    analytic, subject = analytic_columns(check), own.subject
    columns = [np.zeros(0, dtype=np.intp) for _ in subject.inputs]
    for which, places in some.items():
        columns[which] = places
        if len(places) < subject.inputs[which].coordinates:
            largest = _largest(subject, which, analytic.side.value(which))
            looked = np.union1d(places, largest)
            columns[which] = with_mirrored(subject, which, looked)
    outcome = compare_columns(check, columns, analytic)
    outcome.blocks = [block for block in outcome.blocks if block.positions.size]
    return _compared(check, outcome), outcome.stopped


def _compared(check: Check, outcome: Outcome) -> Sequence[Comparison]:
    """Confirm what comes after the verdicts; return what is left of them."""
    subject, plan, meter = check.subject, check.plan, check.meter
    taken_back(Judged(subject, outcome, meter, plan.seed), on_purpose=False)
    return comparisons_of(
        subject, outcome.blocks, method=plan.first_method, coverage="sample"
    )


def _put_in(block: Block, measured: Mapping[tuple[int, int], Column]) -> None:
    """Take over what the search measured where that is beyond doubt, or not seen here.

    Where an entry is wrong by far on a ladder no noise or jump explains it, and another
    ladder would find the same. Where a cheap difference accuses as well, what follows
    is what follows in a check.
    """
    block.unfold()
    agrees = block.gap <= SAFETY * block.error
    top = tops_of(block.value, block.sizes).effect[:, 0]
    for place, position in enumerate(block.positions.tolist()):
        column = measured.get((block.which, position))
        if column is None:
            continue
        with np.errstate(all="ignore"):
            gap = np.abs(block.formula[:, place] - column.seen)
            right = gap <= SAFETY * column.error
            far = far_apart(gap, column.error, block.latest_scales[place], top)
        block.looked[place] = (right | far).all() and far.any()
        taken = block.looked[place] | agrees[:, place]
        new = {"value": column.seen, "error": column.error, "step": column.step}
        block.overwrite(
            np.array([place]), taken[:, None], **{k: v[:, None] for k, v in new.items()}
        )


def _columns(
    subject: Subject,
    which: int,
    values: NDArray[np.float64],
    named: Sequence[WrongEntry],
) -> NDArray[np.intp]:
    """Coordinates of the entries of one input that were named, and of its largest."""
    variable = subject.inputs[which]
    entries = [
        variable.entry_at(entry.index)
        for entry in named
        if entry.input == variable.name
    ]
    if not entries:
        return np.zeros(0, dtype=np.intp)
    named_ones = variable.coordinates_of(np.unique(entries))
    some = np.union1d(named_ones, _largest(subject, which, values))
    return with_mirrored(subject, which, some)


def _largest(
    subject: Subject, which: int, values: NDArray[np.float64]
) -> NDArray[np.intp]:
    """Coordinates of the largest entries of one input, of some outputs."""
    variable = subject.inputs[which]
    sizes = np.where(np.isfinite(values), np.abs(values), 0.0)
    sizes[:, ~np.isfinite(subject.point(which))] = 0.0
    rows = np.argsort(-sizes.max(axis=1, initial=0.0), kind="stable")[:_BESIDE]
    largest = [variable.entry_of(int(k)) for k in sizes[rows].argmax(axis=1)]
    return variable.coordinates_of(np.unique(largest))


def _verdict(entry: WrongEntry, looked: Sequence[Comparison]) -> int:
    """Verdict of a check on one entry; the worst of all outputs, where it has none."""
    told = int(Verdict.AGREES)
    for comparison in looked:
        variable, output = comparison.input, comparison.output
        if variable.name != entry.input:
            continue
        column = variable.entry_at(entry.index)
        if comparison.columns is not None:
            column = int(np.searchsorted(comparison.columns, column))
        verdicts = comparison.verdicts[:, column]
        if output.name == entry.output:
            return int(verdicts[output.entry_at(entry.output_index)])
        told = max(told, int(verdicts.max(initial=told)))
    return told
