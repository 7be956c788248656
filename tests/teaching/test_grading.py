"""Marks: hidden inputs, a reason per gradient, and no way round."""

from __future__ import annotations

import io

import numpy as np
import pytest

from gradlab.errors import InputError
from gradlab.teaching.grading import mark
from gradlab.teaching.hunt import Hunt
from gradlab.teaching.isolation import grade
from gradlab.teaching.level import load
from gradlab.teaching.levels import LEVELS, playable

LAZY = next(level for level in LEVELS if level.edit == "linear_backward")
CAPSULE = next(level for level in LEVELS if level.edit == "Sigmoid")

HEAD = "def linear_backward(dout, x, W, b):\n"
AUTOGRAD = (
    "import torch\n"
    + HEAD
    + "    x, W, b = (torch.tensor(a, requires_grad=True) for a in (x, W, b))\n"
    "    out = ((x @ W + b) * torch.tensor(dout)).sum()\n"
)


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    """Python may take long to start in another process, on a machine that is busy."""
    monkeypatch.setattr("gradlab.teaching.isolation._START_UP", 600.0)


def reasons(graded):
    """Return why, by gradient."""
    return {each.name: each.reason for each in graded.marks}


# ------------------------------------------------------------------- what is worth what


@pytest.mark.parametrize("level", playable(), ids=lambda level: level.edit)
def test_the_answer_key_has_full_marks(level):
    """Each level's repaired source is right in every hidden trial."""
    graded = mark(level, load(level.repaired, level.edit), seed=50)

    assert graded.full, str(graded)
    assert graded.score == 100


@pytest.mark.parametrize("level", playable(), ids=lambda level: level.edit)
def test_the_broken_code_loses_just_the_wrong_gradients(level):
    """The marks are all or nothing, by gradient; what raises computes none of them."""
    graded = mark(level, load(level.source, level.edit), seed=50)

    lost = {each.name for each in graded.marks if not each.points}
    raised = "raised" in "".join(reasons(graded).values())
    assert lost == set(level.gradients if raised else level.wrong)
    expected = 100 * (1 - len(lost) / len(level.gradients))
    assert graded.score == pytest.approx(expected, abs=0.1)


def test_an_answer_learned_by_heart_is_worth_nothing():
    """Numbers that were right on what was shown are not on what was hidden."""
    hunt = Hunt(levels=[LAZY], seed=3)
    right = load(LAZY.repaired, LAZY.edit)
    seen = []

    def spy(dout, x, W, b):
        seen.append(right(dout, x, W, b))
        return seen[-1]

    assert hunt.check(spy).solved
    shown = seen[0]

    graded = mark(LAZY, lambda *_: shown, seed=50, shown=3)

    assert graded.score == 0
    assert "shape" in reasons(graded)["dx"]


def test_what_holds_for_one_shape_only_is_said():
    """A sum over the wrong number of rows fails in the other shape."""

    def partial(dout, x, W, b):
        return dout @ W.T, x.T @ dout, dout[:4].sum(axis=0)

    hidden = LAZY.deal(np.random.default_rng(0), "hidden").dout.shape[0]
    shown = LAZY.deal(np.random.default_rng(0), "shown").dout.shape[0]
    assert hidden <= 4 < shown  # else this test tests nothing

    reason = reasons(mark(LAZY, partial, seed=50))["db"]

    assert "one of two shapes" in reason


def test_the_seed_that_was_shown_is_refused():
    """Marks on numbers that students saw would be marks for copying."""
    with pytest.raises(InputError, match="students saw"):
        mark(LAZY, lambda *_: None, seed=8, shown=9)


def test_a_changed_forward_pass_loses_its_share():
    """Whoever bends the loss to fit the gradient does not get full marks."""
    level = LEVELS[0]
    bent = level.source.replace(".mean()", ".sum()")
    graded = mark(level, load(bent, level.edit), seed=50)

    assert graded.marks[0].name == "forward"
    assert graded.marks[0].points == 0


