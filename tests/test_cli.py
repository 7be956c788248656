"""The command line says what the report says, by exit code, text, page and JSON."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest
import typer.testing

from gradlab import cli

# A file as a user would write it; f is x**3, so its gradient is 3 x**2.
CASES = """
import numpy as np

import gradlab as gl


def cube(x):
    return (x**3).sum()


def right(x):
    return 3 * x**2


def wrong(x):
    return 2 * x**2


x = np.array([1.0, 2.0, 3.0])
good = {"fn": cube, "inputs": (x,), "grad": right}
bad = {"fn": cube, "inputs": (x,), "grad": wrong}
no_function = {"inputs": (x,)}
bare_input = {"fn": cube, "inputs": x, "grad": right}
undecided = {"fn": lambda x: (np.nan * x).sum(), "inputs": (x,),
             "grad": lambda x: np.nan * x}
with_gradient = (lambda x: (cube(x), right(x)), x)
number = 3


def made():
    print("made by the user's code")
    return gl.check(cube, x, grad=right)


report = gl.check(cube, x, grad=wrong)


def arguments():
    return good


def needs(x, y=1):
    return good


def fails():
    raise ValueError("no data today")


def leaves():
    raise SystemExit(0)


class Suite:
    case = bad
"""


@pytest.fixture
def cases(tmp_path):
    """Give the path of a file with one case of every kind."""
    file = tmp_path / "cases_for_the_command_line.py"
    file.write_text(CASES, encoding="utf-8")
    yield file
    sys.modules.pop(file.stem, None)
    sys.path[:] = [entry for entry in sys.path if entry != str(tmp_path)]


@pytest.fixture
def gradlab_command():
    """Run the command in this process; the terminal is a pipe, as in CI."""
    runner = typer.testing.CliRunner()
    return lambda *words: runner.invoke(cli.app, [str(word) for word in words])


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("good", 0),
        ("arguments", 0),
        ("with_gradient", 0),
        ("made", 0),
        ("bad", 1),
        ("report", 1),
        ("Suite.case", 1),
        ("undecided", 2),
    ],
)
def test_exit_code_is_the_verdict(cases, gradlab_command, name, code):
    """0 agrees, 1 disagrees, 2 undecided, for each form a target may have."""
    result = gradlab_command("check", f"{cases}:{name}")

    assert result.exit_code == code, result.output


@pytest.mark.parametrize(
    ("name", "telling"),
    [
        ("", "say which file and name to check, as in "),
        ("nothing", "has no 'nothing'; it has "),
        ("number", "the target is an int"),
        ("no_function", "the target has 'inputs' and no 'fn'; name a gradlab.Report"),
        ("bare_input", "'inputs' should be a tuple"),
        ("needs", "needs(x) needs arguments"),
        ("fails", "fails() failed: ValueError: no data today (line "),
        ("leaves", "leaves() failed: SystemExit"),
    ],
)
def test_a_target_that_cannot_be_checked_is_one_sentence(
    cases, gradlab_command, name, telling
):
    """An error exits with 2 and one line on stderr that names what was found."""
    result = gradlab_command("check", f"{cases}:{name}")

    assert result.exit_code == 2
    assert telling in result.stderr
    assert result.stderr.startswith("gradlab: ")
    assert result.stderr.count("\n") == 1


def test_a_file_that_does_not_exist_is_named(gradlab_command, tmp_path):
    """The message repeats the path that was not found."""
    result = gradlab_command("check", f"{tmp_path / 'gone.py'}:case")

    assert result.exit_code == 2
    assert "there is no file" in result.stderr
    assert "gone.py" in result.stderr
    assert "did you mean" not in result.stderr


def test_a_file_without_its_ending_is_found(cases, gradlab_command):
    """The message has the target that was meant."""
    result = gradlab_command("check", f"{str(cases).removesuffix('.py')}:right")

    assert result.exit_code == 2
    assert f"did you mean {cases}:right?" in result.stderr


def test_a_target_that_is_no_file_is_answered_with_a_whole_example(gradlab_command):
    """And not with one made of what was typed."""
    result = gradlab_command("check", ":case")

    assert "as in model.py:case; got ':case'" in result.stderr


@pytest.mark.parametrize("command", [[], ["check"], ["lab"]])
def test_help_is_short_as_well(gradlab_command, command):
    """-h is --help."""
    short, whole = (gradlab_command(*command, flag) for flag in ("-h", "--help"))

    assert short.exit_code == 0
    assert short.stdout == whole.stdout


def test_a_file_that_fails_to_run_tells_where(gradlab_command, tmp_path):
    """The exception and the line of the user's file are in the message."""
    file = tmp_path / "fails_at_import.py"
    file.write_text("x = 1\ny = x / 0\n", encoding="utf-8")

    result = gradlab_command("check", f"{file}:x")

    assert result.exit_code == 2
    assert "ZeroDivisionError: division by zero (line 2)" in result.stderr


