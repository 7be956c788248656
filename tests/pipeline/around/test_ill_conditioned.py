"""Where roundings inside leave a gradient no digits, a difference accuses nobody."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gradlab as gl
from gradlab import Verdict
from tests.specimens.activations import softmax


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


@pytest.mark.parametrize("wide", [True, False])
def test_a_backward_that_is_always_single_precision(wide):
    """A vector of one number has no direction: what is left of zero is round-off."""

    def f(x):
        return x[0] / np.sqrt(x[0] ** 2 + x.dtype.type(1e-12))

    def grad(x):
        norm = np.sqrt(x**2 + x.dtype.type(1e-12))
        slope = 1 / norm - x * x / norm**3
        return slope if wide else slope.astype(np.float32)

    for seed in range(8):
        x = np.random.default_rng(seed).normal(size=1).astype(np.float32)
        report = gl.check(f, x, grad=grad)
        assert report.ok, report


def difference(f, step):
    """Gradient by forward differences."""

    def grad(x):
        moved = x + step * np.eye(x.size)
        return np.array([(f(row) - f(x)) / step for row in moved])

    return grad


@pytest.mark.parametrize("step", [1e-11, 1e-12, 1e-13, 1e-14])
@pytest.mark.parametrize("seed", range(3))
def test_a_difference_with_too_short_a_step_is_told_to_be_inexact(step, seed):
    """Nothing in f excuses a gradient of four digits: f is exact to the last one."""

    def f(x):
        return np.log1p(np.exp(x)).sum()

    x = np.random.default_rng(seed).normal(size=5)

    report = gl.check(f, x, grad=difference(f, step))

    assert report.verdict == Verdict.DISAGREES
    errors = [found for found in report.findings if found.severity == "error"]
    assert [found.kind.value for found in errors] == ["low_precision"]
    assert "inexactly" in errors[0].evidence
    assert gl.check(f, x, grad=difference(f, 1e-8)).verdict == Verdict.AGREES


def test_a_mistake_beside_a_short_step_is_a_mistake():
    """What is off by far more than the gradient jumps by is no lack of digits."""

    def f(x):
        return np.log1p(np.exp(x)).sum()

    x = np.random.default_rng(0).normal(size=5)
    short = difference(f, 1e-12)

    report = gl.check(f, x, grad=lambda x: 2 * short(x))

    assert report.diagnosis == "scale"
    assert not any("inexactly" in found.evidence for found in report.findings)


def test_a_gradient_that_cancels_to_the_last_digits_of_f_is_left_open():
    """The slope of sin(x) / x, as it is written, has few digits near 0, and f all."""
    x = np.random.default_rng(0).normal(size=4) * 1e-6

    def grad(x):
        return (x * np.cos(x) - np.sin(x)) / x**2

    report = gl.check(lambda x: (np.sin(x) / x).sum(), x, grad=grad)

    assert report.ok, report


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


def rows_of_waves(seed):
    """As many outputs as make a Jacobian too large for a mebibyte."""
    a = numbers(seed, 300, 20)
    return (lambda x: torch.sin(1e18 * (a @ x))), numbers(seed + 50, 20)


DOORS = {
    "whole": {"coverage": "full"},
    "directions": {"coverage": "probe"},
    "streamed": {"coverage": "full", "memory": "1MiB"},
}


@pytest.mark.parametrize("door", DOORS)
def test_nor_does_any_other_way_of_looking_accuse_them(door):
    """Directions, streams and noise that looks like kinks ask the same questions."""
    f, x = rows_of_waves(1)

    report = gl.check(f, x.requires_grad_(), **DOORS[door])

    assert report.verdict == Verdict.UNDECIDED
    assert all(found.severity != "error" for found in report.findings)


@pytest.mark.parametrize("seed", range(2))
def test_nor_does_a_search_name_them(seed):
    """What it names is heard as a check hears it."""
    f, x = rows_of_waves(seed)

    assert gl.locate(f, x.requires_grad_()).table.empty


@pytest.mark.parametrize("seed", range(3))
def test_what_no_ladder_looked_at_is_taken_back_with_what_one_did(seed):
    """Of an input that directions accuse a few entries climb, and stand for others."""
    f, x = collinear(seed)

    report = gl.check(f, x.requires_grad_(), coverage="probe")

    assert report.verdict == Verdict.UNDECIDED
    assert all(found.severity != "error" for found in report.findings)


@pytest.mark.parametrize("door", DOORS)
def test_a_wrong_jacobian_is_told_on_every_way(door):
    """Smooth waves of which one input has a factor of 1.01 too much."""
    rng = np.random.default_rng(0)
    a, x = rng.normal(size=(300, 20)), rng.normal(size=20)
    factor = np.where(np.arange(20) == 3, 1.01, 1.0)

    report = gl.check(
        lambda x: np.sin(a @ x),
        x,
        jac=lambda x: np.cos(a @ x)[:, None] * a * factor,
        **DOORS[door],
    )

    assert report.verdict == Verdict.DISAGREES


@pytest.mark.slow
def test_a_difference_that_f_cannot_show_over_its_step_is_undecided():
    """Of a nearly singular regression a ladder ends on steps that stand still."""
    x, y = numbers(1, 30, 5), numbers(2, 30, 4)
    x[:, 4] = x[:, 3] + 1e-9 * numbers(3, 30)

    report = gl.check(
        lambda x, y: torch.linalg.lstsq(x, y, driver="gels").solution,
        x.requires_grad_(),
        y.requires_grad_(),
    )

    assert report.verdict == Verdict.UNDECIDED
