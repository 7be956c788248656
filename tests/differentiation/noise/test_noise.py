"""Noise from difference tables."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.differentiation.noise.noise import difference_noise
from gradlab.errors import InputError


@pytest.mark.parametrize("level", [1e-3, 1e-6, 1e-9])
def test_white_noise_is_measured_within_a_factor_four(level, rng):
    """More and Wild's claim, over 60 tables on a smooth function."""
    x = 1 + level * np.arange(7)[:, None]
    found = difference_noise(np.sin(x) + level * rng.normal(size=(7, 60)))
    found = found[np.isfinite(found)]
    assert found.size > 50
    assert np.mean((found > level / 4) & (found < 4 * level)) > 0.9


def test_long_tables_of_white_noise_give_its_standard_deviation(rng):
    """Differences of every order have the variance that algebra gives them."""
    found = difference_noise(rng.normal(size=(200, 300)))
    assert np.median(found) == pytest.approx(1, rel=0.05)


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
