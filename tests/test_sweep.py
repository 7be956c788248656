"""Sweeps of the step: what is measured, at what cost."""

from __future__ import annotations

import contextlib

import mpmath
import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import InputError, InputTypeError
from tests.specimens.sweeps import EPS, exp_sum

# NumPy and mpmath versions of functions whose derivatives mpmath knows to 50 digits.
CATALOGUE = {
    "sin": (np.sin, mpmath.sin),
    "exp": (np.exp, mpmath.exp),
    "sqrt": (np.sqrt, mpmath.sqrt),
    "atan": (np.arctan, mpmath.atan),
    "inverse": (lambda x: 1 / x, lambda x: 1 / x),
    "power": (lambda x: x**5, lambda x: x**5),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda x: 1 / (1 + mpmath.exp(-x))),
    "offset": (
        lambda x: 1e6 + np.sin(x),
        lambda x: mpmath.mpf(10) ** 6 + mpmath.sin(x),
    ),
}


@pytest.fixture(scope="module")
def doubled():
    """A 4 x 10 parameter whose gradient is doubled, and one that is right."""
    W, b = np.random.default_rng(1).normal(size=(4, 10)), np.linspace(0, 1, 4)

    def slope(W, b):
        return 1 / np.cosh(W.sum(1) / 3 + b) ** 2

    return gl.sweep(
        lambda W, b: np.tanh(W.sum(1) / 3 + b).sum(),
        W,
        b,
        vjp=lambda c, W, b: (
            2 * c * np.outer(slope(W, b) / 3, np.ones(10)),
            c * slope(W, b),
        ),
        names=["W1", "b1"],
    )


class TestNumbers:
    """Slopes, best steps and tables."""

    @pytest.mark.parametrize(
        ("method", "order"),
        [("forward", 1), ("backward", 1), ("central", 2), ("five-point", 4)],
    )
    def test_slopes(self, method, order):
        """Truncation slope within 0.1 of the order, rounding slope near -1."""
        x = np.array([0.3, 0.8, 1.4])
        sweep = gl.sweep(lambda x: np.sin(x).sum(), x, grad=np.cos, methods=method)
        truncation, roundoff = sweep.slopes[method, "x"]

        assert truncation == pytest.approx(order, abs=0.1)
        assert roundoff == pytest.approx(-1, abs=0.25)

    def test_complex_step_has_no_rounding(self):
        """Its error stays at the last digit down to the smallest step."""
        sweep = gl.sweep(exp_sum, np.ones(2), grad=np.exp, methods="complex-step")

        assert sweep.errors["complex-step", "x"][:10].max() < 1e-14
        assert sweep.slopes["complex-step", "x"][0] == pytest.approx(2, abs=0.1)
        assert np.isnan(sweep.slopes["complex-step", "x"][1])

    @pytest.mark.parametrize("point", [1e-6, 0.02, 2.5, 40.0, 1e7])
    def test_best_step_of_log(self, point):
        """Within a factor 4 of (3 eps |f / f'''|)^(1/3), computed by mpmath."""
        f = abs(mpmath.log(point))
        f = max(float(f), 1e-3)
        optimum = (3 * EPS * f * point**3 / 2) ** (1 / 3)
        sweep = gl.sweep(
            lambda x: 1.0 * np.log(x), np.array(point), grad=lambda x: 1 / x
        )

        assert optimum / 4 < sweep.best_step["x"] < 4 * optimum

    @pytest.mark.parametrize("point", [0.3, 0.7, 1.9, 5.3])
    @pytest.mark.parametrize("name", CATALOGUE)
    def test_catalogue(self, name, point):
        """Slope within 0.1 and best step within a factor 4, against mpmath."""
        f, exact = CATALOGUE[name]
        value, slope, third = (
            mpmath.diff(exact, mpmath.mpf(point), k) for k in (0, 1, 3)
        )
        optimum = float((3 * EPS * abs(value) / abs(third)) ** (mpmath.mpf(1) / 3))

        sweep = gl.sweep(lambda x: f(x), np.array(point), grad=lambda _: float(slope))  # noqa: PLW0108 - a ufunc has no argument names

        assert sweep.verdict == gl.Verdict.AGREES
        assert sweep.slopes["central", "x"][0] == pytest.approx(2, abs=0.1)
        assert optimum / 4 < sweep.best_step["x"] < 4 * optimum

    def test_worst_relative_error_by_hand(self):
        """The curve is the largest |a - n| / (|a| + |n|) of all entries, recomputed."""
        x = np.array([0.3, 1.1])
        wrong = lambda x: np.cos(x) * np.array([1.0, 1.2])
        steps = np.array([1e-5, 1e-3, 0.1])
        sweep = gl.sweep(lambda x: np.sin(x).sum(), x, grad=wrong, steps=steps)

        numeric = (np.sin(x + steps[:, None]) - np.sin(x - steps[:, None])) / (
            2 * steps[:, None]
        )
        size = np.abs(wrong(x)) + np.abs(numeric)
        expected = (np.abs(wrong(x) - numeric) / size).max(axis=1)
        assert sweep.errors["central", "x"] == pytest.approx(expected, rel=1e-6)

    def test_table(self, doubled):
        """Long form: a row per input, method and step, with error and its bar."""
        table = doubled.table

        assert table.columns.tolist() == [
            *("input", "method", "step", "error", "error_bar")
        ]
        assert len(table) == 2 * len(doubled.steps)
        row = table[(table.input == "W1")].iloc[21]
        assert row.error == doubled.errors["central", "W1"][21]

    def test_error_bars_cover_the_rounding_branch(self):
        """Left of the valley the true error is within the bar, or nearly."""
        sweep = gl.sweep(exp_sum, np.array([1.0]), grad=np.exp)
        left = sweep.steps < 1e-6
        error, bar = sweep.errors["central", "x"], sweep.bars["central", "x"]

        assert (error[left] <= 2 * bar[left]).mean() > 0.95

    def test_theory_lines_follow_the_data(self):
        """For sin the truncation of central differences is h^2 / 6, halved."""
        sweep = gl.sweep(np.sin, np.array(1.0), grad=np.cos)
        label, power, height = sweep.theory["central"][0]

        assert label == "truncation ~ h²"
        assert power == 2
        assert 10**height == pytest.approx(1 / 12, rel=0.05)

    def test_matrices_are_kept_where_small(self, doubled):
        """Numeric Jacobians by step, next to the analytic one."""
        assert doubled.matrices["central", "W1"].shape == (len(doubled.steps), 1, 40)
        assert doubled.analytic["W1"].shape == (1, 40)

    def test_matrices_are_dropped_where_large(self, monkeypatch):
        """Beyond the limit only the curves are kept, and they are the same."""
        kept = gl.sweep(exp_sum, np.ones(5), grad=np.exp)
        monkeypatch.setattr("gradlab.sweeping._KEPT", 10)
        sweep = gl.sweep(exp_sum, np.ones(5), grad=np.exp)

        assert not sweep.matrices
        key = ("central", "x")
        assert np.array_equal(sweep.errors[key], kept.errors[key])
        with pytest.raises(InputError, match="too large"):
            sweep.entry("x", 0)


