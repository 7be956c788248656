"""Both sides of torch subjects, and functions on which two opinions are to be had."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

F = torch.nn.functional
DOUBLE = torch.float64


def randn(*shape, dtype=DOUBLE, **options):
    """Normal numbers in float64."""
    return torch.randn(shape, dtype=dtype, **options)


def names_of(subject):
    """Names of the inputs, in order."""
    return [variable.name for variable in subject.inputs]


def eye_of(subject):
    """One cotangent for each output row."""
    return np.eye(len(subject.row()))


def central(subject, which, step=1e-6):
    """Jacobian block by central differences, through the subject's own interface."""
    count = subject.inputs[which].coordinates
    if not count:
        return np.zeros((len(subject.row()), 0))
    positions = np.arange(count)
    up, right = subject.rows(which, positions, np.full(count, step))
    down, left = subject.rows(which, positions, np.full(count, -step))
    return ((up - down) / (right - left)[:, None]).T


def assert_analytic_equals_differences(subject, tolerance=1e-7):
    """Autograd on one side, differences on the other."""
    pullback = subject.analytic.pull(eye_of(subject))
    assert pullback.problems == ()
    for which, block in enumerate(pullback.values):
        numeric = central(subject, which)
        assert block == pytest.approx(numeric, abs=tolerance, rel=tolerance)


def softmax_mix(x, w):
    """Several outputs, one of them a view."""
    return torch.softmax(x @ w, -1), (x**2).sum(), w.t()[0]


# name: function of real tensors, what makes its arguments
REAL = {
    "sigmoid": (torch.sigmoid, lambda: (randn(4, 3),)),
    "linear": (F.linear, lambda: (randn(3, 4), randn(2, 4), randn(2))),
    "several outputs": (softmax_mix, lambda: (randn(3, 4), randn(4, 2))),
    "inverse": (torch.linalg.inv, lambda: (randn(3, 3) + 3 * torch.eye(3),)),
    "0-d": (torch.sin, lambda: (randn(),)),
    "layer norm": (lambda x: F.layer_norm(x, (5,)), lambda: (randn(3, 5),)),
}


class Through(torch.autograd.Function):
    """x @ w with a backward that goes through NumPy, which vmap cannot follow."""

    @staticmethod
    def forward(ctx, x, w):
        """What is computed."""
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, upstream):
        """What autograd is told."""
        x, w = (saved.detach().numpy() for saved in ctx.saved_tensors)
        dy = upstream.numpy()
        return torch.from_numpy(dy @ w.T), torch.from_numpy(x.T @ dy)
