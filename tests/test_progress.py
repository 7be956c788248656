"""Progress is asked for in the same words at every door."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

import gradlab as gl
from gradlab.presentation.widgets.progress import NotebookProgress
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
