"""Gradients that write to their input, and parameters that overlap in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradlab as gl

X = np.arange(1.0, 7.0)


def _square(x: Any) -> Any:
    return (x**2).sum()


def _in_place(x: Any) -> Any:
    x *= 2
    return x


@pytest.mark.parametrize(
    ("fn", "options"),
    [
        (_square, {"grad": _in_place}),
        (lambda x: x**2, {"jac": lambda x: np.diag(_in_place(x))}),
        (lambda x: x**2, {"vjp": lambda up, x: up * _in_place(x)}),
        (lambda x: (x**2, x), {"backward": lambda up, x: up * _in_place(x)}),
    ],
)
def test_a_gradient_that_writes_to_its_input_is_told(fn: Any, options: Any) -> None:
    """The values are right, and the array of whoever calls it is another one."""
    x = X.copy()
    report = gl.check(fn, x, **options)
    assert report.verdict is gl.Verdict.AGREES
    assert [(f.kind, f.severity, f.where) for f in report.findings] == [
        (gl.BugKind.MUTATES_INPUT, "warning", "x")
    ]
    assert "What computes the gradient" in report.findings[0].evidence
    assert (x == X).all()


def test_a_gradient_that_writes_to_parameters_in_place_is_told() -> None:
    """The function does not, and repeats itself."""
    net = {"w": X.copy()}

    def grad() -> Any:
        return {"w": _in_place(net["w"]).copy()}

    report = gl.check(lambda: _square(net["w"]), params=net, grad=grad)
    assert report.verdict is gl.Verdict.AGREES
    assert [(f.kind, f.where) for f in report.findings] == [
        (gl.BugKind.MUTATES_INPUT, "w")
    ]
    assert (net["w"] == X).all()


def test_a_gradient_that_works_on_a_copy_is_not() -> None:
    """Nor one that is wrong."""
    assert not gl.check(_square, X, grad=lambda x: _in_place(x.copy())).findings
    report = gl.check(_square, X, grad=lambda x: 3 * x)
    assert [f.kind for f in report.findings] == [gl.BugKind.SCALE]


def test_a_function_that_writes_is_told_once() -> None:
    """Its gradient comes along, and is called with the same input."""

    def loss_and_grad(x: Any) -> Any:
        x *= 2
        return (x**2).sum(), 4 * x

    report = gl.check(loss_and_grad, X.copy())
    told = [f for f in report.findings if f.kind == gl.BugKind.MUTATES_INPUT]
    assert [f.where for f in told] == ["x"]


def test_parameters_that_overlap_are_told() -> None:
    """Three of four entries are shared by nobody, one by both."""
    flat = np.arange(6.0)
    params = {"a": flat[:4], "b": flat[3:]}

    def loss() -> Any:
        return float((flat**2).sum()), {"a": 2 * flat[:4], "b": 2 * flat[3:]}

    report = gl.check(loss, params=params)
    (found,) = report.findings
    assert (found.kind, found.severity) == (gl.BugKind.ALIASING, "warning")
    assert "a and b share memory" in found.evidence
    assert report.ok


def test_parameters_side_by_side_in_one_array_are_not() -> None:
    """No entry is in both."""
    flat = np.arange(6.0)
    params = {"a": flat[:3], "b": flat[3:]}

    def loss() -> Any:
        return float((flat**2).sum()), {"a": 2 * flat[:3], "b": 2 * flat[3:]}

    assert not gl.check(loss, params=params).findings


def test_a_copy_is_made_as_its_library_does() -> None:
    """Arrays have ``copy``, tensors ``clone``."""
    torch = pytest.importorskip("torch")
    flat = np.arange(4.0)
    array = gl.check(lambda a, b: a @ b, flat[:3], flat[1:], vjp=lambda _, a, b: (b, a))
    cell = torch.arange(4.0, dtype=torch.float64)
    tensor = gl.check(lambda a, b: a @ b, cell[:3], cell[1:])
    advice = [
        [f.advice for f in report.findings if f.kind == gl.BugKind.ALIASING]
        for report in (array, tensor)
    ]
    assert advice[0][0].endswith("pass b.copy().")
    assert advice[1][0].endswith("pass b.clone().")


def _centred(x: Any, w: Any) -> Any:
    x -= x.mean()
    return np.tanh(x * w).sum()


def test_a_gradient_of_what_was_written_to_leads_back_to_the_write() -> None:
    """Neither formula is wrong at what x was centred to; the slope of that is left out.

    So x and w are both wrong, and look as if they were derivatives of something else.
    """
    x, w = np.array([0.5, -1.0, 2.0, 0.7]), np.array([1.0, 0.3, -0.8, 1.2])

    def grad(x: Any, w: Any) -> Any:
        slope = 1 - np.tanh(x * w) ** 2
        return slope * w, slope * x

    report = gl.check(_centred, x, w, grad=grad)
    assert (report.diagnosis, report.culprit) == (gl.BugKind.MUTATES_INPUT, "x")
    assert report.findings[0].severity == "error"
    assert not gl.check(lambda x, w: np.tanh(x * w).sum(), x, w, grad=grad).findings