class TestCost:
    """What is evaluated, how often, and what is left as it was."""

    def test_analytic_side_is_computed_once(self):
        """One call of the gradient, whatever the number of steps and methods."""
        calls = []

        def grad(x):
            calls.append(1)
            return np.exp(x)

        gl.sweep(exp_sum, np.ones(3), grad=grad, methods=("central", "forward"))

        assert len(calls) == 1

    def test_evaluations_are_counted(self):
        """The number reported is the number of calls."""
        calls = []

        def f(x):
            calls.append(1)
            return np.exp(x).sum()

        sweep = gl.sweep(f, np.ones(3), grad=np.exp)

        assert sweep.evaluations == len(calls)

    def test_inputs_are_bitwise_what_they_were(self):
        """Nothing of the user's is changed."""
        x = np.linspace(0, 1, 5)
        before = x.tobytes()
        gl.sweep(exp_sum, x, grad=np.exp)

        assert x.tobytes() == before

    def test_large_inputs_are_sampled(self):
        """A million coordinates: a sample, which is said, within the cost limit."""
        x = np.ones(200_000)
        sweep = gl.sweep(lambda x: np.dot(x, x), x, grad=lambda x: 2 * x)

        assert len(sweep["x"].columns) <= 64
        assert any("sample" in remark for remark in sweep.remarks)

    def test_slow_functions_are_swept_in_part(self, monkeypatch):
        """Where even one entry of each input takes too long, some are left out."""
        monkeypatch.setattr("gradlab.pipeline.climbing._SECONDS", 1e-9)
        monkeypatch.setattr("gradlab.pipeline.climbing._PATIENCE", 1e-9)
        f = lambda x, y: np.exp(x).sum() + np.exp(y).sum()
        twice = np.where(np.arange(9) == 7, 2, 1)
        vjp = lambda c, x, y: (c * np.exp(x), twice * c * np.exp(y))
        report = gl.check(f, np.ones(9), np.ones(9), vjp=vjp)
        sweep = report.sweep()

        assert sweep.inputs == ("y",)  # the wrong one comes first
        assert sweep["y"].columns.tolist() == [7]
        assert "1 inputs not at all" in " ".join(sweep.remarks)

    def test_sample_contains_the_worst_entry_of_a_report(self):
        """What the check found wrong is in the sweep, however few entries it sees."""
        factor = np.ones(3000)
        factor[1234] = 3
        grad = lambda x: 2 * x * factor
        report = gl.check(lambda x: (x**2).sum(), np.ones(3000), grad=grad)
        sweep = report.sweep(coverage="sample")

        assert len(sweep["x"].columns) < 100
        assert sweep.verdict == gl.Verdict.DISAGREES
        assert "x[1234]" in sweep.reading["x"]

    def test_budget(self):
        """A spent budget leaves gaps, and says so."""
        sweep = gl.sweep(exp_sum, np.ones(3), grad=np.exp, budget=100)

        assert sweep.evaluations <= 100
        assert any("budget" in remark for remark in sweep.remarks)
        assert np.isnan(sweep.errors["central", "x"]).any()

    def test_interrupt(self):
        """Stop gives what was done so far."""
        calls = []

        def f(x):
            calls.append(1)
            if len(calls) == 60:
                raise KeyboardInterrupt
            return np.exp(x).sum()

        sweep = gl.sweep(f, np.ones(3), grad=np.exp)

        assert any("interrupted" in remark for remark in sweep.remarks)
        assert np.isfinite(sweep.errors["central", "x"]).any()

    @pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
    @pytest.mark.parametrize("when", range(1, 40, 6))
    def test_nothing_is_left_displaced(self, error, when):
        """Whatever is raised at whichever evaluation, parameters are restored."""
        params, calls = {"w": np.linspace(0.1, 1, 3)}, []
        before = params["w"].tobytes()

        def f():
            calls.append(1)
            if len(calls) == when:
                raise error
            return np.exp(params["w"]).sum(), {"w": np.exp(params["w"])}

        with contextlib.suppress(KeyboardInterrupt, gl.GradlabError):
            gl.sweep(f, params=params)

        assert params["w"].tobytes() == before

    def test_progress(self):
        """Anything with tqdm's update is moved."""

        class Bar:
            total = 0

            def update(self, n):
                self.total += n

        bar = Bar()
        sweep = gl.sweep(exp_sum, np.ones(3), grad=np.exp, progress=bar)

        assert bar.total == sweep.evaluations

    def test_domain_edge(self):
        """Steps that leave the domain are gaps, not errors."""
        sweep = gl.sweep(
            lambda x: np.sqrt(x).sum(),
            np.array([1e-3]),
            grad=lambda x: 0.5 / np.sqrt(x),
        )
        error = sweep.errors["central", "x"]

        assert np.isnan(error[sweep.steps > 2e-3]).all()
        assert sweep.verdict == gl.Verdict.AGREES


