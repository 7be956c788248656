"""Numbers that happen to be a length, and zeros that happen to fit, are no proof."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def first(report):
    """Kind, doubts and sentence of the first finding."""
    finding = report.findings[0]
    return str(finding.kind), set(map(str, finding.doubts)), finding.evidence


def test_weights_of_two_classes_are_no_lengths_for_sure(rng):
    """1/4 and 3/4 are as 1 and 3, which groups of samples may have for lengths."""
    x, y = rng.normal(size=(7, 3)), rng.random((7, 3)) < 0.4
    weights = np.where(y, 0.25, 0.75)
    sign = np.where(y, -1.0, 1.0)

    report = gl.check(
        lambda x: (weights * np.log1p(np.exp(sign * x))).sum(),
        x,
        grad=lambda x: 0.25 * sign / (1 + np.exp(-sign * x)),
    )

    kind, doubts, words = first(report)
    assert "scale" in {kind, *doubts}
    assert "if these are lengths" in words


def test_halves_at_an_edge_are_no_lengths_for_sure(rng):
    """4 x analytic / numeric is 4, 2 and 1: nine entries are no groups of two."""

    def grad(x):
        d = np.cos(x)
        d[-1] *= 0.5
        d[:, -1] *= 0.5
        return d

    report = gl.check(lambda x: np.sin(x).sum(), rng.normal(size=(6, 5)), grad=grad)

    kind, doubts, _ = first(report)
    assert "scale" in {kind, *doubts}


def test_lengths_that_groups_have_are_told_with_certainty(rng):
    """Means over groups of 2, 3 and 4, whose gradient forgets to divide."""
    ids = np.repeat([0, 1, 2], [2, 3, 4])
    counts = np.bincount(ids)

    report = gl.check(
        lambda x: np.bincount(ids, x) / counts,
        rng.normal(size=9),
        vjp=lambda up, x: (up[ids],),
    )

    kind, doubts, words = first(report)
    assert (kind, doubts) == ("missing_reduction", set())
    assert "lengths of groups" in words