def test_json_says_what_the_report_says(cases, gradlab_command, tmp_path):
    """Verdict, culprits, findings and the worst entry arrive as numbers and words."""
    out = tmp_path / "out.json"

    result = gradlab_command("check", f"{cases}:bad", "--json", out, "--seed", "7")

    told = json.loads(out.read_text(encoding="utf-8"))
    assert result.exit_code == 1
    assert told["verdict"] == "DISAGREES"
    assert told["ok"] is False
    assert told["culprits"] == ["x"]
    assert told["seed"] == 7
    assert told["evaluations"] > 0
    assert told["findings"][0]["kind"] == told["diagnosis"]
    row = told["table"][0]
    assert row["verdict"] == "DISAGREES"
    # The worst entry is x = 3: 2 * 9 was claimed, 3 * 9 is true.
    assert row["analytic"] == 18.0
    assert row["numeric"] == pytest.approx(27.0, abs=1e-6)


def test_json_on_standard_output_is_nothing_else(cases, gradlab_command):
    """What the user's code prints goes to stderr, so that a pipe can be parsed."""
    result = gradlab_command("check", f"{cases}:made", "--json", "-")

    assert json.loads(result.stdout)["verdict"] == "AGREES"
    assert "made by the user's code" in result.stderr


def test_json_has_words_for_what_is_not_finite(cases, gradlab_command):
    """nan is a string that float() reads back, and the file is standard JSON."""

    def refuse(constant):
        pytest.fail(f"{constant} is no JSON")

    result = gradlab_command("check", f"{cases}:undecided", "--json", "-")

    row = json.loads(result.stdout, parse_constant=refuse)["table"][0]
    assert row["analytic"] == "NaN"


def test_html_is_one_page(cases, gradlab_command, tmp_path):
    """--html writes the page of the report."""
    out = tmp_path / "out.html"

    gradlab_command("check", f"{cases}:bad", "--html", out)

    assert "<html" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize("options", [["--html"], ["--json"], ["--json", "-", "--html"]])
def test_a_result_that_cannot_be_written_is_refused_first(
    cases, gradlab_command, tmp_path, options
):
    """A missing folder is told before the user's file is run."""
    result = gradlab_command(
        "check", f"{cases}:made", *options, tmp_path / "no" / "such" / "file"
    )

    assert result.exit_code == 2
    assert "there is no folder" in result.stderr
    assert "made by the user's code" not in result.output


def test_options_override_those_of_the_target(cases, gradlab_command):
    """--method is what the report names in the end."""
    result = gradlab_command(
        "check", f"{cases}:good", "--method", "forward", "--json", "-"
    )

    assert json.loads(result.stdout)["method"].startswith("forward")


@pytest.mark.parametrize("budget", ["60s", "500"])
def test_a_budget_is_seconds_or_evaluations(cases, gradlab_command, budget):
    """Both spellings of a budget are understood, and kept."""
    result = gradlab_command(
        "check", f"{cases}:good", "--budget", budget, "--json", "-"
    )

    told = json.loads(result.stdout)
    assert told["verdict"] == "AGREES"
    assert told["evaluations"] <= 500


def test_a_budget_that_cannot_be_read_is_repeated(cases, gradlab_command):
    """The sentence of gradlab.check arrives unchanged."""
    result = gradlab_command("check", f"{cases}:good", "--budget", "soon")

    assert result.exit_code == 2
    assert "got 'soon'" in result.stderr


