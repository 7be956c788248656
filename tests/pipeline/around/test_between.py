"""Where kinks of mixed signs meet, conventions for each give a mixture of gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gradlab as gl
from tests.specimens.functions import with_backward

ROWS = np.array(
    [[1.0, -0.6, 0.3], [-0.4, 1.1, 0.7]]
)  # independent: any half-spaces meet
SIGNS = np.array([1.5, -0.8])


def f(x):
    """Difference of two ReLUs, neither convex nor concave."""
    return float(SIGNS @ np.maximum(ROWS @ x, 0)) + np.sin(x).sum()


def gradient(x, at_zero):
    """Give its gradient; every ReLU has the slope `at_zero` at 0."""
    z = ROWS @ x
    slopes = np.where(z > 0, 1.0, np.where(z < 0, 0.0, at_zero))
    return ROWS.T @ (SIGNS * slopes) + np.cos(x)


@pytest.mark.parametrize("at_zero", [0.0, 0.3, 0.7, 1.0])
def test_a_convention_at_kinks_of_mixed_signs(at_zero):
    """Slopes of 0 to 1 for every ReLU are a mixture of gradients beside, whatever f."""
    report = gl.check(f, np.zeros(3), grad=lambda x: gradient(x, at_zero))

    assert report.verdict == gl.Verdict.AGREES
    assert report.diagnosis == "nondifferentiable"


@pytest.mark.parametrize("at_zero", [-0.3, 1.3])
def test_a_slope_that_no_point_beside_has(at_zero):
    """A ReLU with a slope outside of 0 to 1 at its kink makes no sub-gradient."""
    report = gl.check(f, np.zeros(3), grad=lambda x: gradient(x, at_zero))

    assert report.verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("at_zero", [0.3, 1.0])
@pytest.mark.parametrize(
    "slip",
    [
        lambda g: 1.05 * g,
        lambda g: g * [1, -1, 1],
        lambda g: g + 0.05,
        lambda g: g[[1, 2, 0]],
    ],
)
def test_a_mistake_beside_the_point_is_no_excuse(slip, at_zero):
    """What foretells no slopes beside the point says nothing for the gradient at it."""
    report = gl.check(f, np.zeros(3), grad=lambda x: slip(gradient(x, at_zero)))

    assert report.verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("wrong", [1.0, 1.1])
def test_rows_of_a_jacobian_with_a_layer_behind(wrong):
    """Every output mixes the gradients of the same few half-spaces."""
    behind = np.array([[0.7, -1.2], [-0.5, -0.9], [1.1, 0.4]])

    def jacobian(x):
        z = ROWS @ x
        slopes = np.where(z > 0, 1.0, np.where(z < 0, 0.0, 0.3))
        outer = 1 - np.tanh(behind @ np.maximum(z, 0) + 0.3) ** 2
        return wrong * (outer[:, None] * behind) @ (slopes[:, None] * ROWS)

    report = gl.check(
        lambda x: np.tanh(behind @ np.maximum(ROWS @ x, 0) + 0.3),
        np.zeros(3),
        jac=jacobian,
    )

    assert report.ok is (wrong == 1.0)


@pytest.mark.parametrize("wrong", [1.0, 1.1])
def test_own_backward_of_torch(wrong):
    """A backward of one's own that gives 0.3 at ties is a mixture, 1.1 of it none."""
    tied = with_backward(
        lambda z: z.clamp(min=0), lambda z, d: wrong * d * ((z > 0) + 0.3 * (z == 0))
    )

    rows, signs = torch.tensor(ROWS), torch.tensor(SIGNS)
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)

    report = gl.check(lambda x: signs @ tied(rows @ x) + x.sin().sum(), x)

    assert report.ok is (wrong == 1.0)


@pytest.mark.parametrize("away", [1e-5, 1e-6, 1e-7])
@pytest.mark.parametrize("factor", [1.0, 1.01, 1.1])
def test_gradients_beside_a_pole_are_no_limits(factor, away):
    """They differ by more than any slip, and none of them is the one at the point."""
    x = np.array(1 + away)

    report = gl.check(lambda x: 1 / (x - 1), x, grad=lambda x: -factor / (x - 1) ** 2)

    right = factor == 1.0
    assert report.verdict == (gl.Verdict.AGREES if right else gl.Verdict.DISAGREES)
