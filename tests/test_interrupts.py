"""Ctrl-C at any point: what was known by then, marked as partial, or nothing at all."""

from __future__ import annotations

import time

import numpy as np
import pytest

import gradlab as gl


class Interrupted:
    """A function during whose k-th call somebody presses Ctrl-C."""

    def __init__(self, f, k):
        self.f, self.k, self.calls = f, k, 0

    def __call__(self, *arguments):
        self.calls += 1
        if self.calls == self.k:
            raise KeyboardInterrupt
        return self.f(*arguments)


def f(x):
    """Sum of cubes."""
    return (x**3).sum()


def right(x):
    """Return its gradient."""
    return 3 * x**2


def wrong(x):
    """Return its gradient, but for one entry."""
    slope = 3 * x**2
    slope[7] *= 1.5
    return slope


X = np.linspace(0.5, 1.5, 300)


@pytest.mark.parametrize("k", [140, 400, 600])
def test_full_check_keeps_the_columns_it_has(k):
    """The report says how many, names the input, and cannot agree."""
    report = gl.check(Interrupted(f, k), X, grad=right, coverage="full")
    assert report.partial
    assert report.verdict == gl.Verdict.UNDECIDED
    looked = report["x0"].shape[1]
    assert 0 < looked < 300 or k == 600
    words = f"interrupted: {looked} of 300 coordinates were looked at"
    assert words in report.remarks


@pytest.mark.parametrize("k", [605, 615, 640])
def test_second_looks_that_are_interrupted_leave_the_first(k):
    """The wrong entry was seen in the first pass, and stays wrong."""
    g = Interrupted(f, k)
    report = gl.check(g, X, grad=wrong, coverage="full")
    if g.calls < k:
        pytest.skip("the check was over before")
    assert report.partial
    assert report["x0"].worst(1).label[0] == "x0[7]"


@pytest.mark.parametrize("k", range(3, 40, 4))
@pytest.mark.parametrize("grad", [right, wrong])
def test_directions_that_are_interrupted_agree_with_nothing(k, grad):
    """A search that was cut short may accuse, but not acquit."""
    g = Interrupted(f, k)
    report = gl.check(g, X, grad=grad, coverage="probe")
    if g.calls < k:
        assert not report.partial
        return
    assert report.partial
    assert report.verdict != gl.Verdict.AGREES
    assert "interrupted before the search was over" in report.remarks


@pytest.mark.parametrize("k", [110, 140])
def test_single_entries_that_are_interrupted_blame_no_budget(k):
    """What directions accuse is looked at entry by entry; Ctrl-C there is told so."""
    g = Interrupted(f, k)
    report = gl.check(g, X, grad=wrong, coverage="probe")
    assert g.calls == k
    assert report.verdict == gl.Verdict.DISAGREES
    assert "interrupted before the search was over" in report.remarks


def test_no_cause_is_looked_for_after_stop():
    """A missing term took forty evaluations more, of somebody who wanted none."""
    mixed = lambda x: float((np.sin(x) * x[::-1]).sum() + (x**3).sum())
    g = Interrupted(mixed, 140)

    report = gl.check(
        g,
        np.random.default_rng(0).normal(size=40),
        grad=lambda x: np.cos(x) * x[::-1] + 3 * x**2,
        coverage="full",
    )

    assert g.calls == 140
    assert report.partial
    assert report.verdict == gl.Verdict.DISAGREES


def test_nothing_known_means_nothing_returned():
    """Before the first difference there is no report to give, and that is said."""
    with pytest.raises(KeyboardInterrupt, match=r"check\(\) was stopped before"):
        gl.check(Interrupted(f, 1), X, grad=right)
    with pytest.raises(KeyboardInterrupt, match=r"numeric_jacobian\(\) was stopped"):
        gl.numeric_jacobian(Interrupted(f, 90), X)


def test_gradient_that_is_asked_again_is_interrupted():
    """What was compared by then is a report, which says what was left out."""
    g = Interrupted(right, 2)
    report = gl.check(f, X, grad=g)
    assert g.calls == 2
    assert report.partial
    assert report["x"].shape == (1, 300)
    assert any("was not looked for" in remark for remark in report.remarks)


