"""Chainer's checks on anything that has the protocol of its variables.

A stand-in of our own takes Chainer's place, so that this runs everywhere; Chainer
itself is in test_chainer_real.py.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

import gradlab as gl
from gradlab.compat.chainer import check_backward, check_double_backward
from tests.compat.stand_in import Variable, made, scaled, tanh


def _normal(*shape, seed=0, dtype="f"):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def _variable(*shape, seed=0):
    return Variable(_normal(*shape, seed=seed))


def test_stand_in_differentiates():
    """The stand-in itself is right: d tanh = 1 - tanh**2."""
    x = _variable(3)
    y = tanh(x)
    (y.reshape((-1,)) @ Variable(np.ones(3, "f"))).backward()

    assert np.allclose(x.grad, 1 - np.tanh(x.array) ** 2)


def test_right_function_passes_in_both_orders():
    """Without chainer, the class is found on what is passed."""
    x, gy, ggx = _variable(3), _normal(3, seed=1), _normal(3, seed=2)

    check_backward(tanh, x, gy, dtype="d", atol=1e-4, rtol=1e-4)
    check_double_backward(tanh, x, gy, ggx, dtype="d", atol=1e-3, rtol=1e-3)
    assert "chainer" not in sys.modules


def test_wrong_function_fails_and_is_explained():
    """The failure is an AssertionError with a report on every entry."""
    with pytest.raises(gl.GradientMismatchError) as caught:
        check_backward(lambda x: scaled(x, 3.0), _variable(3), _normal(3), dtype="d")

    assert caught.value.report.diagnosis == "scale"
    assert "1.5" in str(caught.value)


def test_parameters_are_checked_and_put_back():
    """A link: its weight is perturbed where it lives, and is what it was."""
    w = _variable(3, 2, seed=1)
    before = w.array.copy()
    x, gy = _normal(4, 3), _normal(4, 2, seed=2)
    check_backward(lambda x: x @ w, x, gy, params=(w,), dtype="d")
    check_double_backward(
        lambda x: tanh(x @ w),
        x,
        gy,
        _normal(4, 3, seed=3),
        params=(w,),
        params_grad_grad=(_normal(3, 2, seed=4),),
        dtype="d",
    )

    assert np.array_equal(w.array, before)
    assert w.array.dtype == np.float32


def test_wrong_gradient_of_a_parameter():
    """It is the parameter that is accused."""
    w = _variable(3, seed=1)

    def func(x):
        return made(
            x.array * w.array,
            (x, w),
            lambda g: (g * w, g * x * Variable(np.full(3, 2, x.dtype))),
        )

    with pytest.raises(gl.GradientMismatchError) as caught:
        check_backward(func, _normal(3), _normal(3, seed=2), params=(w,), dtype="d")

    assert caught.value.report.culprits == ("param0",)


def test_outputs_without_a_gradient_do_not_count():
    """None among the output gradients leaves that output out."""

    def func(x):
        return tanh(x), scaled(x, 7.0)

    x = _variable(3)
    check_backward(func, x, (_normal(3, seed=1), None), dtype="d")
    with pytest.raises(gl.GradientMismatchError):
        check_backward(func, x, (None, _normal(3, seed=1)), dtype="d")


def test_integer_inputs_get_no_gradient():
    """An index goes through unperturbed."""
    w = _variable(4, seed=1)
    index = np.array([0, 2, 2])

    def func(i, w):
        def pull(g):
            out = np.zeros_like(w.array)
            np.add.at(out, i.array, g.array)
            return (None, Variable(out))

        return made(w.array[i.array], (i, w), pull)

    check_backward(func, (index, w), _normal(3, seed=2), dtype="d")


def test_backward_that_treats_its_factor_as_constant():
    """Right in first order, wrong in second."""

    def func(x):
        slope = 1 - np.tanh(x.array) ** 2
        return made(np.tanh(x.array), (x,), lambda g: (g * Variable(slope),))

    x, gy, ggx = _variable(3), _normal(3, seed=1), _normal(3, seed=2)
    check_backward(func, x, gy, dtype="d")
    with pytest.raises(AssertionError):
        check_double_backward(func, x, gy, ggx, dtype="d")
