"""An instructor's own code becomes a level, and mistakes are planted into it."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from gradlab.errors import InputError
from gradlab.teaching.grading import mark
from gradlab.teaching.isolation import grade
from gradlab.teaching.level import Trial, load
from gradlab.teaching.levels import LEVELS
from gradlab.teaching.marking import judge
from gradlab.teaching.own_levels import level_from
from gradlab.teaching.planting import answer_key, plant
from gradlab.teaching.submissions import asked, grade_folder

PAIR = """
import numpy as np


def affine_forward(x, W, b):
    out = x @ W + b
    return out, (x, W)


def affine_backward(dout, cache):
    x, W = cache
    dx = dout @ W.T
    dW = x.T @ dout
    db = dout.sum(axis=0)
    return dx, dW, db
"""

NO_CACHE = """
import numpy as np


def tanh_forward(x):
    return np.tanh(x)


def tanh_backward(dout, x):
    out = np.tanh(x)
    return dout * (1 - out**2)
"""

LAYER = """
import numpy as np


class Linear:
    def __init__(self, rows, columns):
        self.W = np.zeros((rows, columns))
        self.b = np.zeros(columns)

    def forward(self, x):
        self.x = x
        return x @ self.W + self.b

    def backward(self, dout):
        self.dW = self.x.T @ dout
        self.db = dout.sum(axis=0)
        return dout @ self.W.T
"""

LOSS = """
import numpy as np


def ridge(params):
    w, b = params["w"], params["b"]
    X = np.arange(12.0).reshape(4, 3) / 10
    miss = X @ w + b - 1
    loss = (miss**2).mean() + 0.1 * (w**2).sum()
    dw = X.T @ miss * 2 / len(X) + 0.2 * w
    db = 2 * miss.mean()
    return loss, {"w": dw, "b": db}
"""

CAPSULE = """
import torch


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x**2 * y

    @staticmethod
    def backward(ctx, dout):
        x, y = ctx.saved_tensors
        return dout * 2 * x * y, dout * x**2
"""

FORMS = [
    pytest.param(PAIR, {"x": "nd", "W": "dk", "b": "k"}, id="pair"),
    pytest.param(NO_CACHE, {"x": "nd"}, id="no-cache"),
    pytest.param(LAYER, {"x": "nd", "W": "dk", "b": "k"}, id="layer"),
    pytest.param(LOSS, {"w": [3], "b": ()}, id="loss"),
    pytest.param(CAPSULE, {"x": "nd", "y": "nd"}, id="capsule"),
]


@pytest.mark.parametrize(("code", "inputs"), FORMS)
def test_right_code_of_every_form_has_full_marks(code, inputs):
    """The truth is the code's own forward pass, by differences."""
    if "torch" in code:
        pytest.importorskip("torch")
    level = level_from(code, inputs)

    assert mark(level, load(code, level.edit), seed=50).full


@pytest.mark.untraced
@pytest.mark.parametrize(("code", "inputs"), FORMS)
def test_a_planted_mistake_is_a_wrong_gradient_and_never_a_crash(code, inputs):
    """For ten students: runs, and is wrong in the gradients that the key names."""
    if "torch" in code:
        pytest.importorskip("torch")
    level = level_from(code, inputs)
    kinds = set()
    for seed in range(10):
        planted = plant(level, seed=seed)
        rows = judge(planted.level, load(planted.source, level.edit), seed=3)
        wrong = [row.name for row in rows if not row.right]
        solution = planted.solution()
        kinds.add((solution["kind"], solution["line"]))

        assert ", ".join(wrong) == solution["gradients"]
        assert planted.source != code

    assert len(kinds) >= 4  # not the same exercise for everybody


def test_the_source_of_a_function_is_read():
    """An object will do instead of text."""

    def cubes(x):
        dx = 3 * x**2
        return (x**3).sum(), dx

    keys = answer_key(cubes, ["ada", "bob"], inputs={"x": "n"})

    assert [key["gradients"] for key in keys] == ["dx", "dx"]


