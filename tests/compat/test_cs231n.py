"""The course's helpers: its numbers, its arguments, its loop."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.compat.cs231n import (
    eval_numerical_gradient,
    eval_numerical_gradient_array,
    grad_check_sparse,
    rel_error,
)
from tests.specimens.course import TwoLayerNet, data


def test_gradient_is_the_derivative(rng, capsys):
    """Of a function known in closed form, and silent if asked."""
    x = rng.normal(size=(2, 3))

    found = eval_numerical_gradient(lambda x: np.sin(x).sum(), x, verbose=False)

    assert found == pytest.approx(np.cos(x), abs=1e-9)
    assert capsys.readouterr().out == ""


def test_every_index_is_printed_by_default(capsys):
    """As in the course: index and derivative, a line each."""
    eval_numerical_gradient(lambda x: np.sum(x**2), np.array([5.0]))

    index, value = capsys.readouterr().out.split(" ")
    assert index == "(0,)"
    assert float(value) == pytest.approx(10)


def test_contracted_gradient(rng):
    """The vector-Jacobian product of a matrix product is one with the transpose."""
    x, w, upstream = (rng.normal(size=s) for s in ((4, 3), (3, 2), (4, 2)))

    found = eval_numerical_gradient_array(lambda x: x @ w, x, upstream)

    assert found == pytest.approx(upstream @ w.T, abs=1e-8)


def test_loop_of_the_tutorial_finds_the_wrong_line():
    """W1 is off by a third (a factor of two), the rest by less than 1e-7."""
    net = TwoLayerNet()
    X, y = data()
    _, grads = net.loss(X, y)
    errors = {}
    for param_name in grads:
        f = lambda w: net.loss(X, y)[0]
        param_grad_num = eval_numerical_gradient(
            f, net.params[param_name], verbose=False
        )
        errors[param_name] = rel_error(param_grad_num, grads[param_name])

    assert errors.pop("W1") == pytest.approx(1 / 3, rel=1e-2)
    assert max(errors.values()) < 1e-7


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ([1.0, 2.0], [1.0, 4.0], 1 / 3),
        ([0.0], [0.0], 0.0),
        ([1e-9], [0.0], 0.1),  # the floor of 1e-8 below
        ([1.0], [-1.0], 1.0),
    ],
)
def test_relative_error(x, y, expected):
    """By the course's formula."""
    assert rel_error(np.array(x), np.array(y)) == pytest.approx(expected)


def test_relative_error_keeps_nan():
    """A nan on either side is never a small error."""
    assert np.isnan(rel_error(np.array([np.nan, 1.0]), np.array([1.0, 1.0])))


def test_random_entries_are_printed_beside_the_analytic_ones(capsys):
    """As many lines as asked for, in the course's words; the array is put back."""
    x = np.array([1.0, 2.0])
    grad_check_sparse(lambda x: (x**2).sum(), x, 2 * x, 4, seed=0)

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    for line in lines:
        numeric, analytic, error = (part.split()[-1] for part in _cut(line))
        assert numeric == analytic in {"2.000000", "4.000000"}
        assert float(error) < 1e-9
    assert x.tolist() == [1.0, 2.0]


def _cut(line):
    left, error = line.split(", ")
    numeric, analytic = left.split(" analytic: ")
    return numeric, analytic, error


def test_random_state_is_untouched():
    """The choice of entries is no business of the user's generators."""
    before = np.random.get_state()[1].copy()
    x = np.ones(3)
    grad_check_sparse(lambda x: x.sum(), x, np.ones(3), 1)

    assert np.array_equal(np.random.get_state()[1], before)


def test_array_is_put_back_if_the_function_raises():
    """The course leaves the perturbed entry behind."""
    x = np.ones(3)

    def fails(x):
        if x[1] < 1:
            raise KeyError("below")
        return x.sum()

    with pytest.raises(KeyError):
        eval_numerical_gradient(fails, x, verbose=False)
    assert x.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("call", "telling"),
    [
        (lambda: eval_numerical_gradient(np.sum, np.arange(3)), "array of int64"),
        (lambda: eval_numerical_gradient(np.sum, [1.0]), r"list; begin with x = np"),
        (
            lambda: eval_numerical_gradient(lambda x: (x.sum(), x), np.ones(3)),
            r"a tuple of 2; .* lambda x: f\(x\)\[0\]",
        ),
        (
            lambda: eval_numerical_gradient_array(lambda x: (x, x), np.ones(3), 1.0),
            "a tuple of 2",
        ),
        (lambda: eval_numerical_gradient(np.sin, np.ones(3)), r"shape \(3,\)"),
        (lambda: eval_numerical_gradient(np.sum, np.ones(3), h=0.0), "positive"),
        (
            lambda: eval_numerical_gradient_array(np.sin, np.ones(3), np.ones(2)),
            r"\(3,\), got \(2,\)",
        ),
        (lambda: grad_check_sparse(np.sum, np.ones(3), np.ones(2)), "shape of x"),
    ],
)
def test_bad_input_is_refused_by_name(call, telling):
    """With what came, and what was expected."""
    with pytest.raises(gl.GradlabError, match=telling):
        call()
