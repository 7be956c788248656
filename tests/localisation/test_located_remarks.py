"""What a search for wrong entries says besides: writes, draws, dependent inputs."""

from __future__ import annotations

import numpy as np

import gradlab as gl


def test_a_function_that_overwrites_its_input_is_told_of():
    """By name, in the remarks and in what is printed; the array is put back."""
    x = np.linspace(-1, 1, 5)
    before = x.copy()

    def f(x):
        x *= 2
        return np.tanh(x).sum()

    found = gl.locate(f, x, grad=lambda x: 2 / np.cosh(2 * x) ** 2)

    assert found.ok
    assert "overwrites x" in found.remarks[0]
    assert found.remarks[0] in repr(found)
    assert np.array_equal(x, before)


def test_a_function_that_does_nothing_else_has_no_remark():
    """Nothing is told where there is nothing to tell."""
    found = gl.locate(lambda x: np.tanh(x).sum(), np.ones(3), grad=np.cosh)

    assert found.remarks == ()


def test_a_backward_that_raises_is_told_of():
    """Beside the nan of its entries, with what it raised."""

    def grad(x):
        raise KeyError("cache")

    found = gl.locate(lambda x: np.tanh(x).sum(), np.ones(3), grad=grad)

    assert not found.ok
    assert "grad raised KeyError: 'cache'" in repr(found)


def test_a_function_that_draws_is_told_of():
    """The same random numbers are used for every evaluation, and that is said."""
    found = gl.locate(
        lambda x: (x * np.random.rand(3)).sum(),
        np.ones(3),
        grad=lambda x: 0 * x,
    )

    assert "random numbers" in " ".join(found.remarks)
