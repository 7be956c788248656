"""`RandomFreeze` names the sources that were drawn from, and rewinds them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gradlab.subject.state_guard import RandomFreeze


@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (lambda: np.random.default_rng(0), lambda g: g.normal()),
        (lambda: np.random.RandomState(0), lambda g: g.normal()),
        (lambda: np.random.Generator(np.random.MT19937(0)), lambda g: g.normal()),
        (lambda: np.random.Generator(np.random.Philox(0)), lambda g: g.random()),
        (lambda: np.random.Generator(np.random.SFC64(0)), lambda g: g.random()),
        (lambda: random.Random(0), lambda g: g.gauss(0.0, 1.0)),
    ],
)
def test_freeze_rewinds_only_what_was_consumed(make, draw):
    """Two evaluations between rewinds are equal; untouched sources are not named."""
    holder = {"noise": make()}
    freeze = RandomFreeze(holder, names=["holder"])

    first = draw(holder["noise"])
    consumed = freeze.consumed()
    freeze.restore(only=consumed)

    assert consumed == ("holder['noise']",)
    assert draw(holder["noise"]) == first


def test_cached_gauss_of_the_legacy_generator_is_seen():
    """The second normal of a pair moves no stream, and is consumption all the same."""
    np.random.seed(0)
    np.random.normal()
    freeze = RandomFreeze()

    second = np.random.normal()

    assert freeze.consumed() == ("numpy.random",)
    freeze.restore()
    assert np.random.normal() == second
