"""Bars of what agrees: they tell of rounding inside f that its size does not show."""

from __future__ import annotations

import numpy as np

import gradlab as gl

X = np.linspace(0.2, 1.3, 7)


def beside_a_large_term(x):
    """Sines whose last digits an offset takes, which f itself no longer shows."""
    return (1e4 + np.sin(x)) - 1e4


def test_bars_of_what_agrees_cover_what_cancels_inside():
    """Truth by algebra: they were four hundred times too small."""
    report = gl.check(beside_a_large_term, X, jac=lambda x: np.diag(np.cos(x)))
    found = report["x"]
    off = np.abs(found.numeric - np.diag(np.cos(X))).diagonal()

    assert report.verdict == gl.Verdict.AGREES
    assert (off <= 2 * found.numeric_error.diagonal()).all()
    assert off.max() > 1e-8


def test_where_bars_hold_nothing_is_measured():
    """A sine alone takes two evaluations a coordinate, and a few for all."""
    plain = gl.check(lambda x: np.sin(x).sum(), X, grad=np.cos)
    large = gl.check(lambda x: beside_a_large_term(x).sum(), X, grad=np.cos)

    assert plain.evaluations == 15
    assert large.evaluations == 21
    off = np.abs(large["x"].numeric - np.cos(X))
    assert (off <= 2 * large["x"].numeric_error).all()
    assert plain["x"].numeric_error.max() < 1e-8


def test_a_budget_that_leaves_nothing_for_it_is_kept():
    """Verdicts do not need it."""
    wide = beside_a_large_term
    report = gl.check(lambda x: wide(x).sum(), X, grad=np.cos, budget=15)

    assert report.evaluations <= 15


def test_what_is_wrong_keeps_its_bar():
    """A slip of a thousandth is told beside entries whose bars are made wider."""

    def slipped(x):
        slopes = np.cos(x)
        slopes[2] *= 1.001
        return slopes

    report = gl.check(lambda x: beside_a_large_term(x).sum(), X, grad=slipped)

    assert report.culprits == ("x",)
    wrong = report["x"].verdicts[0] == gl.Verdict.DISAGREES
    assert wrong.nonzero()[0].tolist() == [2]


def test_lines_that_are_silent_by_luck_tell_nothing():
    """Squares whose difference has few digits left: f climbs even stairs at times."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        c, x, large = rng.normal(size=3), rng.uniform(0.3, 1.5, 3), 3e5

        def f(x, c=c, large=large):
            return ((large + x @ c) ** 2 - large**2) / large

        def grad(x, c=c, large=large):
            return 2 * (large + x @ c) * c / large

        found = gl.check(f, x, grad=grad)["x"]

        assert (np.abs(found.numeric - grad(x)) <= 5 * found.numeric_error).all()
