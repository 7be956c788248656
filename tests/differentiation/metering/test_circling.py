"""What goes round in circles is ended soon; what stands behind one line is not."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

import gradlab as gl
from gradlab.differentiation.metering import timeouts
from gradlab.differentiation.metering.timeouts import NotReturnedError, Timeouts, Watch

SOON, LATE = 0.4, 60.0  # seconds

# of a library, by its name: as compilers are
LIBRARY = {"__name__": "numpy.compiled_late"}
exec(
    """
def compiled(seconds, clock):
    passes, began = [], clock()
    while clock() < began + seconds:
        passes = [*passes[-9:], clock()]
    return 42.0
""",
    LIBRARY,
)


def counting():
    """No call in it."""
    count = 0
    while True:
        count += 1


def iterating():
    """A fixed point that is none: it turns round it."""
    turn, z = np.array([[0.0, -1.0], [1.0, 0.0]]), np.array([1.0, 0.5])
    while True:
        after = turn @ z
        if np.linalg.norm(after - z) < 1e-3:
            return z
        z = after


def compiling():
    """Behind one line, in many."""
    return LIBRARY["compiled"](3 * SOON, time.monotonic)


def waiting():
    """For a file, or another program."""
    time.sleep(3 * SOON)
    return 42.0


@pytest.mark.parametrize("work", [counting, iterating])
def test_an_iteration_without_an_end_is_ended_soon(work):
    """It comes back to where it was."""
    began = time.monotonic()
    with (
        Watch(LATE, SOON / 20, [], rounds=SOON) as watch,
        pytest.raises(NotReturnedError),
    ):
        watch.call(work)

    assert time.monotonic() - began < LATE / 2


@pytest.mark.parametrize("work", [compiling, waiting])
def test_a_long_call_is_let_finish(work):
    """As a first compilation, that takes longer than all evaluations before."""
    with Watch(LATE, SOON / 20, [], rounds=SOON) as watch:
        assert watch.call(work) == 42.0


def test_a_slow_function_may_go_round_for_long():
    """A thousand times what it takes at the point, whatever it does meanwhile."""
    slow = Timeouts(usual=3600.0)
    with slow.watching(lambda: float("inf")):
        slow.call(lambda: None)
        watch = slow._watches[False]

    assert watch._first_round == watch._first == 3.6e6


def test_a_check_of_a_fixed_point_does_not_wait_long(monkeypatch):
    """Far from the point there is none, and the iteration has no end: 12 s, before.

    Each evaluation at the point takes a tenth of a millisecond.
    """
    weights = 0.25 * np.random.default_rng(0).normal(size=(4, 4))
    x = np.random.default_rng(5).normal(size=4)

    def fixed(weights, x, tol=1e-8):
        z = np.zeros_like(x)
        for count in itertools.count():
            z, before = np.tanh(weights @ z + x), z
            if np.linalg.norm(z - before) < tol:
                return z, count
        return None

    def grad(weights, x):
        z, _ = fixed(weights, x, 1e-14)
        slopes = 1 - z**2
        inner = np.eye(4) - slopes[:, None] * weights
        found = slopes * np.linalg.solve(inner.T, 2 * z)
        return np.outer(found, z), found

    def f(weights, x):
        return float((fixed(weights, x)[0] ** 2).sum())

    monkeypatch.setattr(timeouts, "_LONGEST", LATE)
    report = gl.check(f, weights, x, grad=grad)

    assert report.verdict.name == "AGREES"
    given_up = [remark for remark in report.remarks if "had not returned" in remark]
    assert given_up
    assert f"after {LATE:g} s" not in given_up[0]
