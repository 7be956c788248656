"""Every level holds exactly the bug that it says it holds."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from gradlab.teaching.level import load
from gradlab.teaching.levels import LEVELS
from gradlab.teaching.marking import judge

pytestmark = pytest.mark.untraced

SEEDS = (0, 1, 2)
EACH = pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.edit)


def wrong(rows):
    """Names of the rows that are not right."""
    return tuple(row.name for row in rows if not row.right)


@functools.cache
def answers(level, seed=0):
    """What the repaired code returns on the inputs that are shown."""
    seen = {}

    def look(_, trial):
        seen["answer"] = level.run(load(level.repaired, level.edit), trial)
        return seen["answer"]

    judge(_with(level, look), None, seed=seed)
    return seen["answer"]


def _with(level, run):
    """The same level, with another way to call the student's code."""
    return dataclasses.replace(level, run=run)


@EACH
@pytest.mark.parametrize("seed", SEEDS)
def test_broken_code_is_wrong_where_it_says_and_nowhere_else(level, seed):
    """The broken version gets exactly the intended gradients wrong."""
    if level.needs:
        pytest.importorskip(level.needs)
    rows = judge(level, load(level.source, level.edit), seed=seed)

    assert wrong(rows) == level.wrong
    assert {row.name for row in rows} == set(level.gradients)


@EACH
@pytest.mark.parametrize("size", ["shown", "hidden"])
@pytest.mark.parametrize("seed", SEEDS)
def test_repaired_code_is_right(level, seed, size):
    """The answer key passes, on shown and on hidden inputs."""
    if level.needs:
        pytest.importorskip(level.needs)
    rows = judge(level, load(level.repaired, level.edit), seed=seed, size=size)

    assert wrong(rows) == ()


@EACH
def test_the_answers_of_the_shown_inputs_fail_on_the_hidden_ones(level):
    """Code that repeats right answers passes what it saw, and nothing else."""
    if level.needs:
        pytest.importorskip(level.needs)
    by_heart = _with(level, lambda *_: answers(level))

    assert wrong(judge(by_heart, None)) == ()
    assert wrong(judge(by_heart, None, size="hidden")) != ()


@EACH
def test_hidden_inputs_have_other_shapes_and_numbers(level):
    """Hidden inputs differ in the shape of every input, and shown ones by seed."""
    shown = level.deal(np.random.default_rng(0), "shown").inputs
    other = level.deal(np.random.default_rng(1), "shown").inputs
    hidden = level.deal(np.random.default_rng(0), "hidden").inputs

    assert all(shown[name].shape != hidden[name].shape for name in shown)
    assert not any(np.array_equal(shown[name], other[name]) for name in shown)


@EACH
def test_the_repair_is_one_place(level):
    """What is wrong occurs once in the source, and the repair changes it."""
    assert level.source.count(level.repair[0]) == 1
    assert level.repaired != level.source
    assert level.edit in level.source


@EACH
def test_hints_lead_from_a_nudge_to_the_answer(level):
    """Three hints; neither story nor title give the repair away."""
    assert len(level.hints) == 3
    assert level.repair[1].strip() not in level.story + level.title
