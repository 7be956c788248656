"""What the command line says: version, near misses, lines of the user's own file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import gradlab
from gradlab import cli
from gradlab.cli import app
from gradlab.presentation.widgets.progress import terminal_bar

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


def test_a_name_that_is_not_there_gets_those_that_can_be_checked(target, tmp_path):
    """Offered are cases and functions without arguments, not what cases are made of."""
    told = _run("check", f"{target}:rong").stderr
    (tmp_path / "empty.py").write_text("x = 1\ndef f(x): return x\n", encoding="utf-8")
    nothing = _run("check", f"{tmp_path / 'empty.py'}:case").stderr

    assert told.rstrip().endswith("did you mean 'wrong'? it has singular, typo, wrong")
    assert "checked as it is: write case = (f, x) and check case" in nothing


def test_a_module_and_a_function_of_torch_are_told_to_need_inputs(tmp_path):
    """Both take anything by their own signature; what they need stands in forward."""
    pytest.importorskip("torch")
    file = tmp_path / "model.py"
    file.write_text(
        "import torch\n"
        "net = torch.nn.Sequential(torch.nn.Linear(2, 2))\n"
        "class Square(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x): return x * x\n"
        "class Layer(torch.nn.Module):\n"
        "    def forward(self, x): return x * x\n",
        encoding="utf-8",
    )

    net, square, layer = (
        _run("check", f"{file}:{name}").stderr for name in ("net", "Square", "Layer")
    )

    assert net.startswith("gradlab: Sequential(input) needs arguments")
    assert square.startswith("gradlab: Square(x) needs arguments")
    assert "case = (model, input)" in net
    assert "case = (Square.apply, x)" in square
    assert "case = (Layer(), x)" in layer


def test_what_a_class_needs_is_told_apart_from_what_it_makes(tmp_path):
    """`Square(n)` is made, and its instance is called with x."""
    file = tmp_path / "made.py"
    file.write_text(
        "class Square:\n"
        "    def __init__(self, n, scale=1): self.n = n\n"
        "    def __call__(self, x): return (x**2).sum()\n"
        "def loss_and_grads(params): return 0.0, {}\n"
        "def batches():\n    yield 1\n",
        encoding="utf-8",
    )
    made = _run("check", f"{file}:Square").stderr
    file.write_text(file.read_text().partition("def batches")[0], encoding="utf-8")
    near = _run("check", f"{file}:loss_and_grad").stderr

    assert "case = (Square(n), x), and check case" in made
    assert "write case = (loss_and_grads, params) and check case" in near


def test_an_error_is_one_line_but_in_a_terminal(monkeypatch, capsys):
    """A script reads a line; a terminal does not break it inside of a word."""
    with pytest.raises(typer.Exit):
        cli._fail("word " * 40)
    piped = capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(typer.Exit):
        cli._fail("word " * 40)
    shown = capsys.readouterr().err

    assert piped.count("\n") == 1
    assert max(map(len, shown.splitlines())) <= 60
    assert shown.split() == piped.split()


def test_what_a_function_returned_is_told_with_its_name(tmp_path):
    """Neither was told of "the target is NoneType"; errors of a check are told once."""
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np, gradlab as gl\n"
        "def nothing(): gl\n"
        "def f(x): raise ValueError('sour')\n"
        "def fails(): return gl.check(f, np.ones(2), grad=f)\n",
        encoding="utf-8",
    )

    nothing, fails = (
        _run("check", f"{file}:{name}").stderr for name in ("nothing", "fails")
    )

    assert nothing.startswith("gradlab: nothing() returned None, and should be a grad")
    assert fails.startswith("gradlab: the function raised ValueError at the given")
    assert fails.count("mine.py") == 1


def test_a_folder_that_cannot_be_made_is_named_without_numbers_of_errors(tmp_path):
    """An error of the system is a sentence, too."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = _run("lab", "--copy-only", "--folder", str(tmp_path / "file"))

    assert done.exit_code == 2
    told = f"{str(tmp_path / 'file')!r} is a file; name a folder for the copies"
    assert told in done.stderr


def test_misspelt_option_of_a_target(target):
    """The nearest option is offered, and all that there are."""
    done = _run("check", f"{target}:typo")

    assert done.exit_code == 2
    assert "'gradd'" in done.stderr
    assert "did you mean 'grad'?" in done.stderr
    assert "backward" in done.stderr


def test_misspelt_inputs_of_a_target(tmp_path):
    """What is no option of the check is offered as well."""
    path = tmp_path / "inputs.py"
    path.write_text("case = {'fn': abs, 'input': (1.0,)}\n", encoding="utf-8")
    done = _run("check", f"{path}:case")

    assert "'input'" in done.stderr
    assert "did you mean 'inputs'?" in done.stderr


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


