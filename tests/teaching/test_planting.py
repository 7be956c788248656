"""Planted mistakes: each changes a gradient, runs, and is another one per student."""

from __future__ import annotations

import ast
import functools

import numpy as np
import pytest

from gradlab.errors import InputError
from gradlab.teaching.hunt import Hunt
from gradlab.teaching.level import load
from gradlab.teaching.levels import LEVELS
from gradlab.teaching.marking import judge
from gradlab.teaching.mistakes import KINDS
from gradlab.teaching.planting import answer_key, plant
from gradlab.teaching.rewriting import changes
from tests.sizes import drawn

BY_NAME = {level.edit: level for level in LEVELS}
# a level in which the kind has a place; most have many
HOSTS = {
    "doubled": "TwoLayerNet",
    "halved": "linear_backward",
    "negated": "softmax_loss",
    "unsummed": "Linear",
    "sum for mean": "batchnorm_backward",
    "mean for sum": "linear_backward",
    "no division": "softmax_loss",
    "other axis": "softmax_backward",
    "no transpose": "two_layers_backward",
    "swapped factors": "two_layers_backward",
    "flipped mask": "TwoLayerNet",
    "other mask": "relu_layer_backward",
    "skipped line": "TwoLayerNet",
    "swapped results": "linear_backward",
    "product for quotient": "softmax_loss",
    "missing factor": "relu_layer_backward",
    "missing term": "batchnorm_backward",
    "sign of a term": "softmax_loss",
    "no power": "two_layers_backward",
    "other variable": "linear_backward",
    "kept first": "Linear",
}


@functools.cache
def planted(kind):
    """One exercise of each kind."""
    return plant(BY_NAME[HOSTS[kind]], seed=0, kinds=[kind])


def gradients(level, source, seed=3):
    """What a piece of source returns on inputs that `plant` did not look at."""
    trial = level.deal(np.random.default_rng(seed), "shown")
    with np.errstate(all="ignore"):
        return level.run(load(source, level.edit), trial)[1]


def test_there_are_at_least_fifteen_kinds():
    """Each has a host here and a hint; names are told apart."""
    assert len({kind.name for kind in KINDS}) == len(KINDS) >= 15
    assert {kind.name for kind in KINDS} == set(HOSTS)
    assert {kind.difficulty for kind in KINDS} == {1, 2, 3}


@pytest.mark.untraced
@pytest.mark.parametrize("kind", HOSTS)
def test_a_planted_mistake_changes_the_gradients_it_names(kind):
    """Against the right code, on fresh inputs: those differ, the others do not."""
    level = planted(kind).level
    right = gradients(level, BY_NAME[level.edit].repaired)
    wrong = gradients(level, level.source)

    for name in level.gradients:
        a, b = np.asarray(right[name]), np.asarray(wrong[name])
        same = a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-12)
        assert same == (name not in level.wrong), name


@pytest.mark.parametrize("kind", HOSTS)
def test_undoing_the_change_gives_the_right_code(kind):
    """The answer key restores the source to the letter; a line or so differs."""
    level = planted(kind).level
    right = BY_NAME[level.edit].repaired

    assert level.repaired == right
    differing = set(level.source.splitlines()) ^ set(right.splitlines())
    assert 1 <= len(differing) <= 4


@pytest.mark.parametrize("kind", ["doubled", "other axis", "missing term"])
def test_a_planted_level_can_be_played(kind):
    """Broken it is not solved, mended it is."""
    level = planted(kind).level
    hunt = Hunt([level])

    assert not hunt.check(load(level.source, level.edit)).solved
    assert hunt.check(load(level.repaired, level.edit)).solved
    assert planted(kind).solution()["right"] in level.hints[-1]


def test_the_solution_is_sealed():
    """Neither the name on the exercise nor its story tell the kind or the line."""
    exercise = planted("negated")
    told = repr(exercise) + exercise.level.title + exercise.level.story

    assert "negated" not in told
    assert exercise.solution()["wrong"] not in told


@pytest.mark.untraced
def test_the_same_student_gets_the_same_mistake():
    """A seed gives one exercise for ever; a class gets many different ones."""
    level = BY_NAME["linear_backward"]
    key = answer_key(level, [f"student {i}" for i in range(12)])
    again = answer_key(level, ["student 0"])

    assert again[0] == key[0]
    spelt = answer_key(level, [" Student 0 "])[0]
    assert {**spelt, "seed": "student 0"} == key[0]
    assert len({(record["kind"], record["wrong"]) for record in key}) >= 6