class TestLadder:
    """The steps themselves."""

    def test_default(self):
        """Three per decade from 1e-14 to 1, and nothing to remark."""
        sweep = gl.sweep(exp_sum, np.ones(2), grad=np.exp)

        assert len(sweep.steps) == 43
        assert sweep.steps[[0, -1]] == pytest.approx([1e-14, 1])
        assert not sweep.remarks

    def test_default_follows_the_inputs(self):
        """Inputs of size 1e8: steps up to 1e8, which is remarked."""
        sweep = gl.sweep(
            lambda x: np.sin(x / 1e8).sum(),
            1e8 * np.ones(2),
            grad=lambda x: np.cos(x / 1e8) / 1e8,
        )

        assert sweep.steps[-1] == pytest.approx(1e8)
        assert "size 1e+08" in sweep.remarks[0]
        assert sweep.reading["x"].startswith("V: correct")

    def test_own_steps_are_sorted(self):
        """Steps may be given in any order, once or twice."""
        sweep = gl.sweep(exp_sum, np.ones(2), grad=np.exp, steps=[1e-3, 1e-6, 1e-3])

        assert sweep.steps.tolist() == [1e-6, 1e-3]
        assert sweep.verdict == gl.Verdict.AGREES

    @pytest.mark.parametrize("steps", [[0.0], [-1e-3, 1e-3], [np.nan], [np.inf], []])
    def test_impossible_steps(self, steps):
        """Steps that are no steps are refused, with the reason."""
        with pytest.raises(InputError, match="steps must be positive"):
            gl.sweep(exp_sum, np.ones(2), grad=np.exp, steps=steps)

    def test_steps_of_another_kind(self):
        """Words are no steps."""
        with pytest.raises(InputTypeError, match="steps must be positive"):
            gl.sweep(exp_sum, np.ones(2), grad=np.exp, steps="small")

    @pytest.mark.parametrize("methods", ["adaptive", (), ("central", "newton")])
    def test_unknown_method(self, methods):
        """Only methods that take a step can be swept."""
        with pytest.raises(InputError, match="'central', 'forward'"):
            gl.sweep(exp_sum, np.ones(2), grad=np.exp, methods=methods)

    def test_probing_makes_no_sense(self):
        """Coverage is full or sampled."""
        with pytest.raises(InputError, match="probe"):
            gl.sweep(exp_sum, np.ones(2), grad=np.exp, coverage="probe")

    def test_a_curve_that_there_is_not_is_told_with_those_there_are(self):
        """A method or an input that was not swept; a KeyError says neither."""
        sweep = gl.sweep(exp_sum, np.ones(2), grad=np.exp, steps=[1e-3])

        with pytest.raises(InputError, match=r"'forward', 'x'.*: \('central', 'x'\)"):
            sweep.curve("forward", "x")
