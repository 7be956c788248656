"""Executors that do not answer: one is told why, and what helps."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from typing import ClassVar

import numpy as np
import pytest

import gradlab as gl
from gradlab.differentiation.crews import silence, workers
from gradlab.errors import SubjectError


@pytest.fixture(autouse=True)
def _by_this_clock(clock):
    """Sleeping takes its time on the virtual clock, and none of the machine's."""


def squares(x):
    """A function that is worth an executor."""
    time.sleep(1e-3)
    return (x**2).sum()


class Slow(Executor):
    """Answers one submission late: after so many looks at the silence."""

    def __init__(self, looks):
        self._max_workers = 1
        self._looks, self._late = looks, []

    def submit(self, fn, /, *arguments, **options):
        """Run it at once, but tell nobody of it yet."""
        future = Future()
        answer = fn(*arguments, **options)
        self._late.append((future, answer))
        return future

    def look(self):
        """Stand for half a minute of waiting."""
        self._looks -= 1
        if self._looks <= 0:
            for future, answer in self._late:
                if not future.done():
                    future.set_result(answer)


@pytest.fixture
def waits(monkeypatch):
    """Count waits for an executor, each of which stands for half a minute."""
    seen = []

    def wait(flying, timeout, _when):
        assert timeout == silence.LOOK
        done = {future for future in flying if future.done()}
        if flying and not done:
            seen[-1].look()
        return done, set(flying) - done

    monkeypatch.setattr(workers, "wait", wait)
    return seen


def test_executor_that_does_not_answer_is_told_of_while_one_waits(waits):
    """After half a minute there is a warning, and with the answers the same numbers."""
    executor, x = Slow(looks=3), np.ones(12)
    waits.append(executor)
    with pytest.warns(RuntimeWarning, match="no worker .* for 30 seconds: are they"):
        there = gl.numeric_jacobian(squares, x, method="central", executor=executor)
    here = gl.numeric_jacobian(squares, x, method="central")
    assert there.value.tobytes() == here.value.tobytes()


def test_forked_workers_that_do_not_answer_are_told_of_with_their_remedy(waits):
    """A lock that a thread held at the fork is held in the fork for ever."""
    executor = Slow(looks=2)
    executor._mp_context = multiprocessing.get_context("fork")
    waits.append(executor)
    with pytest.warns(RuntimeWarning, match='get_context."forkserver".'):
        gl.numeric_jacobian(squares, np.ones(12), method="central", executor=executor)


def test_long_work_is_no_silence():
    """Twenty times what a piece should take are waited for without a word."""
    wait = silence.Silence()
    for _ in range(5):
        wait.lasts(None, killed=False, longest=100.0)


def test_cluster_that_lost_all_its_workers_ends_the_wait():
    """Where nobody can answer any more, a sentence does."""

    class Client:
        workers: ClassVar = {"one": 1}

        def nthreads(self):
            return self.workers

    executor = Slow(looks=1)
    executor._client = Client()
    wait = silence.Silence()
    wait.lasts(executor, killed=True, longest=100.0)  # it may come again
    Client.workers.clear()
    wait.lasts(executor, killed=False, longest=100.0)  # none is there yet
    with pytest.raises(SubjectError, match="every worker of executor= has died"):
        wait.lasts(executor, killed=True, longest=100.0)


def test_worker_that_hangs_does_not_outlive_a_budget(monkeypatch, clock):
    """Half of a Jacobian comes back, then nothing: the report comes all the same."""

    class Mute(Slow):
        answers = 0

        def submit(self, fn, /, *arguments, **options):
            future = super().submit(fn, *arguments, **options)
            self.answers += 1
            if self.answers < 8:
                self.look()
            return future

    def wait(flying, timeout, _when):
        done = {future for future in flying if future.done()}
        if flying and not done:
            clock.sleep(timeout)
        return done, set(flying) - done

    monkeypatch.setattr(workers, "wait", wait)
    x = np.ones(1000)
    began = clock.read()
    report = gl.check(
        squares,
        x,
        grad=lambda x: 2 * x,
        coverage="full",
        budget="8s",
        executor=Mute(looks=0),
    )

    assert 8 < clock.read() - began <= 1.2 * 8
    assert report.partial
    assert any("perhaps one hangs" in remark for remark in report.remarks)


class Hanging:
    """Takes every piece, never does one, and keeps its future."""

    def __init__(self, *settings):
        super().__init__(*settings)
        self.kept = []

    def submit(self, fn, /, *args, **kwargs):
        del args, kwargs
        future = Future()
        if fn is not os.getpid:
            self.kept.append(future)
        return future


class HangingPool(Hanging, ProcessPoolExecutor):
    """One that says that it has processes; it starts none."""


class HangingThreads(Hanging, Executor):
    """One that has none."""


@pytest.mark.parametrize("kind", [HangingPool, HangingThreads])
def test_what_nobody_waits_for_is_called_off_but_in_no_pool(kind, monkeypatch):
    """A process pool with a cancelled piece in it leaves zombies where it breaks."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "wait", interrupted)
    executor = kind(*([2] if kind is HangingPool else []))
    with executor, pytest.raises(KeyboardInterrupt):
        gl.check(squares, np.ones(400), grad=lambda x: 2 * x, executor=executor)
    assert len(executor.kept) > 1
    cancelled = [future.cancelled() for future in executor.kept]
    assert cancelled == [kind is HangingThreads] * len(cancelled)