@pytest.mark.parametrize("difficulty", [1, 2, 3])
def test_difficulty_chooses_the_kinds(difficulty):
    """Only kinds of that difficulty are planted."""
    exercise = plant(BY_NAME["relu_layer_backward"], seed=1, difficulty=difficulty)

    assert exercise.solution()["difficulty"] == difficulty


def test_what_cannot_be_planted_is_said():
    """A layer without a division has no missing one."""
    with pytest.raises(InputError, match="linear_backward"):
        plant(BY_NAME["linear_backward"], seed=0, kinds=["no division"])


# ---------------------------------------------------------------- writing into source


def texts(source, kind):
    """What one kind makes of a piece of source, without its first line."""
    found = [c.source for c in changes(source) if c.kind.name == kind]
    return [text.split("\n", 1)[1] for text in found]


def test_comments_and_layout_stay():
    """Only the expression is written anew."""
    source = "def f(a, b):  # why\n    return (a  *  b)   # because\n"

    assert texts(source, "doubled") == ["    return (a * b * 2)   # because\n"]


def test_brackets_are_set_where_they_are_needed():
    """A divisor that is doubled is doubled as a whole; elsewhere no brackets."""
    inside = "def f(a, c):\n    return c / a.sum(axis=0)\n"
    whole = "def f(a, b, c):\n    return a * b\n"

    assert "    return c / (a.sum(axis=0) * 2)\n" in texts(inside, "doubled")
    assert texts(whole, "missing factor") == ["    return a\n", "    return b\n"]


def test_letters_beyond_ascii_do_not_shift_the_place():
    """Columns of a syntax tree are bytes; those of a string are letters."""
    source = 'def f(ä, b):\n    return ("ü", ä * b)\n'

    assert '    return ("ü", ä)\n' in texts(source, "missing factor")


def test_every_change_is_valid_source():
    """Whatever is proposed can be parsed, for all nine levels."""
    for level in LEVELS:
        for change in changes(level.repaired):
            ast.parse(change.source)
            assert change.source != level.repaired


def test_a_list_of_changes_is_the_callers_own():
    """What was found is kept for the rest of a class; to empty one spoils none."""
    source = "def f(a, b):\n    return a * b\n"
    found = changes(source)
    number = len(found)
    found.clear()

    assert len(changes(source)) == number > 0


def test_the_layout_does_not_give_the_place_away():
    """Powers and returned tuples are written as in the rest of the source."""
    source = "def f(a, b):\n    h = a * (1 - b**2)\n    return h, b\n"

    assert any("(1 + b**2)" in text for text in texts(source, "sign of a term"))
    assert texts(source, "swapped results")[0].endswith("    return b, h\n")
    quotient = "def f(a, b):\n    a = a / b\n    return a\n"
    assert not any("a = a\n" in text for text in texts(quotient, "no division"))


@pytest.mark.parametrize(
    ("line", "kind", "never"),
    [
        ("return dout * (1 - h)", "missing term", "(1)"),
        ("return (p * dout).sum(axis=1)", "missing factor", "(dout)"),
        ("return x - x.mean(axis=0)", "unsummed", "x - x"),
        ("return a - (b * c)", "negated", "- -"),
        ("return a @ b.T", "negated", "-("),
    ],
)
def test_nobody_would_say_that_no_human_wrote_it(line, kind, never):
    """A lone name in brackets, x - x and a - -b would give the place away."""
    written = texts(f"def f(a, b, c, h, p, x, dout):\n    {line}\n", kind)

    assert not [text for text in written if never in text]


@pytest.mark.slow
@pytest.mark.untraced
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.edit)
def test_a_class_gets_fair_exercises(level):
    """On fresh numbers each runs, and just the gradients in the key are wrong."""
    different = set()
    for student in range(drawn(4, 12)):
        exercise = plant(level, seed=f"student{student}")
        code = load(exercise.source, level.edit)
        rows = judge(exercise.level, code, seed=11)
        wrong = tuple(row.name for row in rows if not row.right)
        different.add(exercise.source)

        assert wrong == exercise.level.wrong, exercise.solution()
        assert max(map(len, exercise.source.splitlines())) <= 88
    assert len(different) >= drawn(3, 6)