def test_interrupt_that_waited_for_the_guard_loses_nothing(monkeypatch):
    """All was done, and only things to be put back: the report is whole."""
    from gradlab.subject.state_guard import StateGuard

    leave = StateGuard.__exit__

    def interrupted(guard, *exception):
        leave(guard, *exception)
        raise KeyboardInterrupt

    monkeypatch.setattr(StateGuard, "__exit__", interrupted)
    report = gl.check(f, X, grad=right)
    assert report.verdict == gl.Verdict.AGREES
    assert not report.partial


@pytest.mark.parametrize("k", [3, 10, 25])  # the point takes two: it counts its calls
def test_search_that_is_interrupted_is_not_complete(k):
    """`gl.locate` hands back what it has, and says that there may be more."""
    found = gl.locate(Interrupted(f, k), X, grad=wrong)
    assert not found.complete


def test_sweep_that_is_interrupted_keeps_its_steps():
    """Steps that were finished are in the table."""
    sweep = gl.sweep(Interrupted(f, 500), X[:20], grad=right)
    assert len(sweep.table) > 0
    assert any("interrupted" in remark for remark in sweep.remarks)


@pytest.mark.parametrize("k", [61, 130, 333, 590])
def test_slow_function_loses_less_than_a_second(clock, k):
    """Slices are short where an evaluation is long: little is lost with one."""
    each = 5e-3

    def slow(x):
        time.sleep(each)
        return f(x)

    report = gl.check(Interrupted(slow, k), X, grad=right, coverage="full")
    assert report.partial
    kept = 2 * each * report["x0"].shape[1]
    assert clock.slept == pytest.approx((k - 1) * each)
    assert kept > 0
    assert clock.slept - kept < 1.0


def test_cause_that_is_interrupted_leaves_the_comparison(monkeypatch):
    """What was compared stands; only the diagnosis is missing."""
    import gradlab.pipeline.examining

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(gradlab.pipeline.examining, "diagnose", stop)
    report = gl.check(f, X, grad=wrong)
    assert report.partial
    assert report.verdict == gl.Verdict.DISAGREES
    assert "interrupted: the cause was not looked for" in report.remarks


def test_layers_that_are_interrupted_are_unchecked():
    """`gl.blame` returns the layers it has seen; the others say why they have not."""
    torch = pytest.importorskip("torch")
    count = [0]

    class Stop(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.tanh()

        @staticmethod
        def backward(ctx, g):
            count[0] += 1
            if count[0] == 4:
                raise KeyboardInterrupt
            return g * (1 - ctx.saved_tensors[0].tanh() ** 2)

    class Tanh(torch.nn.Module):
        def forward(self, x):
            return Stop.apply(x)

    layers = [torch.nn.Linear(4, 4), Tanh(), torch.nn.Linear(4, 4), Tanh()]
    net = torch.nn.Sequential(*layers).double()
    audit = gl.blame(net, torch.randn(3, 4, dtype=torch.float64))
    reasons = [row.reason for row in audit.rows]
    assert any("interrupted" in reason for reason in reasons)
    assert not audit.culprits


@pytest.mark.parametrize("door", ["locate", "sweep", "blame"])
def test_finished_work_survives_an_interrupt_of_the_guard(monkeypatch, door):
    """As a check does: there was a result when things were put back."""
    torch = pytest.importorskip("torch")
    from gradlab.subject.state_guard import StateGuard

    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh()).double()
    calls = {
        "locate": lambda: gl.locate(f, X, grad=right).ok,
        "sweep": lambda: len(gl.sweep(f, X[:3], grad=right).table) > 0,
        "blame": lambda: not gl.blame(net, torch.ones(1, 2).double()).culprits,
    }
    leave = StateGuard.__exit__

    def interrupted(guard, *exception):
        leave(guard, *exception)
        raise KeyboardInterrupt

    monkeypatch.setattr(StateGuard, "__exit__", interrupted)
    assert calls[door]()
