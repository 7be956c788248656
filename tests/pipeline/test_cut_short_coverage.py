"""A check that was cut short does not say that it looked at everything."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradlab as gl
from gradlab.presentation.headline import headline


def _stopping(at: int, f: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function whose evaluation number `at` is interrupted."""
    calls = 0

    @functools.wraps(f)  # whose arguments name the inputs
    def stopping(*inputs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            raise KeyboardInterrupt
        return f(*inputs)

    return stopping


def test_part_of_an_input_is_a_sample() -> None:
    """In the text, the attribute, the table and the comparison alike."""
    f = _stopping(300, lambda x: (x**2).sum())
    report = gl.check(f, np.ones(1000), grad=lambda x: 2 * x)
    assert report.verdict is gl.Verdict.UNDECIDED
    assert report.coverage == report.table.coverage[0] == "sample"
    looked = report["x"].shape[1]
    assert looked < 1000
    assert headline(report).endswith(f"; {looked} of 1,000 coordinates looked at")
    assert "sample coverage" in str(report)


@pytest.mark.parametrize("at", [500, 801])
def test_inputs_that_were_finished_are_covered_in_full(at: int) -> None:
    """What is missing of the others makes the report one of a sample."""
    f = _stopping(at, lambda a, b: (a**2).sum() + (b**2).sum())
    report = gl.check(f, np.ones(200), np.ones(200), grad=lambda a, b: (2 * a, 2 * b))
    assert report.partial
    assert report.coverage == "sample"
    assert report["a"].coverage == "full"
    assert "all" not in headline(report)
    if len(report.comparisons) == 2:
        assert "both gradients agree so far" in headline(report)
        assert report["b"].coverage == "sample"


def test_a_streamed_check_counts_all_that_it_has_judged() -> None:
    """More columns than were kept."""
    f = _stopping(300, lambda x: x**2)
    options: dict[str, Any] = {"jac": lambda x: np.diag(2 * x), "memory": "2MiB"}
    report = gl.check(f, np.ones(1000), **options)
    tally = report["x"].tally
    assert tally is not None
    assert report.coverage == report["x"].coverage == "sample"
    assert f"{tally.looked} of 1,000 coordinates" in headline(report)


def test_coordinates_of_complex_inputs_count_twice() -> None:
    """Each entry has a real and an imaginary part, and both were moved."""
    report = gl.check(
        lambda z: (np.abs(z) ** 2).sum(),
        np.ones(1000) + 1j,
        grad=lambda z: 2 * z,
        coverage="sample",
    )
    looked = 2 * report["z"].shape[1]
    assert f"{looked} of 2,000 coordinates looked at" in headline(report)
