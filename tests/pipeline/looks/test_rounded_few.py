"""Single precision inside, where outputs are too few to show how all are rounded."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.building import Sides, build_subject
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.metering.meter import Meter
from gradlab.differentiation.noise.hidden_noise import hidden_rounding
from gradlab.differentiation.origin import Origin


def soft_minimum(x, a, b):
    """A sum of squares with a minimum that is smoothed over 0.1, and its slopes."""
    near = -((x - b) ** 2) / 0.1
    top = near.max(axis=1, keepdims=True)
    weights = np.exp(near - top)
    total = weights.sum(axis=1, keepdims=True)
    value = 20 - 0.1 * (np.log(total) + top)[:, 0] + ((x - a) ** 2).sum(axis=1)
    return value, 2 * (x - b) * weights / total + 2 * (x - a)


def hill(x, a, b):
    """A rational function of one product for each output, and its slopes."""
    z = a @ x
    return 1 / (1 + z**2) + b[:, 0], -2 * (z / (1 + z**2) ** 2)[:, None] * a


def waves(x, a, b):
    """A product of cosines beside a straight line, and its slopes."""
    product = np.cos(a * x).prod(axis=1, keepdims=True)
    return product[:, 0] + b @ x, -a * np.tan(a * x) * product + b


def problem(function, outputs, seed, size=15):
    """Return f, rounded to float32 as its last step, a point, and the slopes there."""
    rng = np.random.default_rng([seed, size, outputs])
    x = rng.normal(size=size)
    a, b = rng.normal(size=(2, outputs, size))

    def f(x):
        return function(x, a, b)[0].astype(np.float32).astype(float)

    return f, x, function(x, a, b)[1]


@pytest.mark.parametrize("function", [soft_minimum, hill, waves])
@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_right_gradient_is_not_accused(function, outputs):
    """Outputs that are float32 underneath tell how they are rounded, however few."""
    for seed in range(6):
        f, x, slopes = problem(function, outputs, seed)
        report = gl.check(f, x, jac=lambda x, slopes=slopes: slopes, diagnose=False)
        assert report.verdict != Verdict.DISAGREES, seed


@pytest.mark.parametrize("outputs", [1, 3])
def test_wrong_entry_is_accused(outputs):
    """A slip of two percent shows through the rounding."""
    for seed in range(4):
        f, x, slopes = problem(soft_minimum, outputs, seed)
        place = np.unravel_index(np.abs(slopes).argmax(), slopes.shape)
        slopes[place] *= 1.02
        report = gl.check(f, x, jac=lambda x, slopes=slopes: slopes, diagnose=False)
        assert report["x"].verdicts[place] == Verdict.DISAGREES, seed


def bowl(x, a, b):
    """A sum of squares, which is a thousand times as large a thousand steps away."""
    return 1 + ((a * x) ** 2).sum(axis=1) + b @ x, 2 * a**2 * x + b


def test_long_steps_have_the_rounding_of_what_f_is_there():
    """Bars cover the rounding of values far from the point, where f is larger."""
    for seed in range(4):
        f, x, slopes = problem(bowl, 5, seed)
        found = gl.numeric_jacobian(f, x)
        assert (np.abs(found.value - slopes) <= 2 * found.error).all(), seed


def test_halves_and_quarters_are_not_taken_for_single_precision():
    """What is short because it is a small sum of halves is not said to be rounded."""
    subject = build_subject(
        lambda x: float(np.float32(x.sum())), [np.ones(3)], Sides(need_analytic=False)
    )
    subject.row()
    noise = np.array([3e-8])

    def told(base):
        return hidden_rounding(Origin(subject, np.array([base])), noise, Meter())

    assert told(0.75) is None
    assert told(0.7) is None
    rounded = told(float(np.float32(0.7)))
    assert rounded is not None
    # half of the spacing of 2^-24 would be the most that one rounding can do
    assert 2.0**-24 / 12**0.5 <= rounded[0] <= 2.0**-24


@pytest.mark.parametrize("error", [1e-3, 1e-5])
def test_inputs_that_were_read_as_float32_round_nothing(error):
    """What is one of them, or larger than another, is short as it stands there."""
    x = np.random.default_rng(0).normal(size=3).astype(np.float32).astype(float)

    for f, slopes in (
        (lambda x: np.maximum(x, 0.0), np.diag(1.0 * (x > 0))),
        (lambda x: np.abs(x[[1, 0, 2]]), np.diag(np.sign(x))[[1, 0, 2]]),
    ):
        report = gl.check(f, x, jac=lambda x, s=slopes: s * (1 + error))
        assert report.verdict == Verdict.DISAGREES
