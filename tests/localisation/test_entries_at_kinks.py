"""Searches at kinks, and among coordinates that live on scales of their own.

Truth is algebra: every slope between both sides is right at a kink.
"""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.localisation.searching.columns import Column

X = np.array([0.0, 1.0, -1.0, 0.0, 2.0])
TIED = np.array([1.0, 3.0, 2.0, 3.0])


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("summed", [True, False])
def test_slopes_between_both_sides_are_right(share, summed):
    """ReLU at exactly 0: any slope from 0 to 1, of a loss and of a layer."""
    slope = np.where(X > 0, 1.0, np.where(X == 0, share, 0.0))
    f = lambda x: np.maximum(x, 0)
    if summed:
        found = gl.locate(lambda x: f(x).sum(), X, grad=lambda x: slope)
    else:
        found = gl.locate(f, X, jac=lambda x: np.diag(slope))
    assert found.table.empty
    assert found.complete


def test_largest_of_two_equals_is_right():
    """All of the gradient goes to the first of two maxima, as argmax has it."""
    found = gl.locate(np.max, TIED, grad=lambda x: 1.0 * (np.arange(4) == 1))
    assert found.table.empty


@pytest.mark.parametrize("slope", [1.5, -0.2, 1.05])
def test_slope_beside_both_sides_is_found(slope):
    """At a kink as elsewhere, what is no slope of either side is wrong."""
    found = gl.locate(np.max, TIED, grad=lambda x: slope * (np.arange(4) == 1))
    assert found.table["index"].tolist() == [(1,)]


def test_a_kink_does_not_hide_another_wrong_entry():
    """The entry beside two kinks is 1 % off, and is the one that is named."""
    slope = np.where(X > 0, 1.0, 0.0)
    slope[4] = 1.01
    found = gl.locate(lambda x: np.maximum(x, 0).sum(), X, grad=lambda x: slope)
    assert found.table["index"].tolist() == [(4,)]


def test_a_kink_of_one_output_hides_no_other_output():
    """Column 0 has a kink in row 0 and a wrong slope in row 1."""
    f = lambda x: np.array([abs(x[0]) * 100 + x[1], 3 * x[0] + x[1] ** 2])
    x = np.array([0.0, 1.5])
    right = np.array([[100.0, 1.0], [3.0, 3.0]])
    assert gl.locate(f, x, jac=lambda x: right).table.empty
    wrong = right.copy()
    wrong[1, 0] = 3.1
    found = gl.locate(f, x, jac=lambda x: wrong)
    assert found.table["output_index"].tolist() == [(1,)]
    assert found.table["index"].tolist() == [(0,)]


def test_coordinates_on_their_own_scales_are_not_accused():
    """Beside 1e12, steps of 1e12 say nothing about sin(x / 1e-12)."""
    s = 10.0 ** np.arange(-12, 13, 4)
    x = s * np.random.default_rng(0).standard_normal(7)
    f = lambda x: np.sin(x / s).sum()
    found = gl.locate(f, x, grad=lambda x: np.cos(x / s) / s)
    assert found.table.empty


def test_a_slope_that_is_no_number_weighs_nothing():
    """Where a ladder ends at infinity, as rounding may make it, others still count."""
    numeric = np.array([1.0, np.inf, np.nan, -np.inf])
    column = Column(numeric, numeric, numeric, 0.0, 0.0, 0.0, 0.0)

    assert column.weighed(np.array([2.0, 3.0, 4.0, 5.0])) == 2.0
