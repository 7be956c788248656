"""Inputs without entries, and gradients of zeros: nothing is wrong, and little told."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.presentation.headline import headline


def test_an_empty_input_agrees_and_the_headline_says_why() -> None:
    """All of its entries are right: it has none."""
    report = gl.check(lambda x: (x**2).sum(), np.array([]), grad=lambda x: 2 * x)
    assert report.verdict is report["x"].verdict is gl.Verdict.AGREES
    assert headline(report) == "✓ agrees: the gradient of x, which has no entry"


def test_an_empty_input_beside_another_changes_nothing() -> None:
    """The other one decides."""
    for factor, verdict in ((2, gl.Verdict.AGREES), (3, gl.Verdict.DISAGREES)):
        report = gl.check(
            lambda x, y: (x**2).sum() + y.sum(),
            np.ones(3),
            np.array([]),
            grad=lambda x, y, c=factor: (c * x, np.ones_like(y)),
        )
        assert report.verdict is verdict
        assert "no entry" not in headline(report)


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (lambda x: float(x.argmax()), [0.3, 1.2]),  # moves with no entry
        (lambda x: (x**2).sum(), [0.0, 0.0]),  # nor at the point alone
    ],
)
def test_zeros_on_both_sides_are_told_in_the_first_line(f, x):
    """Nothing was tried that could have gone wrong."""
    report = gl.check(f, np.array(x), grad=lambda x: 0 * x)

    assert report.verdict == gl.Verdict.AGREES
    assert headline(report) == "✓ agrees: the gradient of x, zero on both sides"


def test_zeros_of_some_inputs_are_not():
    """A parameter beside others need not be used."""
    report = gl.check(
        lambda p: ((p["a"] ** 2).sum(), {"a": 2 * p["a"], "b": np.zeros(2)}),
        {"a": np.ones(2), "b": np.ones(2)},
    )

    assert headline(report) == "✓ agrees: both gradients agree"
