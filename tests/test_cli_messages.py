"""What the command line says: version, near misses, lines of the user's own file."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import gradlab
from gradlab.cli import app

FILE = """
import numpy as np


def square(x):
    return (x**2).sum()


typo = {"fn": square, "inputs": (np.ones(2),), "gradd": lambda x: 2 * x}
wrong = {"fn": square, "inputs": (np.ones(2),), "grad": lambda x: 3 * x}


def singular():
    return np.linalg.inv(np.zeros((2, 2)))
"""


@pytest.fixture
def target(tmp_path):
    """A file with things to check."""
    path = tmp_path / "mine.py"
    path.write_text(FILE, encoding="utf-8")
    return str(path)


def _run(*arguments):
    return CliRunner().invoke(app, arguments)


def test_version():
    """`--version` is the package's, and an end."""
    done = _run("--version")

    assert done.exit_code == 0
    assert done.output.strip() == f"gradlab {gradlab.__version__}"


def test_misspelt_option_of_a_target(target):
    """The nearest option is offered, and all that there are."""
    done = _run("check", f"{target}:typo")

    assert done.exit_code == 2
    assert "'gradd'" in done.stderr
    assert "did you mean 'grad'?" in done.stderr
    assert "backward" in done.stderr


def test_line_is_one_of_the_users_file(target):
    """An error deep inside a library names the line that called it."""
    done = _run("check", f"{target}:singular")

    assert "LinAlgError: Singular matrix (line 14)" in done.stderr


def test_syntax_error_has_its_own_line(tmp_path):
    """Not that of the machinery that compiled the file."""
    path = tmp_path / "broken.py"
    path.write_text("x = 1\ndef f(:\n", encoding="utf-8")
    done = _run("check", f"{path}:f")

    assert done.exit_code == 2
    assert "SyntaxError: invalid syntax (line 2)" in done.stderr
    assert done.stderr.count("line") == 1
    assert "Traceback" not in done.output


def test_page_that_was_written_is_named(target, tmp_path):
    """On stderr, so that a pipe gets the report alone."""
    page = tmp_path / "page.html"
    done = _run("check", f"{target}:wrong", "--html", str(page))

    assert done.exit_code == 1
    assert f"page: {page}" in done.stderr
    assert "page:" not in done.stdout
    assert page.stat().st_size > 1000
