"""Inputs without entries: nothing of them was left out, and nothing is wrong."""

from __future__ import annotations

import numpy as np

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
