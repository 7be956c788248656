"""Functions that do not repeat themselves end undecided, and are told so."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

import gradlab as gl
from gradlab import Verdict

X = np.array([0.3, -1.2, 2.0, 0.7, -0.4, 1.1, 0.9, -2.2])


def fresh_noise(x):
    """Add noise from a generator made at every call."""
    return float((x**2).sum() + 1e-3 * np.random.default_rng().normal())


def fresh_mask(x):
    """Drop terms by a generator made at every call."""
    return float((x**2 * (np.random.default_rng().random(8) > 0.5)).sum())


def clock(x):
    """Read a clock."""
    return float((x**2).sum() * (1 + 1e-3 * np.sin(time.monotonic_ns() % 1000)))


@pytest.fixture(autouse=True)
def _clock_that_goes(monkeypatch):
    """A clock that shows another time at every look, however quick the machine."""
    looks = itertools.count(20_26, 7_919)
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(looks))


TICKS = itertools.count()


def counter(x):
    """Count its calls where nothing can rewind them."""
    return float((x**2).sum() * (1 + 0.1 * (next(TICKS) % 3)))


@pytest.mark.parametrize("f", [fresh_noise, fresh_mask, clock, counter])
@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_unfrozen_draws_are_undecided_and_named(f, factor):
    """No verdict on any gradient of them, right or wrong; the cause is named first."""
    report = gl.check(f, X, grad=lambda x: factor * 2 * x)

    assert report.verdict == Verdict.UNDECIDED
    assert report.ok
    assert report.diagnosis == "nondeterministic"


def test_steady_outputs_beside_unsteady_ones_are_judged():
    """One output draws, the other does not: its factor of two is found."""

    def f(x):
        return np.array([fresh_noise(x), np.sin(x).sum()])

    report = gl.check(f, X, jac=lambda x: np.stack([2 * x, 2 * np.cos(x)]))

    verdicts = report["x"].verdicts
    assert (verdicts[0] == Verdict.UNDECIDED).all()
    assert (verdicts[1] == Verdict.DISAGREES).all()


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_an_output_that_agrees_vouches_for_no_other(factor):
    """Beside a steady output with a right gradient, one that draws is undecided."""

    def f(x):
        return np.array([np.sin(x).sum(), fresh_noise(x)])

    report = gl.check(f, X, jac=lambda x: np.stack([np.cos(x), factor * 2 * x]))

    verdicts = report["x"].verdicts
    assert (verdicts[0] == Verdict.AGREES).all()
    assert (verdicts[1] == Verdict.UNDECIDED).all()
    assert report.diagnosis == "nondeterministic"


def test_right_gradients_cost_no_repetition():
    """Two evaluations for each coordinate and a shared one, as ever."""
    report = gl.check(lambda x: np.sin(x).sum(), X, grad=np.cos)

    assert report.evaluations == 2 * X.size + 1


def test_step_too_long_is_excused_beside_an_unsteady_output():
    """What the ladder took back stays taken back; the steady output is undecided."""

    def f(x):
        return np.array([fresh_noise(x), np.sin(9 * x).sum()])

    report = gl.check(
        f,
        X,
        jac=lambda x: np.stack([2 * x, 9 * np.cos(9 * x)]),
        method=gl.Central(step=0.5),
    )

    assert report.verdict == Verdict.UNDECIDED
    assert any("the adaptive ladder" in remark for remark in report.remarks)
