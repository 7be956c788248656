"""Progress is asked for in the same words at every door."""

from __future__ import annotations

import io
import re
import time

import numpy as np
import pytest

import gradlab as gl
from gradlab.presentation.widgets.progress import NotebookProgress, TerminalProgress
from tests.clocks import VirtualClock

X = np.ones(4)


class Bar:
    """The least that tqdm's users rely on."""

    def __init__(self):
        self.n = 0

    def update(self, n):
        self.n += n


def _cube(x):
    return (x**3).sum()


def _blamed(progress):
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh()).double()
    return gl.blame(net, torch.ones(1, 4, dtype=torch.float64), progress=progress)


DOORS = {
    "check": lambda bar: gl.check(_cube, X, grad=lambda x: 3 * x**2, progress=bar),
    "sweep": lambda bar: gl.sweep(_cube, X, grad=lambda x: 3 * x**2, progress=bar),
    "locate": lambda bar: gl.locate(_cube, X, grad=lambda x: 3 * x**2, progress=bar),
    "blame": _blamed,
}


@pytest.mark.parametrize("door", DOORS)
def test_a_bar_of_the_user_counts(door):
    """Whatever has tqdm's update is told how much has been done."""
    bar = Bar()

    DOORS[door](bar)

    assert bar.n > 0


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("progress", [True, False, None])
def test_a_bar_can_be_asked_for_or_not(door, progress, capsys):
    """True draws one in a terminal, which is gone afterwards; False and None do not."""
    DOORS[door](progress)

    told = capsys.readouterr()
    assert told.out == ""
    assert bool(told.err) == (progress is True)
    assert told.err == "" or told.err.endswith(" \r")


@pytest.mark.parametrize("door", DOORS)
def test_what_is_no_bar_is_refused(door):
    """A number is answered with what progress= can be."""
    with pytest.raises(gl.GradlabError, match=r"have tqdm's update\(n\), got int"):
        DOORS[door](3)


def test_progress_tells_how_long_the_rest_takes(monkeypatch):
    """Ten a second and 990 ahead: 99 seconds; twice as many, more than three minutes.

    A phase that is ten times slower is believed after ten looks at it.
    """
    clock = VirtualClock()
    monkeypatch.setattr(time, "monotonic", clock.read)
    bar = NotebookProgress(total=1000)

    def spend(count, each):
        for _ in range(count):
            clock.sleep(each)
            bar.update(1)

    spend(10, 0.1001)
    assert "about 99 s left" in bar.words()
    bar.total = 2000
    assert "about 3 min left" in bar.words()
    bar.total = 60
    spend(10, 1.0)
    told = float(re.search(r"about (\d+) s left", bar.words())[1])
    assert 30 < told < 45  # 40 of them, one a second
    spend(40, 1.0)
    assert "left" not in bar.words()


def test_progress_waits_until_a_pace_can_be_told(monkeypatch):
    """The first evaluation takes a second, to warm up, and the other 309 a hundredth.

    Nothing is promised after one of them, and then the pace is that of the others.
    """
    clock = VirtualClock()
    monkeypatch.setattr(time, "monotonic", clock.read)
    bar = NotebookProgress(total=310)

    clock.sleep(1.0)
    bar.update(1)
    assert "left" not in bar.words()
    for _ in range(60):
        clock.sleep(0.01)
        bar.update(1)
    assert "about 2.5 s left" in bar.words()


class Screen(io.StringIO):
    """A terminal that remembers what was written, and what stands in its line."""

    def isatty(self):
        """Somebody sits before it."""
        return True

    def line(self):
        """Let every letter overwrite what stood in its place."""
        cells = []
        for part in self.getvalue().split("\r"):
            cells[: len(part)] = part
        return "".join(cells).rstrip()


def _slow(clock, seconds):
    def cube(x):
        clock.sleep(seconds)
        return _cube(x)

    return lambda: gl.check(cube, X, grad=lambda x: 3 * x**2)


def _seated(monkeypatch):
    """Put whoever runs the test before a terminal."""
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    return screen


def test_a_check_that_takes_long_says_so_in_a_terminal(monkeypatch):
    """Words with what is left, from the second second on, and an empty line after."""
    screen = _seated(monkeypatch)
    clock = VirtualClock()
    monkeypatch.setattr(time, "monotonic", clock.read)

    _slow(clock, 0.4)()

    assert re.search(
        r"\d of 8 evaluations · \d s .*· Ctrl-C ends it early", screen.getvalue()
    )
    assert screen.line() == ""


@pytest.mark.parametrize("case", ["quick", "dumb", "refused", "piped"])
def test_nobody_is_bothered_by_a_bar(case, monkeypatch):
    """Not for a moment, nor where a line cannot be drawn anew, nor in a log."""
    screen = _seated(monkeypatch)
    clock = VirtualClock()
    monkeypatch.setattr(time, "monotonic", clock.read)
    if case == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    if case == "piped":
        monkeypatch.setattr(screen, "isatty", lambda: False)
    if case == "refused":
        gl.check(_cube, X, grad=lambda x: 3 * x**2, progress=False)
    else:
        _slow(clock, 0.01 if case == "quick" else 1.0)()

    assert screen.getvalue() == ""


def test_a_line_is_no_wider_than_the_terminal(monkeypatch):
    """A full one would scroll, and stay."""
    screen = _seated(monkeypatch)
    monkeypatch.setenv("COLUMNS", "30")
    bar = TerminalProgress(total=1000)
    time.sleep(0.11)
    bar.update(10)

    assert 20 < len(screen.line()) < 30
    bar.close()
    assert screen.line() == ""
