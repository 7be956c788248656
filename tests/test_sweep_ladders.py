"""What a sweep says of ladders that miss the valley, leave f, or show nothing."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

import gradlab as gl
from tests.specimens.sweeps import exp_sum

FAR_APART = np.concatenate([np.logspace(-14, -10, 9), np.logspace(-1.5, 0, 5)])
SHORT_ONLY = np.logspace(-14, -9, 16)


def noisy(size):
    """Return a sum of sines with noise of that standard deviation."""
    noise = size * np.random.default_rng(0).normal(size=1 << 16)
    return lambda x: np.sin(x).sum() + noise[zlib.crc32(x.tobytes()) & 0xFFFF]


def test_a_valley_between_two_steps():
    """exp(50 x) is no polynomial, though no step of the ladder shows its bend."""
    sweep = gl.sweep(
        lambda x: np.exp(50 * x).sum(),
        np.array([0.7, 1.3]),
        grad=lambda x: 50 * np.exp(50 * x),
        steps=FAR_APART,
    )

    assert sweep.reading["x"].startswith("correct, best step 1e-10, floor ")
    assert "steps from 3e-02 on are too large" in sweep.reading["x"]
    assert sweep.best_step["x"] == pytest.approx(1e-10)


@pytest.mark.parametrize(
    ("f", "slope", "steps"),
    [
        # as wide as many periods
        (
            lambda x: np.sin(1e4 * x).sum(),
            lambda x: 1e4 * np.cos(1e4 * x),
            np.logspace(-3, 0, 10),
        ),
        # drowned by noise
        (noisy(1e-6), np.cos, SHORT_ONLY),
    ],
)
def test_a_ladder_without_a_good_step(f, slope, steps):
    """The sides do not differ; the quotients are nothing, and no step of them best."""
    sweep = gl.sweep(f, np.array([0.7, 1.3]), grad=slope, steps=steps)

    told = "correct by the check; no step of this ladder shows it: the smallest error"
    assert sweep.reading["x"].startswith(told)
    assert np.isnan(sweep.best_step["x"])
    assert str(sweep).splitlines()[0] == "✓ x agrees"
    assert sweep.plot().best_ is None


def test_no_v_where_single_precision_shows_nothing():
    """Steps below the spacing of the numbers make no V."""
    x = np.array([0.7, 1.3], np.float32)
    sweep = gl.sweep(exp_sum, x, grad=np.exp, steps=SHORT_ONLY)

    assert not sweep.reading["x"].startswith("V")


def test_half_a_v_in_single_precision():
    """A ladder of long steps ends before rounding begins."""
    x = np.array([0.7, 1.3], np.float32)
    sweep = gl.sweep(exp_sum, x, grad=np.exp, steps=np.logspace(-2.5, 0, 10))

    assert sweep.reading["x"].startswith("correct; float32 noise floor ")


def test_entries_that_f_leaves():
    """log at 1e-8 has no central quotient for longer steps: they are good for nobody.

    Truncation is ``h**2 / 6 x**2`` of the relative error, 4e-6 at h = x / 200.
    """
    x = np.array([1e-8, 1.0])
    sweep = gl.sweep(lambda x: np.log(x).sum(), x, grad=lambda x: 1 / x)

    assert sweep.best_step["x"] < 1e-8
    assert sweep.reading["x"].endswith("; at steps from 1e-08 on f is not finite")
    assert np.isnan(sweep.errors["central", "x"][sweep.steps > 1e-8]).all()
    assert sweep.entry("x", 1).best_step["x[1]"] > 1e-6


def test_a_pole_that_is_hit():
    """One step that lands on a pole does not bend the slope of the curve."""
    x = np.array([2.0**-13, 2.0**-6])
    sweep = gl.sweep(
        lambda x: (1 / x).sum(),
        x,
        grad=lambda x: -1 / x**2,
        steps=2.0 ** np.arange(-45, 0, 4),
    )

    assert sweep.slopes["x"][0] == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize("method", ["forward", "backward"])
def test_zero_slope_is_no_kink(method):
    """One-sided quotients of cos at 0 are 0 until 1 - cos h is not: no kink there."""
    sweep = gl.sweep(
        lambda x: np.cos(x).sum(),
        np.zeros(2),
        grad=lambda x: -np.sin(x),
        methods=method,
    )

    assert sweep.reading["x"].startswith("correct: both sides are 0 at steps up to ")


def test_the_lowest_of_few_steps_is_the_best():
    """What a ladder of two says is what its best step is."""
    sweep = gl.sweep(
        lambda x: np.sin(x).sum(), np.ones(2), grad=np.cos, steps=[1e-6, 1e-3]
    )

    assert "at step 1e-06" in sweep.reading["x"]
    assert sweep.best_step["x"] == pytest.approx(1e-6)


@pytest.mark.parametrize("method", ["central", "forward", "five-point"])
@pytest.mark.parametrize("size", [1e-6, 1e-8])
def test_noise_is_told_by_its_size(method, size):
    """Half or twice the truth, relative to f, which is 1.6 here."""
    x = np.array([0.7, 1.3])
    sweep = gl.sweep(noisy(size), x, grad=np.cos, methods=method)

    told = float(sweep.reading["x"].split("noise of ")[1].split()[0])
    true = size / np.sin(x).sum()
    assert 0.4 * true < told < 2.5 * true


def test_a_solver_that_stops_early_is_no_noise():
    """Five steps of Newton at 3: smooth, and 4e-4 from the root's slope."""

    def newton(x):
        y = np.ones_like(x)
        for _ in range(50):
            new = (y + x / y) / 2
            if np.abs(new - y).max() < 1e-4:
                break
            y = new
        return y.sum()

    sweep = gl.sweep(newton, np.array([2.0, 3.0]), grad=lambda x: 0.5 / np.sqrt(x))

    assert sweep.verdict == gl.Verdict.UNDECIDED
    told = "not decided: both sides differ by 4e-04 from "
    assert sweep.reading["x"].startswith(told)


