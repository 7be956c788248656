"""Evaluating a ladder of steps.

Answers the question: is it my gradient, or is it the finite difference?
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.building import Sides, build_subject, valid_seed
from gradlab.comparison.tolerance import Tolerance
from gradlab.differentiation.crews.opening import crew_of
from gradlab.differentiation.error_curves import ORDERS
from gradlab.differentiation.evaluation import base_row
from gradlab.differentiation.metering.bar import Bar
from gradlab.differentiation.metering.budget import parse_budget
from gradlab.differentiation.metering.meter import BudgetExhausted, Meter, why_stopped
from gradlab.differentiation.method import Auto
from gradlab.differentiation.origin import Origin
from gradlab.errors import (
    BudgetError,
    ComplexStepError,
    InputError,
    InputTypeError,
)
from gradlab.keywords import kept_through, spelt
from gradlab.localisation.conditions import Conditions, first_evaluation
from gradlab.pipeline.climbing import Climb, default_steps, ladder_cost, steps_columns
from gradlab.pipeline.comparing import run_full
from gradlab.pipeline.plan import Plan
from gradlab.pipeline.swept_blocks import swept_blocks
from gradlab.presentation.widgets.progress import progress_bar
from gradlab.report import Live, Report
from gradlab.subject.state_guard import StateGuard
from gradlab.sweeps import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from gradlab.comparison.swept import Swept
    from gradlab.subject.subject import Subject

__all__ = ["sweep"]

_SLOW = 1e-3  # seconds; a first evaluation above this is measured again
_KEPT = 2_000_000  # numbers in all matrices together: 16 MB, and as much for bars


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """What to sweep, whether it came as a function or as a report."""

    fn: Callable[..., Any]
    inputs: tuple[Any, ...]
    sides: Sides
    tolerance: Tolerance
    coverage: str
    seed: int
    report: Report | None


@spelt
def sweep(
    fn: Callable[..., Any] | Report,
    *inputs: Any,
    steps: Sequence[float] | NDArray[np.float64] | None = None,
    methods: Sequence[str] | str = ("central",),
    params: Any = None,
    grad: Callable[..., Any] | Mapping[str, Any] | Any = None,
    jac: Callable[..., Any] | None = None,
    backward: Callable[..., Any] | None = None,
    vjp: Callable[..., Any] | None = None,
    loss: Callable[..., Any] | None = None,
    wrt: Sequence[str] | str | None = None,
    names: Sequence[str] | Mapping[str, str] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    coverage: str = "auto",
    budget: float | str | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    progress: Any = None,
) -> Sweep:
    """Evaluate a ladder of steps, and read what the errors say.

    The analytic side is computed once. A right gradient gives a V: truncation to the
    right, rounding to the left. A wrong one gives a plateau that no step explains.

    Parameters
    ----------
    fn
        What `gradlab.check` takes, or a `Report`, whose subject and options are used.
    *inputs
        Positional arguments of `fn`; none for a report.
    steps
        Absolute steps, in the units of the inputs. Default: three per decade, enough to
        see a slope, from 1e-14 to 1 in float64 (1e-6 in float32), moved along where the
        inputs are not of the order of one; `Sweep.remarks` says so.
    methods
        Of "central", "forward", "backward", "complex-step", "five-point". The first one
        is read.
    params, grad, jac, backward, vjp, loss, wrt, names, rtol, atol, seed, progress
        As in `gradlab.check`.
    executor
        As in `gradlab.check`; complex steps are taken in this process.
    coverage
        "full", "sample", or "auto": everything while that takes a few seconds, else a
        sample of every input; from a report, the worst entries are always in it.
    budget
        Bound on evaluations (5000) or time ("30s"); an interrupted ladder has gaps,
        and says so.

    Returns
    -------
    Sweep
        Errors by input, method and step; best step, slopes, verdicts, readings.

    Raises
    ------
    InputError, InputTypeError
        If an argument cannot be used, or the report has no subject at hand.
    BudgetError
        If `budget` ends before the first step.

    Examples
    --------
    >>> sweep = gl.sweep(
    ...     lambda x: np.exp(x).sum(), np.ones(2), grad=lambda x: 2 * np.exp(x)
    ... )
    >>> print(sweep.reading["x"].split(":")[1].strip())
    the analytic side is wrong by a factor (analytic = 2.000 x numeric)
    """
    sides = Sides(params, grad, jac, backward, vjp, loss, wrt, names)
    chosen = _valid_methods(methods)
    ladder = None if steps is None else _valid_steps(steps)
    if coverage not in {"auto", "full", "sample"}:
        msg = (
            f'coverage of a sweep must be "auto", "full" or "sample", got {coverage!r}'
        )
        raise InputError(msg)
    if isinstance(fn, Report):
        job = _from_report(fn, inputs, sides, coverage)
    else:
        tolerance = Tolerance(rtol, atol)
        job = _Job(fn, inputs, sides, tolerance, coverage, valid_seed(seed), None)
    roots = job.sides.roots(job.fn, job.inputs)
    found: Sweep | None = None
    try:
        with (
            kept_through(lambda: found is not None),
            progress_bar(progress) as bar,
            crew_of(executor) as crew,
            StateGuard(*roots) as guard,
            Meter(parse_budget(budget), Bar(bar), crew=crew).watching() as meter,
        ):
            found = _sweep(job, ladder, chosen, meter, (roots, guard))
        told = crew.remarks if crew is not None else ()
        live = None if job.report is not None else _live(job, executor)
        return dataclasses.replace(found, remarks=(*found.remarks, *told), live=live)
    except BudgetExhausted as cause:
        msg = (
            f"the budget ended before the first step of the sweep ({cause}); allow "
            f'more, or sweep less with wrt= or coverage="sample"'
        )
        raise BudgetError(msg) from cause


# ------------------------------------------------------------------ arguments
def _valid_methods(methods: Sequence[str] | str) -> tuple[str, ...]:
    several = isinstance(methods, tuple | list | set | frozenset | dict)
    given = tuple(methods) if several else (methods,)
    names = tuple(str(name).replace("_", "-") for name in given)
    unknown = [name for name in given if str(name).replace("_", "-") not in ORDERS]
    if unknown or not names:
        known = ", ".join(map(repr, ORDERS))
        what = repr(unknown[0]) if unknown else "none"
        msg = f"methods of a sweep must be some of {known}, got {what}"
        raise InputError(msg)
    return tuple(dict.fromkeys(names))


def _valid_steps(steps: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    if isinstance(steps, int | np.integer) and steps > 1:
        msg = (
            f"steps= takes the steps themselves, not how many: "
            f"np.logspace(-12, 0, {steps}), or {steps:.1f} for that one step"
        )
        raise InputError(msg)
    try:
        ladder = np.unique(np.asarray(steps, dtype=np.float64).ravel())
    except (TypeError, ValueError):
        msg = f"steps must be positive numbers, got {steps!r}"
        raise InputTypeError(msg) from None
    if ladder.size == 0 or not (np.isfinite(ladder).all() and (ladder > 0).all()):
        bad = [h for h in np.atleast_1d(ladder) if not (math.isfinite(h) and h > 0)]
        what = f"{bad[0]:g}" if bad else "none at all"
        msg = (
            f"steps must be positive and finite (in the units of the inputs, such as "
            f"np.logspace(-12, 0, 37)), got {what}"
        )
        raise InputError(msg)
    return ladder


def _from_report(
    report: Report, inputs: tuple[Any, ...], sides: Sides, coverage: str
) -> _Job:
    if report.live is None:
        msg = (
            "this report has no subject at hand (it was loaded from a file): call "
            "gl.sweep(function, input, ...) instead"
        )
        raise InputError(msg)
    extra = [
        f.name
        for f in dataclasses.fields(Sides)
        if f.name != "wrt" and getattr(sides, f.name) != f.default
    ]
    if inputs or extra:
        what = extra[0] + "=" if extra else "inputs"
        msg = f"a report brings its own inputs and gradient along; leave out {what}"
        raise InputError(msg)
    arguments = report.live.arguments
    own: Sides = arguments["sides"]
    if sides.wrt is not None:
        own = dataclasses.replace(own, wrt=sides.wrt)
    plan: Plan = arguments["plan"]
    return _Job(
        arguments["fn"],
        tuple(arguments["inputs"]),
        own,
        plan.tolerance,
        coverage,
        plan.seed,
        report,
    )


def _live(job: _Job, executor: Executor | None) -> Live:
    plan = Plan(Auto(), job.tolerance, "full", job.seed)
    return Live(
        fn=job.fn, inputs=job.inputs, sides=job.sides, plan=plan, executor=executor
    )


# ------------------------------------------------------------------ the work
def _sweep(
    job: _Job,
    ladder: NDArray[np.float64] | None,
    methods: tuple[str, ...],
    meter: Meter,
    guarded: tuple[tuple[object, ...], StateGuard],
) -> Sweep:
    began = time.perf_counter()
    subject = build_subject(job.fn, job.inputs, job.sides, meter)
    roots, guard = guarded
    base, conditions = first_evaluation(subject, roots, meter, guard)
    each = _seconds_each(subject, meter, began)
    if meter.crew is not None:
        meter.crew.enlist(subject, meter)
    steps, remark = default_steps(subject) if ladder is None else (ladder, "")
    columns, remarks = steps_columns(
        subject,
        steps.size,
        methods,
        coverage=job.coverage,
        seconds_each=each,
        seed=job.seed,
        report=job.report,
    )
    remarks += _said(conditions)
    plan = Plan(Auto(), job.tolerance, "full", job.seed)
    cost = Auto.cost + ladder_cost(steps.size, methods)
    count = cost * sum(map(len, columns))
    meter.bar.begin(count, f"sweep, about {count * each:.2g} s")
    origin = Origin(subject, base)
    outcome = run_full(origin, plan, meter, columns)
    if ladder is None and subject.least_scales:  # known by now
        steps, remark = default_steps(subject)
    blocks = swept_blocks(origin, outcome, meter, job.seed)
    remarks += [remark] if remark else []
    remarks += outcome.remarks
    remarks += [f"{problem.where}: {problem.detail}" for problem in outcome.problems]
    numbers = steps.size * len(methods) * sum(block.analytic.size for block in blocks)
    climb = Climb(origin, meter, steps, keep=numbers <= _KEPT)
    stopped = outcome.stopped if outcome.interrupted else ""
    refused: dict[str, str] = {}
    try:
        refused |= {} if stopped else _climb_all(climb, methods, blocks)
    except (BudgetExhausted, KeyboardInterrupt) as stop:
        stopped = why_stopped(stop)
    remarks += [f"{method} is left out: {why}" for method, why in refused.items()]
    methods = tuple(method for method in methods if method not in refused)
    if stopped:
        pairs = itertools.product(methods, blocks)
        remarks.append(f"{stopped}: the curves have gaps")
        climb.stop((method, block.variable.name) for method, block in pairs)
    return Sweep(
        blocks=blocks,
        steps=steps,
        methods=methods,
        curves=climb.curves,
        matrices=climb.matrices,
        matrix_bars=climb.bars,
        evaluations=meter.evaluations,
        seconds=time.perf_counter() - began,
        remarks=tuple(remarks),
        report=job.report,
    )


def _climb_all(
    climb: Climb, methods: tuple[str, ...], blocks: tuple[Swept, ...]
) -> dict[str, str]:
    """Climb the ladder by each method; say why one cannot, if others can.

    A function that takes no complex numbers has its other curves all the same.
    """
    refused: dict[str, str] = {}
    for method in methods:
        try:
            for block in blocks:
                climb.climb(method, block)
        except ComplexStepError as cause:
            if len(methods) == 1:
                raise
            climb.forget(method)
            refused[method] = str(cause).rpartition("; use method=")[0] or str(cause)
    return refused


def _seconds_each(subject: Subject, meter: Meter, began: float) -> float:
    """Measure an evaluation; a slow first one may only have warmed up."""
    each = (time.perf_counter() - began) / max(meter.evaluations, 1)
    if each < _SLOW:
        return each
    began = time.perf_counter()
    base_row(subject, meter)
    return min(each, time.perf_counter() - began)


def _said(conditions: Conditions) -> list[str]:
    """Say what was done to make the function repeatable."""
    words = {
        "random numbers are frozen to one draw": conditions.random,
        "hidden state is rewound before every evaluation": conditions.state,
        "inputs that the function writes to are put back": conditions.mutated,
    }
    return [f"{done} ({', '.join(of)})" for done, of in words.items() if of]
