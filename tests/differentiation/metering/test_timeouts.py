"""Evaluations that do not return are ended, and nothing else is."""

from __future__ import annotations

import importlib
import sys
import threading

import numpy as np
import pytest

import gradlab as gl
from gradlab.differentiation.metering import timeouts
from gradlab.differentiation.metering.timeouts import (
    WATCHING,
    NotReturnedError,
    Timeouts,
    Watch,
    arrive,
)

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
    ended: list[float] = []
    with Watch(2 * LIMIT, LIMIT, ended) as watch:
        for _ in range(5):
            with pytest.raises(NotReturnedError):
                watch.call(forever)
            arrive()
        assert watch.call(lambda: 6 * 7) == 42
    assert ended == sorted(ended, reverse=True)
    assert ended[0] == 2 * LIMIT
    assert ended[-1] == LIMIT


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


def test_a_slow_function_is_waited_for(monkeypatch):
    """A thousand times what it takes at the point is the least that it is given."""
    monkeypatch.setattr(timeouts, "_LONGEST", 0.0)
    slow = Timeouts(usual=3600.0)
    with slow.watching():
        assert slow.watch is not None
        assert slow.watch.call(lambda: 6 * 7) == 42
    assert slow.watch is None
    assert not slow.ended


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

    ended = []
    with Watch(LIMIT, LIMIT, ended) as watch:
        if then is forever:
            with pytest.raises(NotReturnedError):
                watch.call(work)
        else:
            assert watch.call(work) == 2.0
    assert sys.modules["slow_to_load"].loaded
    assert len(ended) == (then is forever)


def test_an_import_that_never_ends_is_ended_as_well(tmp_path, monkeypatch):
    (tmp_path / "never_loaded.py").write_text("while True:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with Watch(0.05, 0.05, []) as watch, pytest.raises(NotReturnedError):
        watch.call(lambda: importlib.import_module("never_loaded"))
