"""The front door: one call from a function to a verdict."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from gradlab.building import Sides, build_subject, valid_seed
from gradlab.comparison.tolerance import read_tolerance
from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind
from gradlab.differentiation.crews.opening import crew_of
from gradlab.differentiation.metering.bar import Bar
from gradlab.differentiation.metering.budget import parse_budget, parse_memory
from gradlab.differentiation.metering.meter import BudgetExhausted, Meter
from gradlab.differentiation.method import resolve_methods
from gradlab.errors import BudgetError, InputError
from gradlab.keywords import spelt
from gradlab.labels import few_of
from gradlab.pipeline.cut_short import accusing_nobody
from gradlab.pipeline.deepening import deepened
from gradlab.pipeline.examining import examine, examine_from, start
from gradlab.pipeline.layers import Layers
from gradlab.pipeline.plan import Call, Plan
from gradlab.pipeline.unrounded import unrounded, unrounded_first
from gradlab.presentation.widgets.progress import progress_bar
from gradlab.report import Live, Report
from gradlab.subject.choosing import beside_params
from gradlab.subject.state_guard import StateGuard
from gradlab.subject.tensors.calling.captured_inputs import followed_unseen
from gradlab.subject.tensors.values import looks_like_module

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

    from gradlab.differentiation.method import Method
    from gradlab.subject.subject import Subject

__all__ = ["check"]

_COVERAGES = ("auto", "full", "sample", "probe")
_NAMED = 4  # inputs that a remark lists by name


@spelt
def check(
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
    method: str | Method | Mapping[str, str | Method] = "auto",
    rtol: float | Mapping[str, float] | None = None,
    atol: float | Mapping[str, float] | None = None,
    order: int = 1,
    coverage: str = "auto",
    budget: float | str | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    progress: Any = None,
    diagnose: bool = True,
    memory: float | str = "1GiB",
) -> Report:
    """Check a gradient: is it right, where is it wrong, and why.

    Parameters
    ----------
    fn
        The function, forward pass or ``nn.Module`` to check.
    *inputs
        Its positional arguments: arrays or tensors, nested in dicts, tuples and lists
        as the function takes them. Integers and other objects pass through; so does a
        plain float beside arrays, unless a gradient of it comes back or `wrt` names it.
    params
        Parameters that `fn` reads where they are (``net.params``, a module, or its
        ``parameters()``): perturbed in place, and restored whatever happens.
    grad
        Gradient of a scalar function: a callable of the same inputs, or the gradients
        themselves (a mapping by name, or one array), which are judged as they are.
    jac
        Callable that returns the Jacobian, out x in (2-D or out.shape + in.shape). Of
        several outputs one each, or the rows of all of them in one matrix; one without
        a derivative (an index, a mask) may be left out, or has zeros or None.
    backward
        For ``out, cache = fn(*inputs)``: ``backward(dout, cache)`` returns the
        gradients of the inputs in order. For ``h, c, cache = fn(*inputs)`` it may be
        ``backward(dh, dc, cache)`` as well.
    vjp
        ``vjp(cotangents, *inputs)`` returns the gradients, for any framework. The
        cotangents stand where the outputs stand: in a dict for a dict, with None for
        what has no derivative. A vjp that takes those alone that have one is read so.
    loss
        Applied to the output of `fn` before anything else; the criterion of a module.
    wrt
        Names of the inputs to check; default all differentiable ones. With `params`
        these are the parameters: the positional inputs are compared in a call without
        it, and a remark names them.
    names
        Names for the inputs instead of those found: a sequence, or old to new.
    method
        "auto" (central differences, adaptive where they raise a doubt), "central",
        "forward", "backward", "complex-step", "adaptive", or a settings object such as
        ``gl.Central(step=1e-6)``. By input: ``{"x": gl.Central(step=1e-3)}``, where
        names may be patterns ("layers.*") and inputs not named are "auto".
    rtol, atol
        Tolerance, see `gradlab.comparison.tolerance.Tolerance`; the defaults depend on
        the precision of the subject and on the scale of each row. By input:
        ``rtol={"W1": 1e-4}``; inputs not named keep the defaults.
    order
        2 checks the backward of the backward as well (torch).
    coverage
        "full" looks at every entry, "sample" at some of each input, "probe" along
        random directions; "auto" is full while that is cheap. The report says which.
    budget
        Bound on the evaluations (5000) or the time ("30s"); what was not looked at is
        said.
    seed
        Of every random choice; the user's random state is never touched.
    executor
        Any `concurrent.futures.Executor` (a pool of processes, Dask's), whose workers
        evaluate the function: worth it where one evaluation takes a millisecond or
        more. It needs cloudpickle (``pip install gradlab[distributed]``), and gives the
        same Jacobian to the bit. Processes should be spawned, not forked:
        ``ProcessPoolExecutor(mp_context=get_context("spawn"))``; see
        ``tutorials/cluster.md``.
    progress
        True for a progress bar, or an object with tqdm's ``update``. None shows one in
        a notebook or a terminal, where it takes longer than a second.
    diagnose
        Whether to look for the cause of a disagreement.
    memory
        Bound on the memory that the matrices of the check take beside your own:
        "512MiB", or bytes; default 1 GiB, which most machines have to spare. A Jacobian
        that does not fit is streamed: every entry is judged, and counts, the worst
        columns and a picture in tiles are kept.

    Returns
    -------
    Report
        Verdict, findings, every number. Nothing is raised because a gradient is wrong;
        see `Report.raise_if_failed`.

    Raises
    ------
    InputError, InputTypeError
        If an argument cannot be used; before any work, and nothing is changed.
    SubjectError
        If `fn` fails at the given inputs.
    BudgetError
        If `budget` ends before anything could be compared.

    Notes
    -----
    Whatever happens, what the function changes is put back: arrays, tensors, random
    state, attributes, containers; what it made anew (an attribute first set) is taken
    away. Its own counters and logs alone keep what was added, unless its values depend
    on them: integers that grew, and lists, sets and deques that only gained items.

    Examples
    --------
    >>> def loss_and_grads(params):
    ...     w = params["w"]
    ...     return float((w**2).sum()), {"w": 2 * w}
    >>> report = gl.check(loss_and_grads, {"w": np.arange(1.0, 4.0)})
    >>> report.ok, report.verdict.name
    (True, 'AGREES')
    """
    plan = _plan(method, rtol, atol, coverage, seed, memory)
    if order not in (1, 2):
        msg = f"order must be 1 or 2, got {order!r}"
        raise InputError(msg)
    sides = Sides(params, grad, jac, backward, vjp, loss, wrt, names)
    roots = sides.roots(fn, inputs)
    done = None
    try:
        with (
            progress_bar(progress) as bar,
            crew_of(executor) as crew,
            StateGuard(*roots) as guard,
            Meter(
                parse_budget(budget), Bar(bar), crew=crew, memory=plan.memory
            ).watching() as meter,
        ):
            subject = build_subject(fn, inputs, sides, meter)
            checked = [variable.name for variable in subject.inputs]
            plan.refuse_unknown(checked)
            audits = diagnose and looks_like_module(fn)
            layers = None
            if audits:
                rewind = guard.random_freeze().restore
                layers = Layers(fn, inputs, loss, meter, tuple(checked), rewind)
            call = Call(
                plan, meter, roots, guard=guard, explain=diagnose, layers=layers
            )
            anew = functools.partial(build_subject, fn, inputs, sides)
            subject, report = _examined(subject, call, anew)
            report = deepened(report, subject, call, order=order)
            if plan.coverage == "auto" and report.coverage == "sample":
                report = dataclasses.replace(report, partial=True)  # for want of budget
            if any(f.kind == BugKind.STATEFUL and not f.where for f in report.findings):
                guard.keep_tallies = False  # the value depends on them: rewind them too
            done = report, guard, crew, meter
    except KeyboardInterrupt:  # held back while a guard put things back: nothing lacks
        if done is None:
            raise
    except BudgetExhausted as cause:
        raise BudgetError(_spent(cause)) from cause
    report, guard, crew, meter = done
    told = (*guard.remarks, *(crew.remarks if crew is not None else ()))
    told = (*report.remarks, *told, *_taken_for_outputs(report))
    told = (*_not_compared(fn, inputs, sides, report), *told)
    report = dataclasses.replace(report, remarks=told)
    live = Live(fn=fn, inputs=inputs, sides=sides, plan=plan, executor=executor)
    return dataclasses.replace(report, seconds=meter.seconds, live=live)


def _not_compared(
    fn: Callable[..., Any], inputs: tuple[Any, ...], sides: Sides, report: Report
) -> tuple[str, ...]:
    """Say which inputs are not compared because parameters are."""
    if sides.params is None or sides.wrt is not None:
        return ()
    known = {comparison.input.name for comparison in report.comparisons}
    names = [n for n in beside_params(fn, inputs, sides.params) if n not in known]
    if not names:
        return ()
    told = f"not compared: {few_of(names, _NAMED)}, beside params="
    return (f"{told} (a call without params= compares inputs)",)


def _taken_for_outputs(report: Report) -> tuple[str, ...]:
    """Say where gradients behind the loss of a torch function may be what was meant.

    New parameters behind a loss look the same, and are outputs.
    """
    inputs = {c.input.name: c.input.shape for c in report.comparisons}
    outputs = {c.output.name: c.output.shape for c in report.comparisons}
    loss = outputs.pop("out.0", ())
    behind = {name.removeprefix("out.1."): shape for name, shape in outputs.items()}
    alike = [behind[name] for name in sorted(behind)] == list(inputs.values())
    if loss != () or not (behind == inputs or alike):
        return ()
    if not all(name.startswith("out.1.") for name in outputs):
        return ()
    names = ", ".join(inputs)
    said = (
        f"what the function returns behind its loss has the shapes of {names}, and was "
        f"differentiated as its other outputs are: if these are gradients, nobody has "
        f"compared them; pass them as grad="
    )
    return (said,)


def _examined(
    subject: Subject, call: Call, anew: Callable[[], Subject]
) -> tuple[Subject, Report]:
    """Examine a subject, or the same built anew where f reads its inputs elsewhere."""
    begun = start(subject, call)
    first = unrounded_first(subject, call)
    if first is not None and (first.partial or _is_settled(first)):
        return subject, first
    report = examine_from(*begun, call)
    if _stood_still(report):
        # f may read the input elsewhere than where it was displaced
        twin = anew()
        if followed_unseen(twin):
            subject, first = twin, None
            report = _once_more(report, lambda: examine(twin, call))
    return subject, unrounded(report, subject, call, first)


def _is_settled(report: Report) -> bool:
    """Whether a comparison came to an answer that needs no second look."""
    return report.verdict != Verdict.UNDECIDED and not _stood_still(report)


def _stood_still(report: Report) -> bool:
    """Whether f did not move at all along an input that has a gradient."""
    return any(
        c.verdict == Verdict.DISAGREES and not c.numeric.any() and c.tally is None
        for c in report.comparisons
    )


def _once_more(report: Report, again: Callable[[], Report]) -> Report:
    """Check again with f read elsewhere; who has no time for that accuses nobody."""
    try:
        return again()
    except (BudgetExhausted, KeyboardInterrupt) as stop:
        missing = "whether f reads its inputs elsewhere was not seen"
        return accusing_nobody(report, stop, missing)


def _spent(cause: BudgetExhausted) -> str:
    return (
        f"the budget ended before anything could be compared ({cause}); allow more, "
        'or look along a few random directions with coverage="probe"'
    )


def _plan(
    method: Any, rtol: Any, atol: Any, coverage: str, seed: int, memory: float | str
) -> Plan:
    chosen, methods = resolve_methods(method)
    return Plan(
        chosen,
        read_tolerance(rtol, atol),
        _valid(coverage),
        valid_seed(seed),
        methods,
        parse_memory(memory),
    )


def _valid(coverage: str) -> str:
    if coverage not in _COVERAGES:
        msg = f"coverage must be one of {', '.join(_COVERAGES)}, got {coverage!r}"
        raise InputError(msg)
    return coverage
