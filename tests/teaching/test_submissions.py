"""A folder of submissions becomes a table of marks."""

from __future__ import annotations

import io
import json

import pytest

from gradlab.errors import InputError
from gradlab.teaching.levels import LEVELS
from gradlab.teaching.submissions import code_of, grade_folder, write_table

LAZY = next(level for level in LEVELS if level.edit == "linear_backward")


@pytest.fixture
def folder(tmp_path):
    """Return a folder with what three students handed in."""
    cells = ["%matplotlib inline\nimport numpy", "1 / 0", LAZY.repaired, "oops("]
    notebook = {"cells": [{"cell_type": "code", "source": cell} for cell in cells]}
    (tmp_path / "bob").mkdir()
    (tmp_path / "bob" / "week.ipynb").write_text(json.dumps(notebook))
    (tmp_path / "ada.py").write_text(LAZY.source)
    (tmp_path / "eve.ipynb").write_text("{")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints" / "x.py").write_text("")
    return tmp_path


def test_a_folder_becomes_a_table(folder):
    """A row for each student, whatever is wrong with the file."""
    records = grade_folder(folder, [LAZY])
    scores = {record["student"]: record["score"] for record in records}

    assert scores == {"ada": pytest.approx(66.7), "bob": 100.0, "eve": 0.0}
    text = io.StringIO()
    write_table(records, text)
    assert text.getvalue().count("\n") >= 4


def test_files_of_one_student_help_each_other(tmp_path):
    """What only helps is not marked; loose files do not import those of others."""
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada" / "helper.py").write_text(LAZY.repaired)
    (tmp_path / "ada" / "main.py").write_text("from helper import linear_backward")
    (tmp_path / "bob.py").write_text(LAZY.repaired)
    (tmp_path / "eve.py").write_text("from bob import linear_backward")
    (tmp_path / "ada" / "notes.py").write_text("x = 1")
    records = grade_folder(tmp_path, [LAZY])
    scores = {record["file"]: record["score"] for record in records}

    assert scores["ada/main.py"] == 100
    assert "ada/notes.py" not in scores
    assert scores["eve.py"] == 0


def test_mending_is_all_or_nothing(tmp_path):
    """Two of three gradients were right before anybody had done anything."""
    (tmp_path / "lazy.py").write_text(LAZY.source)

    (record,) = grade_folder(tmp_path, [LAZY], mend=True)

    assert record["score"] == 0
    assert "db: has shape" in record["reasons"]


def test_what_a_student_printed_is_no_formula():
    """A spreadsheet that opens the table runs nothing."""
    text = io.StringIO()
    write_table([{"student": "eve", "printed": '=cmd("x")'}], text)

    assert "'=cmd" in text.getvalue()


def test_an_empty_folder_is_an_error(tmp_path):
    """It names the folder."""
    with pytest.raises(InputError, match="holds no"):
        grade_folder(tmp_path, [LAZY])


def test_cells_keep_their_line_numbers(tmp_path):
    """Magics are blanked out, so that a reason names the line of the cell."""
    cell = "%time\nx = 1\n!ls\nraise ValueError(x)"
    path = tmp_path / "a.ipynb"
    source = {"cells": [{"cell_type": "code", "source": cell}]}
    path.write_text(json.dumps(source))
    program = {}
    exec(code_of(path), program)

    assert program["x"] == 1


def test_magics_do_not_spoil_the_code_around_them(tmp_path):
    """Timed cells are Python, shell cells are not, an indented magic is nothing."""
    cells = [
        "%%time\na = 1",
        "%%bash\nb = 1",
        "if True:\n    %time f()\n    files = !ls\n    c = 1\nc?",
        "d = (7\n%2)",
    ]
    path = tmp_path / "a.ipynb"
    source = {"cells": [{"cell_type": "code", "source": cell} for cell in cells]}
    path.write_text(json.dumps(source))
    program = {}
    exec(code_of(path), program)

    assert (program["a"], program["c"], program["d"]) == (1, 1, 1)
    assert program["files"] is None
    assert "b" not in program