def test_inputs_that_are_not_normal_are_dealt_by_hand():
    """A logarithm needs positive numbers; labels are given."""
    code = (
        "import numpy as np\n\n\ndef nll(p, y):\n    picked = p[np.arange(len(y)), y]\n"
        "    dp = np.zeros_like(p)\n    dp[np.arange(len(y)), y] = -1 / picked\n"
        "    return -np.log(picked).sum(), dp\n"
    )

    def deal(rng, size):
        rows = 4 if size == "shown" else 6
        labels = rng.integers(3, size=rows)
        return Trial({"p": rng.uniform(0.1, 1, (rows, 3))}, {"y": labels})

    level = level_from(code, deal)

    assert dict(level.gradients) == {"dp": "p"}
    assert plant(level, seed=1).solution()["gradients"] == "dp"


def test_wrong_code_is_refused_with_the_gradient():
    """Mistakes are planted into right code only."""
    with pytest.raises(InputError, match=r"db .*mend it first"):
        level_from(
            PAIR.replace("dout.sum(axis=0)", "dout.mean(axis=0)"), FORMS[0].values[1]
        )


@pytest.mark.parametrize(
    ("code", "inputs", "words"),
    [
        (PAIR, None, "needs inputs="),
        (PAIR, {"x": "nd", "W": "nk", "b": "k"}, "does not run"),
        (PAIR, {"x": "n?"}, "letters"),
        ("x = 1", {"x": "n"}, "found no class"),
        (np.sin, {"x": "n"}, "cannot be read"),
    ],
)
def test_what_is_missing_is_said(code, inputs, words):
    """No inputs, inputs that do not fit, no backward pass, no source."""
    with pytest.raises(InputError, match=words):
        plant(code, seed=0, inputs=inputs)


@pytest.mark.untraced
def test_the_page_for_teachers_does_what_it_says(tmp_path, capsys):
    """Its programs run, and the level they make marks a folder by the command line."""
    page = pathlib.Path(__file__).parents[2] / "tutorials" / "README.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    program = "".join(blocks)
    exec(program, {})
    assert "def swish_backward" in capsys.readouterr().out

    (tmp_path / "week3.py").write_text(program)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "ada.py").write_text(
        "import numpy as np\n\n\ndef swish_backward(dout, x):\n"
        "    s = 1 / (1 + np.exp(-x))\n    return [dout * s * (1 + x * (1 - s))]\n"
    )
    level = f"{tmp_path / 'week3.py'}:level"
    command = [sys.executable, "-m", "gradlab.teaching.submissions"]
    command += [str(tmp_path / "work"), "--level", level, "--seed", "4711", "--mend"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)

    assert b"mean 100.0 of 100" in done.stdout, done.stderr.decode()
    assert (tmp_path / "marks.csv").exists()


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("x = 1", r"no level 'level' in .*week3\.py$"),
        ("level = 3", r"no level 'level' in .*week3\.py; level is a int"),
        ("1 / 0", r"week3\.py does not run: ZeroDivisionError"),
        ("{}['level']", r"week3\.py does not run: KeyError"),
    ],
)
def test_a_file_without_a_level_is_said(tmp_path, program, words):
    """The name and the file are told, and what went wrong in it."""
    file = tmp_path / "week3.py"
    file.write_text(program)

    with pytest.raises(InputError, match=words):
        asked(f"{file}:level")


def test_marks_that_cannot_be_written_are_refused_first(tmp_path):
    """Before anything is graded."""
    command = [sys.executable, "-m", "gradlab.teaching.submissions", str(tmp_path)]
    command += ["--level", "2", "--out", str(tmp_path / "gone" / "marks.csv")]
    done = subprocess.run(command, capture_output=True, check=False, text=True)

    assert done.returncode == 2
    assert "there is no folder" in done.stderr


@pytest.mark.parametrize(("seed", "words"), [(0, "students saw"), (-1, "integer >= 0")])
def test_a_seed_that_cannot_mark_is_the_instructors_error(tmp_path, seed, words):
    """It is refused, and costs no student a point."""
    (tmp_path / "ada.py").write_text(LEVELS[1].repaired)

    with pytest.raises(InputError, match=words):
        grade(LEVELS[1], LEVELS[1].repaired, seed=seed)
    with pytest.raises(InputError, match=words):
        grade_folder(tmp_path, [LEVELS[1]], seed=seed)
