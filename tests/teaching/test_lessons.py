"""The lessons' helpers, and what every lesson has in common."""

from __future__ import annotations

import ast
import pathlib
import re
import statistics

import nbformat
import pytest

from gradlab.errors import InputError
from gradlab.teaching.lessons import check_answer, compare, exercises

TUTORIALS = pathlib.Path(__file__).resolve().parents[2] / "tutorials"
LESSONS = sorted(TUTORIALS.glob("[0-9][0-9]_*.ipynb"))
CALL = re.compile(r'check_answer\(\s*"([0-9.]+)"')


def cells(path, kind):
    """Sources of the cells of one kind."""
    notebook = nbformat.read(path, as_version=4)
    return [cell.source for cell in notebook.cells if cell.cell_type == kind]


def number(path):
    """Number of a lesson."""
    return int(path.name[:2])


class TestCompare:
    """Predictions beside measurements."""

    @pytest.mark.parametrize(
        ("mine", "measured", "words"),
        [
            (None, 2.0, "Measured: 2. What would you have predicted?"),
            (..., "W1", "Measured: W1. What would you have predicted?"),
            (100, 101, "You predicted 100, measured was 101: well predicted."),
            (
                0.5,
                0.3,
                "You predicted 0.5, measured was 0.3: near, but not it. Why?",
            ),
            (10, 100, "You predicted 10, measured was 100: 10 times as much. Why?"),
            (10, 1, "You predicted 10, measured was 1: a factor of 10 less. Why?"),
            (0, 3, "You predicted 0, measured was 3. Why?"),
            (-1, 3, "You predicted -1, measured was 3. Why?"),
            ("yes", "yes", "You predicted yes, and so it is."),
            ("yes", "no", "You predicted yes, it turned out to be no. Why?"),
            (True, True, "You predicted True, and so it is."),
            (2 + 4j, 2 + 4j, "You predicted (2+4j), and so it is."),
        ],
    )
    def test_words(self, mine, measured, words):
        """A number is told by its ratio, everything else by equality."""
        assert repr(compare(mine, measured)) == words

    def test_a_guess_at_the_size_may_be_wide(self):
        """Where the lesson asks for a power of ten, a factor of four is no miss."""
        assert "well predicted" in compare(1e6, 2e6, within=4)
        assert "Why?" in compare(1e3, 2e6, within=4)


class TestCheckAnswer:
    """What holds for every exercise."""

    def test_unknown(self):
        """A number that does not exist is refused, with those that do."""
        with pytest.raises(InputError, match=r"no exercise '99\.9'.*1\.1"):
            check_answer("99.9", 1)

    @pytest.mark.parametrize("name", exercises())
    @pytest.mark.parametrize("nothing", [None, ...], ids=["None", "ellipsis"])
    def test_nothing_is_open(self, name, nothing):
        """No answer is not a wrong answer, and the task is said again."""
        answer = check_answer(name, nothing)

        assert answer.status == "open"
        assert not answer.right
        assert "not solved yet: hand over" in " ".join(str(answer).split())

    @pytest.mark.parametrize("name", exercises())
    @pytest.mark.parametrize(
        "nonsense", [object(), "nonsense", -7.5, float("nan"), [], {}, [[1], "b"], len]
    )
    def test_nonsense_is_wrong_or_open(self, name, nonsense):
        """Whatever is handed over, nothing is raised and nothing of it is right."""
        pytest.importorskip("torch")

        answer = check_answer(name, nonsense)

        assert not answer.right
        assert answer.words

    def test_a_loop_without_end_is_ended(self, monkeypatch):
        """Code that never returns is an answer too."""
        monkeypatch.setattr("gradlab.teaching.answering._SECONDS", 0.3)

        def central_gradient(f, x, h):
            while True:
                pass

        assert "still running" in check_answer("1.2", central_gradient).words


