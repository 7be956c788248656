"""Outputs of which a slope moves the last digits only: no right gradient is accused.

Truth is algebra.
"""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.comparison.kinks import Sides, nearest_slope, told_apart
from gradlab.comparison.rule import Side
from gradlab.comparison.verdict import Verdict

LAYERS = {
    "tanh": (lambda z: np.tanh(0.1 * z), lambda z: 0.1 / np.cosh(0.1 * z) ** 2),
    "sine": (np.sin, np.cos),
}


def layer(name, seed, size, dtype=np.float64):
    """A layer of three rows, its weights, and the Jacobian of its sum over rows."""
    rng = np.random.default_rng(seed)
    x, w = size * rng.normal(size=(3, 10)), rng.normal(size=(10, 8))
    f, slope = LAYERS[name]

    def jacobian(w):
        full = np.zeros((8, 10, 8))
        for unit, slopes in enumerate(slope(x @ w).T):
            full[unit, :, unit] = slopes @ x
        return full

    return lambda w: f((x @ w).astype(dtype)).astype(float), w, jacobian


@pytest.mark.parametrize(
    ("name", "size", "offset", "seeds"),
    [
        ("tanh", 10, 1e8, (1, 2, 5, 8, 9)),
        ("tanh", 10, 1e9, (0, 1, 3, 4, 14)),
        ("sine", 10, 1e8, (18, 45, 58)),
        ("sine", 30, 1e8, (6, 50)),
    ],
)
def test_a_large_constant_in_front_accuses_nobody(name, size, offset, seeds):
    """Eight digits of f are the constant's: 67 of 300 such checks saw mistakes."""
    for seed in seeds:
        f, w, jacobian = layer(name, seed, size)
        report = gl.check(lambda w, f=f: (f(w) + offset).sum(axis=0), w, jac=jacobian)
        assert report.verdict != Verdict.DISAGREES


@pytest.mark.parametrize("factor", [1.01, -1.0])
def test_behind_it_a_slip_is_found(factor):
    """One percent in one entry, or a turned sign."""
    f, w, jacobian = layer("tanh", 1, 10)

    def slipped(w):
        wrong = jacobian(w)
        at = np.unravel_index(np.abs(wrong).argmax(), wrong.shape)
        wrong[at] *= factor
        return wrong

    report = gl.check(lambda w: (f(w) + 1e8).sum(axis=0), w, jac=slipped)
    assert report.verdict == Verdict.DISAGREES


def test_longer_steps_in_noise_have_bars_for_their_truncation():
    """Behind float32, one slope in seven was off by more than three bars."""
    beyond = []
    for seed in range(8):
        f, w, jacobian = layer("sine", seed, 3, dtype=np.float32)
        found = gl.check(lambda w, f=f: f(w).sum(axis=0), w, jac=jacobian)["w"]
        moves = found.analytic != 0
        off = np.abs(found.numeric - found.analytic)[moves]
        beyond.append(off > 3 * found.numeric_error[moves])
    assert np.mean(beyond) < 0.08


def test_slopes_that_differ_by_less_than_their_bars_settle_nothing():
    """Only beyond a kink that is told does a little beside it make a slope wrong."""
    analytic, mean, gap = 1.1, 1.0, 0.1
    sides = Sides(np.array([mean - gap / 2]), np.array([mean + gap / 2]))

    def bar(rest):
        measured = Side(np.array([mean]), np.array([gap / 2 + rest]))
        kink = np.array([True])
        return nearest_slope(np.array([analytic]), measured, sides, kink).error[0]

    assert bar(rest=0.9 * gap) < 0.01 * gap
    assert bar(rest=1.1 * gap) > gap


def test_infinite_slopes_are_told_apart_in_silence():
    """An infinite slope on both sides is one, as of a cube root at 0."""
    infinite = np.array([np.inf])
    assert not told_apart(Sides(infinite, infinite), infinite).any()


def test_a_kink_that_noise_feigns_is_heard_again():
    """Both sides differed by less than their bars, and a right slope was neither."""
    rng = np.random.default_rng(26)
    x, w = 30 * rng.normal(size=(3, 10)), rng.normal(size=(10, 8))

    report = gl.check(
        lambda x: (np.sin(x @ w) + 1e9).sum(axis=0),
        x,
        jac=lambda x: np.cos(x @ w).T[:, :, None] * w.T[:, None, :],
    )

    assert report.verdict != Verdict.DISAGREES
