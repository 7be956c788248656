"""Deliberate gradients of functions that stand still are told as such."""

from __future__ import annotations

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("seed", range(4))
def test_a_hard_choice_that_hardly_changes_is_straight_through(seed):
    """Of two classes that noise has set far apart, the other is chosen far out."""
    logits = torch.tensor([1.54, -0.29], dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([1.0, 2.0], dtype=torch.float64)
    torch.manual_seed(seed)

    report = gl.check(
        lambda p: torch.nn.functional.gumbel_softmax(p, tau=0.5, hard=True) @ weights,
        logits,
    )

    assert report.diagnosis == "surrogate"
    assert "staircase" in report.findings[0].evidence
