"""The log of the game, which a teacher reads."""

from __future__ import annotations

import pytest

from gradlab.errors import InputError
from gradlab.teaching.hunt import Hunt
from tests.teaching.test_hunt import lazy, right


def test_the_log_has_one_record_for_each_check_and_hint():
    """Events stand in order, with what was wrong and the points at the end."""
    hunt = Hunt(level=2, student="ada")
    hunt.check(lazy)
    hunt.hint()
    hunt.check(right)
    records = hunt.records()

    assert [record["event"] for record in records] == ["check", "hint", "check"]
    assert [record["wrong"] for record in records] == ["db", "", ""]
    assert records[-1]["points"] == records[-1]["score"] == 75
    assert {record["student"] for record in records} == {"ada"}


def test_a_record_that_is_changed_outside_does_not_change_the_log():
    """`records` hands out copies."""
    hunt = Hunt()
    hunt.hint()
    hunt.records()[0]["event"] = "nothing"

    assert hunt.records()[0]["event"] == "hint"


@pytest.mark.parametrize("levels", [[2], ["relu"], [], 3])
def test_levels_that_are_none_are_refused(levels):
    """A number is no level; the sentence says how to begin with one."""
    with pytest.raises(InputError, match="levels="):
        Hunt(levels=levels)
