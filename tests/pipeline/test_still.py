"""Coordinates that move nothing are settled together, and slopes do not hide there."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

RNG = np.random.default_rng(6)
NAMED = np.array([1, 4, 4, 30])
TARGETS = RNG.normal(size=(4, 5))
TABLE = 1e-3 * RNG.normal(size=(40, 5))


def lookup(table):
    """Squared distance of four rows of a table, and its gradient."""
    apart = table[NAMED] - TARGETS
    gradient = np.zeros_like(table)
    np.add.at(gradient, NAMED, 2 * apart)
    return 1e3 + (apart**2).sum(), gradient


def test_rows_that_nothing_names_cost_no_ladders():
    """They are moved together, and only what is named climbs."""
    report = gl.check(lookup, TABLE, coverage="full")
    alone = gl.check(lookup, TABLE[:31], coverage="full")

    assert report.verdict == gl.Verdict.AGREES
    assert report.evaluations - alone.evaluations == 2 * (TABLE.size - 31 * 5)


@pytest.mark.parametrize("seed", range(4))
def test_slopes_that_cancel_hide_from_nobody(seed):
    """A difference of two coordinates, by less than the last digit of f at a step."""

    def f(x):
        return 1e3 + (x[:2] ** 2).sum() + 1e-9 * (x[3] - x[2])

    def grad(x):
        return np.array([2 * x[0], 2 * x[1], 0.0, 0.0, 0.0])

    report = gl.check(f, np.ones(5), grad=grad, seed=seed)

    assert report.verdict == gl.Verdict.DISAGREES
    wrong = (np.asarray(report["x"].verdicts) == gl.Verdict.DISAGREES).any(axis=0)
    assert wrong.tolist() == [False, False, True, True, False]


@pytest.mark.parametrize(
    ("far", "slope", "x"),
    [(39260000.0, 0.976, 8.1e-5), (-2478000.0, -0.9032, 1.29e-5), (391e3, 0.5, 2e-4)],
)
def test_slopes_that_rounding_inside_hides_are_looked_for(far, slope, x):
    """A short step is lost in a large number; the same slope a third of x away."""

    def f(x):
        return np.cos(far + slope * x)

    def grad(x):
        return -slope * np.sin(far + slope * x)

    right = gl.check(f, np.array(x), grad=grad)
    cut = gl.check(f, np.array(x), grad=np.zeros_like)

    assert right.verdict != gl.Verdict.DISAGREES
    assert cut.verdict == gl.Verdict.DISAGREES


def test_units_that_wake_up_farther_away_cost_few_steps():
    """What moves f on one side only has no slope at the point."""
    asleep = lambda x: 1.0 + np.maximum(x - 1.01, 0).sum()
    x = np.array([1.0, 0.9, 0.7])

    report = gl.check(asleep, x, grad=np.zeros_like)

    assert report.verdict == gl.Verdict.AGREES
    assert report.evaluations < 24


@pytest.mark.parametrize("far", [30.0, 1e3, 3e4, 1e6])
def test_a_cosine_at_zero_beside_a_large_coordinate(far):
    """A step by the size of the other one: f is the same on both sides, however far."""
    x = np.array([0.0, far])

    right = gl.check(np.cos, x, jac=lambda x: np.diag(-np.sin(x)))
    wrong = gl.check(np.cos, x, jac=lambda x: np.diag(1e-6 - np.sin(x)))

    assert right.verdict == gl.Verdict.AGREES
    assert wrong.verdict == gl.Verdict.DISAGREES
