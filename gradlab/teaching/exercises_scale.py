"""Exercises of lessons 9 to 11: many entries, second derivatives, test suites."""

from __future__ import annotations

import math
import pathlib
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.checks import check
from gradlab.comparison.verdict import Verdict
from gradlab.teaching.answering import Exercise, Open, complaint, number
from gradlab.teaching.exercises_functions import judge_function
from gradlab.teaching.level import load
from gradlab.teaching.levels import LEVELS
from gradlab.teaching.planting import plant
from gradlab.teaching.time_limit import call_within

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["EXERCISES", "mystery_gradient"]

_UNIT = 2.0**-53  # round-off of float64


# -------------------------------------------------------------------------- lesson 9
_ENTRIES, _WRONG = 20_000, 3


def _places(seed: int) -> set[int]:
    rng = np.random.default_rng([seed, 12])
    return {int(i) for i in rng.choice(_ENTRIES, size=_WRONG, replace=False)}


def mystery_gradient(seed: int = 0) -> tuple[Any, Any, Any]:
    """Deal a function of 20,000 numbers whose gradient has three wrong entries.

    Parameters
    ----------
    seed
        Another seed, other entries.

    Returns
    -------
    tuple
        ``f(w)``, ``gradient(w)`` and the point ``w``.

    Examples
    --------
    >>> f, gradient, w = mystery_gradient()
    >>> gradient(w).shape
    (20000,)
    """
    w = np.random.default_rng([seed, 13]).normal(size=_ENTRIES)
    places = sorted(_places(seed))

    def f(w: Any) -> Any:
        return np.log1p(w**2).sum()

    def gradient(w: Any) -> Any:
        slopes = 2 * w / (1 + w**2)
        slopes[places] += [0.01, -0.01, 0.002]
        return slopes

    return f, gradient, w


def _located(answer: Any, seed: int) -> str:
    """Judge the places of the wrong entries."""
    found = {int(np.ravel(place)[0]) for place in answer}
    good = len(found & _places(seed))
    if good == len(found) == _WRONG:
        return ""
    return (
        f"{good} of your {len(found)} {'is' if good == 1 else 'are'} among the wrong "
        f"ones, and there are {_WRONG}: gl.locate names them"
    )


# ------------------------------------------------------------------------- lesson 10
def _tensor(seed: int, count: int, dtype: type) -> list[Any]:
    torch: Any = sys.modules["torch"]  # the student's cell has imported it
    rng = np.random.default_rng([seed, 14])
    draws = (rng.normal(size=(3,)) + 1j * rng.normal(size=(3,)) for _ in range(count))
    return [
        torch.tensor(draw if dtype is complex else draw.real, requires_grad=True)
        for draw in draws
    ]


def _twice(student: Any, seed: int) -> str:
    """Judge an exponential whose backward can be differentiated again."""
    torch: Any = sys.modules["torch"]
    (x,) = _tensor(seed, 1, float)
    first = judge_function(student, torch.exp, [x])
    if first:
        return first
    report = check(student.apply, x, order=2)
    if report.verdict is Verdict.AGREES and report.ok:
        return ""
    return "the first derivative is right, the derivative of the backward is not"


def _complex(student: Any, seed: int) -> str:
    """Judge the backward of a product of complex numbers."""
    inputs = _tensor(seed, 2, complex)
    words = judge_function(student, lambda a, b: a * b, inputs)
    if "conjugate of numeric" in words:
        return "the derivative itself is right, and turned round in the complex plane"
    return words


# ------------------------------------------------------------------------- lesson 11
_LINEAR = LEVELS[1]  # the linear layer


_BY_HAND = {  # mistakes that only some inputs show
    "transpose": ("dout @ W.T", "dout @ W"),
    "ignored upstream": ("x.T @ dout", "x.T @ np.ones_like(dout)"),
    "ignored weight": ("dout @ W.T", "dout @ np.ones_like(W).T"),
}


def _mutants() -> Iterator[tuple[str, str]]:
    """Wrong backward passes of a linear layer: kind and source, each once."""
    right = _LINEAR.repaired
    for kind, change in _BY_HAND.items():
        yield kind, "import numpy as np\n" + right.replace(*change)
    seen: set[str] = set()
    for seed in range(24):
        planted = plant(_LINEAR, seed=seed)
        if planted.source not in seen:
            seen.add(planted.source)
            yield planted.solution()["kind"].replace("_", " "), planted.source


