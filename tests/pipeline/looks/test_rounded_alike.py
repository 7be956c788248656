"""Single precision inside, where each output is moved by one coordinate alone."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.comparison.verdict import Verdict
from tests.sizes import drawn

# f of float64 that goes through float32, and its slope
ROUNDED = {
    "sin": (lambda x: np.sin(x.astype(np.float32)).astype(float), np.cos),
    "tanh": (
        lambda x: np.tanh(x.astype(np.float32)).astype(float),
        lambda x: 1 - np.tanh(x) ** 2,
    ),
    "rounded at the end": (lambda x: np.sin(x).astype(np.float32) + 0.0, np.cos),
}


def check(name, x, change=None):
    """Check a diagonal Jacobian, changed before it is handed over."""
    f, slope = ROUNDED[name]

    def jac(x):
        matrix = np.diag(slope(x))
        if change is not None:
            change(matrix)
        return matrix

    return gl.check(
        lambda x: f(x).astype(float), x, jac=jac, coverage="full", diagnose=False
    )


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("seed", range(8))
def test_right_gradient_is_not_accused(name, seed):
    """A staircase of 1e-7 is no slope, and zeros that no float32 can tell are zeros."""
    report = check(name, np.random.default_rng(seed).standard_normal(20))
    assert report.verdict == Verdict.AGREES


@pytest.mark.parametrize("name", ROUNDED)
def test_right_gradient_of_many_entries_is_told(name):
    """No entry is accused, and only outputs that are nearly zero leave zeros open."""
    report = check(name, np.random.default_rng(5).standard_normal(drawn(150, 300)))
    verdicts = np.asarray(report.comparisons[0].verdicts)
    assert (np.diag(verdicts) == Verdict.AGREES).all()
    assert not (verdicts == Verdict.DISAGREES).any()
    assert (verdicts != Verdict.AGREES).mean() < 0.01


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("factor", [1.01, 1.002, -1.0, 0.0])
def test_wrong_entry_is_the_one_that_is_accused(name, factor):
    """What is off by two thousandths shows through rounding of 1e-7, and alone."""
    x = np.random.default_rng(9).uniform(0.3, 1.1, 20)

    def change(matrix):
        matrix[4, 4] *= factor

    verdicts = np.asarray(check(name, x, change).comparisons[0].verdicts)
    assert np.argwhere(verdicts == Verdict.DISAGREES).tolist() == [[4, 4]]


def normalised(x, kind):
    x = x.astype(kind)
    return (x - x.mean(0)) / np.sqrt(x.var(0) + kind(1e-5))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", range(6))
def test_a_factor_of_a_rounded_number_is_not_accused(seed):
    """A straight line through a rounded number does not show how far that is off.

    The weights of a batch norm in float32: their slopes are what was normalised, which
    has the rounding of the batch.
    """
    rng = np.random.default_rng(seed)
    x, weights = rng.normal(size=(16, 12)), rng.normal(size=12)
    jac = np.zeros((16, 12, 12))
    jac[:, np.arange(12), np.arange(12)] = normalised(x, np.float64)
    jac = jac.reshape(-1, 12)
    slip = jac.copy()
    slip.flat[np.abs(jac).argmax()] *= 1.002

    def scaled(weights):
        out = normalised(x, np.float32) * weights.astype(np.float32)
        return out.astype(float).ravel()

    def check(matrix):
        return gl.check(scaled, weights, jac=lambda _: matrix, coverage="full")

    right, wrong = check(jac), check(slip)
    assert right.verdict != Verdict.DISAGREES
    accused = np.asarray(wrong.comparisons[0].verdicts) == Verdict.DISAGREES
    assert np.array_equal(accused, slip != jac)
    if right.verdict == Verdict.UNDECIDED:  # and says why
        assert [f.kind for f in right.findings] == ["low_precision"]
