"""Evaluations that do not return are ended, and nothing else is."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import gradlab as gl
from gradlab.building import Sides, build_subject
from gradlab.differentiation.evaluation import base_row
from gradlab.differentiation.metering import timeouts
from gradlab.differentiation.metering.meter import Meter
from gradlab.differentiation.metering.timeouts import (
    WATCHING,
    NotReturnedError,
    Timeouts,
    Watch,
    arrive,
)
from gradlab.subject.ending import ended, side_ended

LIMIT = 0.3  # seconds


def forever():
    """Take for ever, as an integration whose step shrinks to nothing does."""
    count = 0
    while True:
        count += 1


def swallowing():
    """Swallow whatever is raised, a few times, and return a number."""
    for _ in range(3):
        try:  # noqa: SIM105 - the slip that is looked at
            forever()
        except:  # noqa: E722 - the same
            pass
    return 1.0


def inverse_by_iteration(x):
    """Solve ``y**3 = x`` by small steps, from x on: for large x, they blow up."""
    y = np.array(x)
    while True:
        step = 0.1 * (y**3 - x)
        y = y - step
        if (np.abs(step) < 1e-9).all():  # never true of nan
            return y


@pytest.mark.parametrize("work", [forever, swallowing])
def test_what_does_not_return_is_ended(work):
    """A loop without an end is, and so is one that catches everything."""
    with Watch(LIMIT, LIMIT, []) as watch, pytest.raises(NotReturnedError):
        watch.call(work)


def test_nothing_arrives_later():
    """After the function has ended, no interruption is under way any more."""
    times: list[float] = []
    with Watch(2 * LIMIT, LIMIT, times) as watch:
        for _ in range(5):
            with pytest.raises(NotReturnedError):
                watch.call(forever)
            arrive()
        assert watch.call(lambda: 6 * 7) == 42
    assert times == sorted(times, reverse=True)
    assert times[0] == 2 * LIMIT
    assert times[-1] == LIMIT


def test_an_exception_of_the_function_comes_through():
    """What a function raises by itself is what the caller gets."""
    with Watch(60.0, 60.0, []) as watch, pytest.raises(ZeroDivisionError):
        watch.call(lambda: 1 / 0)


def test_a_check_ends_where_the_function_does_not_return(monkeypatch):
    """Far points are given up; the report says so, and nothing is accused of it."""
    monkeypatch.setattr(timeouts, "_LONGEST", LIMIT)
    monkeypatch.setattr(timeouts, "_LEAST", LIMIT / 10)
    x = np.array([0.7, 1.1, 0.4])
    report = gl.check(
        inverse_by_iteration,
        x,
        jac=lambda x: np.diag(np.cbrt(x) ** -2.0 / 3),
        method="adaptive",
    )
    assert report.verdict.name == "AGREES"
    assert any("had not returned" in remark for remark in report.remarks)
    assert not report.findings
    assert x.tolist() == [0.7, 1.1, 0.4]
    for thread in threading.enumerate():
        if thread.name == WATCHING:
            thread.join(60.0)
            assert not thread.is_alive()


def test_a_wrong_gradient_is_still_told(monkeypatch):
    """Given up are far points alone; what is near tells a wrong entry."""
    monkeypatch.setattr(timeouts, "_LONGEST", LIMIT)
    monkeypatch.setattr(timeouts, "_LEAST", LIMIT / 10)
    report = gl.check(
        inverse_by_iteration,
        np.array([0.7, 1.1, 0.4]),
        jac=lambda x: np.diag([1.0, 1.0, 1.01] * np.cbrt(x) ** -2.0 / 3),
        method="adaptive",
    )
    assert report.verdict.name == "DISAGREES"
    assert "[2]" in str(report.findings[0])


def test_what_is_usual_goes_by_the_clock_of_the_watch(monkeypatch):
    """Others may be set: a hundredth of what it takes would end what is right."""
    shown = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: shown[0])

    def f(x):
        shown[0] += 3.0
        return x

    meter = Meter()
    base_row(build_subject(f, (np.ones(2),), Sides(jac=lambda _: np.eye(2))), meter)

    assert meter.timeouts.usual == 3.0


@pytest.mark.parametrize(
    ("usual", "seconds"), [(1e-5, [10, 2.5, 0.625, 0.5, 0.1]), (0.01, [10, 2.5, 1, 1])]
)
def test_what_is_ended_often_is_ended_soon(usual, seconds):
    """Of a hundred points without an end all but eight take a tenth of a second.

    A hundred times what is usual is waited for all the same.
    """
    times = Timeouts(usual=usual)
    with times.watching(lambda: float("inf")):
        ended(lambda: None)
        watch = times._watches[False]
        limits = []
        for _ in range(100):
            limits.append(watch._limit)
            times.ended.append(limits[-1])

    assert list(dict.fromkeys(limits)) == list(dict.fromkeys(seconds))
    assert sum(limits[8:]) == pytest.approx(92 * seconds[-1])


def test_a_slow_function_is_waited_for(monkeypatch):
    """A thousand times what it takes at the point is the least that it is given."""
    monkeypatch.setattr(timeouts, "_LONGEST", 0.0)
    slow = Timeouts(usual=3600.0)
    with slow.watching(lambda: 0.0):
        assert ended(lambda: 6 * 7) == 42
    assert not slow.ended


def test_what_is_not_watched_is_left_alone():
    """Before anything is known of a function, and once the watch is over."""
    quick = Timeouts()
    with quick.watching(lambda: 0.0):
        ended(time.sleep, LIMIT)
    ended(time.sleep, LIMIT)

    assert not quick.ended


def test_the_first_gradient_takes_its_time(monkeypatch):
    """What those after it may take goes by that; they are ended by themselves."""
    monkeypatch.setattr(timeouts, "_LONGEST", 0.0)
    monkeypatch.setattr(timeouts, "_LEAST", LIMIT)
    monkeypatch.setattr(timeouts, "_FACTOR", 10.0)
    monkeypatch.setattr(timeouts, "_LEAST_FACTOR", 1.0)
    times = Timeouts(usual=1e-6)
    with times.watching(lambda: float("inf")):
        side_ended(lambda: time.sleep(LIMIT))
        side_ended(lambda: time.sleep(2 * LIMIT))
        with pytest.raises(NotReturnedError, match="not returned after"):
            ended(forever)

    assert len(times.ended) == 1


def wait_if_far(x):
    """Wait for ever, in steps that leave the processor to others."""
    while np.abs(x - X).max() > 1e-2:
        time.sleep(1e-3)


def inverse_far(x, forward=True):
    """Return exp(x), and never where x is far from what it is in these tests."""
    wait_if_far(x)
    return np.exp(x) if forward else np.diag(np.exp(x))


X = np.array([0.3, -0.8, 1.1])
CALLS = {
    "check": lambda f, jac: gl.check(f, X, jac=jac).verdict.name,
    "directions": lambda f, jac: gl.check(f, X, jac=jac, coverage="probe").verdict.name,
    "sweep": lambda f, jac: gl.sweep(f, X, jac=jac).verdicts["x"].name,
    "search": lambda f, jac: "AGREES" if gl.locate(f, X, jac=jac).ok else "DISAGREES",
    "taylor": lambda f, jac: gl.taylor_test(f, X, jac=jac).verdict.name,
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("call", sorted(CALLS))
@pytest.mark.parametrize("slip", [1.0, 1.5])
def test_no_call_waits_for_ever(call, slip, monkeypatch):
    """Neither for f nor for its gradient, whatever is looked at far from the point."""
    monkeypatch.setattr(timeouts, "_LONGEST", LIMIT)
    monkeypatch.setattr(timeouts, "_LEAST", LIMIT / 10)
    monkeypatch.setattr(timeouts, "_FACTOR", 100.0)
    monkeypatch.setattr(timeouts, "_LEAST_FACTOR", 10.0)

    def jac(x):
        return slip * inverse_far(x, forward=False)

    verdict = CALLS[call](inverse_far, jac)

    assert verdict == ("AGREES" if slip == 1 else "DISAGREES")


# half a second of computing, whatever the clock says
SLOW = """
for _ in range(25_000_000):
    pass
