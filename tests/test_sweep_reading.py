"""Sweeps of the step: what is read off them, for every kind of subject."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import zlib

import numpy as np
import pytest

import gradlab as gl
from gradlab import Verdict
from gradlab.errors import InputError
from tests.specimens import tanh_network
from tests.specimens.sweeps import exp_sum


@pytest.fixture(scope="module")
def doubled():
    """The tutorial's network: the gradient of W1 is doubled, the others are right."""
    return gl.sweep(*tanh_network.doubled())


class TestReading:
    """One sentence per input, and a verdict that no single step decides."""

    def test_plateau_with_its_factor(self, doubled):
        """The doubled W1 is a plateau at a third, by a factor of two."""
        reading = doubled.reading["W1"]

        assert reading.startswith("plateau at 0.33 from")
        assert "analytic = 2.000 x numeric" in reading
        assert doubled.verdicts["W1"] == gl.Verdict.DISAGREES

    def test_plateau_spans_many_decades(self, doubled):
        """It stands more than three decades wide, far above the valley floor."""
        words = doubled.reading["W1"].split(":")[0].split()
        start, stop = float(words[-3]), float(words[-1])

        assert stop / start > 1e3
        assert doubled.floor["W1"] < 1e-6

    @pytest.mark.parametrize("name", ["b1", "W2", "b2"])
    def test_right_inputs_are_read_as_right(self, doubled, name):
        """The other three parameters are correct."""
        assert doubled.verdicts[name] == gl.Verdict.AGREES
        assert "correct" in doubled.reading[name]
        assert doubled.floor[name] < 1e-8

    def test_valley(self):
        """A right gradient is a V with its best step and floor."""
        reading = gl.sweep(exp_sum, np.ones(2), grad=np.exp).reading["x"]

        assert reading.startswith("V: correct, best step ")
        assert "floor" in reading
        assert "side" not in reading

    def test_an_edge_of_the_domain_is_told(self):
        """Where f is nan to the left, the V is one of steps to the right."""
        sweep = gl.sweep(
            lambda x: np.where(x >= 0, np.exp(3 * x), np.nan).sum(),
            np.array([0.0, 0.3]),
            grad=lambda x: 3 * np.exp(3 * x),
        )

        assert sweep.verdict == gl.Verdict.AGREES
        assert sweep.reading["x"].startswith("V: correct, best step ")
        assert "; only one side of the point exists" in sweep.reading["x"]
        assert sweep.reading["x"].endswith("; at steps from 5e-01 on f is not finite")

    def test_small_factor_is_read_off(self):
        """A relative error of 1e-5 is a plateau, and the factor is not rounded away."""
        wrong = lambda x: np.exp(x) * (1 + 1e-5)
        sweep = gl.sweep(exp_sum, np.ones(2), grad=wrong)

        assert sweep.verdict == gl.Verdict.DISAGREES
        assert "analytic = 1.00001 x numeric" in sweep.reading["x"]

    def test_sign(self):
        """A flipped sign is the factor -1 at relative error 1."""
        reading = gl.sweep(exp_sum, np.ones(5), grad=lambda x: -np.exp(x)).reading["x"]

        assert reading.startswith("plateau at 1 from")
        assert "analytic = -1.000 x numeric" in reading

    def test_missing_term(self):
        """An analytic side of zeros is called a missing term."""
        reading = gl.sweep(exp_sum, np.ones(5), grad=np.zeros_like).reading["x"]

        assert "exactly 0: a term is missing" in reading

    def test_single_wrong_entry_is_named(self):
        """One entry of twenty: its name and both values."""
        factor = np.ones(20)
        factor[13] = 1.5
        sweep = gl.sweep(exp_sum, np.zeros(20), grad=lambda x: factor * np.exp(x))

        assert "x[13]: analytic 1.5, numeric 1" in sweep.reading["x"]
        assert "in 1 of 20 entries" in sweep.reading["x"]

    @pytest.mark.parametrize("shift", [3e-4, -2e-6])
    def test_lucky_crossing_is_not_agreement(self, shift):
        """A wrong gradient that equals the quotient at one step is still wrong.

        d sin(x)/dx + shift equals a forward difference at exactly one step.
        """
        x = np.array([1.0])
        sweep = gl.sweep(
            lambda x: np.sin(x).sum(), x, grad=lambda x: np.cos(x) - shift,
            methods=("forward", "central"),
        )  # fmt: skip
        crossing = np.nanmin(sweep.errors["forward", "x"])

        assert crossing < np.median(sweep.errors["central", "x"])
        assert sweep.verdict == gl.Verdict.DISAGREES
        assert "correct" not in sweep.reading["x"]

    def test_kink_at_a_distance(self):
        """A kink 3e-4 away is found there; the gradient is right all the same."""
        sweep = gl.sweep(
            lambda x: np.abs(x - 1.0003).sum() + np.exp(x).sum(),
            np.ones(1),
            grad=lambda x: np.sign(x - 1.0003) + np.exp(x),
        )

        assert sweep.verdict == gl.Verdict.AGREES
        assert "kink at distance 3e-04" in sweep.reading["x"]
        assert sweep.best_step["x"] < 3e-4

    def test_kink_at_the_point(self):
        """relu at 0: both slopes are given, a value between them passes."""
        relu = lambda x: np.maximum(x, 0).sum()
        reading = gl.sweep(relu, np.zeros(1), grad=lambda x: 0.5 + 0 * x).reading["x"]

        assert "the slopes are 0 and 1" in reading
        assert "sub-gradient" in reading

    def test_float32_noise_is_no_bug(self):
        """A right float32 gradient: correct, with the floor of its precision."""
        sweep = gl.sweep(
            lambda x: np.exp(x).sum(dtype=np.float32),
            np.ones(3, np.float32),
            grad=np.exp,
        )

        assert sweep.verdict == gl.Verdict.AGREES
        assert "float32 noise floor" in sweep.reading["x"]
        assert 1e-7 < sweep.floor["x"] < 1e-3

    def test_single_precision_inside(self):
        """A float64 function with float32 inside is told to be noisy, not wrong."""
        hidden = lambda x: float(np.exp(x.astype(np.float32)).sum())
        sweep = gl.sweep(hidden, np.ones(3), grad=np.exp)

        assert sweep.verdict < gl.Verdict.DISAGREES
        assert "noise" in sweep.reading["x"]
        assert 1e-3 < sweep.best_step["x"] < 0.1

    def test_constant_function(self):
        """Zero on both sides is exactly equal at every step."""
        sweep = gl.sweep(lambda x: 0 * x.sum(), np.ones(2), grad=np.zeros_like)

        assert "exactly equal at every step" in sweep.reading["x"]

    def test_noise_is_undecided(self):
        """A function that is nothing but noise cannot be decided, and says so."""
        noise = np.random.default_rng(0).normal(size=1 << 16)

        def rough(x):
            return float(np.sin(x).sum() + noise[zlib.crc32(x.tobytes()) & 0xFFFF])

        sweep = gl.sweep(rough, np.ones(1), grad=np.cos)

        assert sweep.verdict == gl.Verdict.UNDECIDED
        assert "correct" not in sweep.reading["x"]


