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
from gradlab.diagnosis.evidence import Crowd, Evidence
from gradlab.differentiation.metering.meter import DEAR, INTERRUPTED
from gradlab.labels import plural
from gradlab.localisation.tensors import (
    TensorProbe,
    TensorProbes,
    probe_tensors,
)
from gradlab.pipeline.assembling import Seen, as_parts, comparisons_of, met_on_the_way
from gradlab.pipeline.coverage import mixed_inputs
from gradlab.pipeline.large.entry_looks import (
    confirmed,
    is_looked_at,
    look_closer,
    named_entries,
    worth_a_look,
)
from gradlab.pipeline.plan import KEPT
from gradlab.subject.subject import Variable, input_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gradlab.diagnosis.finding import Finding
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.localisation.conditions import Conditions
    from gradlab.pipeline.plan import Plan
    from gradlab.subject.subject import Subject

__all__ = ["compare_by_probes"]

_KEPT = KEPT + 6  # evaluations of a budget: a few entries, and what confirms one
_UNLIKELY = 1e-3  # chance of seeing no wrong entry where so many are wrong


def compare_by_probes(
    own: Origin,
    plan: Plan,
    meter: Meter,
    conditions: Conditions,
    left_out: Collection[int],
    spoiled: Callable[[], frozenset[str]],
) -> tuple[Seen, list[Finding]]:
    """Judge every input by random directions, and look closer at what is accused.

    Parameters
    ----------
    own, plan, meter
        As for a full check.
    conditions
        What the function does besides returning a value, for diagnosis.
    left_out
        Positions of inputs that cannot be compared.
    spoiled
        Says which inputs a wrong layer spoils; asked where something disagrees.

    Returns
    -------
    seen
        Comparisons, and the evidence for diagnosis.
    excuses
        What was accused, and is none of the gradient's mistakes.
    """
    subject, base = own.subject, own.base
    mixed = {} if input_columns(subject.inputs) >= DEAR else mixed_inputs(subject)
    aside = {k: places for k, places in mixed.items() if k not in left_out}
    with meter.keeping(_KEPT if is_looked_at(subject) else 0):
        probes = probe_tensors(
            subject,
            tolerance=plan.tolerance,
            meter=meter,
            base=base,
            seed=plan.seed,
            left_out=left_out,
            aside=aside,
            spoiled=spoiled,
        )
    looks = list(worth_a_look(subject, probes, left_out, meter))
    outcome, stopped, excuses = look_closer(own, plan, meter, probes, looks, aside)
    heard = {excuse.where for excuse in excuses if excuse.severity != "error"}
    # what entries should have borne out, and had no time to
    hasty = bool(stopped) and is_looked_at(subject)
    hasty &= outcome is None or not confirmed(outcome)
    unsteady = outcome is not None and outcome.unsteady is not None
    blocks = [] if outcome is None else outcome.blocks
    looked = comparisons_of(
        subject, blocks, method=plan.first_method, coverage="sample"
    )
    comparisons: list[Comparison] = []
    for which, probe in enumerate(probes.tensors):
        variable = subject.inputs[which]
        closer = [c for c in looked if c.input.name == variable.name]
        wrong = any(c.verdict == Verdict.DISAGREES for c in closer)
        every = bool(closer) and all(c.columns is None for c in closer)
        untold = every and _tell_less(probe, closer)
        if wrong or _are_all(probe, closer) or (every and not untold):
            comparisons += closer  # all of its entries: nothing is known better
            continue
        doubtful = hasty or unsteady or untold or variable.name in heard
        doubtful = doubtful or _contradicted(probes, variable, closer)
        told = _in_doubt(probe) if doubtful else probe
        if which in aside and not (closer and all(c.verdict == 0 for c in closer)):
            told = dataclasses.replace(told, verdict=Verdict.UNDECIDED)
        comparisons.append(_as_comparison(subject, variable, told))
    evidence = Evidence(
        subject=subject,
        base=base,
        parts=as_parts(subject, blocks),
        comparisons=tuple(comparisons),
        problems=probes.located.problems,
        meter=meter.closed() if stopped == INTERRUPTED else meter,
        seed=plan.seed,
        conditions=conditions,
        met=met_on_the_way(subject, plan, meter, outcome, _crowd(probes)),
        reference=probes.reference if outcome is None else outcome.reference,
        readings=probes.readings,
    )
    met = () if outcome is None else outcome.met()
    remarks = (*_remarks(subject, probes), *met, *_closer(comparisons, probes))
    if stopped:
        told_early = _unheard(comparisons, probes) * hasty
        remarks = (*remarks, *told_early, f"{stopped} before the search was over")
    return Seen(tuple(comparisons), evidence, remarks, bool(stopped)), excuses


