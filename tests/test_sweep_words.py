"""What a sweep says where neither V nor plateau is all that there is to see."""

from __future__ import annotations

import dataclasses
import secrets
import zlib

import numpy as np
import pytest

import gradlab as gl
from gradlab.comparison.swept import Curves
from tests.specimens.sweeps import exp_sum


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_kink_beside_smooth_entries(factor):
    """Where one entry has a kink, steps and plateaus are read from the others."""
    sweep = gl.sweep(
        lambda x: np.maximum(x, 0).sum() + np.exp(3 * x).sum(),
        np.array([0.0, 0.4]),
        grad=lambda x: 3 * np.exp(3 * x) * np.array([1, factor]),
    )

    assert 1e-6 < sweep.best_step["x"] < 1e-4
    assert 1e-13 < sweep.floor["x"] < 1e-9
    assert sweep.slopes["x"] == pytest.approx((2, -1), abs=0.2)
    assert factor == 1 or sweep.reading["x"].startswith("plateau at 0.15 from")


def test_floor_at_a_kink():
    """Central differences of relu at 0 are one half at any step, and exact."""
    relu = lambda x: np.maximum(x, 0).sum()

    assert gl.sweep(relu, np.zeros(1), grad=np.zeros_like).floor["x"] == 0


def test_allowed_difference_is_told():
    """A gradient off by 3e-7 passes, and neither rounding nor f is given for it."""
    sweep = gl.sweep(exp_sum, np.ones(2), grad=lambda x: np.exp(x) * (1 + 3e-7))

    assert sweep.verdict == gl.Verdict.AGREES
    assert sweep.reading["x"].startswith("correct to 1e-07: both sides differ by")
    assert sweep.floor["x"] == pytest.approx(1.5e-7, rel=0.1)


def test_a_slope_that_is_known_roughly():
    """What can be told from zero, but not well, is not said to hide in it."""
    half = lambda x: np.float16(np.arctan(np.float16(0.15) * x).sum() + 1)
    slope = lambda x: (0.15 / (1 + (0.15 * x) ** 2)).astype(np.float16)
    sweep = gl.sweep(half, np.array([0.3], np.float16), grad=slope)

    assert sweep.verdict == gl.Verdict.UNDECIDED
    assert "its slope is 0.15, give or take" in sweep.reading["x"]


def test_standing_still_is_not_small_error():
    """A quotient of 0 where f does not move is no evidence for a gradient of 0."""
    noise = np.random.default_rng(0).normal(size=1 << 16)

    def rough(x):
        x = np.float32(x)
        return float(np.sin(x).sum() + noise[zlib.crc32(x.tobytes()) & 0xFFFF])

    sweep = gl.sweep(rough, np.ones(1), grad=np.zeros_like)

    assert sweep.verdict == gl.Verdict.UNDECIDED
    assert "never below 0e+00" not in sweep.reading["x"]


def test_wrong_where_no_step_shows_it():
    """Its error is that beside the check, not the least of a lucky crossing."""
    sweep = gl.sweep(
        exp_sum, np.ones(2), grad=lambda x: 1.0004 * np.exp(x), steps=[0.06, 0.3]
    )

    assert sweep.verdict == gl.Verdict.DISAGREES
    assert sweep.reading["x"].startswith("error 0.0002, which no step shows alone")


def test_a_rough_curve_is_not_free_of_rounding():
    """Errors of 3 % and more that follow no law are said, not that there are none."""
    sweep = gl.sweep(exp_sum, np.ones(2), grad=np.exp)
    error = 0.05 * 3.0 ** (-1.0) ** np.arange(len(sweep.steps))
    measured = {"error": error, "bar": 0.1 * error, "own": error}
    curves = dataclasses.replace(Curves.blank(error.size), **measured)

    rough = dataclasses.replace(sweep, curves={("central", "x"): curves})

    assert rough.reading["x"].startswith("correct, but no V: at the best step, ")


def test_two_values_are_seen_to_be_two():
    """An error of 2e-5 in one entry of two is written with the digits that it needs."""
    factor = np.array([1, 1.00002])
    sweep = gl.sweep(exp_sum, np.ones(2), grad=lambda x: factor * np.exp(x))

    assert "x[1]: analytic 2.7183, numeric 2.7183" not in sweep.reading["x"]
    assert "x[1]: analytic 2.71834, numeric 2.71828" in sweep.reading["x"]


def test_entries_that_are_zero_are_no_exception_to_a_factor():
    """Four of eight rectifiers let nothing through: no side has a number there."""
    x = np.array([-1.0, 0.5, -2.0, 1.5, -0.5, 2.5, 1.0, -3.0])

    def loss(x):
        return (np.maximum(x, 0) ** 2).sum()

    doubled = gl.sweep(loss, x, grad=lambda x: 4 * np.maximum(x, 0)).reading["x"]
    assert "x numeric wherever it is not zero, in 4 of 8 entries)" in doubled

    half = gl.sweep(
        loss, abs(x), grad=lambda x: np.where(np.arange(8) < 4, 4, 2) * x
    ).reading["x"]
    assert "x numeric in 4 of 8 entries)" in half


def test_one_step_is_no_plateau():
    """Where a single step shows the error, it has no two ends."""
    twice = gl.sweep(exp_sum, np.ones(2), grad=lambda x: 2 * np.exp(x), steps=[1e-4])

    told = "error 0.33 at step 1e-04, more than ten times that of the numeric side"
    assert twice.reading["x"].startswith(told)


def test_noise_has_no_best_step():
    """Its curve is measured against a derivative that there is not."""

    def noisy(x):
        return exp_sum(x) + 1e-13 * secrets.randbelow(10**9)

    sweep = gl.sweep(noisy, np.linspace(0, 1, 6), grad=np.exp)

    assert sweep.verdict == gl.Verdict.UNDECIDED
    assert np.isnan([sweep.best_step["x"], sweep.floor["x"]]).all()
    assert "best h" not in " ".join(t.get_text() for t in sweep.plot().ax_.texts)


@pytest.mark.parametrize(
    ("ends", "words"),
    [((-12, -8), "no truncation seen"), ((-5, -2), "no rounding seen")],
)
def test_half_a_valley(ends, words):
    """A ladder that ends before the bottom shows one branch; exp has both.

    Its best step is at that end, and no error is much lower.
    """
    steps = np.logspace(*ends, 13)
    sweep = gl.sweep(exp_sum, np.ones(1), grad=np.exp, steps=steps)
    best = steps[np.argmin(np.abs(np.log(steps / sweep.best_step["x"])))]

    assert sweep.reading["x"].startswith(f"correct: {words}, best step ")
    assert best in (steps[0], *steps[-3:])
    assert sweep.floor["x"] < 10 * sweep.errors["central", "x"].min()


def test_a_parabola_has_no_truncation():
    """Central differences of x^2 are exact, and long steps show it."""
    parabola = {"grad": lambda x: 2 * x, "steps": np.logspace(-8, 0, 17)}
    sweep = gl.sweep(lambda x: (x**2).sum(), np.array([1.3]), **parabola)

    assert "f is a low polynomial" in sweep.reading["x"]
