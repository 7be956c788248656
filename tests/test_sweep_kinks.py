"""Gradients at kinks that are right entry by entry and wrong together, swept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import gradlab as gl

TIED = np.array([[1.0, 2.0, 2.0, 0.5], [3.0, 1.0, 0.0, 3.0]])


def largest(x):
    """Sum the largest entry of each row."""
    return float(x.max(axis=1).sum())


def counted_twice(x):
    """Give a tie to each of its entries: no sub-gradient of max."""
    return (x == x.max(axis=1, keepdims=True)).astype(float)


def shared(x):
    """Share a tie out evenly."""
    ties = counted_twice(x)
    return np.asarray(ties / ties.sum(axis=1, keepdims=True))


def to_the_first(x):
    """Give a tie to its first entry, as argmax does."""
    first = np.zeros_like(x)
    first[np.arange(len(x)), x.argmax(axis=1)] = 1.0
    return first


class Largest(torch.autograd.Function):
    """Row-wise maximum that gives a tie to each of its entries."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.amax(-1)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return (x == x.amax(-1, keepdim=True)).to(x.dtype) * g[..., None]


class TestTies:
    def test_counted_twice_disagree(self) -> None:
        swept = gl.sweep(largest, TIED, grad=counted_twice)
        assert swept.verdict == gl.Verdict.DISAGREES
        assert "slope of 5, the gradient says 10" in swept.reading["x"]
        assert str(swept).startswith("✗ x disagrees where its kinks meet")

    @pytest.mark.parametrize("right", [shared, to_the_first])
    def test_sub_gradients_agree(self, right: Any) -> None:
        swept = gl.sweep(largest, TIED, grad=right)
        assert swept.verdict == gl.Verdict.AGREES
        assert "sub-gradient" in swept.reading["x"]

    def test_of_a_custom_function(self) -> None:
        swept = gl.sweep(Largest.apply, torch.tensor(TIED))
        assert swept.verdict == gl.Verdict.DISAGREES
        assert "wrong, though no entry is by itself" in swept.reading["x"]

    def test_of_one_input_alone(self) -> None:
        swept = gl.sweep(
            lambda params: (
                largest(params["a"]) + float((params["b"] ** 2).sum()),
                {"a": counted_twice(params["a"]), "b": 2 * params["b"]},
            ),
            {"a": TIED, "b": np.array([0.5, 2.0])},
        )
        assert {name: v.name for name, v in swept.verdicts.items()} == {
            "a": "DISAGREES",
            "b": "AGREES",
        }
        assert str(swept).startswith("✗ a disagrees where its kinks meet")

    def test_of_torch_are_left_open(self) -> None:
        """What torch's own operations do where kinks meet is nobody's mistake.

        relu(0) is 0 to autograd, so f = x - y looks flat in both.
        """

        def plus_minus(x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x[0] - x[1]) - torch.relu(x[1] - x[0])

        swept = gl.sweep(plus_minus, torch.ones(2, dtype=torch.float64))
        assert swept.verdict != gl.Verdict.AGREES


ROOT = np.array([[2.0, 0.3, -0.4], [0.1, 1.5, 0.2], [0.5, -0.3, 1.2]])
COVARIANCE = ROOT.T @ ROOT


def log_det(a):
    """Log-determinant by Cholesky, which reads the lower triangle alone."""
    return float(2.0 * np.log(np.diag(np.linalg.cholesky(a))).sum())


class TestExcuses:
    """What a check takes back, a sweep does not accuse of."""

    def test_shared_out_between_triangles_agree(self) -> None:
        """d log det A = tr(A^-1 dA) for symmetric dA; f itself reads half of A."""
        swept = gl.sweep(log_det, COVARIANCE, grad=np.linalg.inv)
        assert swept.verdict == gl.Verdict.AGREES
        assert swept.reading["a"].startswith("correct, though no step shows it: ")
        assert gl.check(log_det, COVARIANCE, grad=np.linalg.inv)

    def test_what_is_doubled_disagrees(self) -> None:
        swept = gl.sweep(log_det, COVARIANCE, grad=lambda a: 2.0 * np.linalg.inv(a))
        assert swept.verdict == gl.Verdict.DISAGREES

    @pytest.mark.parametrize("factor", [1.0, 2.0])
    def test_of_eigenvalues(self, factor: float) -> None:
        """d sum w_i^3 = tr(3 A^2 dA)."""
        swept = gl.sweep(
            lambda a: float((np.linalg.eigvalsh(a) ** 3).sum()),
            COVARIANCE,
            grad=lambda a: factor * 3.0 * a @ a,
        )
        assert (swept.verdict == gl.Verdict.AGREES) == (factor == 1.0)
