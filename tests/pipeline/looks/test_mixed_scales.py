"""One input vector whose entries are different things: a constant, a rate, a mass."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special as sp

import gradlab as gl


def equilibrium(x):
    """Three residuals, by a constant of 3e-12, 2e-3 mol and 4e6 Pa."""
    constant, amount, pressure = x
    return np.array(
        [
            np.log10(constant) + 2 * np.log10(amount) - np.log(pressure),
            amount**2 / (1e-3 + amount) - 1e8 * constant,
            1e-3 * np.sqrt(pressure) + np.exp(-100 * amount),
        ]
    )


def equilibrium_jacobian(x):
    """Return its Jacobian by hand."""
    constant, amount, pressure = x
    ten = np.log(10)
    slope = amount * (amount + 2e-3) / (amount + 1e-3) ** 2
    return np.array(
        [
            [1 / (constant * ten), 2 / (amount * ten), -1 / pressure],
            [-1e8, slope, 0.0],
            [0.0, -100 * np.exp(-100 * amount), 5e-4 / np.sqrt(pressure)],
        ]
    )


def orbit(x):
    """Force, energy and excess speed by G, two masses, a distance and a speed."""
    g, sun, earth, r, v = x
    pull = g * sun * earth / r
    return np.array([pull / r, earth * v**2 / 2 - pull, np.sqrt(g * sun / r) - v])


def orbit_jacobian(x):
    """Return its Jacobian by hand."""
    g, sun, earth, r, v = x
    pull, speed = g * sun * earth / r, np.sqrt(g * sun / r)
    per = np.array([1 / g, 1 / sun, 1 / earth, -1 / r, 0.0])
    force = pull / r * (per + np.array([0, 0, 0, -1 / r, 0]))
    energy = -pull * per + np.array([0, 0, v**2 / 2, 0, earth * v])
    round_ = speed / 2 * np.array([1 / g, 1 / sun, 0, -1 / r, 0])
    return np.array([force, energy, round_ - np.array([0, 0, 0, 0, 1.0])])


def saturating(x):
    """A logarithm far out, and a small amount that saturates, as a rate does."""
    return np.array([np.log(x[0]), 1e6 * x[1] ** 2 / (1 + 1e3 * x[1])])


def saturating_jacobian(x):
    """Return its Jacobian by hand."""
    slope = 1e6 * x[1] * (2 + 1e3 * x[1]) / (1 + 1e3 * x[1]) ** 2
    return np.array([[1 / x[0], 0.0], [0.0, slope]])


def averaged(x):
    """A sine that a step of the vector's own size passes many times."""
    return np.array([140 * np.sin(300 * x[0]) + x[1] * np.cos(1e-7 * x[1])])


def averaged_jacobian(x):
    """Return its Jacobian by hand."""
    far = 1e-7 * x[1]
    return np.array([[42e3 * np.cos(300 * x[0]), np.cos(far) - far * np.sin(far)]])


CASES = {
    "equilibrium": (equilibrium, equilibrium_jacobian, [3e-12, 2e-3, 4e6]),
    "orbit": (orbit, orbit_jacobian, [6.7e-11, 2e30, 6e24, 1.5e11, 3e4]),
    "saturating": (saturating, saturating_jacobian, [6.2e13, 7.3e-3]),
    "averaged": (averaged, averaged_jacobian, [2e-3, 4e6]),
}


def accused_by(door, f, x, jacobian):
    """Entries that a door accuses, as (row, column)."""
    if door == "check":
        report = gl.check(f, x, jac=lambda _: jacobian)
        wrong = report["x"].verdicts == gl.Verdict.DISAGREES
        return np.argwhere(wrong).tolist()
    found = gl.locate(f, x, jac=lambda _: jacobian)
    return sorted([*entry.output_index, *entry.index] for entry in found.entries)


@pytest.mark.parametrize("door", ["check", "locate"])
@pytest.mark.parametrize("name", CASES)
def test_right_gradients_are_not_accused(name, door):
    """Numbers from 1e-12 to 1e30 side by side are no mistake."""
    f, jacobian, point = CASES[name]
    x = np.array(point)
    assert accused_by(door, f, x, jacobian(x)) == []


@pytest.mark.thinned(3)
@pytest.mark.parametrize("door", ["check", "locate"])
@pytest.mark.parametrize("factor", [-1.0, 0.0, 0.5, 1.1, 500.0])
@pytest.mark.parametrize("name", CASES)
def test_each_entry_is_judged_on_its_own_scale(name, factor, door):
    """Of every entry that is not zero a mistake is told, wherever the others are."""
    f, jacobian, point = CASES[name]
    x = np.array(point)
    places = np.argwhere(jacobian(x) != 0).tolist()
    if door == "locate":  # all of them in one search
        wrong = np.where(jacobian(x) != 0, factor * jacobian(x), 0.0)
        assert accused_by(door, f, x, wrong) == places
        return
    for row, column in places:
        wrong = jacobian(x)
        wrong[row, column] *= factor
        assert accused_by(door, f, x, wrong) == [[row, column]]


def test_power_is_stated_for_the_smallest_numbers_too():
    """No entry of the orbit is left with room for an error of its own size."""
    x = np.array(CASES["orbit"][2])
    report = gl.check(orbit, x, jac=orbit_jacobian)
    assert report["x"].power < 1e-5 * np.abs(orbit_jacobian(x)).max()


