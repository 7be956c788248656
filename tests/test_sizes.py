"""What a mark leaves for the night is half of a grid, and no value of any parameter."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from tests.sizes import is_left_for_the_night

SEEDS, NAMES = range(3), [("one", 1.5), pytest.param("two", 2.5, id="second")]


def item(seed, name, share):
    """A test of a grid, as pytest collects it."""
    marks = [
        pytest.mark.parametrize("seed", SEEDS).mark,
        pytest.mark.parametrize(("name", "factor"), NAMES).mark,
    ]
    thinned = share and pytest.mark.thinned(share).mark
    return SimpleNamespace(
        callspec=SimpleNamespace(params={"seed": seed, "name": name, "factor": 0}),
        get_closest_marker=lambda _: thinned,
        iter_markers=lambda _: iter(marks),
    )


@pytest.mark.parametrize("time", ["fast", "nightly"])
def test_a_chessboard_keeps_every_value(time, monkeypatch):
    """Half of six by day; each seed and each name among them."""
    monkeypatch.setenv("GRADLAB_HYPOTHESIS", time)
    grid = list(itertools.product(SEEDS, ["one", "two"]))

    left = [pair for pair in grid if is_left_for_the_night(item(*pair, 2))]
    kept = set(grid) - set(left)

    assert len(kept) == (3 if time == "fast" else 6)
    assert {seed for seed, _ in kept} == set(SEEDS)
    assert {name for _, name in kept} == {"one", "two"}


def test_what_is_not_marked_stays(monkeypatch):
    """Nor is a value looked for that no test was given."""
    monkeypatch.setenv("GRADLAB_HYPOTHESIS", "fast")
    assert not is_left_for_the_night(item(7, "three", None))
    with pytest.raises(LookupError, match="no value of seed is 7"):
        is_left_for_the_night(item(7, "one", 2))
