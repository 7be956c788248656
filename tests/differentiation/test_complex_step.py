"""The complex step where an input does not enter an output, which is real then."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import ComplexStepError

X, Y = np.array([0.7, -1.3]), np.array([1.0, 2.0, 0.5])


def check(f, slope):
    """Check a function of two inputs, of which the first enters squared."""
    return gl.check(
        f, X, Y, grad=lambda x, y: (2 * x, slope + 0 * y), method="complex-step"
    )


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: (x**2).sum(),
        lambda x, y: (x**2).sum() + 0 * y.sum(),
        lambda x, y: (x**2).sum() + (y.real > 0).sum(),
    ],
    ids=["not used", "times zero", "constant"],
)
def test_an_input_that_does_not_enter_has_slope_zero(f):
    """A real output that does not move drops nothing; another slope is wrong."""
    assert check(f, 0.0).verdict == gl.Verdict.AGREES
    assert check(f, 1.0).verdict == gl.Verdict.DISAGREES


def test_outputs_of_different_inputs():
    """Each output is real where the other's input is made complex."""
    jacobians = gl.numeric_jacobian(
        lambda x, y: (x**2, y**3), X, Y, method="complex-step"
    )

    np.testing.assert_allclose(jacobians["out.0", "x"].value, np.diag(2 * X))
    np.testing.assert_allclose(jacobians["out.1", "y"].value, np.diag(3 * Y**2))
    assert not jacobians["out.0", "y"].value.any()


@pytest.mark.parametrize(
    "f",
    [lambda x, y: (x**2, np.abs(y)), lambda x, y: (x**2).sum() + np.abs(y).sum()],
    ids=["of its own", "in a sum"],
)
def test_an_imaginary_part_that_is_dropped_is_refused(f):
    """The output moves with the input, and is real all the same."""
    with pytest.raises(ComplexStepError, match="imaginary part is dropped"):
        gl.numeric_jacobian(f, X, Y, method="complex-step")
