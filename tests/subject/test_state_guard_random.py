"""`RandomFreeze` names the sources that were drawn from, and rewinds them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gradlab.subject.guarding.random_state import RandomFreeze


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


@pytest.mark.parametrize(
    ("source", "draw"),
    [
        ("numpy.random", np.random.normal),
        ("numpy.random", lambda: np.random.bytes(4 * 624)),  # once round: new words
        ("numpy.random", lambda: np.random.seed(5)),
        ("random", random.random),
        ("random", lambda: random.getrandbits(32 * 624)),
        ("random", lambda: random.gauss(0.0, 1.0)),
        ("random", lambda: random.seed(5)),
    ],
)
def test_every_draw_from_a_global_source_is_seen(source, draw):
    """A draw is seen though only a part of a state is read, and it is taken back."""
    np.random.seed(1)
    random.seed(1)
    freeze = RandomFreeze()
    before = np.random.get_state(legacy=False), random.getstate()

    draw()

    assert freeze.consumed() == (source,)
    freeze.restore()
    assert freeze.consumed() == ()
    assert str(np.random.get_state(legacy=False)) == str(before[0])
    assert random.getstate() == before[1]


def test_a_bit_generator_put_in_meanwhile_is_taken_out_again():
    """Another generator behind ``np.random`` counts as a draw, and goes."""
    own = np.random.mtrand.get_bit_generator()
    freeze = RandomFreeze()
    try:
        np.random.mtrand.set_bit_generator(np.random.MT19937(3))

        assert freeze.consumed() == ("numpy.random",)
        freeze.restore()

        assert np.random.mtrand.get_bit_generator() is own
    finally:
        np.random.mtrand.set_bit_generator(own)
