"""The Taylor test of pyadjoint and dolfin-adjoint, with a reading one can trust."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.building import Sides, build_subject, valid_seed
from gradlab.comparison.tolerance import CARE, SAFETY, Tolerance
from gradlab.differentiation.lines.line_slope import Slope, line_slope, start_exponent
from gradlab.differentiation.metering.budget import parse_budget
from gradlab.differentiation.metering.meter import BudgetExhausted, Meter
from gradlab.errors import BudgetError, InputError
from gradlab.keywords import spelt
from gradlab.localisation.conditions import first_evaluation
from gradlab.localisation.searching.set_up import set_up
from gradlab.properties.curvature import hessian_product, refuse_products
from gradlab.properties.hearing import heard
from gradlab.properties.lines import Line, direction_of, norm_of
from gradlab.properties.remainders import Derivative, TaylorTest
from gradlab.subject.state_guard import StateGuard
from gradlab.subject.subject import DOUBLE, is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray


__all__ = ["taylor_test"]

_FIRST, _COUNT = 0.01, 6  # pyadjoint's first step; its four would show less
_KINK = 1e-3  # one-sided slopes further apart than this, relative, whatever the step
_EFFECT = 0.1  # of an input's part of the derivative: an error that must show
_CANCELLED = 0.01  # of terms that cancel: less than two roundings of bfloat16
_CLOSER = 18  # exponents: where what oscillates faster than the first steps is smooth
_STRAIGHT = 1e-3  # of the slope, in units of the direction: less bend is none


@spelt
def taylor_test(
    fn: Callable[..., Any],
    *inputs: Any,
    direction: Any = None,
    order: int | None = None,
    hvp: Callable[..., Any] | None = None,
    hess: Callable[..., Any] | None = None,
    steps: Sequence[float] | NDArray[np.float64] | None = None,
    params: Any = None,
    grad: Callable[..., Any] | Mapping[str, Any] | Any = None,
    jac: Callable[..., Any] | None = None,
    backward: Callable[..., Any] | None = None,
    vjp: Callable[..., Any] | None = None,
    loss: Callable[..., Any] | None = None,
    wrt: Sequence[str] | str | None = None,
    names: Sequence[str] | Mapping[str, str] | None = None,
    rtol: float | None = None,
    budget: float | str | None = None,
    seed: int = 0,
) -> TaylorTest:
    """Watch Taylor remainders shrink along one direction.

    With a right gradient, halving the step divides the remainder of order 1 by four
    (rate 2); with a right Hessian that of order 2 by eight (rate 3). Some thirty
    evaluations, whatever the size of the inputs. One direction is one number: an error
    that happens to be orthogonal to it does not show; `gradlab.check` looks everywhere.

    Parameters
    ----------
    fn, *inputs, params, grad, jac, backward, vjp, loss, wrt, names
        What is tested, as in `gradlab.check`. Several outputs are joined with fixed
        random weights.
    direction
        Array like the input, or a sequence or dict of them for several inputs. Default
        random signs times the size of each input.
    order
        1 tests the gradient, 2 the Hessian as well. Default 2 if `hvp` or `hess` is
        given, else 1. torch functions bring their own second derivatives.
    hvp, hess
        ``hvp(*inputs, *directions)``: Hessian times directions; or ``hess(x)``: the
        matrix.
    steps
        Multiples of the direction. Default 0.01 and five halvings of it.
    rtol
        Relative error along the direction that is forgiven, as in `gradlab.check`.
    budget
        Bound on the evaluations (5000) or the time ("30s").
    seed
        Of the direction and the weights; the user's random state is never touched.

    Returns
    -------
    TaylorTest
        ``rates`` by order (pyadjoint: ``min(test.rates[1]) > 1.9``), ``reading``,
        ``verdict``, ``table``, ``plot()``, ``to_dict()``. Nothing is raised because a
        gradient is wrong.

    Raises
    ------
    InputError, InputTypeError
        If an argument cannot be used; before any work, and nothing is changed.
    SubjectError
        If `fn` fails at the given inputs.
    BudgetError
        If `budget` ends first.

    References
    ----------
    Farrell, Ham, Funke and Rognes, SIAM J. Sci. Comput. 35 (2013), section 5.

    Examples
    --------
    >>> x = np.linspace(0.5, 1.5, 4)
    >>> test = gl.taylor_test(
    ...     lambda x: (x**4).sum(),
    ...     x,
    ...     grad=lambda x: 4 * x**3,
    ...     hvp=lambda x, v: 12 * x**2 * v,
    ... )
    >>> [f"{test.rate[order]:.0f}" for order in (0, 1, 2)]
    ['1', '2', '3']
    """
    if order not in (None, 1, 2):
        raise InputError(f"order must be 1 or 2, got {order!r}")
    refuse_products(hvp, hess)
    if order is None:
        order = 1 if hvp is None and hess is None else 2
    number = valid_seed(seed)
    ladder = _valid_steps(steps)
    sides = Sides(params, grad, jac, backward, vjp, loss, wrt, names)
    tolerance = Tolerance(rtol)
    meter = Meter(parse_budget(budget))
    roots = sides.roots(fn, inputs, hvp, hess)
    try:
        with StateGuard(*roots) as guard, meter.watching():
            subject = build_subject(fn, inputs, sides)
            base, _ = first_evaluation(subject, roots, meter, guard)
            bench = set_up(
                subject, tolerance=tolerance, meter=meter, seed=number, base=base
            )
            product = None
            if order == 2:
                product = hessian_product(subject, bench.cotangent, hvp=hvp, hess=hess)
            line = Line(bench, direction_of(bench, direction, number))
            test = _tested(line, ladder, product)
            if not test.ok and is_torch_subject(subject):
                rest, excuses = _rest_of(line)
                if excuses:
                    line, test = rest, _tested(rest, ladder, product)
                    remarks = (*test.remarks, *excuses)
                    test = dataclasses.replace(test, remarks=remarks)
            return heard(test, line)
    except BudgetExhausted as cause:
        msg = f"the budget ended before the Taylor test was complete ({cause})"
        raise BudgetError(msg) from cause


def _valid_steps(steps: Any) -> NDArray[np.float64]:
    if steps is None:
        return np.array([_FIRST * 0.5**i for i in range(_COUNT)])
    try:
        ladder = np.unique(np.asarray(steps, dtype=np.float64).ravel())[::-1]
    except (TypeError, ValueError):
        ladder = np.zeros(0)
    if ladder.size < 2 or not (np.isfinite(ladder).all() and (ladder > 0).all()):
        msg = (
            f"steps must be two or more different positive numbers, multiples of the "
            f"direction, got {steps!r}"
        )
        raise InputError(msg)
    return ladder


def _rest_of(line: Line) -> tuple[Line, list[str]]:
    """Leave out what is not the derivative on purpose, and say so, as `check` does."""
    from gradlab.subject.tensors.gradients.deliberate import purposes

    subject: Any = line.bench.subject
    parts, told = [part.copy() for part in line.parts], []
    for purpose in purposes(subject):
        variable = subject.inputs[purpose.which]
        concerned = purpose.coordinates(variable)
        if parts[purpose.which][concerned].any():
            parts[purpose.which][concerned] = 0.0
            told.append(f"not compared in {variable.name}: {purpose.words}")
    return Line(line.bench, parts), told


def _tested(
    line: Line,
    ladder: NDArray[np.float64],
    product: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None,
) -> TaylorTest:
    noise, slope = line.noise(), line.slope
    second = None
    if product is not None:
        flat = np.concatenate(line.parts)
        second = float(np.dot(flat, product(flat)))
    values = np.array([line.at(float(h)) for h in ladder])
    with np.errstate(all="ignore"):
        moved = values - line.known[0.0]
        residuals = {0: np.abs(moved), 1: np.abs(moved - ladder * slope)}
        if second is not None:
            residuals[2] = np.abs(moved - ladder * slope - ladder**2 / 2 * second)
        # round-off of the analytic side grows with the step
        own = line.analytic_epsilon * line.spread * ladder
        if second is not None:  # and that of a Hessian with its square
            own += line.bench.subject.epsilon * abs(second) * ladder**2
    derivatives = {1: _first(line, slope, noise)}
    if second is not None:
        derivatives[2] = _second(line, second, noise)
    remarks = [f"{problem.where}: {problem.detail}" for problem in line.bench.problems]
    remarks += _unheard(line, derivatives[1])
    rows = len(line.bench.base)
    lost = int((~np.isfinite(line.bench.base)).sum())
    if lost:
        remarks.append(f"{lost} of {rows} outputs are not finite and left out")
    if rows > 1:
        remarks.append(f"{rows} outputs joined with random weights")
    if line.bench.numeric is not line.bench.subject:
        remarks.append("values in float64")
    return TaylorTest(
        steps=ladder,
        residuals=residuals,
        floors=2 * noise + own,
        derivatives=derivatives,
        evaluations=line.bench.meter.evaluations,
        remarks=tuple(remarks),
    )


def _unheard(line: Line, found: Derivative) -> list[str]:
    """Name inputs whose gradient this direction cannot judge beside the others."""
    bar = max(found.allowed, SAFETY * found.error)
    names = []
    for variable, gradient, part in zip(
        line.bench.numeric.inputs, line.bench.gradients, line.parts, strict=True
    ):
        with np.errstate(all="ignore"):
            effect = norm_of(gradient * part)
        if part.any() and not _EFFECT * effect > bar:
            names.append(variable.name)
    if not names or len(names) == len(line.parts):
        return []
    told = ", ".join(names)
    return [f"not judged, with too little effect along this direction: {told}"]


def _first(line: Line, slope: float, noise: float) -> Derivative:
    """Differentiate along the line, and look for a kink at its origin."""
    spread = line.spread
    relative = line.bench.tolerance.relative(line.analytic_epsilon)
    goal = 0.1 * relative * max(abs(slope), spread)
    epsilon = line.bench.numeric.epsilon

    def slope_from(exponent: int, noise: float = noise) -> Slope:
        return line_slope(
            line.at,
            noise=noise,
            exponent=exponent,
            deepest=int(-math.log2(epsilon)) - 6,
            enough=lambda _value, error: error <= goal,
        )

    moved = any(part.any() for part in line.parts)
    if not moved or not (line.bench.cotangent != 0).any():  # no output is finite
        return Derivative(slope, math.nan, math.inf, 0.0, abs(slope))
    if spread == 0 and _stands_still(line):
        return Derivative(slope, 0.0, 0.0, 0.0, 0.0)
    found, kink = slope_from(start_exponent(epsilon)), _kink(line, noise)
    bend = None if kink is None else _bend(line, noise, kink)
    if bend is not None:  # from afar both sides of it look alike
        found, kink = slope_from(bend), None
    apart = abs(slope - found.value)
    if noise > line.rounding and apart > max(SAFETY * found.error, CARE * abs(slope)):
        close = slope_from(start_exponent(epsilon) + _CLOSER, line.rounding)
        if _bears_out(close, slope):  # what is heard from afar is f itself
            found, kink = close, None
        elif abs(slope - close.value) < CARE * abs(slope):  # so it may be
            found = dataclasses.replace(found, error=apart)
    size = max(abs(slope), abs(found.value), spread)
    # in bfloat16 a tenth is forgiven, for a sum, and no terms lose a tenth in rounding
    own = max(abs(slope), abs(found.value))
    clear = max(relative * own, min(relative, _CANCELLED) * spread)
    doubt = relative * size - clear
    return Derivative(
        slope, found.value, found.error, relative * size, size, kink, doubt
    )


def _bears_out(close: Slope, slope: float) -> bool:
    """Whether f is smooth close by, and has this very slope there; stairs have none."""
    told = SAFETY * close.error <= CARE * abs(close.value)
    return close.smooth and told and abs(slope - close.value) <= SAFETY * close.error


def _stands_still(line: Line) -> bool:
    """Whether f keeps its value to the last digit, over steps long and short.

    In short arithmetic that is no wonder, and says little.
    """
    if line.bench.numeric.epsilon > DOUBLE:
        return False
    here = line.known[0.0]
    return all(line.at(step) == here for step in (*line.known, -1.0, 1.0))


def _kink(line: Line, noise: float) -> tuple[float, float] | None:
    """One-sided slopes at the origin, if they stay apart as the step shrinks.

    Those of a smooth function come together as h does.
    """
    start = start_exponent(line.bench.numeric.epsilon)
    steps = [2.0**-p for p in (start, start + 3, start + 6)]
    here = line.known[0.0]
    with np.errstate(all="ignore"):
        right = np.array([(line.at(h) - here) / h for h in steps])
        left = np.array([(here - line.at(-h)) / h for h in steps])
        gaps = np.abs(right - left)
        size = max(float(np.abs(right).max()), float(np.abs(left).max()))
        bars = 4 * noise / np.array(steps)
    if not np.isfinite(gaps).all() or not (gaps > 5 * bars + _KINK * size).all():
        return None
    if not 0.5 * gaps[0] <= gaps[2] <= 2 * gaps[0]:
        return None  # it shrinks: curvature; it grows: a jump
    return float(left[2]), float(right[2])


def _bend(line: Line, noise: float, kink: tuple[float, float]) -> int | None:
    """Exponent of a step that is short beside a sharp bend, if there is no kink.

    A bend much sharper than the direction is long looks like a kink from afar; far
    closer to the point, one-sided slopes come together after all.
    """
    start, here = start_exponent(line.bench.numeric.epsilon), line.known[0.0]
    gap = abs(kink[1] - kink[0])
    with np.errstate(all="ignore"):
        for further in (12, 18, 24):
            step = 2.0 ** -(start + further)
            if not 8 * noise / step < gap / 4:
                return None  # nothing is to be seen so close
            above, below = line.at(step) - here, here - line.at(-step)
            if abs(above - below) / step < gap / 2:
                return start + further + 3
    return None


def _second(line: Line, second: float, noise: float) -> Derivative:
    """Second derivative along the line, extrapolated, at the best of some steps."""
    here = line.known[0.0]
    start = max(2, start_exponent(line.bench.numeric.epsilon) - 4)

    def quotient(p: int) -> float:
        step = 2.0**-p
        return (line.at(step) - 2 * here + line.at(-step)) / step**2

    best = (math.nan, math.inf)
    with np.errstate(all="ignore"):
        for p in range(start, start + 4):
            near, far, further = quotient(p + 1), quotient(p), quotient(p - 1)
            fine, coarse = (4 * near - far) / 3, (4 * far - further) / 3
            error = abs(fine - coarse) / 4 + 8 * noise * 4.0 ** (p + 1)
            if error < best[1]:
                best = (fine, error)
    size = max(abs(second), abs(best[0]))
    if not (line.bench.cotangent != 0).any():
        best = (math.nan, math.inf)
    # differences of second order know some eight digits
    floor = _STRAIGHT * line.spread
    return Derivative(second, best[0], best[1], 1e-6 * size, max(size, floor))
