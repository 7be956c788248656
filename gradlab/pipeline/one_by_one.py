"""Inputs of mixed scales, of which a search has entries looked at one by one.

A search moves all entries of an input together, by random parts of their common size,
and that is what it rests on: beside 4e6, an entry of 3e-12 is not moved by anything
that means something to it. Where a vector is a record of different things, such as a
rate, a mass and a constant of nature, its entries are compared as a check compares
them. They are few; each costs two evaluations. Of a longer one those are that are far
too small for the others.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.metering.meter import BudgetExhausted, why_stopped
from gradlab.localisation.located import Suspect, WrongEntry
from gradlab.pipeline.confirming import examined

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from gradlab.comparison.comparison import Comparison
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.localisation.located import Located
    from gradlab.pipeline.plan import Plan
    from gradlab.subject.subject import Subject

__all__ = ["with_mixed"]


def with_mixed(
    located: Located,
    own: Origin,
    mixed: Mapping[int, NDArray[np.intp]],
    plan: Plan,
    meter: Meter,
    limit: int,
) -> Located:
    """Add to what a search found what the entries of mixed inputs say one by one."""
    looked: Sequence[Comparison] = ()
    stopped = located.stopped
    if not stopped:
        try:
            looked, stopped = examined(own, mixed, plan, meter)
        except (BudgetExhausted, KeyboardInterrupt) as stop:
            stopped = why_stopped(stop)
    ranked = sorted(
        (pair for comparison in looked for pair in _wrong(comparison, own.subject)),
        key=lambda pair: -pair[0],
    )
    named: list[WrongEntry] = list(located.entries)
    known = {_cell(entry) for entry in named}
    ranked = [pair for pair in ranked if _cell(pair[1]) not in known]
    for _, entry in ranked:
        places = {(one.input, one.index) for one in named}
        if len(places) < limit or (entry.input, entry.index) in places:
            named.append(entry)
    power = dict(located.power)
    told = {comparison.input.name for comparison in looked}
    open_ = [
        name for which in mixed if (name := own.subject.inputs[which].name) not in told
    ]
    for comparison in looked:
        name = comparison.input.name
        power[name] = max(comparison.power, power.get(name, 0.0))
        if (comparison.verdicts == Verdict.UNDECIDED).any():
            open_.append(name)
    full = len(named) == len(located.entries) + len(ranked)
    suspects = tuple(_whole(own.subject, name) for name in dict.fromkeys(open_))
    return dataclasses.replace(
        located,
        entries=tuple(named),
        evaluations=meter.evaluations,
        budget_left=meter.unspent,
        complete=located.complete and full and not (suspects or stopped),
        suspects=located.suspects + suspects,
        power=power,
        stopped=stopped,
    )


def _cell(entry: WrongEntry) -> tuple[object, ...]:
    return entry.input, entry.index, entry.output, entry.output_index


def _wrong(
    comparison: Comparison, subject: Subject
) -> Iterator[tuple[float, WrongEntry]]:
    """Yield the wrong entries of a block, and how far each misleads."""
    which = [v.name for v in subject.inputs].index(comparison.input.name)
    size = np.abs(subject.point(which))
    for row, column in np.argwhere(comparison.verdicts == Verdict.DISAGREES).tolist():
        outer, inner = comparison.indices(row, column)
        place = comparison.input.coordinates_of(np.array([column]))
        effect = comparison.error[row, column] * float(size[place].max())
        yield (
            float(np.nan_to_num(effect, nan=np.inf)),
            WrongEntry(
                comparison.input.name,
                inner,
                comparison.analytic[row, column].item(),
                comparison.numeric[row, column].item(),
                float(comparison.numeric_error[row, column]),
                comparison.output.name,
                outer,
            ),
        )


def _whole(subject: Subject, name: str) -> Suspect:
    """All of an input, as something that is not decided."""
    (variable,) = (v for v in subject.inputs if v.name == name)
    last = variable.size - 1
    return Suspect(name, variable.index(0), variable.index(last), variable.size)