def _crowd(probes: TensorProbes) -> Crowd | None:
    """Note kinks, and the inputs that are undecided because no step avoids them."""
    torn = [t for t in probes.tensors if t.crowded and t.verdict == Verdict.UNDECIDED]
    if not (torn or probes.crowd):
        return None
    step = min((t.crowded for t in torn), default=0.0)
    return Crowd(step, tuple(t.input for t in torn))


def _contradicted(
    probes: TensorProbes, variable: Variable, closer: list[Comparison]
) -> bool:
    """Whether entries that were looked at one by one clear what directions accuse.

    Either all that were named as wrong, where the search came to its end, or so many
    at random that one of the wrong ones would have been among them. And where f stood
    still along the directions, as behind a cast to few digits, but along no entry; or
    has kinks at the point, where sub-gradients need not add up.
    """
    if not closer:
        return False
    if any(c.accepted is not None and c.accepted.any() for c in closer):
        return True
    if not probes[variable.name].numeric.any():
        return True
    share = probes.located.wrong_share.get(variable.name, 0.0)
    if share:
        looked = int((closer[0].verdicts == Verdict.AGREES).sum())
        # of one to four wrong ones that were left two were counted: half, if it was one
        return bool((1.0 - min(share / 2, 1.0)) ** looked < _UNLIKELY)
    named, shown = named_entries(probes, variable), closer[0].columns
    seen = shown is None or bool(np.isin(named, shown).all())
    return bool(named) and seen and probes.located.complete


def _tell_less(probe: TensorProbe, closer: list[Comparison]) -> bool:
    """Whether entries one by one cannot tell what directions accuse.

    An input that moves f by next to nothing may show along steps that all its entries
    take together, and in none of them by itself.
    """
    if probe.verdict != Verdict.DISAGREES:
        return False
    with np.errstate(all="ignore"):
        vague = [
            (c.numeric_error >= np.fmax(np.abs(c.analytic), np.abs(c.numeric))).all()
            for c in closer
        ]
    return all(vague)


def _in_doubt(probe: TensorProbe) -> TensorProbe:
    """Leave undecided what directions say of a function that does not repeat itself."""
    accused = probe.verdict == Verdict.DISAGREES
    return dataclasses.replace(probe, verdict=Verdict.UNDECIDED) if accused else probe


def _unheard(comparisons: list[Comparison], probes: TensorProbes) -> tuple[str, ...]:
    """Say of which inputs directions alone have spoken, which accuse nobody."""
    return tuple(
        f"{c.input.name}: the gradient disagrees along random directions; no single "
        f"entry has borne that out yet"
        for c in comparisons
        if c.coverage == "probe" and c.verdict == Verdict.UNDECIDED
        if probes[c.input.name].verdict == Verdict.DISAGREES
    )


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


def _are_all(probe: TensorProbe, closer: list[Comparison]) -> bool:
    """Whether a few entries are all that was measured of an input, and are open."""
    open_ = any(c.verdict == Verdict.UNDECIDED for c in closer)
    return open_ and not probe.analytic.size


def _closer(comparisons: list[Comparison], probes: TensorProbes) -> list[str]:
    """Say of which inputs single entries are shown, and how many of all."""
    also = "judged as a whole, " if probes.stop is None else ""
    return [
        f"{c.input.name}: {also}{len(c.columns):,} of its {c.input.size:,} entries "
        f"one by one"
        for c in comparisons
        if c.coverage == "sample" and c.columns is not None
    ]


def _remarks(subject: Subject, probes: TensorProbes) -> tuple[str, ...]:
    total = sum(variable.size for variable in subject.inputs)
    count, entries = plural(probes.evaluations, "evaluation"), plural(total, "entry")
    told = [f"{entries} judged by random directions in {count}"]
    if probes.stop is not None:
        told = [f"random directions through {entries}, not to the end: {count}"]
    told += [
        f"not looked at: nan or infinite entries of {name} ({count})"
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