class TestEntry:
    """A single entry, read by itself."""

    def test_verdict_of_one_entry(self):
        """In a block with one wrong entry the others are right."""
        wrong = lambda W: 3 * W**2 * np.array([[1, 1], [1, 2]])
        sweep = gl.sweep(lambda W: (W**3).sum(), np.ones((2, 2)), grad=wrong)

        assert sweep.entry("W", (1, 1)).verdict == gl.Verdict.DISAGREES
        assert sweep.entry("W", 0).verdict == gl.Verdict.AGREES
        assert "2.000 x" in sweep.entry("W", (1, 1)).reading["W[1, 1]"]
        assert sweep.entry("W", (0, 1)).reading["W[0, 1]"].startswith("V: correct")

    def test_unknown_entry(self):
        """An entry that does not exist is named in the answer."""
        sweep = gl.sweep(exp_sum, np.ones(2), grad=np.exp)

        with pytest.raises(InputError, match=r"x\[7\]"):
            sweep.entry("x", (7,))

    @pytest.mark.parametrize("index", [2, -1])
    def test_position_beyond_the_input(self, index):
        """It is refused like an index, with what there is."""
        sweep = gl.sweep(exp_sum, np.ones(2), grad=np.exp)

        with pytest.raises(InputError, match=r"there is row 0 of x\[0\], x\[1\]$"):
            sweep.entry("x", index)

    def test_the_one_entry_of_a_scalar(self):
        """It stands at position 0 and at the empty index."""
        sweep = gl.sweep(np.exp, np.array(1.0), grad=np.exp, names=["c"])

        assert sweep.entry("c", 0).inputs == sweep.entry("c", ()).inputs == ("c",)

    def test_unknown_input(self):
        """An input that does not exist is answered with those that do."""
        with pytest.raises(InputError, match="has: x"):
            gl.sweep(exp_sum, np.ones(2), grad=np.exp)["y"]


