"""Entries that a search found right at kinks, followed all at once.

A search goes by single entries, and at a tie of max each is right with any slope
between both sides. Whether the gradient is one of all of them together is what a check
asks at its end; where nothing else is wrong, a search asks it too.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.metering.meter import BudgetExhausted, why_stopped
from gradlab.localisation.located import Suspect
from gradlab.pipeline.around.joint_kinks import joint_kinks
from gradlab.pipeline.comparing import analytic_columns, begun, compare_columns
from gradlab.pipeline.coverage import readable
from gradlab.pipeline.outcome import Judged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.localisation.located import Located
    from gradlab.pipeline.plan import Plan

__all__ = ["with_kinks"]

_MOST = 32  # kinks of one input, each of which is differentiated once more


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
