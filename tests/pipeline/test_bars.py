"""Bars of a block are told in four ways, of some entries or of all."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.differentiation.smoothness import Smoothness
from tests.specimens.blocks import block

ONES = [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
SOME = np.array([[True, False], [False, True]])
FIRST = np.array([[True], [False]])


@pytest.fixture(name="shown")
def _shown():
    return block(ONES, ONES, [[1.0, 2.0, 3.0], [4.0, 5.0, np.nan]])


def bars(shown):
    """Bars as lists, nan as None."""
    return [[None if np.isnan(e) else e for e in row] for row in shown.error.tolist()]


def test_bars_are_at_least_those(shown):
    """Of two columns, and of entries of these; a bar that is not known is given."""
    shown.widen(np.full((2, 2), 10.0), SOME, np.array([2, 0]))
    assert bars(shown) == [[1.0, 2.0, 10.0], [10.0, 5.0, None]]
    shown.widen(np.full((2, 3), 4.5))
    assert bars(shown) == [[4.5, 4.5, 10.0], [10.0, 5.0, 4.5]]


def test_bars_are_at_most_those(shown):
    """One bar that is not known is not known to be narrow."""
    shown.narrow(np.full((2, 3), 1.5), FIRST)
    assert bars(shown) == [[1.0, 1.5, 1.5], [4.0, 5.0, None]]
    shown.narrow(np.full((2, 3), 1.5))
    assert bars(shown) == [[1.0, 1.5, 1.5], [1.5, 1.5, None]]


def test_nobody_knows_some_entries(shown):
    """Of a row in some columns, then all."""
    shown.distrust(FIRST, np.array([1, 2]))
    assert bars(shown) == [[1.0, np.inf, np.inf], [4.0, 5.0, None]]
    shown.distrust()
    assert np.isinf(shown.error).all()


def test_noise_is_the_kind_of_what_it_widens(shown):
    """And of nothing else; a bar that was wider stays."""
    wide = np.full((2, 3), 2.5)
    assert shown.blame_noise(wide, np.full((2, 3), fill_value=True))
    assert bars(shown) == [[2.5, 2.5, 3.0], [4.0, 5.0, None]]
    noisy = shown.kinds == Smoothness.NOISY
    assert noisy.tolist() == [[True, True, False], [False, False, False]]
    assert not shown.blame_noise(wide, np.full((2, 3), fill_value=True))
