"""The assignment for nbgrader: its metadata, and a run through nbgrader itself."""

from __future__ import annotations

import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(__file__).parents[2] / "tutorials" / "nbgrader" / "source"
NOTEBOOK = SOURCE / "backward_by_hand" / "backward_by_hand.ipynb"


def cells():
    """Return the cells of the assignment."""
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def role(cell):
    """Return what nbgrader is told about a cell."""
    return cell["metadata"].get("nbgrader", {})


def test_every_cell_is_marked_as_nbgrader_documents_it():
    """Schema 3: unique ids, and points exactly where there are grades."""
    told = [role(cell) for cell in cells() if role(cell)]

    assert len({each["grade_id"] for each in told}) == len(told)
    for each in told:
        assert each["schema_version"] == 3
        assert ("points" in each) == each["grade"]
        assert not (each["solution"] and each["locked"])


def test_solutions_and_hidden_tests_are_between_their_marks():
    """Nothing that students should not see stays in what is handed out."""
    for cell in cells():
        text = "".join(cell["source"])
        solution, grade = role(cell).get("solution"), role(cell).get("grade")
        assert ("### BEGIN SOLUTION" in text) == bool(solution)
        assert text.count("### BEGIN") == text.count("### END")
        assert ("hunt.grade" in text or ".grade(" in text) == bool(grade)
        if grade:
            assert "### BEGIN HIDDEN TESTS" in text


def test_points_add_up_to_what_the_text_says():
    """Ten points are announced."""
    assert sum(role(cell).get("points", 0) for cell in cells()) == 10
    assert "10 points" in "".join(cells()[0]["source"])


@pytest.mark.slow
def test_nbgrader_marks_right_and_wrong_work(tmp_path):
    """Generated, handed in, marked and exported by nbgrader's own commands."""
    pytest.importorskip("nbgrader", reason="nbgrader is not installed")
    shutil.copytree(SOURCE, tmp_path / "source")

    def nbgrader(*words):
        command = [sys.executable, "-m", "nbgrader", *words]
        done = subprocess.run(  # our own interpreter
            command, cwd=tmp_path, env=os.environ, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()[-2000:]

    name = NOTEBOOK.name
    nbgrader("generate_assignment", "backward_by_hand")
    text = (tmp_path / "release" / "backward_by_hand" / name).read_text()
    assert "dout.sum" not in text
    assert "hunt.grade" not in text

    released = json.loads(text)
    solved = {role(cell).get("grade_id"): cell["source"] for cell in cells()}
    for student, bias in {"ada": "dout.sum(axis=0)", "eve": "dout"}.items():
        for cell in released["cells"]:
            if role(cell).get("solution"):
                source = "".join(solved[role(cell)["grade_id"]])
                mended = source.replace("db = dout.sum(axis=0)", f"db = {bias}")
                cell["source"] = mended
        folder = tmp_path / "submitted" / student / "backward_by_hand"
        folder.mkdir(parents=True)
        (folder / name).write_text(json.dumps(released))
        nbgrader("db", "student", "add", student)
    nbgrader("autograde", "backward_by_hand")
    nbgrader("export")

    with (tmp_path / "grades.csv").open() as file:
        scores = {
            row["student_id"]: float(row["score"]) for row in csv.DictReader(file)
        }
    assert scores == {"ada": 10.0, "eve": pytest.approx(8.0, abs=0.01)}
