"""What random directions accuse, looked at entry by entry.

The entries that group testing found, and a sample of the others, so that there is
something to diagnose; what directions leave aside; and, where a budget ended, a few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.metering.meter import DEAR, BudgetExhausted, why_stopped
from gradlab.pipeline.around.beside import leave_ties_open
from gradlab.pipeline.around.excuses import taken_back
from gradlab.pipeline.around.joint_kinks import joint_kinks
from gradlab.pipeline.comparing import run_full
from gradlab.pipeline.coverage import readable
from gradlab.pipeline.large.searched import as_looked_at, with_found
from gradlab.pipeline.outcome import Judged
from gradlab.pipeline.plan import KEPT
from gradlab.subject.mirrors import with_mirrored
from gradlab.subject.subject import Variable, input_columns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from numpy.typing import NDArray

    from gradlab.diagnosis.finding import Finding
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.localisation.tensors import TensorProbes
    from gradlab.pipeline.outcome import Outcome
    from gradlab.pipeline.plan import Plan
    from gradlab.subject.subject import Subject

__all__ = ["confirmed", "is_looked_at", "look_closer", "named_entries", "worth_a_look"]

_SAMPLE = 16  # further entries of a wrong input, to diagnose by
_SAMPLE_DEAR = 4  # where evaluations are dear, or the cause is known to be elsewhere
_LOOKED_AT = 3  # wrong inputs that are compared entry by entry; the others are named
_UNTOLD = 48  # entries of inputs left open by directions that are looked at one by one


def look_closer(
    own: Origin,
    plan: Plan,
    meter: Meter,
    probes: TensorProbes,
    looks: list[set[str]],
    aside: Mapping[int, NDArray[np.intp]],
) -> tuple[Outcome | None, str, list[Finding]]:
    """Look at entries of what is accused, as far as that goes, and say what stopped it.

    And what excuses some of them. What directions left aside is looked at first.
    """
    subject, outcome = own.subject, None
    excuses: list[Finding] = []
    stopped = "" if probes.stop is None else why_stopped(probes.stop)
    try:
        for k, names in enumerate(looks or [set()] * bool(aside)):
            found = _look_at(own, plan, meter, probes, names, {} if k else aside)
            if found is not None and probes.columns is None:
                judged = Judged(subject, found, meter, plan.seed)
                excuses += taken_back(judged)
                excuses += joint_kinks(judged)
                if found.stopped:  # single entries do not show what happens at a tie
                    leave_ties_open(subject, found)
            outcome = (
                found if outcome is None or found is None else _both(outcome, found)
            )
            if outcome is None or confirmed(outcome):
                break  # what is wrong is shown; the others are named
    except (BudgetExhausted, KeyboardInterrupt) as why:
        stopped = stopped or why_stopped(why)
    if outcome is not None:
        stopped = stopped or outcome.stopped
    if stopped:
        outcome = with_found(outcome, own, probes)
    return outcome, stopped, excuses


def is_looked_at(subject: Subject) -> bool:
    """Whether entries of what directions accuse are compared one by one."""
    return input_columns(subject.inputs) < DEAR and readable(subject)


def worth_a_look(
    subject: Subject,
    probes: TensorProbes,
    left_out: Collection[int],
    meter: Meter,
) -> Iterator[set[str]]:
    """Name inputs to compare entry by entry, those that accusations rest on first.

    What is accused besides is only looked at if those turn out to be right; and what
    directions could not decide, where that is cheap. Where all entries are as cheap as
    directions, those are looked at that hide: beside a slope of 1e6 no direction sees
    one of 1.
    """
    total = input_columns(subject.inputs)
    accused = [t for t in probes.tensors if t.verdict == Verdict.DISAGREES]
    if not accused and isinstance(probes.stop, BudgetExhausted):
        # about to be: one entry may show it
        open_ = {t.input for t in probes.tensors if t.verdict == Verdict.UNDECIDED}
        yield open_ - {subject.inputs[which].name for which in left_out}
        return
    named = {entry.input for entry in probes.located.entries}
    # those with entries to show first; where all is wrong, the last is nearest the loss
    accused.sort(key=lambda t: (t.input in probes.handed, t.input not in named))
    if probes.columns is not None:  # looked at already, all of them together
        if probes.columns:
            yield {t.input for t in accused}
        return
    some = [*accused[: _LOOKED_AT - 1], *accused[-1:]]
    if all(t.input in probes.handed for t in accused):
        some = accused[-1:]  # a layer that is wrong by itself bears them out
    first = {t.input for t in some}
    untold, left = set(), 0 if total >= DEAR else _UNTOLD
    cheap = _all_are_cheap(subject, meter)
    for which, (variable, probe) in enumerate(
        zip(subject.inputs, probes.tensors, strict=True)
    ):
        small = variable.coordinates <= min(left, _SAMPLE) and which not in left_out
        hides = probe.hides and cheap and which not in left_out
        if hides or (small and probe.verdict == Verdict.UNDECIDED):
            untold.add(variable.name)
            left -= variable.coordinates
    if first or untold:
        yield first | untold
    rest = {t.input for t in accused} - first
    if rest:
        yield rest


def _all_are_cheap(subject: Subject, meter: Meter) -> bool:
    """Whether looking at every entry costs what directions do, and nobody counts."""
    free = meter.budget.evaluations is None and meter.budget.seconds is None
    return free and input_columns(subject.inputs) <= _UNTOLD


def _look_at(
    own: Origin,
    plan: Plan,
    meter: Meter,
    probes: TensorProbes,
    names: Collection[str],
    aside: Mapping[int, NDArray[np.intp]],
) -> Outcome | None:
    """Compare the wrong entries that were located, and a sample beside them.

    And what directions left aside.
    """
    if isinstance(probes.stop, KeyboardInterrupt):
        return None  # who pressed Stop does not want more
    if probes.columns is not None:
        return as_looked_at(own, meter, probes)
    subject = own.subject
    total = input_columns(subject.inputs)
    if not readable(subject):
        return None
    if probes.stop is not None and is_looked_at(subject):
        return _look_at_few(own, plan, meter, probes, names) if names else None
    rng = np.random.default_rng([plan.seed, 3])
    columns = []
    for which, variable in enumerate(subject.inputs):
        apart = aside.get(which, np.zeros(0, dtype=np.intp))
        if variable.name not in names and not apart.size:
            columns.append(apart)
            continue
        spare = total >= DEAR or variable.name in probes.handed
        few = _SAMPLE_DEAR if spare else _SAMPLE
        few = variable.size if _all_are_cheap(subject, meter) else few
        found = named_entries(probes, variable)
        kinks = np.array(probes.kinks.get(which, [])[:_UNTOLD], dtype=np.intp)
        apart = np.union1d(apart, kinks)  # right by themselves: together, perhaps not
        some = np.union1d(apart, _positions(variable, found, few, rng))
        columns.append(with_mirrored(subject, which, some))
    return _compared(own, plan, meter, columns)


def _look_at_few(
    own: Origin,
    plan: Plan,
    meter: Meter,
    probes: TensorProbes,
    names: Collection[str],
) -> Outcome | None:
    """Compare an entry that was named, or some likely ones: no more can be paid for."""
    subject = own.subject
    columns = [np.zeros(0, dtype=np.intp) for _ in subject.inputs]
    for which, variable in enumerate(subject.inputs):
        found = named_entries(probes, variable)[:1] if variable.name in names else []
        if found and not any(part.size for part in columns):
            columns[which] = variable.coordinates_of(np.array(found, dtype=np.intp))
    if probes.likeliest is not None and not any(part.size for part in columns):
        which, places = probes.likeliest
        places = places[: max(1, (meter.left() - KEPT) // 2)]
        variable = subject.inputs[which]
        entries = places // 2 if variable.is_complex else places
        columns[which] = variable.coordinates_of(np.unique(entries))
    if not any(part.size for part in columns):
        return None
    return _compared(own, plan, meter, columns)


def _compared(
    own: Origin, plan: Plan, meter: Meter, columns: list[NDArray[np.intp]]
) -> Outcome:
    """Compare some entries of what is accused, and keep the inputs that have any."""
    outcome = run_full(own, plan, meter, columns, accused=True)
    outcome.blocks = [block for block in outcome.blocks if block.positions.size]
    return outcome


def _both(first: Outcome, second: Outcome) -> Outcome:
    """Put two looks at different inputs together."""
    second.blocks = sorted([*first.blocks, *second.blocks], key=lambda b: b.which)
    second.remarks = list(dict.fromkeys([*first.remarks, *second.remarks]))
    second.stopped = first.stopped or second.stopped
    second.unsteady = first.unsteady if second.unsteady is None else second.unsteady
    return second


def confirmed(outcome: Outcome) -> bool:
    """Whether a single entry was seen to be wrong."""
    return any(block.accused for block in outcome.blocks)


def named_entries(probes: TensorProbes, variable: Variable) -> list[int]:
    """Entries of an input that group testing named."""
    return [
        variable.entry_at(entry.index)
        for entry in probes.located.entries
        if entry.input == variable.name
    ]


def _positions(
    variable: Variable, found: list[int], few: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Real coordinates of the entries to look at, in order."""
    count = min(few, variable.size)
    drawn = rng.choice(variable.size, size=count, replace=False)
    entries = np.union1d(found, drawn).astype(np.intp)
    return variable.coordinates_of(entries)
