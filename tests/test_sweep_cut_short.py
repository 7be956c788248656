"""A sweep that was interrupted, or has spent its budget, claims what it saw."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gradlab as gl


def stopped_at(number, grad=np.cos):
    """Sweep a sum of sines; Stop is pressed in evaluation `number`."""
    calls = itertools.count(1)

    def f(x):
        if next(calls) == number:
            raise KeyboardInterrupt
        return np.sin(x).sum()

    return gl.sweep(f, np.linspace(0.1, 1, 20), grad=grad), next(calls) - 1


def test_a_curve_that_was_cut_short_has_no_best_step():
    """Only tiny steps were taken: the smallest error of those is no floor."""
    sweep, _ = stopped_at(300)

    assert sweep.verdict == gl.Verdict.AGREES
    assert np.isnan([sweep.best_step["x"], sweep.floor["x"]]).all()
    assert repr(sweep).startswith("✓ x agrees; cut short, the curve has gaps")
    assert "6 of 43 steps" in sweep.reading["x"]
    assert np.isnan(sweep.entry("x", 3).best_step["x[3]"])


def test_what_was_swept_before_is_whole():
    """Of two inputs the first has its curve, and all that is read from it."""
    sweep = gl.sweep(
        lambda x, y: np.sin(x).sum() + np.exp(y).sum(),
        np.ones(3),
        np.ones(3),
        grad=lambda x, y: (np.cos(x), np.exp(y)),
        budget=400,
    )

    assert sweep.best_step["x"] == pytest.approx(1e-5, rel=0.9)
    assert np.isnan(sweep.best_step["y"])
    assert "both inputs agree; cut short, the curves have gaps" in repr(sweep)
    assert "V: correct" in sweep.reading["x"]


def test_stop_in_the_check_ends_the_sweep():
    """The curves are not begun, and nothing is said of a resolution."""
    sweep, calls = stopped_at(50, grad=lambda x: 1.5 * np.cos(x))

    assert calls <= 52
    assert sweep.verdict == gl.Verdict.UNDECIDED
    assert repr(sweep).startswith("! x is undecided; cut short")
    assert "0 of 43 steps" in sweep.reading["x"]


def test_wrong_is_wrong_on_every_step_that_there_is():
    """What disagrees by the check is not said to do so at steps nobody took."""
    sweep, _ = stopped_at(128, grad=lambda x: 1.5 * np.cos(x))

    assert repr(sweep).startswith("✗ x disagrees; cut short, the curve has gaps")
    assert "at every step" not in repr(sweep)