class TestSubjects:
    """Every kind of subject can be swept."""

    def test_several_outputs(self):
        """A Jacobian with rows: the worst of all rows."""
        A = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        wrong = lambda x: A * np.array([[1], [1], [2]])
        sweep = gl.sweep(lambda x: A @ x, np.ones(2), jac=wrong)

        assert sweep.analytic["x"].shape == (3, 2)
        assert "out[2] / x[" in sweep.reading["x"]
        assert sweep.verdict == gl.Verdict.DISAGREES

    def test_complex_input(self):
        """|z|^2 has gradient 2z; real and imaginary parts are two coordinates."""
        f = lambda z: (np.abs(z) ** 2).sum()
        right = gl.sweep(f, np.array([1 + 2j]), grad=lambda z: 2 * z)
        wrong = gl.sweep(f, np.array([1 + 2j]), grad=lambda z: 2 * np.conj(z))

        assert right.verdict == gl.Verdict.AGREES
        assert "z[0].imag" in wrong.reading["z"]

    @pytest.mark.parametrize("dtype", [np.float16, np.float32])
    def test_low_precision(self, dtype):
        """A right gradient in low precision has a readable ladder of its own."""
        sweep = gl.sweep(lambda x: np.exp(x).sum(), np.ones(2, dtype), grad=np.exp)

        assert sweep.verdict == gl.Verdict.AGREES
        assert len(sweep.steps) >= 18
        assert f"{np.dtype(dtype)} noise floor" in sweep.reading["x"]

    @pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e250])
    def test_any_scale(self, scale):
        """log x at any x is a V whose best step follows x."""
        x = np.array([3 * scale])
        sweep = gl.sweep(lambda x: np.log(x).sum(), x, grad=lambda x: 1 / x)

        assert sweep.reading["x"].startswith("V: correct")
        assert 1e-7 * scale < sweep.best_step["x"] < 1e-3 * scale

    def test_short_ladder(self):
        """Three steps make no curve, and the reading says so."""
        steps = [1e-8, 1e-5, 1e-2]
        sweep = gl.sweep(exp_sum, np.ones(2), grad=np.exp, steps=steps)

        assert "a ladder of 3 is too short" in sweep.reading["x"]

    def test_empty_input(self):
        """An input without entries is read as empty, and can be drawn."""
        sweep = gl.sweep(exp_sum, np.ones((0, 3)), grad=np.exp)

        assert sweep.reading["x"].startswith("empty")
        assert sweep.plot().ax_

    def test_dropout_is_frozen(self):
        """Random forwards are frozen to one draw, which is remarked."""
        torch = pytest.importorskip("torch")
        net = torch.nn.Sequential(
            torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Dropout(0.5)
        ).double()
        sweep = gl.sweep(net, torch.ones(2, 4, dtype=torch.float64))

        assert sweep.verdict == gl.Verdict.AGREES
        assert any("frozen to one draw" in remark for remark in sweep.remarks)

    def test_torch(self):
        """A custom Function with a wrong backward is a plateau."""
        torch = pytest.importorskip("torch")

        from tests.specimens.squares import squared

        square = squared(lambda x, g: g * 3 * x)
        x = torch.linspace(0.5, 1, 3, dtype=torch.float64, requires_grad=True)
        sweep = gl.sweep(lambda x: square(x).sum(), x)

        assert "analytic = 1.500 x numeric" in sweep.reading["x"]
        assert x.grad is None

    def test_accumulated_gradient(self):
        """Ten passes without zeroing: 9/11 at every step, and the factor is told."""
        x = np.linspace(0.1, 1, 10)
        sweep = gl.sweep(exp_sum, x, grad={"x": 10 * np.exp(x)})

        assert sweep.reading["x"].startswith("plateau at 0.82")
        assert "10.000 x" in sweep.reading["x"]


