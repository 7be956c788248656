"""Noise from difference tables, and the cheap bar of a central difference."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.differentiation.noise import central_error, difference_noise
from gradlab.errors import InputError


@pytest.mark.parametrize("level", [1e-3, 1e-6, 1e-9])
def test_white_noise_is_measured_within_a_factor_four(level, rng):
    """More and Wild's claim, over 60 tables on a smooth function."""
    x = 1 + level * np.arange(7)[:, None]
    found = difference_noise(np.sin(x) + level * rng.normal(size=(7, 60)))
    found = found[np.isfinite(found)]
    assert found.size > 50
    assert np.mean((found > level / 4) & (found < 4 * level)) > 0.9


def test_smooth_values_show_no_noise():
    """A spacing so wide that the function bends gives no estimate, not a wrong one."""
    assert np.isnan(difference_noise(np.exp(np.arange(7.0))))


def test_constant_has_noise_zero():
    """No change at all is no noise."""
    assert difference_noise(np.full((7, 2), 3.0)) == pytest.approx(0)


def test_too_few_values_are_refused():
    """Three values cannot tell a slope from noise."""
    with pytest.raises(InputError, match=r"at least 4 .* got 3"):
        difference_noise(np.zeros(3))


def central(f, x, scale=1.0, **options):
    """Return a plain central difference and its bar."""
    h = 6.055454452393343e-06 * scale
    step = np.array([((x + h) - (x - h)) / 2])
    right, base, left = (np.array([[float(f(v))]]) for v in (x + h, x, x - h))
    bar = central_error(
        right,
        base[0],
        left,
        step=step,
        scales=np.array([scale]),
        points=np.array([float(x)]),
        **options,
    )
    return ((right - left) / (2 * step))[0, 0], bar[0, 0]


SMOOTH = {
    "exp": (np.exp, 1.0, np.exp(1.0)),
    "sin": (np.sin, 0.4, np.cos(0.4)),
    "sin(300x)": (lambda x: np.sin(300 * x), 0.5, 300 * np.cos(150.0)),
    "on 1e6": (lambda x: 1e6 + np.sin(x), 1.0, np.cos(1.0)),
    "1/x": (lambda x: 1 / x, 0.01, -1e4),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_cheap_bar_covers_the_error(name):
    """Within a factor 3 of the bar, or better, without a single extra evaluation."""
    f, x, exact = SMOOTH[name]
    value, bar = central(f, x)
    assert abs(value - exact) <= 3 * bar
    assert bar <= 1e-3 * abs(exact)


def test_cheap_bar_covers_a_kink_inside_the_step():
    """Where the one-sided slopes differ by 1, a bar below a quarter would lie."""
    _, bar = central(lambda x: max(x - 1, 0.0), 1.0)
    assert bar >= 0.25


def test_cheap_bar_counts_given_noise():
    """Noise of 1e-7 in f is an error of 1e-7 / h in the slope."""
    _, bar = central(np.sin, 1.0, noise=np.array(1e-7))
    assert bar >= 1e-7 / 6.1e-6


def test_value_that_is_not_finite_has_an_infinite_bar():
    """There is nothing to say about a difference of nan."""
    _, bar = central(lambda x: np.nan, 1.0)
    assert np.isinf(bar)
