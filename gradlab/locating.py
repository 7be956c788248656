"""Wrong entries in few evaluations: the public call."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.building import Sides, build_subject, valid_seed
from gradlab.comparison.tolerance import Tolerance
from gradlab.differentiation.metering.bar import Bar
from gradlab.differentiation.metering.budget import parse_budget
from gradlab.differentiation.metering.meter import BudgetExhausted, Meter
from gradlab.differentiation.method import Auto
from gradlab.differentiation.origin import Origin
from gradlab.errors import BudgetError, InputError
from gradlab.keywords import kept_through, spelt
from gradlab.localisation.conditions import Conditions, first_evaluation
from gradlab.localisation.entries import locate_entries
from gradlab.pipeline.beyond_search import with_kinks, with_mixed
from gradlab.pipeline.confirming import upheld
from gradlab.pipeline.coverage import by_directions, mixed_inputs
from gradlab.pipeline.looks.steadiness import scatter_of
from gradlab.pipeline.plan import Plan
from gradlab.pipeline.unrounded import without_stairs
from gradlab.presentation.widgets.progress import progress_bar
from gradlab.subject.state_guard import StateGuard
from gradlab.subject.subject import input_columns, is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gradlab.localisation.located import Located, WrongEntry
    from gradlab.subject.subject import Variable
    from gradlab.subject.tensors.gradients.deliberate import Purpose

__all__ = ["locate"]

_LONG = 2.0  # times the evaluations of a search where all agrees


@spelt
def locate(
    fn: Callable[..., Any],
    *inputs: Any,
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
    budget: float | str | None = None,
    seed: int = 0,
    limit: int = 64,
    progress: Any = None,
) -> Located:
    """Find the wrong entries of a gradient, by group testing with random directions.

    The cost grows with the logarithm of the number of entries: some 20 evaluations
    where all is right, some 90 to find one wrong entry among a million, some 80 more
    for each further one. An entry is named only after it was differentiated on its own
    and where a full check would accuse it as well: to hear of one that is off by less
    than a percent, whether a solver inside f stops early, takes some 150 more. A short
    vector of numbers of very different sizes, such as 3e-12 beside 4e6, is compared
    entry by entry, as `gradlab.check` does: two evaluations each, and more in doubt.

    Parameters
    ----------
    fn, *inputs, params, grad, jac, backward, vjp, loss, wrt, names
        What is checked, as in `gradlab.check`.
    rtol, atol
        What is forgiven to an entry, as in `gradlab.check`.
    budget
        Bound on the evaluations (5000) or the time ("30s"); what is still suspected
        when it ends is in `Located.suspects`.
    seed
        Of the random directions; the user's random state is never touched.
    limit
        Most coordinates to name, default 64: more than one reads, and each is measured
        by itself. Where more are wrong, `Located.wrong_share` says about how many.
    progress
        True for a progress bar, or an object with tqdm's ``update``. None shows one in
        a notebook or a terminal, where it takes longer than a second; False never does.

    Returns
    -------
    Located
        With ``.table``, ``.evaluations``, ``.budget_left``; nothing is raised because
        a gradient is wrong.

    Raises
    ------
    InputError, InputTypeError
        If an argument cannot be used; before any work, and nothing is changed.
    SubjectError
        If `fn` fails at the given inputs.
    BudgetError
        If `budget` ends before anything could be searched.

    References
    ----------
    Dorfman, Ann. Math. Statist. 14 (1943): tests of groups. Gilbert and Indyk, Proc.
    IEEE 98 (2010): ratios of measurements spell out where one wrong entry is.

    Examples
    --------
    >>> x = np.linspace(-1, 1, 5000).reshape(50, 100)
    >>> def grad(x):
    ...     g = np.cos(x)
    ...     g[17, 42] *= 1.001
    ...     return g
    >>> found = gl.locate(lambda x: np.sin(x).sum(), x, grad=grad)
    >>> found.table["index"].tolist()
    [(17, 42)]
    """
    if isinstance(limit, bool) or not isinstance(limit, int | np.integer) or limit < 1:
        raise InputError(f"limit must be an integer >= 1, got {limit!r}")
    number = valid_seed(seed)
    tolerance = Tolerance(rtol, atol)
    plan = Plan(Auto(), tolerance, seed=number)
    limits = parse_budget(budget)
    sides = Sides(params, grad, jac, backward, vjp, loss, wrt, names)
    roots = sides.roots(fn, inputs)
    done: Located | None = None
    with (
        kept_through(lambda: done is not None),
        progress_bar(progress) as bar,
        StateGuard(*roots) as guard,
        Meter(limits, Bar(bar)).watching() as meter,
    ):
        subject = build_subject(fn, inputs, sides, meter)
        try:
            base, conditions = first_evaluation(subject, roots, meter, guard)
        except BudgetExhausted as cause:
            msg = f"the budget ended before anything was searched ({cause}); allow more"
            raise BudgetError(msg) from cause
        meter.bar.begin(by_directions(input_columns(subject.inputs)), "search")
        own = Origin(subject, base)
        found = _searched(own, plan, meter, int(limit))
        whole = found.ok and not found.stopped  # else nobody waits for a second one
        twin = without_stairs(subject, number) if whole else None
        if twin is not None:
            again = _searched(Origin(twin, twin.row()), plan, meter, int(limit))
            found = found if again.ok and not again.stopped else again
        if not found.ok and is_torch_subject(subject):
            found = _but_on_purpose(found, subject)
        told = (*_told(conditions), *_unsteady(own, found, meter), *found.remarks)
        done = dataclasses.replace(found, remarks=told)
    return done


def _searched(own: Origin, plan: Plan, meter: Meter, limit: int) -> Located:
    """Search one subject, and look at what a search leaves out."""
    mixed = mixed_inputs(own.subject)
    kinks: dict[int, list[int]] = {}
    found = locate_entries(
        own.subject,
        tolerance=plan.tolerance,
        meter=meter,
        seed=plan.seed,
        limit=limit,
        base=own.base,
        hear=lambda named, measured: upheld(named, measured, own, plan, meter),
        aside=mixed,
        kinks=kinks,
    )
    if mixed:
        found = with_mixed(found, own, mixed, plan, meter, limit)
    if kinks and found.ok and not found.stopped:
        found = with_kinks(found, own, kinks, plan, meter)
    return found


def _unsteady(own: Origin, found: Located, meter: Meter) -> Iterator[str]:
    """Say that f does not repeat itself, where the search was long or left some open.

    Where nothing is wrong a search is short, if noise does not get in its way.
    """
    usual = by_directions(input_columns(own.subject.inputs))
    short = meter.evaluations <= _LONG * usual and not found.suspects
    if found.entries or found.stopped or short:
        return
    with contextlib.suppress(BudgetExhausted):
        apart = scatter_of(own, meter)
        if apart.any():
            yield (
                f"f differs by up to {apart.max():.2g} between evaluations at the same "
                f"point: smaller movements of it tell nothing"
            )


def _but_on_purpose(found: Located, subject: Any) -> Located:
    """Take out what is not the derivative on purpose, and say so, as `check` does."""
    from gradlab.subject.tensors.gradients.deliberate import purposes

    for purpose in purposes(subject):
        variable = subject.inputs[purpose.which]
        left = [e for e in found.entries if not _concerned(e, variable, purpose)]
        name = variable.name
        counted = name in found.wrong_share or name in found.factors
        if len(left) == len(found.entries) and not counted:
            continue
        remark = f"not compared in {name}: {purpose.words}"
        found = dataclasses.replace(
            found, entries=tuple(left), remarks=(*found.remarks, remark)
        )
        if not any(entry.input == name for entry in left):
            found = _without_counts(found, name)
    return found


def _concerned(entry: WrongEntry, variable: Variable, purpose: Purpose) -> bool:
    """Whether a wrong entry is one that is no derivative on purpose."""
    if entry.input != variable.name:
        return False
    flat = int(np.ravel_multi_index(entry.index, variable.shape)) if entry.index else 0
    part = 2 if variable.is_complex else 1  # a real and an imaginary coordinate
    return bool((purpose.coordinates(variable) // part == flat).any())


def _without_counts(found: Located, name: str) -> Located:
    """Leave out what a search says about all entries of one input."""

    def others(by_name: Mapping[str, float]) -> dict[str, float]:
        return {key: value for key, value in by_name.items() if key != name}

    return dataclasses.replace(
        found,
        suspects=tuple(one for one in found.suspects if one.input != name),
        crowded=tuple(one for one in found.crowded if one.input != name),
        wrong_share=others(found.wrong_share),
        factors=others(found.factors),
    )


def _told(seen: Conditions) -> Iterator[str]:
    """Say what the function does besides returning a value."""
    for of, words in (
        (seen.mutated, "the function overwrites {}; it was put back every time"),
        (seen.random, "the function draws random numbers ({}); the same every time"),
        (seen.state, "the function changes {}; it was put back every time"),
        (seen.dependent, "inputs depend on each other ({}); each was moved alone"),
    ):
        if of:
            yield words.format(", ".join(of))
