"""What is asked of results and settings amiss: a sentence, never a stranger's error."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import GradlabError, InputError

X = np.array([1.0, 2.0])


def f(x):
    """A sum of squares."""
    return (x**2).sum()


def grad(x):
    """Its gradient."""
    return 2 * x


def checked():
    """A report of one input with two entries."""
    return gl.check(f, X, grad=grad)


def cyclic():
    """A list that is its own second entry."""
    held = [X]
    held.append(held)
    return held


CASES = {
    "a tolerance that forgives everything": (
        lambda: gl.check(f, X, grad=grad, rtol=1.0),
        r"rtol must be below 1, got 1.0: a gradient of twice the size would agree",
    ),
    "a tolerance without end": (
        lambda: gl.sweep(f, X, grad=grad, rtol=float("inf")),
        r"rtol must be below 1, got inf: a gradient of twice the size would agree",
    ),
    "an absolute tolerance without end": (
        lambda: gl.check(f, X, grad=grad, atol=float("inf")),
        r"atol must be finite, got inf: any gradient would agree",
    ),
    "an absolute tolerance that no number holds": (
        lambda: gl.check(f, X, grad=grad, atol=10**400),
        r"atol must be finite, got an integer beyond 1.8e\+308: any gradient would",
    ),
    "a relative tolerance that no number holds": (
        lambda: gl.check(f, X, grad=grad, rtol={"x": 10**400}),
        r"rtol must be below 1, got an integer beyond 1.8e\+308: a gradient of twice",
    ),
    "a tolerance that is a yes": (
        lambda: gl.taylor_test(f, X, grad=grad, rtol=True),
        r"rtol must be a number >= 0 or None, got True",
    ),
    "an option of another method": (
        lambda: gl.Adaptive(step=1e-3),
        r"Adaptive\(\) has no option 'step'; it has none",
    ),
    "a step by another name": (
        lambda: gl.Central(h=1e-3),
        r"Central\(\) has no option 'h'; did you mean step=\?",
    ),
    "an input without end": (
        lambda: gl.check(lambda held: f(held[0]), cyclic(), grad=grad),
        r"held.1 holds itself, and so has no end; pass the arrays in it",
    ),
    "an empty name": (
        lambda: gl.check(f, X, grad=grad, names=[""]),
        r"names= gives an empty name",
    ),
    "a column that is not there": (
        lambda: checked()["x"].indices(0, 2),
        r"there is no column 2; there are 2",
    ),
    "a row that is not there": (
        lambda: checked()["x"].label(-1, 0),
        r"there is no row -1; there are 1",
    ),
    "an entry of a sweep that is no index": (
        lambda: checked().sweep().entry("x", "a"),
        r"x\[a\], row 0, was not looked at; there is row 0 of x\[0\], x\[1\]",
    ),
    "a block that is not there, measured again": (
        lambda: checked().explore().recompute(name="zz"),
        r"no gradient is called 'zz'; the report has: 'x'",
    ),
    "a kind that is none": (
        lambda: gl.Finding("foo", "error", "x", 1.0, "a", "b"),
        r"kind must be one of scale, sign, .*, got 'foo'",
    ),
    "a severity that is none": (
        lambda: gl.Finding("sign", "bad", "x", 1.0, "a", "b"),
        r"severity must be one of error, warning, note, got 'bad'",
    ),
    "a level of a hunt that is none": (
        lambda: gl.BugHunt().go("a"),
        r"there is no level 'a': choose one of 1 to 9",
    ),
    "an option of a hunt that is misspelt": (
        lambda: gl.BugHunt(lvl=2),
        r"BugHunt\(\) has no option 'lvl'; did you mean level=\?",
    ),
    "parameters that are a number": (
        lambda: gl.check(lambda: 3.0, params=3, grad=grad),
        r"params= takes what fn reads where it is, an array .*, got 3; make it np.arr",
    ),
    "a direction that is a word": (
        lambda: gl.taylor_test(f, X, grad=grad, direction="a"),
        r"direction for x is of type str, .*; pass NumPy arrays, tensors or numbers",
    ),
    "a product that is None": (
        lambda: gl.check_hessian(f, X, grad=grad, hvp=lambda *_: None),
        r"hvp= returned None; expected the shapes of the inputs, \(2,\)",
    ),
    "a tangent that is None": (
        lambda: gl.compare_modes(
            np.square, X, jvp=lambda *_: None, jac=lambda x: np.diag(2 * x)
        ),
        r"one tangent per output, of shape \(2,\), got None",
    ),
    "a pattern of another size": (
        lambda: gl.check_sparsity(np.square, X, pattern=np.eye(3)),
        r"has shape \(3, 3\), expected \(2, 2\)$",
    ),
    "a loss that is complex": (
        lambda: gl.check(lambda x: f(x) * (1 + 1j), X, grad=grad),
        r"this function returns a complex number; make it real \(abs\(\), .real\)",
    ),
    "a budget of one": (
        lambda: gl.check(f, X, grad=grad, budget=1),
        r"\(1 evaluation is spent\)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_odd_calls_say_what_is_odd(name):
    """These were a TypeError, ValueError, KeyError or RecursionError, or nothing."""
    ask, words = CASES[name]

    with pytest.raises(GradlabError, match=words):
        ask()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": "a"}, "seed must be an integer >= 0, got 'a'"),
        ({"seed": -1}, "seed must be an integer >= 0, got -1"),
        ({"seed": None}, "seed must be an integer >= 0, got None"),
        ({"memory_bound": -1}, "memory_bound must be a number of bytes or a text"),
        ({"memory_bound": "lots"}, "memory_bound must be a number of bytes or a text"),
        ({"memory_bound": 100}, "MiB are allowed by memory_bound"),
    ],
)
def test_options_of_an_audit_are_read_like_those_of_a_check(options, words):
    """A seed went to torch as it was, and a text was compared with a number."""
    torch = pytest.importorskip("torch")

    with pytest.raises(InputError, match=words):
        gl.blame(torch.nn.Linear(3, 2), torch.ones(4, 3), **options)


def test_memory_of_an_audit_may_have_a_unit():
    """As `memory=` of a check."""
    torch = pytest.importorskip("torch")

    assert gl.blame(torch.nn.Linear(3, 2), torch.ones(4, 3), memory_bound="1GiB").ok


def test_a_report_has_names_and_goes_through_them():
    """`"w" in report` was an error about a gradient called 0."""
    report = gl.check(
        lambda p: (f(p["w"]), {"w": 2 * p["w"], "b": 0 * p["b"]}),
        {"w": X, "b": X},
    )
    sweep = report.sweep()

    assert "w" in report
    assert "zz" not in report
    assert sorted(report) == sorted(sweep) == ["b", "w"]
    assert "w" in sweep


def test_a_name_that_stands_for_several_gradients_is_there():
    """By itself and with each output; what is gone through is one by one."""
    report = gl.check(lambda x: (x, 2 * x), X, jac=lambda x: (np.eye(2), 2 * np.eye(2)))
    names = list(report)

    assert "x" in report
    assert len(names) == 2
    assert all(report[name] for name in names)


def test_what_was_compared_cannot_be_written_over():
    """A verdict must not change because a picture of its numbers was made."""
    block = checked()["x"]

    for name in ("analytic", "numeric", "numeric_error", "allowed", "verdicts", "step"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(block, name)[0, 0] = 7


def test_numbers_in_boxes_are_called_so():
    """A gradient of dtype object was "of type ndarray, which is not an array"."""
    report = gl.check(f, X, grad=lambda x: np.array([2 * v for v in x], dtype=object))

    assert report.diagnosis == "dtype"
    assert (
        "is an array of dtype object, which is not an array of numbers; return it wi"
        in (report.findings[0].evidence)
    )


def test_an_exception_that_lives_elsewhere_is_found():
    """The public names are few; those that are caught seldom stand in `errors`."""
    with pytest.raises(AttributeError, match=r"; it is gradlab.errors.InputError$"):
        gl.InputError


@pytest.mark.parametrize(
    ("count", "words"),
    [(1, "The gradient does"), (2, "Both gradients do"), (3, "All 3")],
)
def test_one_is_not_told_as_many(count, words):
    """It was "All 1 gradients do as expected"."""
    buffers = {f"w{k}": np.zeros(2) for k in range(count)}

    def step():
        for buffer in buffers.values():
            np.add(buffer, 1, out=buffer)

    told = gl.check_accumulation(step, buffers, expect="add").reading

    assert told.startswith(words)


def test_one_entry_that_is_not_declared_is_one():
    """By algebra only the entry (1, 0) of a running sum is below the diagonal."""
    found = gl.check_sparsity(np.cumsum, X, pattern=np.eye(2))

    assert found.reading.startswith("1 entry is not zero and not declared")


def test_one_gradient_is_one():
    """Of two inputs one has none."""
    report = gl.check(lambda x, y: f(x) + f(y), X, X, grad=lambda *_: (X,))

    assert "1 gradient came back, expected 2" in report.findings[0].evidence


def test_one_evaluation_is_one():
    """As the foot of a pattern with no entry says it."""
    found = gl.check_sparsity(np.square, X, pattern=np.eye(2))
    one = dataclasses.replace(found, evaluations=1)

    assert str(one).endswith("  1 evaluation")


def test_a_finding_takes_plain_text_for_its_kind():
    """Text and kind are the same; what is made of it has the kind."""
    finding = gl.Finding("sign", "error", "x", 1.0, "a = -n.", "Look.")

    assert finding.kind is gl.BugKind.SIGN
