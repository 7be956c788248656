"""Exercises of lessons 5 and 6: custom Functions, and failures that are no bugs."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.checks import check
from gradlab.comparison.verdict import Verdict
from gradlab.teaching.answering import Exercise, Open, dealt, names, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["EXERCISES", "judge_function", "suspect"]


def judge_function(
    student: Any, forward: Callable[..., Any], inputs: Sequence[Any]
) -> str:
    """Say what is wrong with an ``autograd.Function``, "" if nothing is.

    Parameters
    ----------
    student
        The class that a student wrote.
    forward
        What its forward should compute, in operations that autograd knows.
    inputs
        Tensors in float64 that require grad; the student has not seen them.

    Raises
    ------
    Open
        If its backward returns None throughout: it has not been written yet.
    """
    torch: Any = sys.modules["torch"]  # the student's cell has imported it
    student = getattr(student, "__self__", student)  # of Softplus.apply, Softplus
    if not (isinstance(student, type) and issubclass(student, torch.autograd.Function)):
        return "hand over the class itself, a subclass of torch.autograd.Function"
    apply: Any = student.apply  # type: ignore[attr-defined] # torch has no types here
    found, expected = apply(*inputs), forward(*inputs)
    if found.shape != expected.shape or not torch.allclose(found, expected):
        return "the forward pass does not compute what was asked"
    upstream = torch.linspace(-1.0, 1.0, found.numel(), dtype=found.dtype)
    gradients = torch.autograd.grad(
        found, inputs, upstream.reshape(found.shape), allow_unused=True
    )
    if all(gradient is None for gradient in gradients):
        raise Open
    report = check(apply, *inputs)
    if report.verdict is Verdict.AGREES and report.ok:
        return ""
    for finding in report.findings:
        if finding.severity == "error":
            return finding.evidence
    return "its gradient does not agree with differences"


def _tensors(seed: int, *shapes: tuple[int, ...]) -> list[Any]:
    torch: Any = sys.modules["torch"]
    rng = np.random.default_rng([seed, 6])
    return [torch.tensor(rng.normal(size=s), requires_grad=True) for s in shapes]


# -------------------------------------------------------------------------- lesson 5
def _product(answer: Any, _seed: int) -> str:
    """Judge the vector-Jacobian product of a 2 x 3 matrix and (1, -1)."""
    jacobian, upstream = np.arange(1.0, 7.0).reshape(2, 3), np.array([1.0, -1.0])
    found = np.asarray(answer, dtype=float)
    found = found.ravel() if found.size == 3 else found  # a row or a column of a matrix
    if found.shape != (3,):
        return f"three numbers were expected, one for each input, not {found.shape}"
    if np.array_equal(found, upstream @ jacobian):
        return ""
    if np.array_equal(found, -(upstream @ jacobian)):
        return "the sign is turned round: the first row counts +1, the second -1"
    if np.array_equal(found, jacobian.sum(axis=0)):
        return "that is the product with (1, 1): the incoming gradient was ignored"
    return "add the rows of J, each multiplied by its incoming gradient"


def _softplus(student: Any, seed: int) -> str:
    torch: Any = sys.modules["torch"]
    return judge_function(
        student, lambda x: torch.log(1 + torch.exp(x)), _tensors(seed, (3, 4))
    )


def _capsule(student: Any, seed: int) -> str:
    torch: Any = sys.modules["torch"]

    def forward(vector: Any, weight: Any) -> Any:
        solved = torch.linalg.solve(weight.T @ weight, weight.T @ vector)
        return (weight @ solved).norm(dim=0)

    return judge_function(student, forward, _tensors(seed, (8, 4), (8, 3)))


# -------------------------------------------------------------------------- lesson 6
_LETTERS = "ABCDE"


def suspect(letter: str, seed: int = 0) -> tuple[Any, Any, Any]:
    """Deal one of five programs of lesson 6; some are right, some are wrong.

    Parameters
    ----------
    letter
        "A" to "E".
    seed
        Another seed, another order.

    Returns
    -------
    tuple
        ``forward(x)``, which returns output and cache, ``backward(dout, cache)``, and
        the point ``x``.

    Raises
    ------
    InputError
        A `ValueError`, if there is no such letter.

    Examples
    --------
    >>> forward, backward, x = suspect("A")
    >>> x.shape
    (4,)
    """
    return _DEALS[dealt(tuple(_DEALS), letter, [seed, 7])]()


def _rectifier(below: float, claimed_at: float) -> tuple[Any, Any, Any]:
    """Return a leaky ReLU with the slopes of a plain one, and one claimed at zero."""

    def forward(x: Any) -> tuple[Any, Any]:
        return np.where(x > 0, x, below * x), x

    def backward(dout: Any, cache: Any) -> Any:
        slope = np.where(cache > 0, 1.0, np.where(cache < 0, 0.0, claimed_at))
        return (dout * slope,)

    return forward, backward, np.array([-1.5, 0.0, 0.4, 2.0])


def _noisy() -> tuple[Any, Any, Any]:
    """Return a right gradient of a function with noise."""

    def forward(x: Any) -> tuple[Any, Any]:
        noise = np.random.normal(size=x.shape)  # noqa: NPY002 - as students write it
        return x**2 + 1e-3 * noise, x

    return forward, lambda dout, x: (2 * x * dout,), np.array([-1.5, 0.3, 0.4, 2.0])


def _dropout() -> tuple[Any, Any, Any]:
    """Return dropout whose backward draws a mask of its own."""

    def keep(shape: tuple[int, ...]) -> Any:
        return (np.random.random(shape) < 0.5) / 0.5  # noqa: NPY002 - as above

    def forward(x: Any) -> tuple[Any, Any]:
        return x * keep(x.shape), x

    def backward(dout: Any, x: Any) -> Any:
        return (dout * keep(x.shape),)

    return forward, backward, np.array([-1.5, 0.3, 0.4, 2.0])


_DEALS: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "kink": lambda: _rectifier(0.0, 0.0),
    "leak": lambda: _rectifier(0.1, 0.0),
    "outside": lambda: _rectifier(0.0, 2.0),
    "noise": _noisy,
    "new mask": _dropout,
}


def _guilty(seed: int) -> Iterable[str]:
    """Name the letters whose backward is wrong: check them."""
    for letter in _LETTERS:
        forward, backward, x = suspect(letter, seed)
        if not check(forward, x, backward=backward, diagnose=False).ok:
            yield letter


EXERCISES = {
    "5.1": Exercise(
        "three numbers, the entries of the product",
        _product,
        "A vector-Jacobian product adds the rows of J, weighted by what comes from "
        "above; no J was needed to get it in lesson 4, only a backward pass.",
    ),
    "5.2": Exercise(
        "the class Softplus",
        _softplus,
        "The derivative of softplus is the sigmoid, times the incoming gradient.",
    ),
    "5.3": Exercise(
        "the class RepairedCapsule",
        _capsule,
        "Each column is scaled by its own incoming gradient, before they are summed.",
    ),
    "6.1": Exercise(
        "a number of units",
        number(
            lambda: 1000 * 2e-3 / math.sqrt(2 * math.pi),
            {
                "that is one side only: the step goes both ways": (
                    lambda right: right / 2
                ),
                "that would need a density of 1 at zero; a standard normal number has "
                "1 / sqrt(2 pi) there": lambda _: 2.0,
                "that is the share of the units: there are 1000": (
                    lambda right: right / 1000
                ),
            },
            within=1.05,
        ),
        "With 0.8 expected, more than half of all differences cross some kink "
        "(1 - exp(-0.8)); with a step of 1e-6 it is one in a thousand.",
    ),
    "6.2": Exercise(
        "a list of letters",
        lambda answer, seed: names(
            lambda: _guilty(seed),
            _LETTERS,
            "read what the report says below the table, and compare both slopes",
        )(answer, seed),
        "A kink with a slope between its two sides, and noise, are no bugs; a slope "
        "outside, and a mask drawn twice, are.",
    ),
}