def test_options_for_a_finished_report_are_refused(cases, gradlab_command):
    """A report cannot be made again with another method, and the message says so."""
    result = gradlab_command("check", f"{cases}:report", "--method", "forward")

    assert result.exit_code == 2
    assert "the target is a finished report, so method would change" in result.stderr


def test_an_interrupt_of_the_users_file_is_an_error(gradlab_command, tmp_path):
    """Ctrl-C exits with 2: 1 would tell a script that the gradient is wrong."""
    file = tmp_path / "interrupted.py"
    file.write_text("raise KeyboardInterrupt\n", encoding="utf-8")

    result = gradlab_command("check", f"{file}:x")

    assert result.exit_code == 2
    assert "interrupted" in result.stderr


def test_the_package_runs_as_a_program(cases):
    """``python -m gradlab`` is the command, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "gradlab", "check", f"{cases}:bad"],
        capture_output=True,
        text=True,
        check=False,
        encoding="utf-8",
        env={"PYTHONIOENCODING": "utf-8", "PATH": "/usr/bin:/bin"},
        cwd=cases.parent,
    )

    assert done.returncode == 1, done.stderr
    assert "disagrees: x is wrong" in done.stdout
    assert done.stderr == ""


def test_the_entry_point_reads_the_arguments_of_the_process(cases, monkeypatch):
    """What the installed `gradlab` calls ends the process with the exit code."""
    monkeypatch.setattr(sys, "argv", ["gradlab", "check", f"{cases}:bad"])

    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert ended.value.code == 1


@pytest.fixture
def notebooks(tmp_path, monkeypatch):
    """Stand in for the notebooks of an installation."""
    folder = tmp_path / "installed"
    (folder / ".ipynb_checkpoints").mkdir(parents=True)
    (folder / ".ipynb_checkpoints" / "bug_hunt.ipynb").touch()
    (folder / "data").mkdir()
    (folder / "data" / "numbers.csv").write_text("1,2", encoding="utf-8")
    (folder / "bug_hunt.ipynb").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(cli, "_notebooks", lambda: folder)
    return folder


def test_lab_copies_what_belongs_to_the_notebooks(notebooks, gradlab_command, tmp_path):
    """Data files come along, checkpoints do not."""
    folder = tmp_path / "mine"

    gradlab_command("lab", "--copy-only", "--folder", folder)

    copied = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert copied == {"bug_hunt.ipynb", "data/numbers.csv"}


@pytest.mark.skipif(os.name != "posix", reason="there the server is a child process")
def test_lab_becomes_the_server(notebooks, gradlab_command, tmp_path, monkeypatch):
    """JupyterLab opens the copied bug hunt, on the loopback interface, token kept."""
    started = []

    def execute(program, words):
        started.append(words)
        raise SystemExit  # the real one does not return either

    monkeypatch.setattr(os, "execv", execute)
    monkeypatch.setattr(os, "chdir", started.append)
    folder = tmp_path / "mine"

    gradlab_command("lab", "--folder", folder)

    where, words = started
    assert where == folder
    assert words[:3] == [sys.executable, "-m", "jupyterlab"]
    assert "bug_hunt.ipynb" in words
    assert "--ip=127.0.0.1" in words
    assert not [word for word in words if "token" in word]


def test_lab_without_jupyterlab_says_what_to_install(
    notebooks, gradlab_command, monkeypatch
):
    """A missing JupyterLab is one sentence with the command that helps."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)

    result = gradlab_command("lab")

    assert result.exit_code == 2
    assert "pip install jupyterlab" in result.stderr


def test_copies_of_notebooks_are_never_overwritten(gradlab_command, tmp_path):
    """`gradlab lab` copies every notebook once; what the user changed stays."""
    folder = tmp_path / "mine"

    gradlab_command("lab", "--copy-only", "--folder", folder)
    notebook = folder / "bug_hunt.ipynb"
    assert json.loads(notebook.read_text(encoding="utf-8"))["nbformat"] == 4
    notebook.write_text("my own work", encoding="utf-8")
    (folder / "extra.txt").write_text("mine too", encoding="utf-8")
    again = gradlab_command("lab", "--copy-only", "--folder", folder)

    assert again.exit_code == 0
    assert "0 files copied" in again.stderr
    assert notebook.read_text(encoding="utf-8") == "my own work"
    assert (folder / "extra.txt").exists()
