"""What a search by random directions cannot judge: mixed scales, and ties.

Inputs of mixed scales, of which a search has entries looked at one by one. A search
moves all entries of an input together, by random parts of their common size, and that
is what it rests on: beside 4e6, an entry of 3e-12 is not moved by anything that means
something to it. Where a vector is a record of different things, such as a rate, a mass
and a constant of nature, its entries are compared as a check compares them. They are
few; each costs two evaluations. Of a longer one those are that are far too small for
the others.

Entries that a search found right at kinks, followed all at once. A search goes by
single entries, and at a tie of max each is right with any slope between both sides.
Whether the gradient is one of all of them together is what a check asks at its end;
where nothing else is wrong, a search asks it too.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.metering.meter import BudgetExhausted, why_stopped
from gradlab.localisation.entries import place_of
from gradlab.localisation.located import Suspect, WrongEntry
from gradlab.pipeline.around.joint_kinks import joint_kinks
from gradlab.pipeline.comparing import analytic_columns, begun, compare_columns
from gradlab.pipeline.confirming import examined
from gradlab.pipeline.coverage import readable
from gradlab.pipeline.outcome import Judged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from gradlab.comparison.comparison import Comparison
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.localisation.located import Located
    from gradlab.pipeline.plan import Plan
    from gradlab.subject.subject import Subject

__all__ = ["with_kinks", "with_mixed"]

_MOST = 32  # kinks of one input, each of which is differentiated once more


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
    known = {place_of(entry) for entry in named}
    ranked = [pair for pair in ranked if place_of(pair[1]) not in known]
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


def with_kinks(
    located: Located,
    own: Origin,
    kinks: Mapping[int, Sequence[int]],
    plan: Plan,
    meter: Meter,
) -> Located:
    """Leave kinks open of which the gradient is no sub-gradient together, and say so.

    Parameters
    ----------
    located
        In which nothing is wrong.
    own
        The subject, at its point.
    kinks
        By input: coordinates that are right at a kink by themselves.
    plan, meter
        As of a check.
    """
    subject = own.subject
    some = {which: np.unique(places)[:_MOST] for which, places in kinks.items()}
    if sum(map(len, some.values())) < 2 or not readable(subject):
        return located
    empty = np.zeros(0, dtype=np.intp)
    columns = [some.get(which, empty) for which in range(len(subject.inputs))]
    check = begun(own, plan, meter)
    try:
        outcome = compare_columns(check, columns, analytic_columns(check))
        outcome.blocks = [b for b in outcome.blocks if b.positions.size]
        findings = joint_kinks(Judged(subject, outcome, meter, plan.seed))
        stopped = outcome.stopped
    except (BudgetExhausted, KeyboardInterrupt) as stop:
        findings, stopped = [], why_stopped(stop)
    wrong = [finding for finding in findings if finding.severity == "error"]
    located = dataclasses.replace(
        located, evaluations=meter.evaluations, budget_left=meter.unspent
    )
    if not (wrong or stopped):
        return located
    suspects = tuple(
        _suspect(own, which, int(place))
        for which, places in some.items()
        for place in places
    )
    return dataclasses.replace(
        located,
        complete=False,
        suspects=(*located.suspects, *dict.fromkeys(suspects)),
        remarks=(*located.remarks, *(finding.evidence for finding in wrong)),
        stopped=located.stopped or stopped,
    )


def _suspect(own: Origin, which: int, place: int) -> Suspect:
    """Name the entry of a coordinate, as something that is not decided."""
    variable = own.subject.inputs[which]
    index = variable.index(variable.entry_of(place))
    return Suspect(variable.name, index, index, 1)
