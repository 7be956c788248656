"""Where roundings inside leave a gradient no digits, a difference accuses nobody."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gradlab as gl
from gradlab import Verdict


def numbers(seed, *shape):
    """Normal numbers as a float64 tensor."""
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.normal(size=shape))


def collinear(seed):
    """A regression with two columns that are nearly the same."""
    x = numbers(seed, 6, 3)
    x[:, 2] = x[:, 1] + 1e-7 * numbers(seed + 100, 6)
    return (lambda x: torch.linalg.inv(x.T @ x).sum()), x


def low_rank(seed):
    """A determinant of which nearly all is the 1 that was added."""
    eye = torch.eye(5, dtype=torch.float64)
    return (lambda s: torch.logdet(s @ s.T + eye)), 1e6 * numbers(seed, 5, 3)


def far_out(seed):
    """A wave that turns many times from one float to the next."""
    return (lambda x: torch.sin((x @ x.T) ** 3).mean()), 1e6 * numbers(seed, 4, 3)


@pytest.mark.parametrize("case", [collinear, low_rank, far_out])
@pytest.mark.parametrize("seed", [0, 2, 3])
def test_a_right_gradient_without_digits_is_not_accused(case, seed):
    """Autograd is right as far as it goes, and no difference can tell better."""
    f, x = case(seed)

    report = gl.check(f, x.requires_grad_())

    assert report.verdict == Verdict.UNDECIDED
    assert all(found.severity != "error" for found in report.findings)


@pytest.mark.parametrize("seed", range(3))
def test_nor_is_that_of_a_numpy_function(seed):
    """Its gradient is asked for at other points, though it came as ``grad=``."""
    x = 1e6 * np.random.default_rng(seed).normal(size=4)

    report = gl.check(
        lambda x: np.array(np.sin(x**3).mean()),
        x,
        grad=lambda x: 0.75 * x**2 * np.cos(x**3),
    )

    assert report.verdict == Verdict.UNDECIDED
    assert all(found.severity != "error" for found in report.findings)


@pytest.mark.parametrize("seed", range(3))
def test_nor_are_those_of_many_outputs(seed):
    """As many as are asked for gradients, and more."""
    rng = np.random.default_rng(seed)
    a, x = rng.normal(size=(300, 2)), 1e6 * rng.normal(size=2)

    report = gl.check(
        lambda x: np.sin((a @ x) ** 3),
        x,
        jac=lambda x: (3 * (a @ x) ** 2 * np.cos((a @ x) ** 3))[:, None] * a,
    )

    assert report.verdict == Verdict.UNDECIDED


@pytest.mark.parametrize("seed", range(4))
def test_a_wrong_gradient_is_no_rounding(seed):
    """A formula is a smooth function of its inputs, be it right or wrong."""
    x = np.random.default_rng(seed).normal(size=6)

    report = gl.check(
        lambda x: np.array(np.sin(30 * x).sum()),
        x,
        grad=lambda x: 30.01 * np.cos(30 * x),
    )

    assert report.verdict == Verdict.DISAGREES


def test_a_gradient_that_is_drawn_anew_each_time_is_no_rounding_either():
    """It moves as much where no input does."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=6)

    report = gl.check(
        lambda x: np.array(np.sin(x).sum()),
        x,
        grad=lambda x: np.cos(x) * rng.integers(0, 2, 6) * 2,
    )

    assert report.verdict == Verdict.DISAGREES


def test_gradients_beside_the_point_are_asked_for_within_the_budget():
    """A function that returns its gradients is evaluated for each of them."""
    calls = []

    def wrong(x):
        calls.append(1)
        return float((x**3).sum()), {"x": 6 * x**2}

    x = np.random.default_rng(0).normal(size=6)
    most = gl.check(wrong, x).evaluations
    for budget in range(most - 20, most + 1, 4):
        calls.clear()
        report = gl.check(wrong, x, budget=budget)
        assert report.verdict == Verdict.DISAGREES
        assert len(calls) <= budget


def test_stop_while_they_are_asked_for_keeps_the_report():
    """Ctrl-C in a backward is a Stop like any other."""
    asked = []

    def interrupted(x):
        asked.append(1)
        if len(asked) > 1:
            raise KeyboardInterrupt
        return 6 * x**2

    x = np.random.default_rng(0).normal(size=6)

    report = gl.check(lambda x: np.array((x**3).sum()), x, grad=interrupted)

    assert report.verdict == Verdict.DISAGREES
    assert report.partial
    assert any("interrupted" in remark for remark in report.remarks)


def softmax(x):
    """Weights that sum to one."""
    weights = np.exp(x - x.max())
    return weights / weights.sum()


@pytest.mark.parametrize("size", [3, 50])
@pytest.mark.parametrize("quantum", [0, 1e-8])
def test_debris_of_a_lost_signal_is_no_ill_conditioned_gradient(size, quantum):
    """What cancels to rounding, next to slopes of a tenth, is wrong and not inexact."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, size))

    def f(x):
        value = softmax(x) @ w
        return np.array(np.round(value / quantum) * quantum if quantum else value)

    report = gl.check(f, x, grad=lambda x: softmax(x) * (1 - softmax(x).sum()))

    assert report.verdict == Verdict.DISAGREES
    assert [found.severity for found in report.findings].count("error") == 1
    assert not any("ill-conditioned" in found.evidence for found in report.findings)


def test_gradients_that_take_long_are_not_asked_for_ten_times(clock):
    """A budget in seconds holds for them too."""
    asked = []

    def slow(x):
        asked.append(1)
        clock.sleep(0.3)
        return 6 * x**2

    x = np.random.default_rng(0).normal(size=6)

    report = gl.check(lambda x: np.array((x**3).sum()), x, grad=slow, budget="1s")

    assert report.verdict == Verdict.DISAGREES
    assert len(asked) <= 4  # two of them by the diagnosis
