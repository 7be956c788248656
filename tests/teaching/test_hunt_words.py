"""What the bug hunt says when a level ends, and of a level with one gradient."""

from __future__ import annotations

from gradlab.teaching.hunt import Hunt
from gradlab.teaching.level import load
from gradlab.teaching.levels import LEVELS


def test_the_last_level_ends_the_game():
    """Whoever solves it is told that all are found, and the points of all."""
    hunt = Hunt(levels=LEVELS[:2], level=2)
    hunt.hint()
    first = hunt.check(load(LEVELS[1].repaired, LEVELS[1].edit)).words
    hunt.go(1)
    last = hunt.check(load(LEVELS[0].repaired, LEVELS[0].edit)).words

    assert first == "Solved: 80 points."
    assert last == "Solved: 100 points. Both bugs found, 180 of 200!"


def test_a_level_with_one_gradient_names_it():
    """There is nothing to count."""
    hunt = Hunt(level=5)

    words = hunt.check(load(hunt.source(), hunt.level.edit)).words

    assert words == "dscores is wrong."