def test_a_slope_of_nothing_is_written_as_nothing():
    """x**1.5 has the slope 0 at 0, and not 0e+00."""
    sweep = gl.sweep(
        lambda x: (x**1.5).sum(), np.array([0.0, 1.0]), grad=lambda x: 1.5 * np.sqrt(x)
    )

    assert "0e+00" not in sweep.reading["x"]


def test_no_best_step_among_equal_ones():
    """Of a constant every step is right: none is marked."""
    sweep = gl.sweep(lambda x: 0 * x.sum(), np.ones(2), grad=np.zeros_like)

    assert sweep.plot().best_ is None


def test_a_method_that_cannot_is_left_out_beside_others():
    """abs takes no complex step: central differences are swept, and why is said."""
    options = {"grad": lambda x: np.sign(x) + 2 * x, "steps": [1e-6, 1e-4]}
    f = lambda x: (np.abs(x) + x**2).sum()
    sweep = gl.sweep(f, np.ones(2), methods=("complex-step", "central"), **options)

    assert sweep.methods == ("central",)
    assert sweep.verdict == gl.Verdict.AGREES
    assert any(r.startswith("complex-step is left out: the") for r in sweep.remarks)
    assert not any("use method" in remark for remark in sweep.remarks)
    assert sweep.plot().ax_
    with pytest.raises(gl.errors.ComplexStepError):
        gl.sweep(f, np.ones(2), methods="complex-step", **options)


def test_the_floor_of_half_precision_is_what_its_best_steps_leave():
    """Neighbours of a short ladder are few: its slopes do not raise the floor."""
    x = np.array([0.7, 1.1, 2.0], dtype=np.float16)
    sweep = gl.sweep(np.sin, x, jac=lambda x: np.diag(np.cos(x)))
    (name,) = sweep.inputs
    best = np.argsort(np.abs(np.log(sweep.steps / sweep.best_step[name])))[:3]
    errors = sweep.errors["central", name][best]

    assert errors.min() <= sweep.floor[name] <= 2 * errors.max()
    assert sweep.floor[name] < 5e-3
