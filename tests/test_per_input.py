"""Tolerance, step and method by input: `rtol={"W1": 1e-4}`."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import InputError

X, W = np.linspace(0.1, 1.0, 4), np.full(3, 1.5)


def _product(x, w):
    return np.sin(x).sum() * (w**3).sum()


def _slightly_wrong(x, w):
    """The gradient, a hundred-thousandth too large with respect to both."""
    return (
        1.00001 * np.cos(x) * (w**3).sum(),
        1.00001 * 3 * w**2 * np.sin(x).sum(),
    )


def _right(x, w):
    return np.cos(x) * (w**3).sum(), 3 * w**2 * np.sin(x).sum()


def _verdicts(report):
    return {c.input.name: c.verdict.name for c in report.comparisons}


def test_tolerance_of_one_input_leaves_the_other():
    """What is forgiven to x is not forgiven to w."""
    report = gl.check(_product, X, W, grad=_slightly_wrong, rtol={"x": 1e-4})

    assert _verdicts(report) == {"x": "AGREES", "w": "DISAGREES"}


def test_patterns_name_many_inputs_and_names_beat_them():
    """A pattern stands for all it matches; a name of its own comes first."""
    loose = gl.check(_product, X, W, grad=_slightly_wrong, rtol={"*": 1e-4})
    mixed = gl.check(_product, X, W, grad=_slightly_wrong, rtol={"*": 1e-4, "w": 1e-8})

    assert _verdicts(loose) == {"x": "AGREES", "w": "AGREES"}
    assert _verdicts(mixed) == {"x": "AGREES", "w": "DISAGREES"}


def test_absolute_tolerance_by_input():
    """An `atol` of one input forgives an error that another's does not."""
    report = gl.check(_product, X, W, grad=_slightly_wrong, atol={"w": 1.0})

    assert _verdicts(report) == {"x": "DISAGREES", "w": "AGREES"}


def test_step_by_input_is_the_step_taken():
    """The input that is named takes its step, the other one its own."""
    report = gl.check(_product, X, W, grad=_right, method={"x": gl.Central(step=1e-3)})

    assert np.allclose(report["x"].step, 1e-3, rtol=1e-9)
    assert (report["w"].step < 1e-4).all()
    assert report.verdict == gl.Verdict.AGREES


def test_methods_by_input_are_told():
    """The table and the report say which input was differentiated how."""
    options = {"x": "complex-step", "w": gl.Forward()}
    report = gl.check(_product, X, W, grad=_right, method=options)
    table = report.table.set_index("input")["method"]

    assert dict(table) == {"x": "complex-step", "w": "forward"}
    assert report.method == "complex-step, forward"


@pytest.mark.parametrize(
    ("dtype", "words"),
    [("float64", "central"), ("float32", "central, evaluated in float64")],
)
def test_the_report_says_what_auto_has_done(dtype, words):
    """Not "auto": the differences that were taken, and in what arithmetic."""
    x = np.linspace(0.1, 1, 4, dtype=dtype)
    report = gl.check(np.sin, x, jac=lambda x: np.diag(np.cos(x)))

    assert report.method == words


def test_a_poor_step_of_one_input_is_not_held_against_the_gradient():
    """A step that is too large leaves that input undecided, not wrong."""
    report = gl.check(_product, X, W, grad=_right, method={"x": gl.Forward(step=0.1)})

    assert report.ok
    assert _verdicts(report)["w"] == "AGREES"


def test_single_precision_keeps_its_float64_reference_beside_a_step_of_ones_own():
    """The input that is not named is compared with float64 as ever."""
    torch = pytest.importorskip("torch")
    x = torch.linspace(0.1, 1, 4)
    w = torch.full((3,), 1.5)
    report = gl.check(
        lambda x, w: torch.sin(x).sum() * (w**3).sum(),
        x,
        w,
        method={"x": gl.Central(step=1e-2)},
    )
    plain = gl.check(lambda x, w: torch.sin(x).sum() * (w**3).sum(), x, w)

    assert report.verdict == gl.Verdict.AGREES
    assert np.array_equal(report["w"].numeric, plain["w"].numeric)


def test_random_directions_know_the_tolerance_of_each_input():
    """With coverage="probe", w is accused and x is not."""
    report = gl.check(
        _product, X, W, grad=_slightly_wrong, rtol={"x": 1e-3}, coverage="probe"
    )

    assert _verdicts(report)["w"] == "DISAGREES"
    assert _verdicts(report)["x"] != "DISAGREES"


def test_second_look_in_the_report_keeps_the_tolerance():
    """A sweep of the report goes by the tolerance of each input."""
    report = gl.check(_product, X, W, grad=_slightly_wrong, rtol={"x": 1e-3})

    assert report.sweep().verdicts["x"] == gl.Verdict.AGREES


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rtol": {"y": 1e-4}}, "'y', which is none of the inputs.*'x', 'w'"),
        ({"rtol": {0: 1e-4}}, "'0', which is none of the inputs"),
        ({"atol": {None: 1.0}}, "'None', which is none of the inputs"),
        ({"method": {"y": "central"}}, "'y', which is none of the inputs"),
        ({"method": {"x": "nope"}}, "got 'nope'"),
        ({"atol": {"x": -1.0}}, "atol must be a number >= 0 or None, got -1.0"),
        ({"rtol": "tight"}, "rtol must be a number >= 0 or None, got 'tight'"),
        ({"rtol": {"x": 2}}, "rtol must be below 1, got 2: a gradient of twice"),
    ],
)
def test_options_that_name_nothing_are_refused(options, words):
    """A misspelt name is an error, not a check with the defaults."""
    with pytest.raises(InputError, match=words):
        gl.check(_product, X, W, grad=_right, **options)


def test_bars_of_a_step_of_ones_own_are_not_called_single_precision():
    """A long one-sided step is truncation, and nothing inside rounds."""
    report = gl.check(
        _product, X, W, grad=_right, method=gl.Forward(step=1e-3), rtol=1e-3
    )

    assert "low_precision" not in [str(f.kind) for f in report.findings]
