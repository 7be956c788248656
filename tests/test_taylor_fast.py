"""The Taylor test of functions that vary within its steps: they are heard as noise."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def wave(frequency):
    """Sines of a high frequency, and their gradient."""
    return (
        lambda x: np.sin(frequency * x).sum(),
        lambda x: frequency * np.cos(frequency * x),
    )


def logistic(count):
    """A chaotic map: the gradient grows by 1.9 in the mean with every step."""

    def f(x):
        for _ in range(count):
            x = 3.9 * x * (1 - x)
        return x.sum()

    def gradient(x):
        slope = np.ones_like(x)
        for _ in range(count):
            slope, x = 3.9 * (1 - 2 * x) * slope, 3.9 * x * (1 - x)
        return slope

    return f, gradient


X, Y = np.array([0.3, 0.71, 1.2]), np.array([0.3, 0.41])


@pytest.mark.parametrize(
    ("program", "x"),
    [(wave(k), X) for k in (1e3, 1e5, 1e6)] + [(logistic(n), Y) for n in (15, 20)],
)
def test_right_gradients_of_fast_functions_are_right(program, x):
    """Close by they are smooth, and have that slope."""
    f, gradient = program
    assert gl.taylor_test(f, x, grad=gradient).verdict == gl.Verdict.AGREES


@pytest.mark.parametrize("count", [25, 30])
def test_chaos_that_amplifies_rounding_accuses_nobody(count):
    """Close by the slope is about that; how exactly nobody can tell."""
    f, gradient = logistic(count)
    assert gl.taylor_test(f, Y, grad=gradient).verdict == gl.Verdict.UNDECIDED


@pytest.mark.parametrize("factor", [0.0, -1.0, 0.5, 2.0])
def test_wrong_gradients_of_fast_functions_are_not_right(factor):
    """Neither zero, as from afar, nor any other multiple."""
    f, gradient = wave(1e6)
    test = gl.taylor_test(f, X, grad=lambda x: factor * gradient(x))

    assert test.verdict != gl.Verdict.AGREES


@pytest.mark.parametrize("slope", [0.0, 1.5, -1.0])
def test_stairs_bear_out_no_wrong_slope(slope):
    """Single precision inside is noise: close by it is flat, or jumps."""
    f = lambda x: float((x.astype(np.float32) ** 2).sum(dtype=np.float32))
    test = gl.taylor_test(f, X, grad=lambda x: slope * 2 * x)

    assert test.verdict == gl.Verdict.DISAGREES
