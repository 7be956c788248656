"""Jacobians by themselves, numeric and analytic, without a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gradlab.building import Sides, build_subject
from gradlab.differentiation.crews.opening import crew_of
from gradlab.differentiation.jacobian import Jacobian
from gradlab.differentiation.metering.budget import parse_budget
from gradlab.differentiation.metering.meter import BudgetExhausted, Meter
from gradlab.differentiation.method import ComplexStep, resolve_method
from gradlab.differentiation.origin import Origin
from gradlab.errors import BudgetError, InputError, SubjectError
from gradlab.keywords import spelt
from gradlab.localisation.conditions import first_evaluation
from gradlab.pipeline.sides.analytic_side import analytic_side
from gradlab.pipeline.sides.early_ends import early_ends
from gradlab.pipeline.sides.measuring import numeric_side
from gradlab.pipeline.sides.own_bars import own_bars
from gradlab.subject.numpy_values import as_complex
from gradlab.subject.state_guard import StateGuard
from gradlab.subject.subject import block_slices, is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from gradlab.differentiation.method import Method
    from gradlab.pipeline.sides.analytic_side import AnalyticSide
    from gradlab.subject.subject import Subject, Variable

__all__ = ["analytic_jacobian", "numeric_jacobian"]

Result = Jacobian | dict[Any, Jacobian]


@spelt
def numeric_jacobian(
    f: Callable[..., Any],
    *inputs: Any,
    method: str | Method = "adaptive",
    wrt: Sequence[str] | str | None = None,
    names: Sequence[str] | Mapping[str, str] | None = None,
    params: Any = None,
    budget: float | str | None = None,
    executor: Executor | None = None,
) -> Result:
    """Differentiate numerically, with an error bar for every entry.

    Parameters
    ----------
    f
        Function of the inputs; NumPy or torch. It returns an array, a number, or a
        container of them.
    *inputs
        As for `gradlab.check`.
    method
        Default "adaptive": finds its own steps, about 20 evaluations for each
        coordinate. "central" takes two, and four for the error bars of every 25 that
        are smooth; "forward" takes two. Where these contradict, one more is taken for
        each, and then some twenty. "complex-step" takes one and some twenty for all
        coordinates together. All take four more for each input, two if it is one
        number, to see whether f runs the same lines elsewhere; where it does not, as a
        solver that stops at a tolerance, some seventy tell how far its slopes may be
        from those of the solution.
    wrt, names, params, budget, executor
        As for `gradlab.check`.

    Returns
    -------
    Jacobian or dict
        For one input and one output the `Jacobian` itself, of shape output + input;
        for several inputs a dict by name; for several outputs keys are
        ``(output, input)``. With a complex input, entries are ``d/d Re + i d/d Im`` of
        a real output, as torch has it; a complex output counts as two real ones,
        ``out.real`` and ``out.imag``.

    Raises
    ------
    InputError, SubjectError
        As `gradlab.check`.
    BudgetError
        If `budget` ends first: half a Jacobian has no shape.

    References
    ----------
    Ridders, Adv. Eng. Software 4 (1982): extrapolation that tells its own error. Moré
    and Wild, SIAM J. Sci. Comput. 33 (2011): how noisy f is, from its differences.

    Examples
    --------
    >>> jacobian = gl.numeric_jacobian(np.sin, np.array([0.0, 1.0]))
    >>> jacobian.value.shape
    (2, 2)
    >>> bool(abs(jacobian.value[1, 1] - np.cos(1.0)) <= 10 * jacobian.error[1, 1])
    True
    """
    chosen = resolve_method(method)
    sides = Sides(params=params, wrt=wrt, names=names, need_analytic=False)
    roots = sides.roots(f, inputs)
    result: dict[Any, Jacobian] = {}
    try:
        with (
            crew_of(executor) as crew,
            StateGuard(*roots) as guard,
            Meter(parse_budget(budget), crew=crew).watching() as meter,
        ):
            subject = build_subject(f, inputs, sides, meter)
            base, _ = first_evaluation(subject, roots, meter, guard)
            origin = Origin(subject, base)
            if crew is not None:
                crew.enlist(subject, meter)
            spent = meter.evaluations
            for which, variable in enumerate(subject.inputs):
                every = np.arange(variable.coordinates)
                found = numeric_side(origin, which, every, chosen, meter)
                error = own_bars(origin, which, found, chosen, meter)
                if not isinstance(chosen, ComplexStep):
                    error = np.fmax(error, early_ends(origin, which, meter))
                parts = (found.value, error, found.step)
                count = meter.evaluations - spent
                spent = meter.evaluations
                _store(result, subject, variable, parts, (count, chosen.name))
    except BudgetExhausted as cause:
        msg = (
            f"the budget ended before the Jacobian was complete ({cause}); allow more, "
            f"choose fewer inputs with wrt=, or a cheaper method such as 'central'"
        )
        raise BudgetError(msg) from cause
    return _unwrapped(result)


@spelt
def analytic_jacobian(
    f: Callable[..., Any],
    *inputs: Any,
    mode: Literal["reverse", "forward"] = "reverse",
    params: Any = None,
    grad: Any = None,
    jac: Callable[..., Any] | None = None,
    backward: Callable[..., Any] | None = None,
    vjp: Callable[..., Any] | None = None,
    loss: Callable[..., Any] | None = None,
    wrt: Sequence[str] | str | None = None,
    names: Sequence[str] | Mapping[str, str] | None = None,
) -> Result:
    """Read out the Jacobian that autograd, or hand-written code, computes.

    Parameters
    ----------
    f, *inputs, params, grad, jac, backward, vjp, loss, wrt, names
        As for `gradlab.check`.
    mode
        "reverse" (default) or "forward": which mode of autograd to ask. Hand-written
        sides have no mode.

    Returns
    -------
    Jacobian or dict
        As `numeric_jacobian`; `error` is the round-off of one operation, a lower bound
        of what accumulates, and `step` is nan.

    Raises
    ------
    InputError, SubjectError
        As `gradlab.check`; also where the analytic side raises, or what it returns has
        not the shape of a derivative.

    Examples
    --------
    >>> x = np.array([1.0, 2.0])
    >>> gl.analytic_jacobian(lambda x: x**2, x, jac=lambda x: np.diag(2 * x)).value
    array([[2., 0.],
           [0., 4.]])
    """
    if mode not in ("reverse", "forward"):
        msg = f'mode must be "reverse" or "forward", got {mode!r}'
        raise InputError(msg)
    # as `numeric_jacobian`, which has no gradient to tell a parameter by
    sides = Sides(
        params, grad, jac, backward, vjp, loss, wrt, names, mode, numbers=False
    )
    roots = sides.roots(f, inputs)
    with StateGuard(*roots) as guard, Meter().watching() as meter:
        subject = build_subject(f, inputs, sides)
        first_evaluation(subject, roots, meter, guard)
        side = analytic_side(subject)
        _refuse_nothing(subject, side)
        name = sides.given()[0] if sides.given() else mode
        result: dict[Any, Jacobian] = {}
        for matrix, variable in zip(side.values, subject.inputs, strict=True):
            parts = (
                matrix,
                subject.epsilon * np.abs(matrix),
                np.full_like(matrix, np.nan),
            )
            _store(result, subject, variable, parts, (meter.evaluations, name))
    return _unwrapped(result)


def _refuse_nothing(subject: Subject, side: AnalyticSide) -> None:
    """Refuse what is no derivative; autograd's None for all is one, and zero."""
    fatal = {"raised", "wrong_shape"}
    fatal |= set() if is_torch_subject(subject) else {"none", "missing"}
    names = [variable.name for variable in subject.inputs]
    # what is no array of numbers, whatever its kind, has left nan throughout
    lost = {n for n, m in zip(names, side.values, strict=True) if np.isnan(m).all()}
    told = [p for p in side.problems if p.kind in fatal or p.where in lost]
    empty = all(problem.kind in {"none", "missing"} for problem in told)
    if told and (not empty or len(told) == len(subject.inputs)):
        msg = f"the analytic side says nothing: {told[0].detail.rstrip('.')}"
        raise SubjectError(f"{msg}; gl.check tells more of it")


