"""Outputs that are 1 less something: their last digit is that of 1, not their own."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.noise.noise import rounding_of

EPSILON = 2.0**-53
WIDTH = 0.01  # of the soft edge
GRID = np.linspace(-1, 1, 8)


def shares(circles):
    """Distances of all pixels to three centres, and how much each circle covers."""
    centres, radii = circles[:6].reshape(3, 2), circles[6:]
    apart = np.stack(np.meshgrid(GRID, GRID), -1)[..., None, :] - centres
    length = np.sqrt((apart**2).sum(-1))
    with np.errstate(over="ignore"):
        return apart, length, 1 / (1 + np.exp((length - radii) / WIDTH))


def covered(circles):
    """How much of each pixel three soft discs cover together, (64,)."""
    return (1 - np.prod(1 - shares(circles)[2], axis=-1)).ravel()


def jacobian(circles, factor=1.0):
    """Its derivatives by the rules of calculus, without what cancels; (64, 9)."""
    apart, length, share = shares(circles)
    away = 1 / (1 + np.exp((circles[6:] - length) / WIDTH))
    others = np.stack([np.prod(np.delete(away, k, -1), -1) for k in range(3)], -1)
    slope = others * share * away / WIDTH
    centres = slope[..., None] * apart / length[..., None]
    columns = [centres.reshape(64, 6), factor * slope.reshape(64, 3)]
    return np.concatenate(columns, axis=1)


def circles_of(seed):
    """Three circles that leave most pixels dark."""
    rng = np.random.default_rng(seed)
    return np.append(rng.standard_normal(6) * 0.3, rng.uniform(0.2, 0.5, 3))


@pytest.mark.parametrize("seed", range(8))
def test_right_jacobian_of_soft_discs_is_not_accused(seed):
    """Slopes of 1e-11 that the last digit of 1 hides are no errors."""
    report = gl.check(covered, circles_of(seed), jac=jacobian)
    assert report.verdict != Verdict.DISAGREES


@pytest.mark.parametrize("seed", range(3))
def test_wrong_jacobian_of_soft_discs_is_told(seed):
    """A factor of 1.01 on the radii shows where pixels are bright enough."""
    report = gl.check(covered, circles_of(seed), jac=lambda c: jacobian(c, 1.01))
    assert report.verdict == Verdict.DISAGREES


def test_bars_of_what_is_left_of_one_hold():
    """1 - sigmoid(x / 0.01) has the last digit of 1, and so have its differences."""
    for size in np.linspace(0.2, 0.33, 60):
        x = np.array([size])
        found = gl.numeric_jacobian(
            lambda x: 1 - 1 / (1 + np.exp(-x / WIDTH)), x, method="central"
        )
        small = np.exp(-size / WIDTH)
        true = -small / WIDTH / (1 + small) ** 2
        assert abs(found.value.item() - true) <= SAFETY * found.error.item()


def test_rounding_is_that_of_one_where_digits_are_empty():
    """What is left of 1 is a multiple of 2**-53; numbers of their own are not."""
    rng = np.random.default_rng(0)
    small = rng.uniform(1, 2, 1000) * 10.0 ** rng.integers(-12, -8, 1000)
    left = 1 - (1 - small)
    rounding = rounding_of(left, EPSILON)
    assert (rounding >= EPSILON).all()
    assert np.isin(np.log2(rounding), np.arange(-53, -39)).all()
    own = rounding_of(small, EPSILON)
    assert np.array_equal(own, EPSILON * small)
    some = np.array([0.0, 1.0, 3.0, 0.5, np.inf, -7.25])
    assert np.array_equal(rounding_of(some, EPSILON), EPSILON * np.abs(some))


@pytest.mark.parametrize("power", [-50, -45, -40])
def test_small_numbers_of_few_digits_have_their_own(power):
    """2**-45 * 14 is no rest of 1: three halves of its gradient are told."""
    x, scale = np.array([1.0, 2.0, 3.0]), 2.0**power
    for factor, verdict in ((2, Verdict.AGREES), (3, Verdict.DISAGREES)):
        report = gl.check(
            lambda x: scale * (x**2).sum(), x, grad=lambda x, k=factor: k * scale * x
        )
        assert report.verdict == verdict
