"""Climbing a ladder: which steps, which coordinates, one rung after another."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.swept import Curves, Swept
from gradlab.differentiation.metering.budget import Budget
from gradlab.differentiation.method import Backward, Central, ComplexStep, Forward
from gradlab.differentiation.sizes.scales import scales_of
from gradlab.errors import ComplexStepError
from gradlab.pipeline.coverage import Price, choose_columns
from gradlab.pipeline.sides.measuring import numeric_side
from gradlab.subject.subject import input_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.report import Report
    from gradlab.subject.subject import Subject, Variable

__all__ = ["Climb", "default_steps", "ladder_cost", "steps_columns"]

_PER_DECADE = 3  # steps of a sweep
_LOWEST = -307  # power of ten, below which numbers lose their digits
_RUNGS = 18  # at least: what a curve needs to be read
_SECONDS = 20.0  # a pause nobody minds; beyond, a sample is taken
_PATIENCE = 60.0  # seconds after which inputs are left out rather than waited for
_EVALUATIONS = 200_000  # beyond, as well
_WORST = 4  # entries of each block of a report that a sample always contains
_METHODS = {kind.name: kind for kind in (Central, Forward, Backward, ComplexStep)}
_COST = {name: kind.cost for name, kind in _METHODS.items()}
_COST["five-point"] = 2 * Central.cost


def ladder_cost(rungs: int, methods: Sequence[str]) -> int:
    """Count the evaluations that one coordinate takes on so many steps.

    Examples
    --------
    >>> ladder_cost(10, ["central", "five-point"])
    60
    """
    return rungs * sum(_COST[method] for method in methods)


def default_steps(subject: Subject) -> tuple[NDArray[np.float64], str]:
    """Choose a ladder for a subject, and say so if it is not the plain one.

    Parameters
    ----------
    subject
        At its point, evaluated once.

    Returns
    -------
    steps
        Ascending, three per decade, or more in low precision.
    remark
        "" for the plain ladder.

    Examples
    --------
    >>> sweep = gl.sweep(lambda x: (x**2).sum(), 1e8 * np.ones(2), grad=lambda x: 2 * x)
    >>> float(sweep.steps.max())
    100000000.0
    """
    typical = []
    for which in range(len(subject.inputs)):
        scales = scales_of(subject, which)
        size = float(np.median(scales)) if scales.size else 1.0
        typical.append(1.0 if 0.01 <= size <= 100 else size)
    low, high = min(typical, default=1.0), max(typical, default=1.0)
    bottom = round(0.9 * math.log10(subject.epsilon)) + math.floor(math.log10(low))
    # no power of ten below the normal numbers, none that is infinite
    bottom = max(bottom, _LOWEST)
    top = max(min(math.ceil(math.log10(high) - 1e-9), -_LOWEST), bottom + 1)
    # a short ladder, as of float16, has closer rungs
    density = max(_PER_DECADE, math.ceil(_RUNGS / (top - bottom)))
    count = density * (top - bottom) + 1
    steps = 10.0 ** np.linspace(bottom, top, count)
    if low == high == 1.0:
        return steps, ""
    words = f"the inputs are of size {low:.0e}"
    if high != low:
        words += f" to {high:.0e}"
    return steps, f"{words}: steps from 1e{bottom:+03d} to 1e{top:+03d}"


def steps_columns(
    subject: Subject,
    rungs: int,
    methods: Sequence[str],
    *,
    coverage: str,
    seconds_each: float,
    seed: int,
    report: Report | None,
) -> tuple[list[NDArray[np.intp]], list[str]]:
    """Choose the coordinates: all while that is cheap, else a sample and the worst.

    Parameters
    ----------
    subject
        At its point, evaluated once.
    rungs, methods
        Steps, and what is done at each.
    coverage
        "full", "sample" or "auto".
    seconds_each
        Measured time of one evaluation.
    seed
        Of the sample.
    report
        Its worst entries are always in the sample.

    Returns
    -------
    columns
        Real coordinates by input.
    remarks
        What is left out.

    Examples
    --------
    >>> sweep = gl.sweep(lambda x: x @ x, np.ones(9999), grad=lambda x: 2 * x)
    >>> len(sweep["x"].columns) <= 64
    True
    """
    cost, each = ladder_cost(rungs, methods), seconds_each
    total = input_columns(subject.inputs)
    cheap = cost * total <= _EVALUATIONS and cost * total * each <= _SECONDS
    wanted = coverage
    if wanted == "auto":
        wanted = "full" if cheap else "sample"
    # a sample of `m` entries costs m * cost evaluations, planning reckons with four
    share = Budget(seconds=_SECONDS) if wanted == "sample" else Budget()
    price = Price.of_differences(subject, each * cost / 4)
    plan = choose_columns(subject, wanted, share, seed, price)
    columns = list(plan.columns)
    if plan.name == "sample" and report is not None:
        for which, variable in enumerate(subject.inputs):
            worst = _worst_coordinates(report, variable)
            inside = [c for c in worst if c < variable.coordinates]
            columns[which] = np.union1d(columns[which], inside).astype(np.intp)
    remarks = list(plan.remarks)
    if coverage == "auto" and plan.name == "sample":
        remarks += _only_what_fits(subject, columns, cost * each, report)
    return columns, remarks


def _only_what_fits(
    subject: Subject,
    columns: list[NDArray[np.intp]],
    seconds: float,
    report: Report | None,
) -> list[str]:
    """Drop inputs, the least suspicious first, where one ladder takes `seconds`.

    Changes `columns`: dropped inputs keep none.
    """
    room = max(int(_PATIENCE / max(seconds, 1e-9)), 1)
    if sum(part.size for part in columns) <= room:
        return []
    order = list(range(len(columns)))
    if report is not None:
        severity = {variable.name: -1.0 for variable in subject.inputs}
        for block in report.comparisons:
            badness = float(block.verdict) + min(block.max_rel_error, 1.0) / 2
            severity[block.input.name] = max(severity[block.input.name], badness)
        order.sort(key=lambda which: -severity[subject.inputs[which].name])
    share = max(room // max(len(columns), 1), 1)
    for rank, which in enumerate(order):
        variable = subject.inputs[which]
        kept = (share if rank < room else 0) * (2 if variable.is_complex else 1)
        chosen = columns[which]
        if report is not None:  # the worst entries first
            worst = _worst_coordinates(report, variable)
            first = [c for c in worst if c in chosen]
            chosen = np.concatenate([first, np.setdiff1d(chosen, first)])
        columns[which] = np.sort(chosen[:kept]).astype(np.intp)
    dropped = len(columns) - min(room, len(columns))
    words = f"one evaluation is slow: {share} entries of each input were swept"
    if dropped:
        words += f", and {dropped} inputs not at all (wrt= chooses them)"
    return [words]


def _worst_coordinates(report: Report, variable: Variable) -> list[int]:
    """Real coordinates of the worst entries of every block of one input."""
    found = [
        comparison.entry(column)
        for comparison in report.comparisons
        if comparison.input.name == variable.name
        for _, column in comparison.ranking(_WORST)
    ]
    entries = np.array([entry for entry in found if entry is not None], dtype=np.intp)
    coordinates: list[int] = variable.coordinates_of(entries).tolist()
    return coordinates


@dataclasses.dataclass(slots=True, eq=False)
class Climb:
    """Evaluates one rung after the other and keeps what is asked for.

    Parameters
    ----------
    origin, meter
        The subject at its point, and what counts the evaluations.
    steps
        The ladder.
    keep
        Whether to keep the matrices, or their errors only.
    """

    origin: Origin
    meter: Meter
    steps: NDArray[np.float64]
    keep: bool
    curves: dict[tuple[str, str], Curves] = dataclasses.field(default_factory=dict)
    matrices: dict[tuple[str, str], NDArray[np.float64]] = dataclasses.field(
        default_factory=dict
    )
    bars: dict[tuple[str, str], NDArray[np.float64]] = dataclasses.field(
        default_factory=dict
    )

    def climb(self, method: str, block: Swept) -> None:
        """Evaluate all steps of one method for one input."""
        names = [variable.name for variable in self.origin.subject.inputs]
        which = names.index(block.variable.name)
        key = (method, block.variable.name)
        curves = self.curves[key] = Curves.blank(self.steps.size)
        shape = (self.steps.size, *block.analytic.shape)
        if self.keep:
            self.matrices[key] = np.full(shape, np.nan)
            self.bars[key] = np.full(shape, np.nan)
        believed = False
        seen = np.zeros(block.analytic.shape, bool)
        for number, step in enumerate(self.steps.tolist()):
            try:
                value, bar = self._rung(method, which, block.columns, step)
            except ComplexStepError:
                # tiny steps were believed: this one is merely too large to be compared
                if believed:
                    break
                raise
            believed = True
            curves.put(number, block, value, bar, seen)
            if self.keep:
                self.matrices[key][number] = value
                self.bars[key][number] = bar

    def forget(self, method: str) -> None:
        """Drop what was measured by a method that fails for some input."""
        for kept in (self.curves, self.matrices, self.bars):
            for key in [key for key in kept if key[0] == method]:
                del kept[key]

    def stop(self, keys: Iterable[tuple[str, str]]) -> None:
        """Mark the curves that were not begun, and the one that was being measured."""
        last = next(reversed(self.curves), None)
        blank = Curves.blank(self.steps.size)
        for key in keys:
            if key not in self.curves or key == last:
                curves = self.curves.get(key, blank)
                self.curves[key] = dataclasses.replace(curves, cut=True)

    def _rung(
        self, method: str, which: int, positions: NDArray[np.intp], step: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if method == "five-point":
            # (4 D(h) - D(2h)) / 3, both central: the h^2 terms cancel
            one = self._rung("central", which, positions, step)
            two = self._rung("central", which, positions, 2 * step)
            return (4 * one[0] - two[0]) / 3, (4 * one[1] + two[1]) / 3
        found = numeric_side(
            self.origin,
            which,
            positions,
            _METHODS[method](step),
            self.meter,
        )
        # a step below the spacing of the numbers is no step: nothing is resolved
        still = found.step == 0
        return np.where(still, 0.0, found.value), np.where(still, np.inf, found.error)