STYLES = {
    "lists": "return [(dout @ W.T).tolist(), (x.T @ dout).tolist(), s.tolist()]",
    "a dict": 'return {"dW": x.T @ dout, "db": s, "dx": dout @ W.T}',
    "a dict by input": 'return {"W": x.T @ dout, "b": s, "x": dout @ W.T}',
    "einsum": "e = np.einsum\n"
    "    return e('nk,dk->nd', dout, W), e('nd,nk->dk', x, dout), s",
    "float32": "f = np.float32; return f(dout) @ f(W).T, f(x.T) @ f(dout), f(s)",
    "in place": "a = dout @ W.T; b = x.T @ dout; dout *= 0; x += 1; return a, b, s",
    "loops": "b = 0 * W\n    for i in range(len(x)): b += np.outer(x[i], dout[i])\n"
    "    return dout @ W.T, b, s",
}


@pytest.mark.parametrize("style", STYLES)
def test_right_work_in_another_style_has_full_marks(style):
    """What is judged is numbers: neither their container nor the way to them."""
    body = f"    s = dout.sum(axis=0)\n    {STYLES[style]}\n"
    student = load("import numpy as np\n" + HEAD + body, LAZY.edit)

    assert mark(LAZY, student, seed=50).full


def test_single_precision_is_no_excuse_for_a_wrong_formula():
    """A hundredth too much is wrong in float32 as well."""

    def linear_backward(dout, x, W, b):
        dx = np.float32(1.01) * (dout @ W.T).astype(np.float32)
        return dx, x.T @ dout, dout.sum(axis=0)

    assert mark(LAZY, linear_backward, seed=50).score == pytest.approx(66.7)


def test_differences_of_ones_own_are_pointed_out():
    """They are right to some digits; the instructor is told, the marks stay."""
    level = next(each for each in LEVELS if each.edit == "softmax_backward")

    def softmax(x):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    def softmax_backward(dout, x, h=1e-6):
        dx = np.zeros_like(x)
        for i in np.ndindex(x.shape):
            step = np.zeros_like(x)
            step[i] = h
            dx[i] = ((softmax(x + step) - softmax(x - step)) * dout).sum() / (2 * h)
        return dx

    graded = mark(level, softmax_backward, seed=50)
    honest = mark(level, load(level.repaired, level.edit), seed=50)

    assert graded.full
    assert "digits only" in reasons(graded)["dx"]
    assert reasons(honest)["dx"] == "right in all 6 hidden trials"


# -------------------------------------------------------------------------- by hand


@pytest.mark.parametrize(
    "code",
    [
        AUTOGRAD + "    out.backward()\n    return x.grad, W.grad, b.grad\n",
        AUTOGRAD + "    return torch.autograd.grad(out, (x, W, b))\n",
        "import torch\n"
        + HEAD
        + "    a = tuple(map(torch.tensor, (x, W, b)))\n"
        + "    f = lambda x, W, b: x @ W + b\n"
        + "    return torch.func.vjp(f, *a)[1](torch.tensor(dout))\n",
        "import gradlab as gl\n"
        + HEAD
        + "    f = lambda x, W, b: ((x @ W + b) * dout).sum()\n"
        + "    found = gl.numeric_jacobian(f, x, W, b)\n"
        + "    return [each.value for each in found.values()]\n",
    ],
    ids=["backward", "grad", "vjp", "differences"],
)
def test_derivatives_by_machine_are_worth_nothing_where_they_were_to_be_by_hand(code):
    """The numbers are right; the work was not done. Unless it was allowed."""
    pytest.importorskip("torch")
    student = load(code, LAZY.edit)

    strict, lax = (mark(LAZY, student, seed=50, by_hand=strict) for strict in (1, 0))

    assert strict.score == 0
    assert "written by hand" in reasons(strict)["dW"]
    assert lax.score == 100, str(lax)