def _in_a_terminal(columns, *words, **environment):
    """Run the command in a terminal of so many columns; return what it shows."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    known = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "COLUMNS"}}
    process = subprocess.Popen(
        [sys.executable, "-m", "gradlab", *words],
        stdout=theirs,
        stderr=theirs,
        env=known | {"TERM": "xterm"} | environment,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # Linux says so when the other end has been closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait() == 1
    return shown.decode()


@pytest.mark.skipif(os.name != "posix", reason="a terminal of our own needs a pty")
class TestInATerminal:
    """What somebody sees who types the command."""

    def test_lines_fit(self, target):
        """At 60 columns nothing is broken in the middle; every number is there."""
        shown = _in_a_terminal(60, "check", f"{target}:wrong", NO_COLOR="1")
        lines = [line.split("\r")[-1] for line in shown.split("\r\n")]

        assert max(map(len, lines)) <= 60
        assert any("analytic 3, numeric 2 ±" in line for line in lines)

    @pytest.mark.parametrize("plain", [False, True])
    def test_the_verdict_has_a_colour_unless_nobody_wants_it(self, target, plain):
        """Red here; none where NO_COLOR is set."""
        environment = {"NO_COLOR": "1"} if plain else {}
        shown = _in_a_terminal(80, "check", f"{target}:wrong", **environment)

        assert ("\x1b[31;1m✗ disagrees" in shown) is not plain


@pytest.mark.parametrize("patience", [1e6, 0.0])
def test_no_bar_flickers_over_a_quick_check(patience, capsys):
    """Until its patience is over a bar shows nothing, whatever is done with it."""
    with terminal_bar(patience) as bar:
        bar.reset(40)
        bar.set_description("full")
        bar.update(20)
        bar.refresh()

    shown = capsys.readouterr().err
    assert ("20/40" in shown) == (shown != "") == (patience == 0)
    assert shown.split("\r")[-1] == ""  # cleared, what comes next begins the line


@pytest.mark.parametrize("leaving", ["fn", "grad"])
def test_a_program_that_ends_inside_the_function_is_no_agreement(tmp_path, leaving):
    """`sys.exit(0)` in what is checked was the exit code of "agrees", with no word."""
    file = tmp_path / "leaves.py"
    file.write_text(
        "import sys, numpy as np\n"
        "def leave(x): sys.exit(0)\n"
        "case = {'fn': np.sum, 'inputs': (np.ones(3),), 'grad': np.ones_like}\n"
        f"case[{leaving!r}] = leave\n",
        encoding="utf-8",
    )

    done = _run("check", f"{file}:case")

    assert done.exit_code == 2
    assert "left the program instead of returning: SystemExit: 0" in done.stderr


def test_what_no_program_expects_is_an_error_too(tmp_path):
    """An exception of its own kind ended the program with 1, "disagrees"."""
    file = tmp_path / "odd.py"
    file.write_text(
        "class Odd(BaseException): pass\n"
        "def f(x): raise Odd('sour')\n"
        "case = (f, 1.0)\n",
        encoding="utf-8",
    )

    done = _run("check", f"{file}:case")

    assert done.exit_code == 2
    assert "Odd: sour" in done.stderr


@pytest.mark.parametrize("option", ["--html", "--json"])
def test_the_file_that_is_checked_is_not_written_over(target, option):
    """It was the user's program, and a page afterwards."""
    done = _run("check", f"{target}:wrong", option, target)

    assert done.exit_code == 2
    assert "is the file that is read; name another one to write" in done.stderr
    assert Path(target).read_text(encoding="utf-8") == FILE


def test_page_and_numbers_do_not_share_a_file(target, tmp_path):
    """The second was written over the first, which was announced all the same."""
    out = tmp_path / "out"

    done = _run("check", f"{target}:wrong", "--html", str(out), "--json", str(out))

    assert done.exit_code == 2
    assert "--html and --json are both to write" in done.stderr
    assert not out.exists()


@pytest.mark.parametrize(("form", "named"), [("{}", "dict"), ("()", "tuple")])
def test_an_empty_target_is_called_empty(tmp_path, form, named):
    """It had "nothing and no 'fn'", and "is tuple"."""
    file = tmp_path / "empty_case.py"
    file.write_text(f"case = {form}\n", encoding="utf-8")

    told = _run("check", f"{file}:case").stderr

    assert f"the target is an empty {named}, and should be a gradlab.Report" in told
