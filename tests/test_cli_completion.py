"""What the shell is told when Tab is pressed."""

from __future__ import annotations

import pytest
import typer.testing

from gradlab import cli
from gradlab.checks import check
from gradlab.errors import InputError
from gradlab.targets import targets_like

PROGRAM = """
import numpy as np
raise SystemExit("a file is read for its names, and not run")
x: np.ndarray = np.ones(3)
case = other = (np.sum, x)
_hidden = 3


def made():
    inner = case
    return inner
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """A program, a text and a folder, where the command line is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(PROGRAM)
    (tmp_path / "model.txt").write_text("")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "small.py").write_text("case = 1")
    (tmp_path / "broken.py").write_text("case = (")


def offered(words):
    """Return what the command line itself answers to the script of a shell."""
    shell = {"_GRADLAB_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": words}
    runner = typer.testing.CliRunner()
    return runner.invoke(cli.app, [], prog_name="gradlab", env=shell).output


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("mo", ["model.py:", "models/"]),
        ("models/", ["models/small.py:"]),
        (
            "model.py:",
            ["model.py:x", "model.py:case", "model.py:other", "model.py:made"],
        ),
        ("model.py:c", ["model.py:case"]),
        ("models/small.py:", ["models/small.py:case"]),
        ("broken.py:", []),
        ("missing.py:", []),
        ("nowhere/", []),
    ],
)
def test_files_and_the_names_in_them(typed, found):
    """Python files and folders, then the public names that a file defines."""
    assert targets_like(typed) == found


def test_the_shell_is_told_files_options_and_their_values():
    """The target, `--coverage` and `--method`, as they can be completed."""
    assert "model.py" in offered("gradlab check mo")
    assert "--coverage" in offered("gradlab check model.py:case --cov")
    assert "sample" in offered("gradlab check model.py:case --coverage sa")
    assert "complex-step" in offered("gradlab check model.py:case --method com")


@pytest.mark.parametrize("option", ["method", "coverage"])
def test_the_values_offered_are_those_that_a_check_takes(option):
    """All that the refusal of another value names, in its order, and nothing else."""
    offered_ = {"method": cli._METHODS, "coverage": cli._COVERAGES}[option]
    with pytest.raises(InputError) as refused:
        check(abs, 1.0, grad=abs, **{option: "?"})

    told = str(refused.value).split("must be one of ")[1].split(" or a ")[0]
    told = told.split(", got")[0].replace("'", "")
    assert tuple(told.split(", ")) == offered_
