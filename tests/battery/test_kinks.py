"""Kinks from 0 to 10 steps away from the point, in NumPy and in torch."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import Verdict

pytestmark = pytest.mark.untraced

torch = pytest.importorskip("torch")

STEP = 6.06e-6  # of the first pass, relative to the scale of the input
DISTANCES = [0.0, 1e-6, 0.01, 0.3, 0.9, 1.0, 1.1, 2.0, 5.0, 10.0]  # in steps
# name: function of an array, slope to the left of 0, slope to the right
KINKS = {
    "relu": (lambda x: np.maximum(x, 0), 0.0, 1.0),
    "abs": (np.abs, -1.0, 1.0),
    "leaky": (lambda x: np.where(x > 0, x, 0.1 * x), 0.1, 1.0),
    "clip": (lambda x: np.clip(x, 0, 5), 0.0, 1.0),
    "hinge": (lambda x: np.maximum(0, -2 * x), -2.0, 0.0),
    "max of two lines": (lambda x: np.maximum(3 * x, 2 * x), 2.0, 3.0),
    "abs and smooth": (lambda x: np.abs(x) + np.sin(3 * x), 2.0, 4.0),
    "weak": (lambda x: x + 1e-3 * np.abs(x), 0.999, 1.001),
    "beside a large constant": (lambda x: 1e4 + np.abs(x), -1.0, 1.0),
    "steep": (lambda x: 1e5 * np.maximum(x, 0), 0.0, 1e5),
}
SMOOTH = {"abs and smooth": lambda x: 3 * np.cos(3 * x) - 3}


def case(name, distance):
    """Point with one coordinate near the kink among two of size one, and slopes."""
    fn, left, right = KINKS[name]
    others = np.array([-1.0, 1.0])
    x = np.array([distance * STEP, *others])
    extra = SMOOTH.get(name, lambda x: 0 * x)

    def grad(x, at_zero=None):
        slope = np.where(x > 0, right, left) + extra(x)
        if at_zero is not None:
            slope = np.where(x == 0, at_zero, slope)
        return slope

    if name == "clip":
        others[1] = 1.0  # below the other edge
    return lambda x: fn(x).sum(), x, grad, left, right


@pytest.mark.thinned(2)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("distance", DISTANCES[1:])
@pytest.mark.parametrize("name", KINKS)
def test_near_a_kink_correct_is_correct(name, distance, sign):
    """Beside a kink the slope of that side is never flagged."""
    fn, x, grad, *_ = case(name, sign * distance)

    report = gl.check(fn, x, grad=grad)

    assert report.verdict < Verdict.DISAGREES
    assert report.ok


@pytest.mark.parametrize("distance", [d for d in DISTANCES if d >= 0.01])
@pytest.mark.parametrize("name", ["relu", "abs", "leaky", "max of two lines"])
def test_near_a_kink_the_other_slope_is_wrong(name, distance):
    """A hundredth of a step beside a kink, the slope of the other side is flagged."""
    fn, x, grad, left, _ = case(name, distance)

    report = gl.check(
        fn, x, grad=lambda x: np.where(x == x[0], left, grad(x)), diagnose=False
    )

    assert report.verdict == Verdict.DISAGREES


@pytest.mark.parametrize("weight", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("name", KINKS)
def test_at_a_kink_slopes_between_pass_with_a_note(name, weight):
    """At the kink any slope between the two sides passes, and a note says so."""
    fn, x, grad, left, right = case(name, 0.0)
    between = left + weight * (right - left)

    report = gl.check(fn, x, grad=lambda x: grad(x, between))

    assert report.ok
    assert report.verdict == Verdict.AGREES
    kinds = {(finding.kind, finding.severity) for finding in report.findings}
    assert (gl.BugKind.NONDIFFERENTIABLE, "note") in kinds


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("name", KINKS)
def test_at_a_kink_slopes_outside_fail(name, side):
    """Five percent of the gap outside the two slopes is flagged."""
    fn, x, grad, left, right = case(name, 0.0)
    gap = right - left
    outside = left - 0.05 * gap if side < 0 else right + 0.05 * gap

    report = gl.check(fn, x, grad=lambda x: grad(x, outside), diagnose=False)

    assert report.verdict == Verdict.DISAGREES


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ["relu", "leaky_relu", "hardtanh", "hardsigmoid",
                                  "elu", "selu", "softshrink", "relu6"])  # fmt: skip
@pytest.mark.parametrize("distance", DISTANCES)
def test_activations_of_torch(name, distance):
    """Activations beside their kinks at 0, 1, -1, 3, 0.5: never flagged."""
    activation = getattr(torch.nn.functional, name)
    kinks = torch.tensor([0.0, 1.0, -1.0, 3.0, 0.5, 6.0], dtype=torch.float64)
    x = kinks + distance * STEP * torch.tensor([1, -1, 1, -1, 1, -1])

    report = gl.check(activation, x, diagnose=False)

    assert report.verdict < Verdict.DISAGREES
