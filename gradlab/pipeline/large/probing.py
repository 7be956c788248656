"""A check by random directions: a verdict per input at a cost that does not grow.

What the directions accuse is looked at entry by entry: the entries that group testing
found, and a sample of the others, so that there is something to diagnose. One step for
a whole tensor crosses kinks and misses entries of another size that steps of their own
would not: an accusation that the entries contradict is no accusation.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.comparison import Comparison
from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.evidence import Evidence
from gradlab.differentiation.evaluation import BudgetExhausted
from gradlab.differentiation.metering import DEAR, why_stopped
from gradlab.localisation.tensors import (
    TensorProbe,
    TensorProbes,
    probe_tensors,
)
from gradlab.pipeline.around.beside import leave_ties_open, look_beside
from gradlab.pipeline.assembling import Seen, as_parts, comparisons_of, met_on_the_way
from gradlab.pipeline.checking import run_full
from gradlab.pipeline.large.searched import as_looked_at, with_found
from gradlab.pipeline.looks.unheard import KEPT
from gradlab.subject.subject import Variable, input_columns, output_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from numpy.typing import NDArray

    from gradlab.diagnosis.finding import Finding
    from gradlab.differentiation.evaluation import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.blocks import Outcome, Plan
    from gradlab.subject.subject import Problem, Subject

__all__ = ["compare_by_probes"]

_ENTRIES = 8_000_000  # numbers of an analytic Jacobian that may be read out as a whole
_SAMPLE = 16  # further entries of a wrong input, to diagnose by
_SAMPLE_DEAR = 4  # the same, where evaluations are dear
_LOOKED_AT = 3  # wrong inputs that are compared entry by entry; the others are named
_UNTOLD = 48  # entries of inputs left open by directions that are looked at one by one
_KEPT = KEPT + 6  # evaluations of a budget: a few entries, and what confirms one
_UNLIKELY = 1e-3  # chance of seeing no wrong entry where so many are wrong


def compare_by_probes(
    own: Origin,
    plan: Plan,
    meter: Meter,
    notes: dict[str, tuple[str, ...]],
    left_out: Collection[int],
) -> tuple[Seen, list[Finding]]:
    """Judge every input by random directions, and look closer at what is accused.

    Parameters
    ----------
    own, plan, meter
        As for a full check.
    notes
        Conditions met so far, for diagnosis.
    left_out
        Positions of inputs that cannot be compared.

    Returns
    -------
    seen
        Comparisons, and the evidence for diagnosis.
    excuses
        What was accused, and is none of the gradient's mistakes.
    """
    subject, base = own.subject, own.base
    with meter.keeping(_KEPT if _is_looked_at(subject) else 0):
        probes = probe_tensors(
            subject,
            tolerance=plan.tolerance,
            meter=meter,
            base=base,
            seed=plan.seed,
            left_out=left_out,
        )
    outcome, stopped, excuses = _looked_closer(own, plan, meter, probes, left_out)
    # what entries should have borne out, and had no time to
    hasty = bool(stopped) and _is_looked_at(subject)
    hasty &= outcome is None or not _confirmed(outcome)
    looked: dict[str, list[Comparison]] = {}
    if outcome is not None:
        for comparison in comparisons_of(
            subject, outcome.blocks, method=plan.first_method, coverage="sample"
        ):
            looked.setdefault(comparison.input.name, []).append(comparison)
    comparisons: list[Comparison] = []
    for variable, probe in zip(subject.inputs, probes.tensors, strict=True):
        closer = looked.get(variable.name, [])
        wrong = any(c.verdict == Verdict.DISAGREES for c in closer)
        if wrong or (closer and all(c.columns is None for c in closer)):
            comparisons += closer  # all of its entries: nothing is known better
        else:
            unsteady = outcome is not None and outcome.unsteady is not None
            doubtful = hasty or unsteady or _contradicted(probes, variable, closer)
            told = _in_doubt(probe) if doubtful else probe
            comparisons.append(_as_comparison(subject, variable, told))
    problems: tuple[Problem, ...] = probes.located.problems
    evidence = Evidence(
        subject=subject,
        base=base,
        parts=() if outcome is None else as_parts(subject, outcome.blocks),
        comparisons=tuple(comparisons),
        problems=problems,
        meter=meter,
        rng=np.random.default_rng([plan.seed, 2]),
        notes=notes | met_on_the_way(subject, plan, meter, outcome),
        reference=probes.reference if outcome is None else outcome.reference,
        readings=probes.readings,
    )
    met = () if outcome is None else outcome.met()
    remarks = (*_remarks(subject, probes), *met, *_closer(comparisons))
    if stopped:
        remarks = (*remarks, f"{stopped} before the search was over")
    return Seen(tuple(comparisons), evidence, remarks, bool(stopped)), excuses


def _looked_closer(
    own: Origin,
    plan: Plan,
    meter: Meter,
    probes: TensorProbes,
    left_out: Collection[int],
) -> tuple[Outcome | None, str, list[Finding]]:
    """Look at entries of what is accused, as far as that goes, and say what stopped it.

    And what excuses some of them.
    """
    subject, outcome = own.subject, None
    excuses: list[Finding] = []
    stopped = "" if probes.stop is None else why_stopped(probes.stop)
    try:
        for names in _worth_a_look(subject, probes, left_out, meter):
            found = _look_at(own, plan, meter, probes, names)
            if found is not None and probes.columns is None:
                excuses += look_beside(subject, found, meter, plan.seed)
                if found.stopped:  # single entries do not show what happens at a tie
                    leave_ties_open(subject, found)
            outcome = (
                found if outcome is None or found is None else _both(outcome, found)
            )
            if outcome is None or _confirmed(outcome):
                break  # what is wrong is shown; the others are named
    except (BudgetExhausted, KeyboardInterrupt) as why:
        stopped = stopped or why_stopped(why)
    if outcome is not None:
        stopped = stopped or outcome.stopped
    if stopped:
        outcome = with_found(outcome, own, probes)
    return outcome, stopped, excuses


def _is_looked_at(subject: Subject) -> bool:
    """Whether entries of what directions accuse are compared one by one."""
    total = input_columns(subject.inputs)
    return total < DEAR and output_rows(subject.outputs) * total <= _ENTRIES


def _worth_a_look(
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
    accused.sort(key=lambda t: t.input not in named)
    if probes.columns is not None:  # looked at already, all of them together
        if probes.columns:
            yield {t.input for t in accused}
        return
    first = {t.input for t in [*accused[: _LOOKED_AT - 1], *accused[-1:]]}
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
) -> Outcome | None:
    """Compare the wrong entries that were located, and a sample beside them."""
    if isinstance(probes.stop, KeyboardInterrupt):
        return None  # who pressed Stop does not want more
    if probes.columns is not None:
        return as_looked_at(own, meter, probes)
    subject = own.subject
    total = input_columns(subject.inputs)
    if output_rows(subject.outputs) * total > _ENTRIES:
        return None
    if probes.stop is not None and _is_looked_at(subject):
        return _look_at_few(own, plan, meter, probes, names) if names else None
    rng = np.random.default_rng([plan.seed, 3])
    columns = []
    for variable in subject.inputs:
        if variable.name not in names:
            columns.append(np.zeros(0, dtype=np.intp))
            continue
        few = _SAMPLE if total < DEAR else _SAMPLE_DEAR
        few = variable.size if _all_are_cheap(subject, meter) else few
        columns.append(_positions(variable, _found(probes, variable), few, rng))
    outcome = run_full(own, plan, meter, columns, accused=True)
    outcome.blocks = [block for block in outcome.blocks if block.positions.size]
    return outcome


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
        found = _found(probes, variable)[:1] if variable.name in names else []
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


def _confirmed(outcome: Outcome) -> bool:
    """Whether a single entry was seen to be wrong."""
    return any((block.verdicts == Verdict.DISAGREES).any() for block in outcome.blocks)


def _found(probes: TensorProbes, variable: Variable) -> list[int]:
    """Entries of an input that group testing named."""
    return [
        variable.entry_at(entry.index)
        for entry in probes.located.entries
        if entry.input == variable.name
    ]


def _contradicted(
    probes: TensorProbes, variable: Variable, closer: list[Comparison]
) -> bool:
    """Whether entries that were looked at one by one clear what directions accuse.

    Either all that were named as wrong, where the search came to its end, or so many
    at random that one of the wrong ones would have been among them. And where f stood
    still along the directions, as behind a cast to few digits, but along no entry.
    """
    if not closer:
        return False
    if not probes[variable.name].numeric.any():
        return True
    share = probes.located.wrong_share.get(variable.name, 0.0)
    if share:
        looked = int((closer[0].verdicts == Verdict.AGREES).sum())
        return bool((1.0 - min(share, 1.0)) ** looked < _UNLIKELY)
    named, shown = _found(probes, variable), closer[0].columns
    seen = shown is None or bool(np.isin(named, shown).all())
    return bool(named) and seen and probes.located.complete


def _positions(
    variable: Variable, found: list[int], few: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Real coordinates of the entries to look at, in order."""
    count = min(few, variable.size)
    drawn = rng.choice(variable.size, size=count, replace=False)
    entries = np.union1d(found, drawn).astype(np.intp)
    return variable.coordinates_of(entries)


