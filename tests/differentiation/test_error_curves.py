"""Curves of known shape are read back: slopes, best step, kinks, plateaus."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from gradlab.differentiation.curve_kinks import kink_distance
from gradlab.differentiation.error_curves import envelope, plateau, read_curve

H = 10.0 ** np.arange(-14, 0.01, 1 / 3)
EPS = 2.2e-16


def quotient_errors(f, x, exact, method):
    """Relative errors of difference quotients of a real function, in float64."""
    n = {
        "central": lambda h: (f(x + h) - f(x - h)) / ((x + h) - (x - h)),
        "forward": lambda h: (f(x + h) - f(x)) / ((x + h) - x),
        "five-point": lambda h: (
            (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h)
        ),
    }[method]
    values = np.array([n(h) for h in H])
    return np.abs(values - exact) / (np.abs(values) + abs(exact))


FUNCTIONS = {
    "sin": (np.sin, 1.0, mpmath.cos(1)),
    "exp": (np.exp, 0.7, mpmath.exp(mpmath.mpf(0.7))),
    "log": (np.log, 3.0, mpmath.mpf(1) / 3),
    "tanh": (np.tanh, 0.4, mpmath.sech(mpmath.mpf(0.4)) ** 2),
    "rational": (lambda x: 1 / (1 + x**2), 2.0, mpmath.mpf(-4) / 25),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("method", "order"), [("forward", 1), ("central", 2), ("five-point", 4)]
)
def test_truncation_slope(name, method, order):
    """The slope of the truncation branch is the order of the method within 0.1."""
    f, x, exact = FUNCTIONS[name]
    reading = read_curve(H, quotient_errors(f, x, float(exact), method), order)

    assert reading.truncation == pytest.approx(order, abs=0.1)
    assert reading.truncation_line[0] == order
    assert np.isnan(reading.kink)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("method", ["forward", "central"])
def test_roundoff_slope(name, method):
    """The rounding branch falls like 1/h."""
    f, x, exact = FUNCTIONS[name]
    reading = read_curve(H, quotient_errors(f, x, float(exact), method))

    assert reading.roundoff == pytest.approx(-1, abs=0.2)


@pytest.mark.parametrize(
    ("name", "third"),
    [
        ("sin", -mpmath.cos(1)),
        ("exp", mpmath.exp(mpmath.mpf(0.7))),
        ("log", mpmath.mpf(2) / 27),
    ],
)
def test_best_step_of_central_differences(name, third):
    """Within a factor 4 of the optimum (3 eps |f| / |f'''|)**(1/3)."""
    f, x, exact = FUNCTIONS[name]
    optimum = (3 * EPS * abs(float(f(x))) / abs(float(third))) ** (1 / 3)
    reading = read_curve(H, quotient_errors(f, x, float(exact), "central"))

    assert optimum / 4 < reading.best_step < 4 * optimum


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize(
    ("noise", "curvature"),
    [
        *((1e-16, 1e-2), (1e-16, 1.0), (1e-16, 1e3), (1e-12, 1e-2), (1e-12, 1.0)),
        *((1e-12, 1e3), (1e-7, 1e-2), (1e-7, 1.0)),
    ],
)
def test_synthetic_curves(p, noise, curvature, rng):
    """From A h^p + u/h with scattered rounding, the balance is found within 4."""
    scatter = np.abs(rng.normal(size=H.size))
    errors = np.minimum(curvature * H**p + noise / H * scatter, 1.0)
    optimum = (noise / (p * curvature)) ** (1 / (p + 1))
    reading = read_curve(H, errors, p)

    assert optimum / 4 < reading.best_step < 4 * optimum


@pytest.mark.parametrize("p", [1, 2, 4])
def test_floor_between_two_steps_is_that_of_the_law(p):
    """Of h^p + u/h without scatter both the best step and its error are algebra."""
    noise = 1e-12
    best = (noise / p) ** (1 / (p + 1))
    reading = read_curve(H, H**p + noise / H, p)

    assert reading.best_step == pytest.approx(best, rel=0.05)
    assert reading.floor == pytest.approx(best**p + noise / best, rel=0.05)


def test_lucky_crossings_within_two_thirds_of_a_decade_are_not_the_floor():
    """However fine the steps: of ten in a decade, three that are lucky tell nothing."""
    steps = 10.0 ** np.arange(-14, 0.01, 0.1)
    errors = np.full(steps.size, 0.5)
    errors[60:63] = 1e-15

    assert read_curve(steps, errors).floor == 0.5


def test_lucky_crossing_is_not_the_floor():
    """One step at which errors cancel does not make the curve look good."""
    errors = np.full(H.size, 0.5)
    errors[20] = 1e-15

    assert read_curve(H, errors).floor == 0.5
    assert (envelope(errors) == 0.5).all()


@pytest.mark.parametrize("d", [1e-7, 3e-6, 2e-4, 5e-3])
@pytest.mark.parametrize("height", [0.9, 0.01, -0.9])
def test_kink_at_a_distance(d, height):
    """A kink at distance d is found there, within ten percent, by exact algebra.

    f(x) = x + height * max(x - d, 0) has slope 1 at 0 and central quotient
    1 + height (1 - d/h) / 2 for h > d.
    """
    quotient = 1 + np.where(d < H, height * (1 - d / H) / 2, 0)
    errors = np.abs(quotient - 1) / (np.abs(quotient) + 1) + EPS / H
    reading = read_curve(H, errors)

    assert reading.kink == pytest.approx(d, rel=0.1)
    assert reading.best_step < 1.01 * d


@pytest.mark.parametrize("k", [1, 30, 300, 3000])
def test_strong_curvature_is_no_kink(k):
    """sin(k x) is smooth, however fast it turns."""
    errors = quotient_errors(
        lambda x: np.sin(k * x),
        0.3,
        float(k * mpmath.cos(k * mpmath.mpf(0.3))),
        "central",
    )

    assert np.isnan(read_curve(H, errors).kink)


def test_kink_distance_without_kink():
    """A clean V has no leap."""
    last, distance = kink_distance(H, H**2 + EPS / H)

    assert last == H.size - 1
    assert np.isnan(distance)


def test_no_truncation():
    """A linear function has rounding only: the largest steps are best."""
    reading = read_curve(H, EPS / H)

    assert np.isnan(reading.truncation)
    assert reading.roundoff == pytest.approx(-1)
    assert reading.best_step > 0.1


def test_no_rounding():
    """The complex step has truncation only; any step on the flat part is as good."""
    reading = read_curve(H, np.maximum(H**2 / 6, 1e-16))

    assert reading.truncation == pytest.approx(2, abs=0.1)
    assert 1e-12 < reading.best_step < 1e-10  # flat from 1e-14 to 2e-8: its middle
    assert np.isnan(reading.roundoff_line[1])


@pytest.mark.parametrize("errors", [np.full(H.size, np.nan), np.zeros(H.size)])
def test_nothing_to_read(errors):
    """Curves without a number, or without an error, are read without a warning."""
    reading = read_curve(H, errors)

    assert np.isnan(reading.truncation)
    assert not reading.floor > 0


def test_plateau_level_and_range():
    """A plateau is seen where the numeric side is ten times better than it."""
    own = H**2 + EPS / H
    level, start, stop = plateau(H, np.maximum(1 / 3, own), own)

    assert level == pytest.approx(1 / 3)
    assert start < 1e-13
    assert 0.1 < stop < 1


def test_plateau_out_of_sight():
    """Where the numeric side is never better, nothing is claimed."""
    assert np.isnan(plateau(H, np.full(H.size, 0.1), np.full(H.size, 0.2))[0])


def test_slopes_beside_a_derivative_that_is_not_exact():
    """Known to 3e-9 only, the curve has a flat bottom; its branches are what they were.

    Truncation is one of h^2 all the same, and the floor is where the bottom is.
    """
    reading = read_curve(H, H**2 / 6 + EPS / H + 3e-9)

    assert reading.truncation == pytest.approx(2, abs=0.1)
    assert reading.roundoff == pytest.approx(-1, abs=0.1)
    assert reading.floor == pytest.approx(3e-9, rel=0.1)
    assert 1e-7 < reading.best_step < 1e-4


def test_a_level_curve_has_no_rounding():
    """A slope of next to nothing is no branch, and is not given."""
    assert np.isnan(read_curve(H, 2e-4 + 1e-14 / H**0.5).roundoff)


def test_a_crossing_far_out_does_not_hide_a_kink():
    """A single step at which errors cancel leaves the leap what it is."""
    errors = EPS / H + np.where(H > 6e-6, 0.5 * (1 - 6e-6 / H), 0)
    errors[-2] = 1e-3

    assert 4e-6 < kink_distance(H, errors)[1] < 8e-6