def _record(calls=None, stop_at=None):
    """A mixed vector beside a plain one, and its right gradients."""
    x, y = np.array([3e-12, 2e-3, 4e6, 1.0]), np.random.default_rng(0).normal(size=30)
    calls = [] if calls is None else calls

    def f(x, y):
        calls.append(1)
        if len(calls) == stop_at:
            raise KeyboardInterrupt
        smooth = np.log(x[0]) + 1e6 * x[1] ** 2 + x[2] / 1e6 + np.sin(x[3])
        return smooth + (y**2).sum()

    def vjp(x, y, v):
        return v * np.array([1 / x[0], 2e6 * x[1], 1e-6, np.cos(x[3])]), v * 2 * y

    return f, x, y, vjp


@pytest.mark.parametrize("budget", [3, 13, 25, 31, 40, 43])
def test_a_search_that_is_cut_short_names_nothing_that_is_right(budget):
    """And it returns, wherever its evaluations end."""
    f, x, y, vjp = _record()

    found = gl.locate(f, x, y, vjp=vjp, budget=budget)

    assert found.ok
    assert not found.complete
    assert found.stopped
    assert found.evaluations <= budget


@pytest.mark.parametrize("at", [5, 15, 30])
def test_a_search_that_is_interrupted_evaluates_no_more(at):
    """The inputs that were not looked at are suspects."""
    calls = []
    f, x, y, vjp = _record(calls, at)

    found = gl.locate(f, x, y, vjp=vjp)

    assert len(calls) == at
    assert not found.complete
    assert "x" in {suspect.input for suspect in found.suspects}


def _one_small_among_many(count, factor, seed=0):
    """A sine of 2e-3 and a sum of 4e6s; the slope of the sine times a factor."""
    rng = np.random.default_rng(seed)
    place = int(rng.integers(count))
    x = 4e6 * rng.uniform(0.5, 1.5, count)
    x[place] = 2e-3 * rng.uniform(0.5, 1.5)
    weights = np.where(np.arange(count) == place, 0.0, rng.normal(size=count))

    def f(x):
        return np.sin(300 * x[place]) + (weights * x).sum() / 4e6

    def slope(x):
        found = weights / 4e6
        found[place] = factor * 300 * np.cos(300 * x[place])
        return found

    return f, x, slope, place


@pytest.mark.parametrize("count", [100, 300, 600, 5000])
@pytest.mark.parametrize("factor", [0.0, 1.0, 1.5, -1.0])
@pytest.mark.parametrize("door", ["probe", "locate"])
def test_directions_move_no_entry_far_beyond_its_size(door, count, factor):
    """Directions called a right gradient wrong, and a slope of zero right."""
    f, x, slope, place = _one_small_among_many(count, factor, seed=count)

    if door == "locate":
        found = gl.locate(f, x, grad=slope)
        named = [entry.index for entry in found.entries]
        assert named == ([] if factor == 1.0 else [(place,)])
        return
    report = gl.check(f, x, grad=slope, coverage="probe")
    if factor == 1.0:
        assert report.ok
        assert report.verdict < gl.Verdict.DISAGREES
        assert "error" not in [finding.severity for finding in report.findings]
    else:
        assert report.verdict == gl.Verdict.DISAGREES
        assert report["x"].worst(1).input_index[0] == (place,)


@pytest.mark.parametrize("count", [600, 5000])
def test_entries_beside_those_left_aside_are_still_searched(count):
    """One of 4e6 that is wrong by a half is found."""
    f, x, slope, place = _one_small_among_many(count, 1.0, seed=count)
    wrong = (place + 17) % count

    def grad(x):
        found = slope(x)
        found[wrong] *= 1.5
        return found

    assert [e.index for e in gl.locate(f, x, grad=grad).entries] == [(wrong,)]
    report = gl.check(f, x, grad=grad, coverage="probe")
    assert report.verdict == gl.Verdict.DISAGREES
    assert report["x"].worst(1).input_index[0] == (wrong,)


@pytest.mark.parametrize("at", [[1e-9, 0.5, 7.0], [0.0, 1e-9, 0.5, 1.0, 7.0]])
def test_an_output_that_is_left_of_a_cancellation_tells_no_noise_of_others(at):
    """sin(7 pi) / (7 pi) is 4e-17, three quarters of which is noise: of itself alone.

    The derivative of sinc by algebra: (cos(pi x) - sinc(x)) / x, and 0 at 0.
    """

    def jac(x):
        near = np.abs(x) < 1e-4
        away = np.where(near, 1.0, x)
        slope = (np.cos(np.pi * away) - np.sinc(away)) / away
        return np.diag(np.where(near, -(np.pi**2) * x / 3, slope))

    right = gl.check(np.sinc, np.array(at), jac=jac)
    wrong = gl.check(np.sinc, np.array(at), jac=lambda x: 1.001 * jac(x))

    assert right.verdict.name == "AGREES"
    assert right["x"].numeric_error.max() < 1e-9
    assert wrong.verdict.name == "DISAGREES"


@pytest.mark.parametrize("coverage", ["full", "probe"])
def test_columns_that_others_stand_for_have_bars_that_cover_their_errors(coverage):
    """Beside 1e5 a coordinate of -3 is moved by a tenth of itself, where erfcx soars.

    Its derivative by algebra: 2 x erfcx(x) - 2 / sqrt(pi).
    """
    x = np.array([-3.0, 0.0, 2.0, 30.0, 1e5])
    truth = 2 * x * sp.erfcx(x) - 2 / np.sqrt(np.pi)

    report = gl.check(
        sp.erfcx,
        x,
        jac=lambda x: np.diag(2 * x * sp.erfcx(x) - 1 / np.sqrt(np.pi)),
        coverage=coverage,
    )

    assert report.verdict.name == "DISAGREES"
    found = report["x0"]
    error = np.abs(np.diag(found.numeric)[:4] - truth[:4])  # 1e5: truth cancels
    assert (error <= 5 * np.diag(found.numeric_error)[:4]).all()
