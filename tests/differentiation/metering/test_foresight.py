"""What a bar is told of work that is not planned yet."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.differentiation.metering.bar import Bar, foreseen
from gradlab.differentiation.metering.meter import Meter
from gradlab.presentation.widgets.progress import NotebookProgress


class Watched(NotebookProgress):
    """A bar that remembers how much was ahead after each evaluation."""

    def __init__(self):
        super().__init__()
        self.ahead = []

    def update(self, n=1):
        """Count, and look at what is left."""
        super().update(n)
        self.ahead += [(self.n, (self.total or 0) - self.n)]


def _metered(total):
    bar = NotebookProgress()
    meter = Meter(bar=Bar(bar))
    meter.bar.begin(total)
    return meter, bar


def test_what_is_expected_inside_is_part_of_what_was_foreseen():
    """10 announced, 100 foreseen, twice 24 expected in time: 110, and 58 in the end."""
    meter, bar = _metered(10)

    with foreseen(meter, 100):
        for _ in range(2):
            meter.expect(24)
            meter.spend(24)
        assert bar.total == 110

    assert (bar.n, bar.total) == (48, 58)


def test_more_than_was_foreseen_makes_the_bar_longer():
    """30 foreseen, 50 expected at once."""
    meter, bar = _metered(10)

    with foreseen(meter, 30):
        meter.expect(50)
        assert bar.total == 60
        meter.spend(50)

    assert bar.total == 60


def test_work_foreseen_within_other_is_told_once():
    """Of 100 evaluations, 40 are foreseen again by those who make them."""
    meter, bar = _metered(10)

    with foreseen(meter, 100):
        with foreseen(meter, 40):
            meter.spend(5)
        assert bar.total == 110

    assert bar.total == 15


def test_the_pace_of_some_parts_tells_of_the_others():
    """Of ten parts the first says nothing of the others, the next two take ten each."""
    meter, bar = _metered(0)
    bar.total = 10

    with foreseen(meter, 6, parts=10) as course:
        meter.spend(90)
        course.goes_on(9, typical=False)
        assert bar.total == 90 + 54
        for left in (8, 7):
            meter.spend(10)
            course.goes_on(left)
        assert bar.total == 110 + 70


def test_an_exception_takes_back_what_was_foreseen():
    """The bar stands where it was."""
    meter, bar = _metered(10)

    with pytest.raises(KeyboardInterrupt), foreseen(meter, 100):
        raise KeyboardInterrupt

    assert (bar.total, meter.bar.announced) == (10, 0)


def _within_two(bar, begun):
    """Share of the course, by evaluations, over which what was left was true within 2.

    Parameters
    ----------
    begun
        Evaluations before which nobody could know.
    """
    steps = [n for n, _ in bar.ahead]
    spent = np.diff([0, *steps])
    told = [
        (count, 0.5 <= ahead / (bar.n - n) <= 2)
        for count, (n, ahead) in zip(spent, bar.ahead, strict=True)
        if begun <= n and bar.n - n >= max(5, 0.1 * bar.n)
    ]
    return sum(count for count, true in told if true) / sum(count for count, _ in told)


def test_a_sweep_knows_what_is_ahead():
    """Ten coordinates on each step of the ladder, twice, and the check before them."""
    bar = Watched()

    gl.sweep(
        lambda x: np.sin(x).sum(),
        np.linspace(0.1, 1.0, 10),
        grad=np.cos,
        progress=bar,
    )

    assert _within_two(bar, 10) > 0.95


def test_of_many_wrong_tensors_the_bar_tells_how_many_are_left():
    """Forty wrong ones: when the search has begun, what is left is true within two."""
    tensors = {f"w{k}": np.full(200, 0.1 + 0.01 * k) for k in range(40)}

    def loss(params):
        grads = {
            name: (1.5 + 0.01 * k) * np.cos(w)
            for k, (name, w) in enumerate(params.items())
        }
        return sum(np.sin(w).sum() for w in params.values()), grads

    bar = Watched()

    report = gl.check(loss, tensors, coverage="probe", progress=bar)

    assert len(report.culprits) == 40
    assert _within_two(bar, 100) > 0.9