def _layer(source: str) -> tuple[Any, Any]:
    """Return forward and backward of a linear layer, with this backward source."""
    student = load(source, _LINEAR.edit)

    def forward(x: Any, W: Any, b: Any) -> tuple[Any, Any]:
        return x @ W + b, (x, W, b)

    return forward, lambda dout, cache: student(dout, *cache)


def _objection(test: Any, source: str) -> str:
    """Say what a student's test has against this layer, "" if nothing."""
    try:
        call_within(5.0, lambda: test(*_layer(source)))
    except NotImplementedError:
        raise
    except Exception as error:  # noqa: BLE001 - a test fails by raising, whatever it is
        return complaint(error)
    return ""


def _tested(student: Any, _seed: int) -> str:
    """Judge a test by the mistakes that it finds."""
    wronged = _objection(student, _LINEAR.repaired)
    if wronged:
        return f"your test fails for a layer that is right: {wronged}"
    mutants = list(_mutants())
    alive = [kind for kind, source in mutants if not _objection(student, source)]
    if len(alive) == len(mutants):
        raise Open
    if not alive:
        return ""
    return (
        f"{len(alive)} of {len(mutants)} wrong layers pass your test, with mistakes of "
        f"the kind: {', '.join(sorted(set(alive)))}. At which inputs would they show?"
    )


def _exit_code() -> float:
    """Ask the command line about a function that never repeats itself."""
    source = (
        "import secrets\n"
        "import numpy as np\n"
        "case = {'fn': lambda x: (x**2).sum() + secrets.randbelow(1000) * 1e-7,"
        " 'inputs': (np.ones(2),), 'grad': lambda x: 2 * x}\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "undecided.py")
        path.write_text(source, encoding="utf-8")
        command = [sys.executable, "-m", "gradlab", "check", f"{path}:case"]
        done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - our own command
    return float(done.returncode)


EXERCISES = {
    "9.1": Exercise(
        "a number of entries",
        number(
            lambda: math.log(0.05) / math.log(1 - 1e-3),
            {
                "with that many you expect to meet one wrong entry, and miss it in a "
                "third of the cases": lambda _: 1000.0,
                "that is 95 % of a thousand; ask for the chance that all entries you "
                "look at are right": lambda _: 950.0,
            },
            within=1.01,
        ),
        "Three thousand entries for a share of one in a thousand; for a single wrong "
        "entry among millions a sample is a lottery ticket.",
    ),
    "9.2": Exercise(
        "a number of directions",
        number(
            lambda: math.ceil(math.log2(1e6)),
            {
                "one less leaves a chance of two in a million": lambda _: 19.0,
                "every direction halves the chance; it does not divide it by ten": (
                    lambda _: 6.0
                ),
            },
            within=1.001,
        ),
        "Half of the directions miss them, half of the rest miss them again: 2 to the "
        "power of -20 is one in a million.",
    ),
    "9.3": Exercise(
        "a list of three numbers",
        _located,
        "Three entries of 20,000, in some hundreds of evaluations instead of 40,000.",
    ),
    "10.1": Exercise(
        "a step, a number",
        number(
            lambda: (48 * _UNIT) ** 0.25,
            {
                "that is the best step of a first derivative": (
                    lambda _: (3 * _UNIT) ** (1 / 3)
                ),
                "that is the best step of a one-sided first derivative": (
                    lambda _: 2 * _UNIT**0.5
                ),
            },
            within=4.0,
        ),
        "The fourth root of the unit round-off, and half of the digits are lost: it is "
        "better to differentiate the gradient once.",
    ),
    "10.2": Exercise(
        "the class Exponential",
        _twice,
        "What was saved with save_for_backward stays connected to its history.",
    ),
    "10.3": Exercise(
        "the class Product",
        _complex,
        "The incoming gradient is multiplied by the conjugate of the derivative.",
    ),
    "11.1": Exercise(
        "the function my_test",
        _tested,
        "A right layer passes, and every planted mistake is found.",
    ),
    "11.2": Exercise(
        "a number",
        number(
            _exit_code,
            {
                "that is for a gradient that agrees": lambda _: 0.0,
                "that is for a gradient that is wrong": lambda _: 1.0,
            },
            within=1.0,
        ),
        "Anything but 0 stops a script: what could not be decided is looked at by "
        "somebody.",
    ),
}
