"""Budgets are kept, the cost is told before, and what was not looked at is said.

Seconds are those of a clock that only the functions under test move (`tests.clocks`):
what is promised about them holds to the last evaluation, on any machine.
"""

from __future__ import annotations

import contextlib
import io
import time

import numpy as np
import pytest
import torch

import gradlab as gl
from gradlab.differentiation.metering.budget import Budget
from gradlab.differentiation.metering.meter import BudgetExhausted, Meter
from gradlab.errors import BudgetError
from gradlab.pipeline.coverage import Coverage, Price, estimate

X = np.linspace(0.1, 1.0, 300)


class Counting:
    """Counts its calls, and takes its time."""

    def __init__(self, f, seconds=0.0):
        self.f, self.calls = f, 0
        # in an array no check takes it for a tolerance, to see what less of it does
        self.seconds = np.array([seconds])

    def __call__(self, *arguments):
        self.calls += 1
        if self.seconds.any():
            time.sleep(float(self.seconds[0]))
        return self.f(*arguments)


def cubes(x):
    """Sum of cubes."""
    return (x**3).sum()


def right(x):
    """Return its gradient."""
    return 3 * x**2


def wrong(x):
    """Return its gradient, wrong everywhere."""
    return 3.3 * x**2


def test_a_sample_has_an_entry_of_every_part():
    """Of 6,400 entries the 64 that are looked at are one of each hundred."""
    x = np.linspace(0.1, 1.0, 6400)
    report = gl.check(cubes, x, grad=right, coverage="sample")
    assert (report["x"].columns // 100).tolist() == list(range(64))


@pytest.mark.parametrize("budget", [3, 5, 12])
def test_a_sample_for_want_of_budget_does_not_agree(budget):
    """One wrong entry of thirty is seldom among the few that were looked at."""
    x = np.linspace(0.1, 1.0, 30)
    off = np.where(np.arange(30) == 7, 1.1, 1.0)
    for factor in (1.0, off):
        seen = gl.check(cubes, x, grad=factor * right(x), budget=budget)
        assert seen.coverage == "sample"
        assert seen.verdict == gl.Verdict.UNDECIDED
        assert seen.partial


def test_a_sample_is_told_in_the_first_line():
    """Nobody shall read "agrees" of 6,400 entries where 64 were looked at."""
    x = np.linspace(0.1, 1.0, 6400)
    seen = gl.check(cubes, x, grad=right, coverage="sample")
    told = "✓ agrees: the gradient of x; 64 of 6,400 coordinates looked at"

    assert str(seen).splitlines()[0] == told
    assert "coordinates" not in str(gl.check(cubes, x[:9], grad=right)).splitlines()[0]


@pytest.mark.parametrize(("dtype", "calls"), [("float64", 8), ("float32", 13)])
def test_the_analytic_side_is_asked_once(dtype, calls):
    """For every row; and once more in float64, where its arithmetic is shorter.

    Thrice with other cotangents: it may be right for the rows of a Jacobian alone.
    """
    x, vjp = np.linspace(0.1, 1.0, 5, dtype=dtype), Counting(lambda c, x: c * np.cos(x))
    gl.check(np.sin, x, vjp=vjp, diagnose=False)
    assert vjp.calls == calls


@pytest.mark.parametrize("budget", [20, 54, 201, 500, 1500])
@pytest.mark.parametrize("coverage", ["auto", "full", "sample", "probe"])
@pytest.mark.parametrize("grad", [right, wrong])
def test_evaluations_are_never_exceeded(budget, coverage, grad):
    """Not one call more than was allowed, whatever is looked at and found."""
    f = Counting(cubes)
    report = gl.check(f, X, grad=grad, budget=budget, coverage=coverage)
    assert f.calls <= budget
    assert report.evaluations <= budget
    assert any("estimated before" in remark for remark in report.remarks)
    if grad is wrong:
        assert report.verdict > gl.Verdict.AGREES
        assert report.verdict == gl.Verdict.DISAGREES or budget < 54


@pytest.mark.parametrize("budget", [100, 300])
def test_full_coverage_uses_what_the_budget_leaves(budget):
    """The last slice is no longer than the budget: little of it is left unused."""
    f = Counting(cubes)
    report = gl.check(f, X, grad=right, budget=budget, coverage="full")
    assert report.partial
    assert 0.8 * budget <= f.calls <= budget
    assert report["x0"].shape[1] >= 0.4 * budget
    assert any("coordinates" in r and "budget ended" in r for r in report.remarks)


@pytest.mark.parametrize("each", [5e-3, 2e-2])
@pytest.mark.parametrize("coverage", ["auto", "full", "sample", "probe"])
@pytest.mark.parametrize("grad", [right, wrong])
def test_seconds_are_kept_within_a_fifth(clock, coverage, grad, each):
    """A budget of one second: 1.2 at most; told what was left out."""
    f = Counting(cubes, each)
    began = time.perf_counter()
    report = gl.check(f, X, grad=grad, budget="1s", coverage=coverage)
    took = time.perf_counter() - began
    assert took == pytest.approx(f.calls * each)  # nothing else takes time here
    assert took <= 1.2
    assert report.seconds == pytest.approx(took)
    if coverage == "full":
        assert took > 0.8
        assert report.partial
    if coverage == "auto" and report.coverage == "sample":
        assert any("a sample of" in remark for remark in report.remarks)


def test_seconds_bound_the_analytic_side_too(clock):
    """2000 rows at 2 ms each do not fit into a second: directions are taken instead."""
    A = np.random.default_rng(0).normal(size=(2000, 50))

    def vjp(cotangent, x):
        time.sleep(2e-3)
        return (A.T @ cotangent * np.cos(x),)

    x = np.linspace(0, 1, 50)
    options = {"vjp": vjp, "budget": "1s"}
    report = gl.check(lambda x: A @ np.sin(x), x, **options)
    assert 0 < clock.slept <= 1.2
    assert report.coverage == "probe"

    clock.slept = 0.0
    with pytest.raises(BudgetError, match="before anything could be compared"):
        gl.check(lambda x: A @ np.sin(x), x, coverage="full", **options)
    assert 0 < clock.slept <= 1.2


def _slow_tanh(each, factor):
    """Return a custom Function of torch, both ways of which take `each` seconds."""

    class Tanh(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            time.sleep(each)
            ctx.save_for_backward(x)
            return x.tanh()

        @staticmethod
        def backward(ctx, gradient):
            time.sleep(each)
            (x,) = ctx.saved_tensors
            return factor * gradient * (1 - x.tanh() ** 2)

    return Tanh.apply


@pytest.mark.thinned(2)
@pytest.mark.parametrize("each", [1e-3, 1e-2, 5e-2])
@pytest.mark.parametrize("factor", [1.0, 1.01])
@pytest.mark.parametrize("coverage", ["auto", "full", "sample", "probe"])
def test_seconds_bound_gradients_of_torch_too(clock, each, factor, coverage):
    """Where they are over, no backward is tried with other cotangents either."""
    f = _slow_tanh(each, factor)
    x = torch.linspace(-1, 1, 300, dtype=torch.float64, requires_grad=True)
    with contextlib.suppress(BudgetError):
        report = gl.check(f, x, budget="1s", coverage=coverage)
        never = gl.Verdict.DISAGREES if factor == 1 else gl.Verdict.AGREES
        assert report.verdict != never
    assert clock.slept <= 1.2


def test_what_was_seen_before_the_seconds_were_over_is_told(clock):
    """A layer in training mode costs no look, and is told although others were not."""

    class Slow(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.normalise = torch.nn.BatchNorm1d(3).double()

        def forward(self, x):
            return _slow_tanh(0.3, 1.0)(self.normalise(x))

    model = Slow().eval()
    model.normalise.train()
    x = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3).clone()
    report = gl.check(model, x, budget="6s", loss=lambda y: (y**2).sum(), seed=1)
    assert report.partial
    assert any("was not looked for to the end" in each for each in report.remarks)
    assert gl.BugKind.STATEFUL in {finding.kind for finding in report.findings}


def test_estimate_is_true(clock):
    """For a right gradient, the first pass is what a check costs."""
    f = Counting(cubes, 5e-3)
    report = gl.check(f, X[:150], grad=right, budget="100s", coverage="full")
    (told,) = [r for r in report.remarks if r.startswith("estimated before")]
    words = told.split()
    evaluations, seconds = int(words[2].replace(",", "")), float(words[-2])
    assert evaluations <= f.calls <= 1.1 * evaluations + 10
    assert seconds == pytest.approx(clock.slept, rel=0.1)  # told with two digits


@pytest.mark.parametrize("method", ["auto", "adaptive"])
def test_remaining_time_is_true_within_a_factor_of_two(clock, method):
    """At a quarter, half and three quarters of the way, by tqdm's own words."""
    tqdm = pytest.importorskip("tqdm").tqdm
    seen = []

    class Watching(tqdm):
        def update(self, n=1):
            shown = super().update(n)
            told = self.format_dict
            if told["rate"] and self.total:
                left = (self.total - self.n) / told["rate"]
                seen.append((time.perf_counter(), left))
            return shown

    bar = Watching(file=io.StringIO(), mininterval=0)
    f = Counting(lambda x: np.exp(x).sum(), 4e-3)
    count = 150 if method == "auto" else 24
    gl.check(f, X[:count], grad=np.exp, method=method, coverage="full", progress=bar)
    bar.close()
    end = time.perf_counter()
    assert len(seen) > 100
    shares = [seen[int(share * len(seen))] for share in (0.25, 0.5, 0.75)]
    ratios = [left / (end - when) for when, left in shares]
    assert all(0.5 < ratio < 2 for ratio in ratios), ratios


@pytest.mark.parametrize(
    "budget", [0, -1, 0.5, "0s", "-3s", "soon", "10", True, float("nan"), "nan s"]
)
def test_budget_that_is_none_is_refused(budget):
    """Zero, negative, unreadable: one sentence, and nothing was called."""
    f = Counting(cubes)
    with pytest.raises(BudgetError, match="budget must be a positive number"):
        gl.check(f, X, grad=right, budget=budget)
    assert f.calls == 0


def test_what_is_left_of_a_budget(clock):
    """Evaluations to the last one; of seconds, a tenth at a time."""
    meter = Meter(Budget(evaluations=10))
    meter.spend(7)
    assert meter.left() == 3
    assert Meter().left() > 10**9
    timed = Meter(Budget(seconds=3.0))
    timed.spend(5)
    clock.sleep(1.0)
    assert timed.left() == 0.1 * 2.0 / 0.2 + 1  # and one more in any case
    clock.sleep(2.5)
    assert timed.left() == 1
    with pytest.raises(BudgetExhausted):
        timed.spend(1)


def test_estimate_counts_what_will_be_looked_at():
    """Evaluations of each input by its own method, and the analytic side's time."""
    columns = [np.arange(10), np.arange(4)]
    told = estimate(Coverage("full", columns), Price([2, 24], 0.5, 3.0))
    assert (told.evaluations, told.seconds) == (116, 61.0)
    assert estimate(Coverage("probe", columns), Price([2, 2], 0.1, 1e6)).seconds < 10


@pytest.mark.parametrize("budget", [20, 22, 40, 100, 400])
def test_step_that_nobody_doubted_in_time_accuses_nothing(budget):
    """A right gradient and a chosen step too long: undecided, whatever the budget."""
    x, options = X[:10], {"method": gl.Central(step=0.5), "coverage": "full"}

    def f(x):
        return np.sin(9 * x).sum()

    def slope(x):
        return 9 * np.cos(9 * x)

    report = gl.check(f, x, grad=slope, budget=budget, **options)

    assert report.verdict == gl.Verdict.UNDECIDED
    assert not report.culprits
    told = "no other steps were tried" if report.partial else "the adaptive ladder"
    assert any(told in remark for remark in report.remarks)
    wrong = gl.check(f, x, grad=lambda x: 2 * slope(x), budget=400, **options)
    assert wrong.verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize(
    ("method", "coverage"), [("central", "full"), ("adaptive", "probe")]
)
def test_a_budget_pays_for_the_method_that_was_chosen(method, coverage):
    """Two evaluations for each of 200 coordinates fit into 1000, two dozen do not."""
    x = np.linspace(0.5, 2.0, 200)
    report = gl.check(
        lambda x: np.sin(x).sum(), x, grad=np.cos, method=method, budget=1000
    )

    assert report.coverage == coverage
    assert report.verdict == gl.Verdict.AGREES
    assert not report.partial


@pytest.mark.parametrize("budget", range(20, 120, 9))
def test_complex_entries_are_compared_whole_wherever_a_budget_ends(budget):
    """A budget that ended between the two halves of one ended in a ValueError."""
    z = np.exp(1j * np.linspace(0, 3, 30))

    def jac(z):
        return np.fft.fft(np.diag(2 * z), axis=0)

    report = gl.check(
        lambda z: np.fft.fft(z**2), z, jac=jac, coverage="full", budget=budget
    )

    assert report.evaluations <= budget
    assert report.partial
    assert all(block.counts[2] == 0 for block in report.comparisons)


def test_directions_that_disagree_are_told_before_an_entry_bears_it_out():
    """Undecided, since a direction names no entry: but not as if all were well."""
    w = np.random.default_rng(0).standard_normal((200, 300))
    wrong = 1.0 + (np.arange(w.size).reshape(w.shape) % 7 == 0)
    told = "w: the gradient disagrees along random directions"

    def remarks(factor):
        slope = lambda w: (1 - np.tanh(w) ** 2) * factor
        report = gl.check(lambda w: np.tanh(w).sum(), w, grad=slope, budget=100)
        assert report.verdict < gl.Verdict.DISAGREES
        return " ".join(report.remarks)

    assert told in remarks(wrong)
    assert told not in remarks(1.0)