class TestNotebooks:
    """What every lesson has."""

    def test_there_are_eleven(self):
        """The lessons are numbered from 1 to 11 without a gap."""
        assert [number(path) for path in LESSONS] == list(range(1, 12))

    @pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
    def test_parts(self, path):
        """Predict, try, why, exercises, what to remember, references, in this order."""
        text = "\n".join(cells(path, "markdown"))
        heads = re.findall(r"^##? (.*)$", text, flags=re.MULTILINE)
        parts = ("Exercises", "What to remember", "References")

        assert heads[0].startswith(f"{number(path)}. ")
        assert tuple(heads[-3:]) == parts
        for word in ("predict", "minutes"):
            assert word in text.lower()
        remembered = text.split("## What to remember")[1].split("## References")[0]
        assert 3 <= len(re.findall(r"^- ", remembered, flags=re.MULTILINE)) <= 5

    @pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
    def test_cells_are_short(self, path):
        """Half of the cells have seven lines at most, none has more than twenty."""
        lengths = [len(source.splitlines()) for source in cells(path, "code")]

        assert statistics.median(lengths) <= 7
        assert max(lengths) <= 20

    @pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
    def test_exercises_are_there(self, path):
        """A lesson asks each of its exercises once, in order, and no other."""
        asked = [name for cell in cells(path, "code") for name in CALL.findall(cell)]

        own = [name for name in exercises() if name.split(".")[0] == str(number(path))]
        assert asked == own
        text = "\n".join(cells(path, "markdown"))
        assert [name for name in own if f"**{name}**" not in text] == []

    @pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
    def test_nothing_is_solved(self, path):
        """What a student fills in is None as the lesson is shipped, or None inside."""
        for source in cells(path, "code"):
            if not CALL.search(source):
                continue
            for node in ast.parse(source).body:
                if isinstance(node, ast.Assign):
                    value = ast.literal_eval(node.value)
                    assert set(value.values() if value else [value]) == {None}

    def test_table_lists_all(self):
        """The course's table has a row for each lesson, with its title and minutes."""
        table = (TUTORIALS / "README.md").read_text(encoding="utf-8")

        for path in LESSONS:
            (row,) = [line for line in table.splitlines() if f"({path.name})" in line]
            head = cells(path, "markdown")[0]
            minutes = re.search(r"\*(\d+) minutes", head)
            assert f"| {minutes.group(1)} |" in row
            assert row.startswith(f"| {number(path)} | ")

    @pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
    def test_minutes_follow_from_the_rule_that_is_told(self, path):
        """By words, lines, predictions and exercises, to some five minutes."""
        text, code = ("\n".join(cells(path, kind)) for kind in ("markdown", "code"))
        (told,) = re.findall(r"\*(\d+) minutes", text)
        words = len(text.split("## References")[0].split())
        lines = sum(bool(line.strip()) for line in code.splitlines())
        judged = re.findall(r'^check_answer\("[0-9.]+", (\w+)', code, re.MULTILINE)
        made = re.findall(r"^(?:def|class) (\w+)", code, re.MULTILINE)
        written = [name for name in judged if name in made]
        puzzles = len(re.findall(r"\b(?:mystery\w*|suspect)\(", code))
        hunts = code.count("BugHunt(")
        hard = len(written) + puzzles + hunts
        easy = len(judged) - len(written) - puzzles
        predictions = len(re.findall(r"^compare\(", code, re.MULTILINE))

        rule = words / 75 + lines / 10 + predictions + 3 * easy + 8 * hard
        assert abs(int(told) - rule) < 5
        readme = " ".join((TUTORIALS / "README.md").read_text("utf-8").split())
        assert (
            "75 words a minute, six seconds for a line of code, one minute for a "
            "prediction, three for an exercise that is answered by a number or a name, "
            "eight for one that wants code or holds a puzzle"
        ) in readme

    def test_links_lead_somewhere(self):
        """Every link to another file of the course names one that exists."""
        for path in LESSONS:
            text = "\n".join(cells(path, "markdown"))
            for target in re.findall(r"\]\(([^)#:]+)\)", text):
                assert (TUTORIALS / target).exists(), (path.name, target)

    def test_code_is_plain(self):
        """No lesson needs the network, a file of its own, or anything unusual."""
        allowed = {"numpy", "torch", "gradlab", "collections", "secrets"}
        allowed |= {"pathlib", "subprocess", "sys", "tempfile"}
        for path in LESSONS:
            for source in cells(path, "code"):
                for node in ast.walk(ast.parse(source)):
                    names = [a.name for a in getattr(node, "names", ())]
                    if isinstance(node, ast.ImportFrom):
                        names = [node.module]
                    if isinstance(node, ast.Import | ast.ImportFrom):
                        assert {n.split(".")[0] for n in names} <= allowed, path.name