def _store(
    result: dict[Any, Jacobian],
    subject: Subject,
    variable: Variable,
    parts: tuple[NDArray[np.float64], ...],
    told: tuple[int, str],
) -> None:
    """Cut a block at the outputs and give every piece the shape output + input."""
    value, error, step = parts
    for output, rows in zip(
        subject.outputs, block_slices(subject.outputs), strict=True
    ):
        result[output.name, variable.name] = Jacobian(
            _shaped(value[rows], output, variable),
            _shaped(error[rows], output, variable, np.hypot),
            _shaped(step[rows], output, variable, np.maximum),
            *told,
        )


def _shaped(
    matrix: NDArray[Any],
    output: Variable,
    variable: Variable,
    join: np.ufunc | None = None,
) -> NDArray[Any]:
    if variable.is_complex:
        pairs = matrix[:, 0::2], matrix[:, 1::2]
        matrix = as_complex(matrix) if join is None else join(*pairs)
    if variable.support is not None:  # only stored entries exist: the rest is zero
        full = np.zeros((len(matrix), int(np.prod(variable.shape))), matrix.dtype)
        full[:, variable.support] = matrix
        matrix = full
    return matrix.reshape((*output.shape, *variable.shape))


def _unwrapped(result: dict[Any, Jacobian]) -> Result:
    if len(result) == 1:
        return next(iter(result.values()))
    if len({output for output, _ in result}) == 1:
        return {variable: jacobian for (_, variable), jacobian in result.items()}
    return result