loaded = True
"""


@pytest.mark.parametrize("then", [forever, lambda: 2.0])
def test_an_import_is_let_finish(then, tmp_path, monkeypatch):
    """A module that is half loaded would stay so; what comes after it is ended."""
    monkeypatch.setattr(timeouts, "_TOO_LONG", 1e6)  # however slow the machine is
    (tmp_path / "slow_to_load.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "slow_to_load", raising=False)

    def work():
        import slow_to_load

        assert slow_to_load.loaded
        return then()

    given_up = []
    with Watch(LIMIT, LIMIT, given_up) as watch:
        if then is forever:
            with pytest.raises(NotReturnedError):
                watch.call(work)
        else:
            assert watch.call(work) == 2.0
    assert sys.modules["slow_to_load"].loaded
    assert len(given_up) == (then is forever)


def test_an_import_that_never_ends_is_ended_as_well(tmp_path, monkeypatch):
    (tmp_path / "never_loaded.py").write_text("while True:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with Watch(0.05, 0.05, []) as watch, pytest.raises(NotReturnedError):
        watch.call(lambda: importlib.import_module("never_loaded"))


def test_workers_wait_no_longer(monkeypatch):
    """They end what does not return, and the report tells of it."""
    monkeypatch.setattr(timeouts, "_LONGEST", LIMIT)
    monkeypatch.setattr(timeouts, "_LEAST", LIMIT / 10)
    with ThreadPoolExecutor(2) as executor:
        report = gl.check(
            inverse_far,
            X,
            jac=lambda x: 1.01 * np.diag(np.exp(x)),
            method="adaptive",
            executor=executor,
        )

    assert report.verdict.name == "DISAGREES"
    assert any("had not returned" in remark for remark in report.remarks)


class Grown(torch.autograd.Function):
    """The exponential, which never comes back far from a point; off by a factor."""

    slip = 1.0

    @staticmethod
    def forward(ctx, x):
        """Wait, unless the input is near."""
        y = torch.exp(x)
        ctx.save_for_backward(y)
        wait_if_far(x.detach().numpy())
        return y

    @staticmethod
    def backward(ctx, grad):
        """Forget nothing but the factor."""
        return Grown.slip * grad * ctx.saved_tensors[0]


class Growing(torch.nn.Module):
    """A layer of it behind another one."""

    def __init__(self):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
        self.grow = torch.nn.Module()
        self.grow.forward = Grown.apply

    def forward(self, x):
        """Move the input by nothing, and let it grow."""
        return self.grow(x + self.shift).sum()


@pytest.mark.parametrize("slip", [1.0, 1.5])
def test_layers_are_not_waited_for_either(slip, monkeypatch):
    """A model, and the audit of its layers, which runs each of them by itself."""
    monkeypatch.setattr(timeouts, "_LONGEST", LIMIT)
    monkeypatch.setattr(timeouts, "_LEAST", LIMIT / 10)
    monkeypatch.setattr(timeouts, "_FACTOR", 100.0)
    monkeypatch.setattr(timeouts, "_LEAST_FACTOR", 10.0)
    monkeypatch.setattr(Grown, "slip", slip)

    report = gl.check(Growing(), torch.tensor(X))
    audit = gl.blame(Growing(), torch.tensor(X))

    assert report.verdict.name == ("AGREES" if slip == 1 else "DISAGREES")
    assert bool(audit.culprits) == (slip != 1)