def _in_doubt(probe: TensorProbe) -> TensorProbe:
    """Leave undecided what directions say of a function that does not repeat itself."""
    accused = probe.verdict == Verdict.DISAGREES
    return dataclasses.replace(probe, verdict=Verdict.UNDECIDED) if accused else probe


def _as_comparison(
    subject: Subject, variable: Variable, probe: TensorProbe
) -> Comparison:
    """Show the directions themselves, one column for each."""
    names = {output.name for output in subject.outputs}
    name = next(iter(names)) if len(names) == 1 else "outputs"
    verdicts = np.full((1, probe.analytic.size), probe.verdict, dtype=np.int8)
    row = (1, probe.analytic.size)
    return Comparison(
        output=Variable(name, ()),
        input=variable,
        analytic=probe.analytic.reshape(row),
        numeric=probe.numeric.reshape(row),
        numeric_error=probe.error.reshape(row),
        allowed=np.abs(probe.analytic).reshape(row) * 1e-6,
        verdicts=verdicts,
        step=np.full(row, np.nan),
        method="random directions",
        coverage="probe",
        stated_power=probe.power,
    )


def _closer(comparisons: list[Comparison]) -> list[str]:
    """Say of which inputs single entries are shown, and how many of all."""
    return [
        f"{c.input.name}: judged as a whole, {len(c.columns)} of its entries one by one"
        for c in comparisons
        if c.coverage == "sample" and c.columns is not None
    ]


def _remarks(subject: Subject, probes: TensorProbes) -> tuple[str, ...]:
    total = sum(variable.size for variable in subject.inputs)
    count = f"{probes.evaluations} evaluations"
    told = [f"{total:,} entries judged by random directions in {count}"]
    told += [
        f"not looked at: infinite entries of {name} ({count})"
        for name, count in probes.immovable.items()
    ]
    located = probes.located
    explained = {name: r for name, r in probes.readings.items() if r.words}
    told += [
        f"{name}: {'' if reading.kind == 'none' else 'the gradient '}{reading.words}"
        for name, reading in explained.items()
    ]
    told += [
        f"{name}: about {share:.0%} of the entries are wrong"
        for name, share in located.wrong_share.items()
        if name not in explained
    ]
    if not located.complete and not located.ok:
        told.append("there may be more wrong entries than those named")
    return tuple(told)
