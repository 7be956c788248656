"""A complex step that is too long is told from a function that is not analytic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import ComplexStepError

X = np.arange(1.0, 7.0)


@pytest.mark.parametrize(
    ("f", "grad", "step"),
    [
        (lambda x: (x**3).sum(), lambda x: 3 * x**2, 1.0),  # Im is 3 x**2 - h**2
        (lambda x: np.exp(x).sum(), np.exp, 0.5),  # and exp(x) sin(h) / h
    ],
)
def test_analytic_functions_are_not_blamed_for_a_long_step(
    f: Any, grad: Any, step: float
) -> None:
    """The step is, and without one the gradient agrees."""
    with pytest.raises(ComplexStepError, match=f"step of {step:.3g} is too long for x"):
        gl.check(f, X, grad=grad, method=gl.ComplexStep(step))
    assert gl.check(f, X, grad=grad, method="complex-step")


def test_what_is_not_analytic_is_said_to_be_so_at_any_step() -> None:
    """``x * conj(x)`` has no imaginary part, however long the step."""
    with pytest.raises(ComplexStepError, match="not analytic in x"):
        gl.check(
            lambda x: (x * np.conj(x)).sum(),
            X,
            grad=lambda x: 2 * x,
            method=gl.ComplexStep(0.5),
        )
