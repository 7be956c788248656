"""Gradients that are clipped between two layers, on their way back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gradlab as gl


class Clipped(torch.autograd.Function):
    """The identity; what comes back is clamped, or multiplied by its own size."""

    @staticmethod
    def forward(ctx, h, how):
        ctx.how = how
        return h.clone()

    @staticmethod
    def backward(ctx, g):
        return (g.clamp(-0.5, 0.5) if ctx.how == "clamp" else g * g.abs()), None


@pytest.mark.parametrize(
    ("how", "kind"), [("clamp", "surrogate"), ("square", "ignores_upstream")]
)
def test_what_is_right_for_small_gradients_is_clipped(rng, how, kind):
    """g * |g| is wrong for small ones too; a clamp leaves these alone."""
    x = torch.from_numpy(rng.normal(size=(4, 3))).requires_grad_()
    w = torch.from_numpy(2 * rng.normal(size=(3, 2))).requires_grad_()

    report = gl.check(lambda x, w: (Clipped.apply(x @ w, how) ** 2).sum(), x, w)

    assert report.diagnosis == kind


def test_a_backward_that_clips_what_it_gets(rng):
    """The same of NumPy, where rows are read out with ones."""

    def forward(x):
        return 5 * np.sin(x), x

    def backward(up, x):
        return np.clip(5 * up * np.cos(x), -1, 1)

    report = gl.check(forward, rng.normal(size=6), backward=backward)

    assert report.diagnosis == "surrogate"
