"""Gradients behind rectifiers, a little wrong: kinks within a step are no noise."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import gradlab as gl
from gradlab.building import Sides, build_subject
from gradlab.comparison.tolerance import Tolerance
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.lines.directions import Direction
from gradlab.differentiation.lines.parts import whole
from gradlab.differentiation.metering.meter import Meter
from gradlab.differentiation.noise.hidden_noise import (
    HALF_SPACING,
    LAST_DIGITS,
    noise_level,
)
from gradlab.differentiation.origin import Origin
from gradlab.localisation.searching.group_testing import measured
from gradlab.localisation.searching.ladders import beyond_rounding
from gradlab.localisation.searching.lines import Line
from gradlab.localisation.searching.search import Search
from gradlab.localisation.searching.set_up import set_up
from gradlab.localisation.searching.tensor_search import Judged, unexplained


def slope(z):
    """Derivative of a leaky rectifier."""
    return np.where(z > 0, 1.0, 0.1)


def rectified(seed):
    """Two leaky layers and a distance, with their gradient and a way to spoil it."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(20, 30))
    first = rng.normal(size=(30, 50)) / 30**0.5
    second = rng.normal(size=(50, 50)) / 50**0.5

    def outputs(x, first, second):
        z = x @ first
        return z, (h := z * slope(z)), (c := h @ second), c * slope(c) - 0.2

    def vjp_of(spoil):
        def vjp(cotangent, x, first, second):
            z, h, c, apart = outputs(x, first, second)
            d = cotangent * np.sign(apart) * slope(c)
            e = d @ second.T * slope(z)
            found = [e @ first.T, x.T @ e, h.T @ d]
            spoil(found)
            return tuple(found)

        return vjp

    return lambda *p: np.abs(outputs(*p)[-1]), (x, first, second), vjp_of


def few(found):
    """Nine entries of the first weights are too large by a thousandth."""
    found[1].flat[9:18] *= 1.001


def more(found):
    """The same nine by a hundredth."""
    found[1].flat[9:18] *= 1.01


def one(found):
    """One entry of the last weights is too large by a hundredth."""
    found[2].flat[3] *= 1.01


def every(found):
    """All of the first gradient is too large by a thousandth."""
    found[0] *= 1.001


SPOILED = [(few, 1), (one, 2), (more, 11), (one, 11), (every, 0), (every, 3)]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("spoil", "seed"), SPOILED)
def test_small_errors_behind_rectifiers_are_told(spoil, seed):
    """Along directions whose first steps cross kinks, a few entries are a little off.

    By the bars of such steps they agreed.
    """
    f, point, vjp_of = rectified(seed)
    report = gl.check(f, *point, vjp=vjp_of(spoil), coverage="probe", seed=seed)

    assert report.verdict == Verdict.DISAGREES


@pytest.mark.parametrize("seed", range(4))
def test_right_gradients_behind_rectifiers_agree_as_cheaply(seed):
    """Nothing is asked twice where nothing is wrong."""
    f, point, vjp_of = rectified(seed)
    right = vjp_of(lambda found: None)
    report = gl.check(f, *point, vjp=right, coverage="probe", seed=seed)

    assert report.verdict == Verdict.AGREES
    assert report.evaluations <= 36


def origin_of(f, x):
    subject = build_subject(f, [x], Sides(jac=lambda x: np.zeros((1, 1))))
    return Origin(subject, subject.row())


def test_rectifiers_that_are_off_have_no_noise():
    """They wake up on one side of a line, which is a kink."""
    origin = origin_of(lambda x: np.maximum(x - 1.005, 0.0), np.ones(40))
    level = noise_level(origin, Meter(), 3, spacing=HALF_SPACING)

    assert (level <= LAST_DIGITS).all()
    assert not beyond_rounding(origin, Meter(), 3).any()


def test_what_moves_a_little_is_no_staircase():
    """Outputs with less round-off than 1e-15 are not asked over longer steps."""
    x = np.linspace(0.5, 1.0, 30)
    around = np.linspace(0.95, 1.05, 20)
    tiny = origin_of(
        lambda x: 1e-3 * np.abs(np.maximum(np.outer(x, around) - x.mean(), 0)).sum(1), x
    )
    stairs = origin_of(lambda x: np.float16(x).astype(float).cumsum(), x)

    assert not beyond_rounding(tiny, Meter(), 0).any()
    assert beyond_rounding(stairs, Meter(), 0).any()


def test_a_kink_within_the_longer_step_is_not_heard_as_noise():
    """The finer step alone tells what noise there is."""
    origin = origin_of(lambda x: np.abs(x - 1.0005).sum(), np.array([1.0, 2.0]))
    direction = Direction(1, whole(origin.subject), (1.0,))
    line = Line(origin, direction, np.ones(1), Meter(), heard=[])
    with line.walk:
        line.step(12)
        line.step(10)

    assert line.kinked
    assert line.noise < 1e-14


@pytest.fixture
def accused():
    """A search that saw a defect of 1e-4 of a gradient."""
    x = np.linspace(0.1, 1.0, 300)
    subject = build_subject(
        lambda x: np.sin(x).sum(), [x], Sides(grad=lambda x: 1.0001 * np.cos(x))
    )
    bench = set_up(subject, tolerance=Tolerance(), meter=Meter(), seed=0)
    search = Search(bench)
    search.shown.append(measured(bench, bench.parts(), [7], resolution=0.0))
    return bench, search


@pytest.mark.parametrize(("bar", "doubted"), [(1e-2, True), (1e-10, False)])
def test_a_defect_that_hides_later_stays_in_doubt(accused, bar, doubted):
    """What was seen and never explained is not right because bars grew over it."""
    bench, search = accused
    (shown,) = search.shown
    assert shown.suspicious
    told = shown.probes[0].numeric
    clear = dataclasses.replace(shown.probes[0], analytic=told, error=bar)
    search.cleared[0] = dataclasses.replace(shown, probes=(clear,))

    assert unexplained(bench, search, Judged()) == ([shown] if doubted else [])


def test_a_defect_that_was_explained_is_settled(accused):
    """An entry that was found wrong, or a tolerance, accounts for it."""
    bench, search = accused
    search.share[0] = 1.0
    assert unexplained(bench, search, Judged()) == []
    search.share.clear()
    assert unexplained(bench, search, Judged()) == search.shown
    bench.patience.forgive(0)
    assert unexplained(bench, search, Judged()) == []
