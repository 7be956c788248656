"""Functions that are another at every evaluation: every door says that it is so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradlab as gl

X = np.arange(1.0, 7.0)
DIFFERS = "f differs by up to 0.0"


def _noisy(x: Any) -> Any:
    return (x**2).sum() + np.random.default_rng().random() / 10


def test_a_sweep_says_that_f_does_not_repeat_itself() -> None:
    """No rounding is to blame for what a generator without a seed draws."""
    sweep = gl.sweep(_noisy, X, grad=lambda x: 2 * x)
    assert sweep.verdicts["x"] is gl.Verdict.UNDECIDED
    assert sweep.reading["x"].startswith(f"no derivative: {DIFFERS}")


@pytest.mark.parametrize("factor", [2, 3])
def test_a_search_says_why_it_found_nothing(factor: int) -> None:
    """And that it would have found nothing smaller than what f differs by."""
    located = gl.locate(_noisy, X, grad=lambda x: factor * x)
    assert located.ok
    if located.suspects or located.evaluations > 32:
        assert any(remark.startswith(DIFFERS) for remark in located.remarks)
    assert located.suspects or factor == 2


def test_a_search_of_a_function_that_repeats_itself_says_nothing() -> None:
    """Nor evaluates once more than it needs."""
    located = gl.locate(lambda x: (x**2).sum(), X, grad=lambda x: 2 * x)
    assert not located.remarks
    assert located.evaluations < 20


@pytest.mark.parametrize(
    ("grad", "told"),
    [
        (lambda x: 2 * x[:2], "the gradient of x has shape (2,), expected (6,)"),
        (lambda x: 1 / 0, "grad raised ZeroDivisionError"),
    ],
)
def test_a_sweep_says_what_came_in_place_of_a_gradient(grad: Any, told: str) -> None:
    """A nan that stands for it would be a riddle."""
    sweep = gl.sweep(lambda x: (x**2).sum(), X, grad=grad)
    assert sweep.verdicts["x"] is gl.Verdict.DISAGREES
    assert sweep.reading["x"].startswith(f"there is no gradient to compare: {told}")


def test_a_sweep_shows_a_nan_that_was_returned() -> None:
    """That is a number of the gradient, and which entry has it is told."""
    sweep = gl.sweep(
        lambda x: (x**2).sum(), X, grad=lambda x: np.where(x > 5, np.nan, 2 * x)
    )
    assert sweep.reading["x"] == (
        "one side is not finite, so there is no error to draw: "
        "x[5]: analytic nan, numeric 12"
    )