def test_autograd_inside_of_a_custom_backward_is_seen():
    """That gradlab itself calls autograd on a Function does not count, this does."""
    code = CAPSULE.repaired.replace(
        "return dout * out * (1 - out)",
        "x = -torch.log(1 / out - 1)\n"
        "        with torch.enable_grad():\n"
        "            x = x.detach().requires_grad_()\n"
        "            y = torch.sigmoid(x)\n"
        "        return torch.autograd.grad(y, x, dout)[0]",
    )
    pytest.importorskip("torch")
    graded = mark(CAPSULE, load(code, CAPSULE.edit), seed=50)

    assert graded.score == 0
    assert "grad() of torch" in reasons(graded)["dx"]


# ------------------------------------------------------------------ in its own process


def test_a_function_goes_to_another_process_with_all_it_uses():
    """Helpers and constants of the same file arrive there; what it prints is kept."""
    two = np.array(2.0)

    def helper(dout):
        print("summing")
        return (two * dout).sum(axis=0) / two

    def linear_backward(dout, x, W, b):
        return dout @ W.T, x.T @ dout, helper(dout)

    graded = grade(LAZY, linear_backward, seed=50)

    assert graded.score == 100, str(graded)
    assert graded.printed.startswith("summing")
    assert graded.seconds > 0


def test_a_torch_function_goes_to_another_process():
    """A class with the metaclass of autograd.Function can be sent as well."""
    pytest.importorskip("torch")
    graded = Hunt(levels=[CAPSULE]).grade(load(CAPSULE.repaired, CAPSULE.edit))

    assert graded.score == 100, str(graded)


@pytest.mark.parametrize(
    "end", ["open('gone.csv')", "import sys; sys.exit()", "display(get_ipython().x())"]
)
def test_what_happens_after_the_answer_costs_nothing(end):
    """The function was defined; a missing file behind it is no matter of gradients."""
    assert grade(LAZY, f"{LAZY.repaired}\n{end}\n", seed=50).score == 100


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def linear_backwards(): pass", "is it linear_backwards"),
        ("import os\nos._exit(3)", "code 3"),
        ("raise SystemExit", "does not run"),
        ("input()", "EOFError"),
        ("=", "SyntaxError"),
        ("x = 1", "there is no linear_backward"),
        (HEAD + "    raise KeyError('b')", "KeyError"),
    ],
)
def test_whatever_it_does_there_is_a_grade_and_a_reason(code, reason):
    """Crashes and missing names end as zero points with the reason."""
    graded = grade(LAZY, code, seed=50, seconds=60)

    assert graded.score == 0
    assert reason in reasons(graded)["dx"]


@pytest.mark.untraced
@pytest.mark.parametrize(
    "code", ["while True:\n    pass", HEAD + "    while True:\n        pass"]
)
def test_what_never_ends_is_ended_and_told(monkeypatch, code):
    """A loop while the program is read, or when it is called."""
    monkeypatch.setattr("gradlab.teaching.isolation._START_UP", 600.0)  # Python's own
    monkeypatch.setattr("gradlab.teaching.isolation._LOADING", 1.0)
    graded = grade(LAZY, code, seed=50, seconds=0.3)

    assert graded.score == 0
    assert "never ends" in reasons(graded)["dx"]


def test_what_hangs_in_c_is_killed(monkeypatch):
    """A sleep listens to nobody; its process is ended."""
    monkeypatch.setattr("gradlab.teaching.isolation._START_UP", 2.0)
    graded = grade(LAZY, "import time\ntime.sleep(1000)", seed=50, seconds=0.1)

    assert "process was ended" in reasons(graded)["db"]


def test_what_cannot_be_sent_is_said():
    """An open file cannot go to another process."""
    stream = io.TextIOWrapper(io.BytesIO())
    with open(__file__, encoding="utf-8") as file:  # noqa: PTH123 - as a student would

        def linear_backward(*_):
            return file, stream

        with pytest.raises(InputError, match="linear_backward cannot be sent"):
            grade(LAZY, linear_backward)


def test_nothing_to_grade_is_an_error():
    """A name that was never defined is told to the instructor."""
    with pytest.raises(InputError, match="no linear_backward"):
        Hunt(levels=[LAZY]).grade()
