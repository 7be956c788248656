"""Tolerances that library functions have by default: found, exchanged, put back.

Truth is what the functions of NumPy and SciPy say of themselves.
"""

from __future__ import annotations

import contextlib
import gc
import sys

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.integrate._ivp.rk import RungeKutta
from scipy.optimize import minimize

import gradlab as gl
from gradlab.building import Sides, build_subject
from gradlab.pipeline.sides.lines_run import way_of
from gradlab.subject.exchanging import Exchanged
from gradlab.subject.library_defaults import Default
from gradlab.subject.tolerances_off import called_defaults, small_numbers, with_smaller
from tests.specimens.linear_flow import T, flow, rate

DEFAULTS = RungeKutta.__init__.__defaults__


def integrated(t):
    """End of y' = -a y + b from 1 to the time 2, to a tolerance that nobody gives."""
    return solve_ivp(rate(t), (0, 2), [1.0]).y[0, -1]


def until_close(t):
    """Euler's steps, or an iteration, are close to one another for NumPy."""
    y = np.zeros(2)
    while True:
        y, before = np.cos(0.5 * y) + t, y
        if np.allclose(y, before):
            return y.sum()


def found_in(f):
    """Name what a call of f finds."""
    called = way_of(lambda: f(T))[1].called
    return {(d.name, d.value, d.library): d for d in called_defaults(called)}


def test_the_tolerances_of_an_integrator_are_found():
    """By the constructor of its solver, which nobody names."""
    found = found_in(integrated)

    assert {("rtol", 1e-3, "scipy"), ("atol", 1e-6, "scipy")} <= found.keys()
    assert found["rtol", 1e-3, "scipy"].functions == (RungeKutta.__init__,)
    assert small_numbers(build_subject(integrated, (T,), Sides(grad=flow))) == []


def test_decorated_functions_are_found_as_well():
    """``np.allclose`` is called through a dispatcher, in compiled code."""
    assert {("rtol", 1e-5, "numpy"), ("atol", 1e-8, "numpy")} <= found_in(
        until_close
    ).keys()


def test_steps_and_constants_by_default_are_no_tolerances():
    """Of BFGS ``eps`` is the step of differences, ``c1`` bounds a decrease."""
    found = found_in(lambda t: minimize(lambda w: (w - t) @ (w - t), T * 0).x[0])

    names = {name for name, *_ in found}
    assert "gtol" in names
    assert not names & {"eps", "c1", "c2"}


def test_only_the_default_that_is_asked_for_is_another():
    """Inside; and every one is the very same object afterwards."""
    subject = build_subject(integrated, (T,), Sides(grad=flow))
    rtol = found_in(integrated)["rtol", 1e-3, "scipy"]
    before = subject.row()

    with contextlib.suppress(ZeroDivisionError), with_smaller(subject, [rtol], 0.1):
        inside = RungeKutta.__init__.__defaults__
        assert subject.row() != before
        raise ZeroDivisionError

    assert inside == tuple(1e-4 if v == 1e-3 else v for v in DEFAULTS)
    assert RungeKutta.__init__.__defaults__ is DEFAULTS
    assert subject.row() == before


def test_defaults_by_keyword():
    """They are in a dict, and the others of it stay."""

    def solve(x, *, rtol=1e-3, other=1e-3):
        return x * rtol * other

    subject = build_subject(integrated, (T,), Sides(grad=flow))
    with with_smaller(subject, [Default("rtol", 1e-3, "a", (solve,))], 0.1):
        assert solve.__kwdefaults__ == {"rtol": 1e-4, "other": 1e-3}

    assert solve.__kwdefaults__ == {"rtol": 1e-3, "other": 1e-3}


def _interrupting(count):
    """Raise at some line of what puts numbers in, or back."""
    lines = iter(range(count + 1))
    codes = (Exchanged._write.__code__, Exchanged._put_back.__code__)

    def follow(frame, event, _):
        inside, caller = False, frame
        while caller is not None and not inside:
            inside, caller = caller.f_code in codes, caller.f_back
        if inside and event == "line" and next(lines, None) == count:
            sys.settrace(None)
            raise KeyboardInterrupt
        return follow

    return follow


@pytest.fixture
def uncollected():
    """Keep garbage: what watches the collector is no place for an interrupt."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_an_interrupt_on_any_line_leaves_the_library_as_it_was():
    """While its defaults are written, or put back."""
    subject = build_subject(integrated, (T,), Sides(grad=flow))
    rtol = found_in(integrated)["rtol", 1e-3, "scipy"]
    tracing, count, stopped = sys.gettrace(), 0, True

    while stopped:
        stopped = False
        sys.settrace(_interrupting(count))
        try:
            with with_smaller(subject, [rtol], 0.1):
                pass
        except KeyboardInterrupt:
            stopped = True
        finally:
            sys.settrace(tracing)
        assert RungeKutta.__init__.__defaults__ is DEFAULTS
        count += 11

    assert count > 50


# ------------------------------------------------------------------------- whole checks
METHODS = ["RK45", "RK23", "DOP853", "BDF", "LSODA"]


@pytest.mark.parametrize("method", METHODS)
def test_a_right_gradient_of_an_equation_is_not_accused(method):
    """The report names the default, and whose it is, where its error is to be seen.

    The eighth order is nearly exact: whether it is depends on the last digits here.
    """

    def f(t):
        rhs = lambda _, y: -t[0] * y + t[1]
        return solve_ivp(rhs, (0, 2), [1.0], method=method).y[0, -1]

    report = gl.check(f, T, grad=flow)

    if not (method == "DOP853" and report.ok):
        assert report.verdict.name == "UNDECIDED"
        told = " ".join(finding.evidence for finding in report.findings)
        assert "0.001 (rtol, by default of scipy)" in told
    assert gl.check(f, T, grad=lambda t: 1.1 * flow(t)).verdict.name == "DISAGREES"
    assert not gl.sweep(f, T, grad=flow).reading["t"].startswith("wrong")
    assert RungeKutta.__init__.__defaults__ is DEFAULTS


@pytest.mark.parametrize("factor", [[1.0, 1.01], [0.99, 1.0], [1.0, -1.0]])
def test_a_slip_of_a_percent_is_told(factor):
    """The solver's own error is a third of a thousandth."""
    report = gl.check(integrated, T, grad=lambda t: np.array(factor) * flow(t))

    assert report.verdict.name == "DISAGREES"


def test_an_iteration_that_ends_where_numpy_calls_it_close():
    """Its fixed point by Newton, and the gradient by the implicit function theorem."""

    def grad(t):
        y = t.copy()
        for _ in range(50):
            y -= (y - np.cos(0.5 * y) - t) / (1 + 0.5 * np.sin(0.5 * y))
        return 1 / (1 + 0.5 * np.sin(0.5 * y))

    assert gl.check(until_close, T, grad=grad).verdict.name != "DISAGREES"
    wrong = gl.check(until_close, T, grad=lambda t: grad(t) * [1.01, 1])
    assert wrong.verdict.name == "DISAGREES"