class TestReport:
    """Sweeping what a check has seen."""

    def test_same_verdicts(self):
        """report.sweep() and gl.sweep() agree with the report."""
        report = gl.check(exp_sum, np.ones(2), grad=lambda x: 2 * np.exp(x))

        assert report.sweep().verdict == report.verdict
        assert gl.sweep(report).reading == report.sweep().reading
        assert report.sweep().report is report

    def test_report_brings_its_inputs(self):
        """Inputs and gradients beside a report are refused."""
        report = gl.check(exp_sum, np.ones(2), grad=np.exp)

        with pytest.raises(InputError, match="leave out inputs"):
            gl.sweep(report, np.ones(2))
        with pytest.raises(InputError, match="leave out grad="):
            report.sweep(grad=np.exp)

    def test_loaded_report(self):
        """Without its subject a report cannot be swept, and says what to do."""
        report = gl.check(exp_sum, np.ones(2), grad=np.exp)
        report = dataclasses.replace(report, live=None)

        with pytest.raises(InputError, match="no subject at hand"):
            report.sweep()

    def test_wrt(self):
        """A part of the inputs can be swept."""
        f = lambda x, y: (np.exp(x) * y).sum()
        vjp = lambda c, x, y: (c * np.exp(x) * y, c * np.exp(x))
        report = gl.check(f, np.ones(2), np.ones(2), vjp=vjp)

        assert report.sweep(wrt="y").inputs == ("y",)

    def test_the_name_stays_a_function(self):
        """Touching the class first does not hide the function."""
        code = "import gradlab as gl; gl.Sweep; print(callable(gl.sweep))"
        run = [sys.executable, "-c", code]
        done = subprocess.run(run, capture_output=True, text=True, check=True)

        assert done.stdout.strip() == "True"


def test_slopes_that_nobody_has_seen_are_no_agreement():
    """Through twenty layers of small gain f does not move by one digit."""
    gains = np.full(20, 0.05)

    def through(x):
        for gain in gains:
            x = np.tanh(gain * x)
        return 1 + x

    def slope(x):
        total = np.ones_like(x)
        for gain in gains:
            x = np.tanh(gain * x)
            total *= gain * (1 - x**2)
        return total

    sweep = gl.sweep(
        lambda x, b: (through(x) + b).sum(),
        np.array([0.7, -0.4]),
        np.ones(2),
        grad=lambda x, b: (slope(x), np.ones(2)),
    )

    assert sweep.verdicts["x"] == Verdict.UNDECIDED
    assert sweep.reading["x"].startswith("no resolution at x[")
    assert sweep.verdicts["b"] == Verdict.AGREES


def test_an_error_of_nothing_is_written_as_nothing():
    """On either side of its kink |x| is exact: there is neither V nor error."""
    sweep = gl.sweep(lambda x: np.abs(x).sum(), np.array([2.0**-13]), grad=np.sign)

    told = "correct: both sides are exactly equal up to a kink at distance 1e-04"
    assert sweep.reading["x"].startswith(told)
    assert sweep.floor["x"] == 0
