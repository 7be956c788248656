"""Sweeps of gradients that are no numbers: what is drawn of them, and what is said."""

from __future__ import annotations

import numpy as np

import gradlab as gl


def test_nan_in_the_gradient():
    """It is wrong at every step and has no error; the numeric side is as ever."""
    bad = lambda x: np.where(np.arange(3) == 1, np.nan, np.exp(x))
    sweep = gl.sweep(lambda x: np.exp(x).sum(), np.ones(3), grad=bad)

    assert sweep.verdict == gl.Verdict.DISAGREES
    assert "not finite" in sweep.reading["x"]
    assert np.isnan(sweep.errors["central", "x"]).all()
    assert 1e-7 < sweep.best_step["x"] < 1e-3


def test_inf_in_the_gradient():
    """No number either: relative to inf every error would be 1."""
    bad = lambda x: np.where(np.arange(3) == 1, np.inf, np.exp(x))
    sweep = gl.sweep(lambda x: np.exp(x).sum(), np.ones(3), grad=bad)

    assert np.isnan(sweep.errors["central", "x"]).all()
    assert "analytic inf" in sweep.reading["x"]


def test_nan_on_both_sides():
    """Where nothing can be compared the curve is that of the other entries."""
    f = lambda x: np.exp(x).sum() + np.sqrt(abs(x[0]))
    bad = lambda x: np.where(np.arange(3) == 0, np.nan, np.exp(x))
    sweep = gl.sweep(f, np.array([0.0, 1, 2]), grad=bad)

    assert sweep.verdict == gl.Verdict.UNDECIDED
    assert 0 < np.nanmin(sweep.errors["central", "x"]) < 1e-8
