"""An interrupt at any moment, the guard's own work included, leaves nothing changed."""

from __future__ import annotations

import contextlib
import gc
import pathlib
import signal
import sys
import threading

import numpy as np
import pytest

from gradlab.subject import state_guard
from gradlab.subject.guarding.alone import alone
from gradlab.subject.guarding.saved_arrays import SavedMemory
from gradlab.subject.state_guard import StateGuard

HERE = str(pathlib.Path(state_guard.__file__).parent)


class Strike:
    """Send a real SIGINT to this process at the n-th line that the guard executes."""

    def __init__(self, after):
        self.left = after

    def __call__(self, frame, event, _argument):
        """Count the lines of the guard's own files, as a trace function."""
        if not frame.f_code.co_filename.startswith(HERE):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGINT)
        return self


def run(after):
    """Mutate everything under a guard that is struck; return what must be untouched."""
    x = np.arange(3.0)
    items, space = [1, x], {"a": x, "b": 2}
    strike = Strike(after)
    interrupted = False
    before = signal.getsignal(signal.SIGINT)
    previous = sys.gettrace()
    try:
        sys.settrace(strike)
        with StateGuard(items, space):
            x += 1.0
            items.clear()
            del space["a"]
            space["c"] = 3
    except KeyboardInterrupt:
        interrupted = True
    finally:
        sys.settrace(previous)
    assert signal.getsignal(signal.SIGINT) is before
    return x.tolist(), items, list(space), interrupted, strike.left <= 0


def test_signal_at_every_line_of_the_guard():
    """Struck at any line of entering or leaving, state is back and the signal heard."""
    after = 1
    while True:
        x, items, keys, interrupted, struck = run(after)
        if not struck:
            break
        assert x == [0.0, 1.0, 2.0], after
        assert len(items) == 2, after
        assert keys == ["a", "b"], after
        assert interrupted, after
        after += 1
    assert after > 500  # the guard's lines were really traced


def test_interrupt_raised_inside_restoring(monkeypatch):
    """Where no signal handler helps, a restoration cut in two is done again."""
    x, y = np.zeros(3), np.zeros(3)
    calls = []
    real = SavedMemory.restore

    def restore(self):
        calls.append(self)
        if len(calls) < 3:
            raise KeyboardInterrupt
        real(self)

    monkeypatch.setattr(SavedMemory, "restore", restore)
    with pytest.raises(KeyboardInterrupt), StateGuard(x, y):  # noqa: PT012 - the block is it
        x += 1
        y += 1

    assert x.tolist() == y.tolist() == [0.0] * 3


def test_interrupt_in_the_body_is_immediate():
    """Deferring is for the guard's own work: the body stops at once."""
    x = np.zeros(1)
    reached = []

    def body():
        x[0] = 1.0
        signal.raise_signal(signal.SIGINT)
        reached.append(True)

    with pytest.raises(KeyboardInterrupt), StateGuard(x):
        body()

    assert x[0] == 0.0
    assert not reached


def test_nested_guards_pass_the_signal_on(monkeypatch):
    """A signal during the inner restoring stops the outer body, not the outer exit."""
    x, reached = np.zeros(1), []
    real = SavedMemory.restore

    def restore(self):
        signal.raise_signal(signal.SIGINT)
        monkeypatch.setattr(SavedMemory, "restore", real)
        real(self)

    with pytest.raises(KeyboardInterrupt), StateGuard(x):  # noqa: PT012 - the block is it
        with StateGuard(x):
            monkeypatch.setattr(SavedMemory, "restore", restore)
            x[0] = 1.0
        reached.append(True)

    assert x[0] == 0.0
    assert not reached


def test_other_threads_are_guarded_too():
    """Outside the main thread no handler can be set, and none is needed."""
    x, seen = np.zeros(1), []

    def work():
        with StateGuard(x):
            x[0] = 1.0
        seen.append(x[0])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert seen == [0.0]


def test_failure_of_one_record_does_not_stop_the_others(monkeypatch):
    """What cannot be put back is told; the rest is put back."""
    x, y = np.zeros(3), np.zeros(3)
    real = SavedMemory.restore

    def restore(self):
        if self._found.value is x:
            raise ValueError("x is stuck")
        real(self)

    monkeypatch.setattr(SavedMemory, "restore", restore)
    with StateGuard(x, y) as guard:
        x += 1
        y += 1

    assert y.tolist() == [0.0] * 3
    [remark] = guard.remarks
    assert remark.endswith("ValueError: x is stuck")


@pytest.mark.parametrize("after", range(1, 40))
def test_an_interrupt_stops_no_check_that_comes_after(after):
    """While a guard is being entered either: what it had locked would stay so."""
    before = sys.gettrace()
    sys.settrace(Strike(after))
    try:
        with contextlib.suppress(KeyboardInterrupt), StateGuard(np.zeros(1)):
            pass
    finally:
        sys.settrace(before)
    gc.collect()
    told = []

    def again():
        with StateGuard(np.zeros(1)):
            told.append(alone())

    thread = threading.Thread(target=again, daemon=True)
    thread.start()
    thread.join(20)

    assert told == [True]
