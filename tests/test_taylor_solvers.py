"""A Taylor test accuses nothing that rests on the tolerance of a solver."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

START, END = 1.0, 3.0
K = np.array([1.3, 0.7])


def rate(t, y, k):
    """Right-hand side of a driven decay."""
    return -k[0] * y + k[1] * np.cos(t)


def integrated(k):
    """Integrate adaptively, to the three digits that scipy gives by default."""
    integrate = pytest.importorskip("scipy.integrate")
    return integrate.solve_ivp(rate, (0, END), [START], args=(k,)).y[0, -1]


def exact(k):
    """Gradient of the exact solution, by variation of constants."""
    decay, drive = k

    def value(decay, drive):
        particular = drive / (decay**2 + 1)
        end = particular * (decay * np.cos(END) + np.sin(END))
        return end + (START - particular * decay) * np.exp(-decay * END)

    h = 1e-30  # the complex step is exact to rounding
    return np.array(
        [value(decay + 1j * h, drive).imag / h, value(decay, drive + 1j * h).imag / h]
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_right_gradient_of_an_integrator_is_not_accused(seed):
    """What it takes in another number of steps jumps, by more than the gap."""
    test = gl.taylor_test(integrated, K, grad=exact, seed=seed)

    assert test.ok, test
    assert any("solver" in remark for remark in test.remarks)


def test_a_budget_bounds_the_hearing_as_well():
    """Without room for it an accusation stays as it was."""
    test = gl.taylor_test(integrated, K, grad=exact, budget=60)

    assert test.evaluations <= 60


@pytest.mark.parametrize("seed", range(4))
def test_a_wrong_gradient_of_an_integrator_is_accused(seed):
    """A sign that is wrong is no matter of a tolerance."""
    test = gl.taylor_test(
        integrated, K, grad=lambda k: exact(k) * np.array([1, -1]), seed=seed
    )

    assert test.verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("slip", [1e-3, 1e-5])
def test_a_slip_of_a_smooth_function_is_accused_still(slip):
    """Heard once more, it stands: nothing of the function jumps."""
    x = np.linspace(0.5, 1.5, 5)

    test = gl.taylor_test(
        lambda x: np.sin(x).sum(), x, grad=lambda x: np.cos(x) * (1 + slip)
    )

    assert test.verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("budget", [31, 35, 40, 60, 100])
def test_no_budget_saves_a_slip(budget):
    """A hearing that could not be finished acquits nobody."""
    x = np.linspace(0.5, 1.5, 5)

    test = gl.taylor_test(
        lambda x: np.sin(x).sum(), x, grad=lambda x: np.cos(x) * 1.001, budget=budget
    )

    assert test.verdict == gl.Verdict.DISAGREES
    assert test.evaluations <= budget
