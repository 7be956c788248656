"""Readings that are true of a gradient and explain little of its error."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gradlab as gl


class Short(torch.autograd.Function):
    """A sine whose backward rounds to float32, and multiplies by a factor."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (ctx.factor * g * x.cos()).float().double(), None


@pytest.mark.parametrize(("factor", "kind"), [(1, "dtype"), (-1, "sign"), (2, "scale")])
def test_few_digits_are_no_cause_of_a_large_error(rng, factor, kind):
    """What rounds off a ten-millionth turns no sign: that is told as well, behind."""
    x = torch.from_numpy(rng.normal(size=6)).requires_grad_()

    report = gl.check(lambda x: Short.apply(x, factor), x)

    assert report.diagnosis == kind
    assert "dtype" in [finding.kind for finding in report.findings]


def test_an_array_of_few_digits_is_no_cause_of_a_large_error(rng):
    """The same of NumPy, where the dtype of what is returned tells it."""
    x = rng.normal(size=6)

    report = gl.check(
        lambda x: float(np.sin(x).sum()),
        x,
        grad=lambda x: (-np.cos(x)).astype(np.float32),
    )

    assert report.diagnosis == "sign"
