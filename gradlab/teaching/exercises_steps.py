"""Exercises of lessons 1 and 2: what a derivative costs, and the valley of steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.checks import check
from gradlab.comparison.verdict import Verdict
from gradlab.errors import GradlabError
from gradlab.sweeping import sweep
from gradlab.teaching.answering import Exercise, Open, choice, names, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["EXERCISES", "FORUM_TABLE"]

_FLOAT32, _FLOAT64 = 2.0**-24, 2.0**-53  # unit round-off

# Step -> relative error that somebody measured for the logits of a linear layer:
# https://stats.stackexchange.com/questions/491171
FORUM_TABLE = {
    1e-1: 2.426800e-04,
    1e-2: 3.202225e-05,
    1e-3: 3.494641e-04,
    1e-4: 3.063642e-03,
    1e-5: 1.855947e-02,
    1e-6: 5.074288e-01,
}


# -------------------------------------------------------------------------- lesson 1
_FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "np.exp(np.sin(x)).sum()": (
        lambda x: np.exp(np.sin(x)).sum(),
        lambda x: np.cos(x) * np.exp(np.sin(x)),
    ),
    "np.abs(x).sum()": (lambda x: np.abs(x).sum(), np.sign),
    "np.sqrt((x**2).sum())": (
        lambda x: np.sqrt((x**2).sum()),
        lambda x: x / np.sqrt((x**2).sum()),
    ),
    "np.linalg.norm(x)": (np.linalg.norm, lambda x: x / np.linalg.norm(x)),
    "(x * x.conj()).sum()": (lambda x: (x * x.conj()).sum(), lambda x: 2 * x),
    "np.log(1 + x**2).sum()": (
        lambda x: np.log(1 + x**2).sum(),
        lambda x: 2 * x / (1 + x**2),
    ),
}


def _stepped() -> Iterable[str]:
    """Name the functions that a complex step differentiates correctly: try it."""
    x = np.array([0.3, -1.2, 0.7])
    for name, (function, gradient) in _FUNCTIONS.items():
        try:
            report = check(
                function, x, grad=gradient, method="complex-step", diagnose=False
            )
        except GradlabError:
            continue
        if report.verdict is Verdict.AGREES:
            yield name


def _central(student: Any, seed: int) -> str:
    """Judge a function that computes a gradient by central differences."""
    rng = np.random.default_rng(seed)
    x, weights = rng.normal(size=(2, 3)), rng.normal(size=(2, 3))
    calls: list[bool] = []
    before = x.copy()

    def cubic(point: Any) -> float:
        calls.append(True)
        return float((weights * np.asarray(point) ** 3).sum())

    h = 0.25  # large: each formula leaves an error of its own, and all are known
    found = student(cubic, x, h)
    if found is None:
        raise Open
    if not np.array_equal(x, before):
        return "x is not what it was before the call: put every entry back"
    found = np.asarray(found)
    if found.shape != x.shape:
        return f"the result has shape {found.shape}, x has shape {x.shape}"
    slope, bend = 3 * weights * x**2, 3 * weights * x
    right = slope + weights * h**2
    slips = {
        "that is the one-sided difference: go h back as well": right + bend * h,
        "that is the one-sided difference, backwards: go h forward as well": (
            right - bend * h
        ),
        "twice too large: the two points are 2 h apart, not h": 2 * right,
        "the sign is turned round: f(x + h) comes first": -right,
        "the difference is not divided by the distance of the points": 2 * h * right,
    }
    if np.allclose(found, right, rtol=1e-8):
        return _careful(student, len(calls), x.size)
    for words, value in slips.items():
        if np.allclose(found, value, rtol=1e-8):
            return words
    if np.allclose(found, slope, rtol=1e-8):
        return "that is the exact derivative, but a difference with this h was asked"
    return "the numbers are not those of (f(x + h) - f(x - h)) / 2h in every entry"


def _careful(student: Any, calls: int, entries: int) -> str:
    """Say what is left to be desired where the numbers are right."""
    if calls > 2 * entries + 1:
        return f"right, but with {calls} evaluations for {entries} entries: 2 each do"
    whole = student(lambda x: float((np.asarray(x) ** 2).sum()), np.array([1, 2]), 0.25)
    if not np.allclose(whole, [2.0, 4.0]):
        return (
            "right for floats; for np.array([1, 2]) the steps are cut off, because an "
            "array of integers holds no fractions: convert x first"
        )
    return ""


# -------------------------------------------------------------------------- lesson 2
def _best_step() -> float:
    """Measure the best central step of exp(sin x) near 1 in float32."""
    x = np.linspace(0.8, 1.2, 41, dtype=np.float32)  # many: one alone has lucky steps
    swept = sweep(
        lambda x: np.exp(np.sin(x)),
        x,
        jac=lambda x: np.diag(np.cos(x) * np.exp(np.sin(x))),
        steps=np.logspace(-7, 0, 43),
    )
    return float(swept.best_step["x"])


def _forum() -> str:
    """Read the table: noise falls when the step grows, a bug does not."""
    steps = np.log10(list(FORUM_TABLE))
    errors = np.log10(list(FORUM_TABLE.values()))
    small = steps < -1.5
    slope = np.polyfit(steps[small], errors[small], 1)[0]
    return "noise" if slope < -0.5 else "bug"


EXERCISES = {
    "1.1": Exercise(
        "the time in seconds, a number",
        number(
            lambda: 2 * 7850 * 2e-3,
            {
                "that is the one-sided difference; central ones take two evaluations "
                "for each entry": lambda right: right / 2,
                "that is in milliseconds": lambda right: right * 1000,
                "that counts evaluations: each takes 2 ms": lambda right: right / 2e-3,
                "that is one evaluation in all": lambda right: right / (2 * 7850),
            },
        ),
        "Half a minute for the gradient that one backward pass gives in a few "
        "milliseconds: differences are for checking, not for training.",
    ),
    "1.2": Exercise(
        "the function central_gradient",
        _central,
        "Every entry costs two evaluations, and x is given back as it was.",
    ),
    "1.3": Exercise(
        "a list with the names of the functions",
        names(
            _stepped,
            _FUNCTIONS,
            "ask of each whether it carries an imaginary part through to the end",
        ),
        "abs, norm and conj throw away or turn the imaginary part, which is where a "
        "complex step keeps the derivative.",
    ),
    "2.1": Exercise(
        "a step, a number",
        number(
            _best_step,
            {
                "that is the best step in float64; float32 has far fewer digits": (
                    lambda _: (3 * _FLOAT64) ** (1 / 3)
                ),
                "that is the best step of one-sided differences in float32": (
                    lambda _: 2 * _FLOAT32**0.5
                ),
                "that is the best step of one-sided differences in float64": (
                    lambda _: 2 * _FLOAT64**0.5
                ),
            },
            within=4.0,
        ),
        "About the cube root of the unit round-off, here as in float64.",
    ),
    "2.2": Exercise(
        "a factor, a number",
        number(
            lambda: 1e6 ** (1 / 3),
            {
                "that is the square root, which belongs to one-sided differences": (
                    lambda _: 1e3
                ),
                "the step does not move as much as the value does: look at the power "
                "in the formula": lambda _: 1e6,
                "it does move: round-off is proportional to |f|": lambda _: 1.0,
            },
            within=1.3,
        ),
        "A large value drowns small changes, so the best step grows with it: subtract "
        "what is constant before you differentiate.",
    ),
    "2.3": Exercise(
        "'bug' or 'noise'",
        choice(
            _forum,
            {
                "bug": "an error that a bug makes stays where it is when the step "
                "changes; does this one?",
                "noise": "look at the slope on the left",
            },
        ),
        "It falls by ten when the step grows by ten: round-off of float32, divided by "
        "the step. At the best step five digits agree.",
    ),
}
