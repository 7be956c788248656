"""A check by random directions: a verdict per input at a cost that does not grow.

What the directions accuse is looked at entry by entry: the entries that group testing
found, and a sample of the others, so that there is something to diagnose.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.comparison import Comparison
from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.evidence import Evidence
from gradlab.differentiation.evaluation import BudgetExhausted
from gradlab.differentiation.metering import why_stopped
from gradlab.labels import ravel
from gradlab.localisation.tensors import (
    DEAR,
    TensorProbe,
    TensorProbes,
    probe_tensors,
)
from gradlab.pipeline.assembling import Seen, as_parts, comparisons_of, met_on_the_way
from gradlab.pipeline.checking import run_full
from gradlab.subject.subject import Variable, output_rows

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from gradlab.differentiation.evaluation import Meter
    from gradlab.pipeline.blocks import Outcome, Plan
    from gradlab.subject.subject import Problem, Subject

__all__ = ["compare_by_probes"]

_ENTRIES = 8_000_000  # numbers of an analytic Jacobian that may be read out as a whole
_SAMPLE = 16  # further entries of a wrong input, to diagnose by
_SAMPLE_DEAR = 4  # the same, where evaluations are dear
_LOOKED_AT = 3  # wrong inputs that are compared entry by entry; the others are named


def compare_by_probes(
    subject: Subject,
    plan: Plan,
    meter: Meter,
    base: NDArray[np.float64],
    notes: dict[str, tuple[str, ...]],
    left_out: Collection[int],
) -> Seen:
    """Judge every input by random directions, and look closer at what is accused.

    Parameters
    ----------
    subject
        Evaluated once already.
    plan, meter
        As for a full check.
    base
        f at the point, shape (rows,).
    notes
        Conditions met so far, for diagnosis.
    left_out
        Positions of inputs that cannot be compared.
    """
    probes = probe_tensors(
        subject,
        tolerance=plan.tolerance,
        meter=meter,
        base=base,
        seed=plan.seed,
        left_out=left_out,
    )
    outcome = None
    stopped = "" if probes.stop is None else why_stopped(probes.stop)
    try:
        outcome = _look_at_accused(subject, plan, meter, base, probes)
    except (BudgetExhausted, KeyboardInterrupt) as why:  # what directions said stands
        stopped = stopped or why_stopped(why)
    if outcome is not None:
        stopped = stopped or outcome.stopped
    looked: dict[str, list[Comparison]] = {}
    if outcome is not None:
        for comparison in comparisons_of(
            subject, outcome.blocks, method=plan.first_method, coverage="sample"
        ):
            looked.setdefault(comparison.input.name, []).append(comparison)
    comparisons: list[Comparison] = []
    for variable, probe in zip(subject.inputs, probes.tensors, strict=True):
        closer = looked.get(variable.name, [])
        if any(c.verdict == Verdict.DISAGREES for c in closer):
            comparisons += closer
        else:
            unsteady = outcome is not None and outcome.unsteady is not None
            told = _in_doubt(probe) if unsteady else probe
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
    )
    met = () if outcome is None else outcome.met()
    remarks = (*_remarks(subject, probes), *met, *_closer(comparisons))
    if stopped:
        remarks = (*remarks, f"{stopped} before the search was over")
    return Seen(tuple(comparisons), evidence, remarks, partial=bool(stopped))


def _look_at_accused(
    subject: Subject,
    plan: Plan,
    meter: Meter,
    base: NDArray[np.float64],
    probes: TensorProbes,
) -> Outcome | None:
    """Compare the wrong entries that were located, and a sample beside them."""
    accused = [t for t in probes.tensors if t.verdict == Verdict.DISAGREES]
    named = {entry.input for entry in probes.located.entries}
    # those with entries to show first; where all is wrong, the last is nearest the loss
    accused.sort(key=lambda t: t.input not in named)
    wrong = {t.input for t in [*accused[: _LOOKED_AT - 1], *accused[-1:]]}
    total = sum(variable.coordinates for variable in subject.inputs)
    if not wrong or output_rows(subject.outputs) * total > _ENTRIES:
        return None
    rng = np.random.default_rng([plan.seed, 3])
    columns = []
    for variable in subject.inputs:
        if variable.name not in wrong:
            columns.append(np.zeros(0, dtype=np.intp))
            continue
        found = [
            ravel(entry.index, variable.shape)
            for entry in probes.located.entries
            if entry.input == variable.name
        ]
        few = _SAMPLE if total < DEAR else _SAMPLE_DEAR
        columns.append(_positions(variable, found, few, rng))
    if isinstance(probes.stop, KeyboardInterrupt):
        return None  # who pressed Stop does not want more
    outcome = run_full(subject, plan, meter, base, columns, accused=True)
    outcome.blocks = [block for block in outcome.blocks if block.positions.size]
    return outcome


def _positions(
    variable: Variable, found: list[int], few: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Real coordinates of the entries to look at, in order."""
    count = min(few, variable.size)
    drawn = rng.choice(variable.size, size=count, replace=False)
    flat = np.asarray(found, dtype=np.intp)
    if variable.support is not None:
        flat = np.searchsorted(variable.support, flat)
    entries = np.union1d(flat, drawn).astype(np.intp)
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
        f"not looked at: {count} infinite entries of {name}"
        for name, count in probes.immovable.items()
    ]
    located = probes.located
    if located.wrong_share:
        told += [
            f"{name}: about {share:.0%} of the entries are wrong"
            for name, share in located.wrong_share.items()
        ]
    if not located.complete and not located.ok:
        told.append("there may be more wrong entries than those named")
    return tuple(told)
