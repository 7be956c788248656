"""A loss that is next to nothing beside one is noisy for that, and hides no cast."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gradlab as gl


class Confident(nn.Module):
    """Logits hundreds apart: log(1 + small) keeps what the digits of one leave."""

    def __init__(self, seed, *, cast):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.last = nn.Linear(6, 8).double(), nn.Linear(8, 3).double()
        with torch.no_grad():
            self.last.weight.mul_(2 if cast else 200)
        self.cast = cast

    def forward(self, x):
        """Return the logits, from features in single precision or not."""
        hidden = self.first(x).tanh()
        return self.last(hidden.float().double() if self.cast else hidden)


def check(seed, *, cast):
    """Cross-entropy with the class that is chosen anyway."""
    model = Confident(seed, cast=cast)
    x = torch.randn(5, 6, dtype=torch.float64)
    return gl.check(
        model,
        x,
        loss=lambda out: nn.functional.cross_entropy(out, out.argmax(1)),
        coverage="full",
    )


def casts(report):
    """Findings that speak of single precision inside."""
    return [f for f in report.findings if "single precision" in f.evidence]


@pytest.mark.parametrize("seed", [0, 3, 10, 14])
def test_a_confident_softmax_is_no_cast(seed):
    """What rounds is the one in log(1 + small)."""
    report = check(seed, cast=False)

    assert report.verdict != gl.Verdict.DISAGREES
    assert not casts(report)


@pytest.mark.parametrize("seed", [11, 120, 139, 165])
def test_three_steps_far_apart_are_no_series(seed):
    """Their slopes, a hundredfold each, seem by accident to be of one series."""
    report = check(seed, cast=False)

    assert report.verdict != gl.Verdict.DISAGREES


@pytest.mark.parametrize("seed", [3, 5])
def test_a_cast_is_told_all_the_same(seed):
    """The features lose half of their digits, and the report says so."""
    assert casts(check(seed, cast=True))
