"""What came back is nothing, or more than was asked for, and neither passes unseen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import InputError, SubjectError

X = np.arange(1.0, 4.0)


def _square(x: Any) -> Any:
    return (x**2).sum()


@pytest.mark.parametrize(
    ("grad", "told"),
    [
        (lambda x: None, "the gradient of x is None"),
        (lambda x: (2 * x).astype(object), "not an array of numbers"),
        (lambda x: x[:2], r"shape \(2,\)"),
        (lambda x: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_no_jacobian_is_made_of_nothing(grad: Any, told: str) -> None:
    """Zeros and nan in place of it would be taken for numbers."""
    with pytest.raises(SubjectError, match=told):
        gl.analytic_jacobian(_square, X, grad=grad)


def test_none_beside_a_gradient_is_zero() -> None:
    """As in every framework, of what f does not depend on."""
    found = gl.analytic_jacobian(
        lambda x, y: _square(x), X, X, grad=lambda x, y: (2 * x, None)
    )
    assert (found["x"].value == 2 * X).all()
    assert not found["y"].value.any()


def test_autograd_knows_what_f_does_not_depend_on() -> None:
    """Its None is a derivative, and zero."""
    torch = pytest.importorskip("torch")
    y = torch.ones(2, requires_grad=True)
    found = gl.analytic_jacobian(lambda x: (y**2).sum(), torch.ones(3))
    assert not found.value.any()


@pytest.mark.parametrize("junk", [X, 1.0])
def test_gradients_of_no_input_are_named(junk: Any) -> None:
    """A slip in a name would pass unseen else."""
    report = gl.check(_square, X, grad=lambda x: {"x": 2 * x, "junk": junk})
    assert report.verdict is gl.Verdict.AGREES
    assert report.remarks == ("not compared: the gradient of junk, which is no input",)


def test_gradients_of_inputs_that_were_left_out_are_not() -> None:
    """Who restricts a check knows of the others; integers are none that lack."""

    def f(params: Any) -> Any:
        grads = {"x": 2 * params["x"], "y": 2 * params["y"], "n": np.zeros(2)}
        return _square(params["x"]) + _square(params["y"]), grads

    params = {"x": X, "y": X, "n": np.arange(2)}
    assert not gl.check(f, params, wrt="x").remarks
    assert not gl.check(f, params).remarks


def test_a_pattern_says_something_of_every_block_that_it_names() -> None:
    """Nothing is not declared to be zero, and nan is neither zero nor not."""
    with pytest.raises(InputError, match="names no block"):
        gl.check_sparsity(lambda x: x**2, X, pattern={})
    for nan in (np.full((3, 3), np.nan), np.nan, {"x": np.float64("nan")}):
        with pytest.raises(InputError, match="nan entries"):
            gl.check_sparsity(lambda x: x**2, X, pattern=nan)


@pytest.mark.parametrize(
    "grad", [lambda x: x[:2], lambda x: 1 / 0, lambda x: (2 * x).astype(object)]
)
def test_what_did_not_come_is_called_none_everywhere(grad: Any) -> None:
    """Not nan: nobody returned one."""
    report = gl.check(_square, X, grad=grad)
    row = next(line for line in str(report).splitlines() if line.startswith("✗  x"))
    assert " none " in row
    assert "nan" not in row
    located = str(gl.locate(_square, X, grad=grad))
    assert "x[0]: analytic none, numeric 2" in located
    reading = gl.taylor_test(_square, X, grad=grad).reading
    assert reading.startswith("There is no gradient along the direction")
    assert "nan" not in reading


def test_nan_that_was_returned_is_called_nan() -> None:
    """In a search as in a check."""
    located = gl.locate(_square, X, grad=lambda x: np.where(x > 1, 2 * x, np.nan))
    assert "x[0]: analytic nan, numeric 2" in str(located)


def test_a_jacobian_of_objects_is_a_finding_as_a_gradient_of_them_is() -> None:
    """And no exception."""
    report = gl.check(
        lambda x: x**2, X, jac=lambda x: np.diag(2 * x).astype(object), names=["x"]
    )
    assert report.diagnosis == gl.BugKind.DTYPE


def test_a_loss_beside_its_gradients_is_told_how_to_pair_them():
    """A cost with its dw and db behind it, as courses return them."""

    def cost(w, b):
        return w @ w + b**2, 2 * w, 2 * b

    with pytest.raises(SubjectError, match="3 values; return the pair") as caught:
        gl.check(cost, np.ones(3), 0.5)

    assert "return loss, (dw, db)" in str(caught.value)
