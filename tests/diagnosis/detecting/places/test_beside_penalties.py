"""Slips of the data part of a gradient, beside a penalty that is right."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def _hinge(rng, *, strength, slip=None):
    """Multi-class margins of scores x @ W, with a penalty; the weight is square."""
    x, labels = rng.normal(size=(9, 5)), rng.integers(0, 5, 9)
    at = np.arange(9), labels

    def margins(w):
        scores = x @ w
        gaps = scores - scores[at][:, None] + 1
        gaps[at] = 0
        return np.maximum(gaps, 0)

    def loss(w):
        return margins(w).sum() / 9 + 0.5 * strength * (w**2).sum()

    def grad(w):
        counted = (margins(w) > 0) * 1.0
        if slip != "class":
            counted[at] = -counted.sum(axis=1)
        data = x.T @ counted / 9
        return (data.T if slip == "transpose" else data) + strength * w

    return loss, rng.normal(size=(5, 5)), grad


@pytest.mark.parametrize("strength", [0.0, 0.05, 2.0])
def test_the_true_class_is_missed_whatever_the_penalty(rng, strength):
    """What margins add to one class they take off another; a penalty does not."""
    loss, w, grad = _hinge(rng, strength=strength, slip="class")

    finding = gl.check(loss, w, grad=grad).findings[0]

    assert finding.kind == "missing_term"
    assert "sums to zero along axis 1" in finding.evidence
    assert (f"But for {strength:g} x w" in finding.evidence) == (strength > 0)


@pytest.mark.parametrize("strength", [0.05, 2.0])
def test_a_transpose_of_what_data_give(rng, strength):
    """The penalty of a square weight stands as it should: only the rest is turned."""
    loss, w, grad = _hinge(rng, strength=strength, slip="transpose")

    finding = gl.check(loss, w, grad=grad).findings[0]

    assert finding.kind == "transpose"
    assert f"the penalty {strength:g} x w is not" in finding.evidence


def test_a_penalty_that_is_left_out_unbalances_nothing(rng):
    """The gradient without it is balanced, and is told as what it is."""
    loss, w, grad = _hinge(rng, strength=0.3)

    report = gl.check(loss, w, grad=lambda w: grad(w) - 0.3 * w)

    assert report.diagnosis == "regularization"
