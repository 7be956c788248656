"""Bad input gets one clear sentence; a wrong gradient never crashes."""

from __future__ import annotations

import array

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt

import gradlab as gl
from gradlab.errors import (
    BudgetError,
    ComplexStepError,
    InputError,
    InputTypeError,
    SubjectError,
)

X = np.arange(1.0, 4.0)


def square(x):
    """Sum of squares."""
    return (x**2).sum()


def double(x):
    """Gradient of `square`."""
    return 2 * x


def yields(x):
    """Yield what it should return."""
    yield (x**2).sum()


async def waits(x):
    """Return it to whoever awaits."""
    return (x**2).sum()


def _pair(loss, gradients):
    return lambda _: (loss, gradients)


class Cube(torch.autograd.Function):
    """A Function whose class is easily mistaken for what it makes."""

    @staticmethod
    def forward(ctx, x):
        """Keep nothing."""
        return x**3


T = torch.ones(3, dtype=torch.float64)

REFUSED = {
    "not a function": (lambda: gl.check(3, X), InputTypeError, "got int"),
    "class of a Function": (
        lambda: gl.check(Cube, T),
        InputTypeError,
        "Cube is a class; pass the function that it makes, Cube.apply",
    ),
    "class of a module": (
        lambda: gl.blame(torch.nn.ReLU, T),
        InputTypeError,
        "ReLU is a class; pass an instance of it, ReLU(...)",
    ),
    "loss without gradients": (
        lambda: gl.check(square, X),
        SubjectError,
        "the pair (loss, gradients); it returned a float64 number",
    ),
    "negative step of a sweep": (
        lambda: gl.sweep(square, X, grad=double, steps=[-1.0, 0.1]),
        InputError,
        "np.logspace(-12, 0, 37)), got -1",
    ),
    "explorer of no report": (
        lambda: gl.JacobianExplorer(square),
        InputTypeError,
        "JacobianExplorer shows a gradlab.Report: gl.check(...); got function",
    ),
    "sweep of no sweep": (
        lambda: gl.EpsilonSweep(square),
        InputTypeError,
        "EpsilonSweep shows a gradlab.Sweep: gl.sweep(...); got function",
    ),
    "blame of no audit": (
        lambda: gl.LayerBlame(torch.nn.ReLU()),
        InputTypeError,
        "LayerBlame shows the audit of a model: gl.blame(...); got ReLU",
    ),
    "generator": (
        lambda: gl.check(yields, X, grad=double),
        InputTypeError,
        "generator function (it has yield), which returns no value; write return",
    ),
    "generator of a Jacobian": (
        lambda: gl.check(square, X, jac=yields),
        InputTypeError,
        "jac is a generator function",
    ),
    "async": (
        lambda: gl.numeric_jacobian(waits, X),
        InputTypeError,
        "asyncio.run(waits(*a))",
    ),
    "other shapes": (
        lambda: gl.check(
            lambda x: x[:2] if x[0] == 1 else x, X, jac=lambda x: np.eye(2, 3)
        ),
        SubjectError,
        "shapes must not depend on the values",
    ),
    "table of pandas": (
        lambda: gl.check(square, pd.DataFrame({"a": X}), grad=double),
        InputError,
        "got x: DataFrame (3, 1)); pass x.to_numpy(), or an array",
    ),
    "column of pandas": (
        lambda: gl.check(square, pd.Series(X), grad=double),
        InputTypeError,
        "x is of type Series, which follows no array standard; pass np.asarray(x)",
    ),
    "gradient that is a word": (
        lambda: gl.check(square, X, grad="abc"),
        InputTypeError,
        "the gradients themselves, arrays or a dict or tuple of them, got str 'abc'",
    ),
    "gradients with a set among them": (
        lambda: gl.locate(lambda p: square(p["x"]), {"x": X}, grad={"x": {1, 2}}),
        InputTypeError,
        "grad.x must be a function or the gradients themselves",
    ),
    "tolerances in an array": (
        lambda: gl.check(square, X, grad=double, atol=np.ones(3)),
        InputError,
        "atol must be a number >= 0 or None, got array([1., 1., 1.])",
    ),
    "number of entries that is none": (
        lambda: gl.check(square, X, grad=double)["x"].worst("all"),
        InputError,
        "k must be a whole number >= 0, got 'all'",
    ),
    "axes that are none": (
        lambda: gl.check(square, X, grad=double).plot(ax=plt),
        InputTypeError,
        "ax must be one Axes of matplotlib, as figure.add_subplot() makes, got module",
    ),
    "level by name": (
        lambda: gl.BugHunt(level="relu"),
        InputError,
        "there is no level 'relu': choose one of 1 to 9",
    ),
    "seed of a game": (
        lambda: gl.BugHunt(seed="ada"),
        InputError,
        "seed must be an integer >= 0, got 'ada'",
    ),
    "time that is none": (
        lambda: gl.BugHunt(seconds=-1),
        InputError,
        "seconds must be a number > 0, got -1",
    ),
    "two sides": (
        lambda: gl.check(square, X, grad=double, jac=double),
        InputError,
        "got grad= and jac=",
    ),
    "side not callable": (
        lambda: gl.check(square, X, jac=3),
        InputTypeError,
        "jac= must be a function, got int",
    ),
    "no side": (lambda: gl.check(square, X), SubjectError, "(loss, gradients)"),
    "missing key": (
        lambda: gl.check(_pair(1.0, {"b": X}), {"a": X, "b": X}),
        InputError,
        "no entry for 'a' (they have 'b')",
    ),
    "loss not a scalar": (
        lambda: gl.check(_pair(X, {"a": X}), {"a": X}),
        SubjectError,
        "the loss has shape (3,)",
    ),
    "gradient of a vector": (
        lambda: gl.check(lambda x: x**2, X, grad=double),
        InputError,
        "pass jac= or vjp=",
    ),
    "raises at the point": (
        lambda: gl.check(lambda x: 1 / 0, X, grad=double),
        SubjectError,
        "ZeroDivisionError at the given inputs",
    ),
    "nan in the input": (
        lambda: gl.check(square, np.array([1.0, np.nan]), grad=double),
        InputError,
        "x[1] is nan",
    ),
    "nan in the imaginary part": (
        lambda: gl.check(square, np.array([1, 2, complex(0, np.nan)]), grad=double),
        InputError,
        "x[2] is nan",
    ),
    "integers": (
        lambda: gl.check(square, np.arange(3), grad=double),
        InputError,
        "x is an array of int64",
    ),
    "integer parameters": (
        lambda: gl.check(lambda: (1.0, {}), params={"w": np.arange(3)}),
        InputError,
        "w.astype(float)",
    ),
    "read-only parameters": (
        lambda: gl.check(lambda: (1.0, {}), params={"w": np.broadcast_to(1.0, (3,))}),
        InputError,
        "read-only",
    ),
    "nothing to differentiate": (
        lambda: gl.check(lambda s: 1.0, "text", grad=double),
        InputError,
        "s: str",
    ),
    "unknown wrt": (
        lambda: gl.check(square, X, grad=double, wrt="y"),
        InputError,
        "wrt= asks for 'y'; the differentiable inputs are 'x'",
    ),
    "names collide": (
        lambda: gl.check(lambda p, w: 0.0, {"w": X}, X, grad=double),
        InputError,
        "two inputs are called 'w'",
    ),
    "too few names": (
        lambda: gl.check(square, X, grad=double, names=["a", "b"]),
        InputError,
        "names= gives 2 for the differentiable inputs 'x'",
    ),
    "unknown method": (
        lambda: gl.check(square, X, grad=double, method="newton"),
        InputError,
        "got 'newton'",
    ),
    "negative step": (lambda: gl.Central(step=-1e-3), InputError, "got -0.001"),
    "negative tolerance": (
        lambda: gl.check(square, X, grad=double, rtol=-1),
        InputError,
        "rtol must be a number >= 0",
    ),
    "nan tolerance": (
        lambda: gl.check(square, X, grad=double, atol=float("nan")),
        InputError,
        "atol must be a number >= 0",
    ),
    "no budget": (
        lambda: gl.check(square, X, grad=double, budget=0),
        BudgetError,
        "got 0",
    ),
    "odd budget": (
        lambda: gl.check(square, X, grad=double, budget="soon"),
        BudgetError,
        "got 'soon'",
    ),
    "unknown coverage": (
        lambda: gl.check(square, X, grad=double, coverage="most"),
        InputError,
        "got 'most'",
    ),
    "odd order": (
        lambda: gl.check(square, X, grad=double, order=3),
        InputError,
        "order must be 1 or 2, got 3",
    ),
    "second order of NumPy": (
        lambda: gl.check(square, X, grad=double, order=2),
        InputError,
        "order=2 needs a torch function",
    ),
    "odd seed": (
        lambda: gl.check(square, X, grad=double, seed=-1),
        InputError,
        "seed must be an integer >= 0, got -1",
    ),
    "no cache": (
        lambda: gl.check(lambda x: x, X, backward=double),
        SubjectError,
        "must return (out, cache)",
    ),
    "changing shapes": (
        lambda: gl.check(lambda x: x[x <= 2.0], X, jac=lambda x: np.eye(2, 3)),
        SubjectError,
        "shapes must not depend on the values",
    ),
    "complex step through abs": (
        lambda: gl.check(
            lambda x: np.abs(x).sum(), -X, grad=np.sign, method="complex-step"
        ),
        ComplexStepError,
        "imaginary part is dropped",
    ),
    "complex step of a maximum": (
        lambda: gl.check(
            lambda x: (x * np.conj(x)).sum(), X, grad=double, method="complex-step"
        ),
        ComplexStepError,
        "not analytic in x",
    ),
    "complex step through float": (
        lambda: gl.check(
            lambda x: float(x.sum().real), X, grad=np.ones_like, method="complex-step"
        ),
        ComplexStepError,
        "returns real numbers",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_a_reason(case):
    """The message names the value and what to do, and the input is unchanged."""
    call, kind, telling = REFUSED[case]
    before = X.copy()
    with pytest.raises(kind) as caught:
        call()
    assert telling in str(caught.value)
    assert np.array_equal(X, before)


ODD = {
    "wrong shape": (lambda x: np.ones(7), "wrong_shape"),
    "an axis that was not summed": (lambda x: np.ones((3, 3)), "broadcast_reduction"),
    "one axis too many": (lambda x: (2 * x)[None], "wrong_shape"),
    "integers": (lambda x: (2 * x).astype(int), "dtype"),
    "a word": (lambda x: "abc", "dtype"),
    "none": (lambda x: None, "detached"),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_gradients_are_findings(case):
    """A gradient of odd shape or type is a finding, not a crash."""
    gradient, kind = ODD[case]
    report = gl.check(square, X + 0.25, grad=gradient)
    assert kind in {str(f.kind) for f in report.findings if f.severity != "note"}


def test_a_gradient_may_be_whatever_numpy_reads():
    """An array of Python's own library is one of numbers, too."""
    report = gl.check(square, X, grad=array.array("d", 2 * X))

    assert report.verdict == gl.Verdict.AGREES


def test_tables_are_read_where_they_are_returned():
    """Values and derivatives may come back as pandas has them."""
    report = gl.check(
        lambda x: pd.Series(x) ** 2, X, jac=lambda x: pd.DataFrame(np.diag(2 * x))
    )

    assert report.verdict == gl.Verdict.AGREES


def test_backward_that_raises_is_a_finding():
    """An exception in the analytic side is told with its text; nothing crashes."""
    report = gl.check(lambda x: (x, x), X, backward=lambda dout, cache: 1 / 0)
    assert report.verdict == gl.Verdict.DISAGREES
    assert "ZeroDivisionError" in report.findings[0].evidence


def test_function_that_raises_nearby():
    """A function that raises away from the point has no slope there: undecided."""

    def brittle(x):
        if not np.array_equal(x, X):
            raise ValueError("elsewhere")
        return x.sum()

    report = gl.check(brittle, X, grad=np.ones_like)

    assert report.verdict == gl.Verdict.UNDECIDED
    assert any("elsewhere" in f.evidence for f in report.findings)


@pytest.mark.parametrize("given", [lambda x: x[:1], lambda x: 1 / 0])
def test_what_was_returned_is_told_where_no_cause_is_looked_for(given):
    """With ``diagnose=False`` a gradient of another shape is not called nan."""
    quick = gl.check(square, X, grad=given, diagnose=False)

    assert quick.diagnosis == gl.check(square, X, grad=given).diagnosis
    assert "nan" not in str(quick)
