"""The window of the game, seen from Python; a real browser plays it elsewhere."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gradlab.presentation.widgets.hunt import BugHunt

BY_HEART = "def linear_backward(dout, x, W, b):\n    return dout @ W.T, x.T @ dout, {}"


@pytest.fixture
def cell():
    """A namespace, as the cells of a notebook share it."""
    return {}


def send(hunt, kind, **more):
    """Press a button: what the page would send; returns what it is told."""
    told = []
    hunt.send = lambda words, buffers=None: told.append(words)
    hunt._on_message(hunt, {"type": kind, "id": 1, **more}, [])
    return told[0]


def test_the_window_follows_the_cell(cell):
    """Broken, then fixed: the page shows rows, points and the moral."""
    hunt = BugHunt(2, namespace=cell)
    exec(BY_HEART.format("dout"), cell)
    send(hunt, "check")
    assert [row["right"] for row in hunt.page["rows"]] == [True, True, False]
    assert hunt.page["moral"] == ""

    exec(BY_HEART.format("dout.sum(axis=0)"), cell)
    send(hunt, "check")
    assert hunt.page["solved"]
    assert hunt.page["score"] == hunt.score == 95
    assert "broadcasts" in hunt.page["moral"]


def test_hints_that_were_not_asked_for_are_not_in_the_page(cell):
    """Neither hints nor moral nor answer can be read off the page's source."""
    hunt = BugHunt(2, namespace=cell)
    before = json.dumps(hunt.page)
    send(hunt, "hint")

    assert "sum(axis=0)" not in before
    assert len(hunt.page["hints"]) == 1
    assert hunt.page["left"] == 2


def test_next_waits_for_the_solution(cell):
    """The message says why nothing happens; solved, the next level is shown."""
    hunt = BugHunt(2, namespace=cell)
    send(hunt, "next")
    assert (hunt.page["number"], hunt.page["words"]) == (2, "Solve this one first.")
    assert "\nSolve this one first.\n" in repr(hunt.next())  # where no window opens

    exec(BY_HEART.format("dout.sum(axis=0)"), cell)
    hunt.check()
    assert hunt.next().page["number"] == 3
    assert hunt.page["rows"] == []


def test_what_is_not_a_number_survives_json(cell):
    """A gradient of nan gives a page that is valid JSON."""
    hunt = BugHunt(2, namespace=cell)
    hunt.check(lambda dout, x, W, b: (dout @ W.T, x.T @ dout, np.nan * b))

    assert json.dumps(hunt.page, allow_nan=False)
    assert hunt.page["rows"][2]["error"] == "NaN"


def test_a_message_that_fails_is_answered_with_a_sentence(cell):
    """A level that does not exist ends in the status line, not in a traceback."""
    answer = send(BugHunt(namespace=cell), "go", level=99)

    assert "there is no level 99" in answer["error"]


def test_source_is_shown_as_code():
    """The last line `hunt.source()` of a cell shows lines, not one quoted string."""
    source = BugHunt().source(2)

    assert repr(source) == str(source)
    assert "def linear_backward(dout, x, W, b):" in repr(source).splitlines()


def test_the_log_is_a_table(cell):
    """One row for each event, ready to be concatenated over students."""
    hunt = BugHunt(2, namespace=cell, student="ada")
    hunt.hint()
    table = hunt.log()

    assert table.shape[0] == 1
    assert {"student", "level", "event", "wrong", "points"} <= set(table.columns)


def test_the_log_of_a_game_not_begun_is_empty():
    """No event, no row."""
    assert len(BugHunt().log()) == 0


def test_students_code_has_the_errors_of_the_thread_that_made_the_window(cell):
    """A division by zero in the code is no warning here: its gradient is judged."""
    hunt = BugHunt(2, namespace=cell)
    outcome = hunt.check(lambda dout, x, W, b: (dout @ W.T, x.T @ dout, b / (0 * b)))

    assert not outcome.solved
    assert "3 of 3 entries disagree" in outcome.rows[2].words
