"""What a live view asks of the function under test: the calls a user would make.

Only a fresh report can: it has its subject at hand (`Report.live`), one that was loaded
from a file has not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.building import build_subject
from gradlab.comparison.relative_errors import relative_error
from gradlab.differentiation.finite_difference import central
from gradlab.differentiation.metering.meter import Meter
from gradlab.differentiation.method import Backward, Central, ComplexStep, Forward
from gradlab.differentiation.origin import Origin
from gradlab.errors import InputError
from gradlab.localisation.conditions import first_evaluation
from gradlab.subject.state_guard import StateGuard
from gradlab.subject.subject import block_slices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from gradlab.comparison.comparison import Comparison
    from gradlab.report import Report

__all__ = ["arguments_of", "check_again", "sweep_entry"]

_SIDES = ("params", "grad", "jac", "backward", "vjp", "loss", "names")
# Steps of one entry's own sweep, as multiples of the step of the check.
_LADDER = 10.0 ** np.arange(-7, 5.01, 0.25)


def arguments_of(report: Report) -> Mapping[str, Any]:
    """Return what `gradlab.check` was called with.

    Raises
    ------
    InputError
        If the report was loaded from a file.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> len(arguments_of(report)["inputs"])
    1
    """
    if report.live is None:
        msg = "this report was loaded from a file: its function is not at hand"
        raise InputError(msg)
    return report.live.arguments


def check_again(
    report: Report,
    name: str,
    method: str = "as checked",
    step: float | None = None,
    *,
    coverage: str = "full",
) -> Report:
    """Run the check that a user would run for one input only.

    Parameters
    ----------
    report
        The earlier result.
    name
        Input to check.
    method
        Any name that `gradlab.check` takes, or "as checked".
    step
        Step size for the methods that take one.
    coverage
        As in `gradlab.check`.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: 2 * x)
    >>> check_again(report, "x", "complex-step").ok
    True
    """
    # the front door stands above this module, so it is found by its public name
    front_door = importlib.import_module("gradlab").check
    given = arguments_of(report)
    plan, sides = given["plan"], given["sides"]
    chosen: Any = plan.method_of(name) if method == "as checked" else method
    if step is not None:
        kinds = {
            "central": Central,
            "forward": Forward,
            "backward": Backward,
            "complex-step": ComplexStep,
        }
        if method not in kinds:
            msg = f"{method!r} takes no step of its own; {', '.join(kinds)} do"
            raise InputError(msg)
        chosen = kinds[method](step=float(step))
    fresh: Report = front_door(
        given["fn"],
        *given["inputs"],
        **{field: getattr(sides, field) for field in _SIDES},
        wrt=[name],
        method=chosen,
        rtol=plan.tolerance.of(name).rtol,
        atol=plan.tolerance.of(name).atol,
        coverage=coverage,
        seed=report.seed,
        diagnose=False,
        progress=False,  # a bar of this thread would land in another cell
    )
    return fresh


def sweep_entry(
    report: Report, comparison: Comparison, row: int, column: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Relative error of one entry against the step of a central difference.

    Parameters
    ----------
    report, comparison
        The result, with its subject at hand, and the block.
    row, column
        Entry of the block.

    Returns
    -------
    steps, errors
        In the units of the input; symmetric relative errors.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**3).sum(), np.ones(3), grad=lambda x: 3 * x**2)
    >>> steps, errors = sweep_entry(report, report["x"], 0, 1)
    >>> bool(errors.min() < 1e-8)
    True
    """
    given = arguments_of(report)
    entry = comparison.entry(column)
    if entry is None or comparison.input.is_complex:
        msg = (
            f"only a column that is one entry of a real input can be swept by itself, "
            f"got column {column} of {comparison.input.name}; sweep the whole input"
        )
        raise InputError(msg)
    step = float(comparison.step[row, column])
    if not 0 < step < np.inf:
        step = 1e-6
    steps = step * _LADDER
    sides = given["sides"]
    roots = sides.roots(given["fn"], given["inputs"])
    with StateGuard(*roots) as guard, Meter().watching() as meter:
        subject = build_subject(given["fn"], given["inputs"], sides)
        base, _ = first_evaluation(subject, roots, meter, guard)
        which = [v.name for v in subject.inputs].index(comparison.input.name)
        output = [v.name for v in subject.outputs].index(comparison.output.name)
        positions = np.full(steps.shape, entry, np.intp)
        found = central(Origin(subject, base), which, positions, steps, meter)
    line = block_slices(subject.outputs)[output].start + row
    analytic = np.full(steps.shape, comparison.analytic[row, column])
    return steps, relative_error(analytic, found.value[line])
