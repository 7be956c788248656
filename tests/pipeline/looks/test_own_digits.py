"""What cancels in a backward leaves units of its last digit, which accuse nobody.

The truth is the closed form of the derivative, in which nothing cancels.
"""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")


def _certain(x):
    """Cross-entropy with logits; exact forward, backward ``sigmoid(x) - target``."""
    target = torch.tensor([0.0, 1.0, 1.0, 0.0]).to(x)
    return torch.nn.functional.binary_cross_entropy_with_logits(
        x, target, reduction="none"
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("sure", [30.0, 36.0, 40.0, 80.0])
def test_a_gradient_below_the_last_digit_of_its_terms_accuses_nobody(dtype, sure):
    """1 - sigmoid(40) is 4e-18; the backward subtracts 1 from 1 and has none of it."""
    x = torch.tensor([-sure, sure, -sure, 3.0], dtype=dtype)

    report = gl.check(_certain, x)

    assert report.verdict != gl.Verdict.DISAGREES
    assert not report.culprits


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("sure", [30.0, 45.0, 200.0, 600.0])
@pytest.mark.parametrize("count", [3, 12])
def test_many_that_are_sure_accuse_nobody_either(count, sure, dtype):
    """Eight entries that count in units speak for more; far out it is zero for long."""
    x = (sure + torch.linspace(-1, 1, count, dtype=dtype)).requires_grad_()

    def f(x, factor=1.0, bce=torch.nn.functional.binary_cross_entropy_with_logits):
        return bce(torch.lerp(x.detach(), x, factor), torch.ones_like(x))

    assert gl.check(f, x).verdict == gl.Verdict.AGREES
    if f(x) > 0:  # exp(-200) is zero in single precision, and so is its slope
        detached = gl.check(lambda x: f(x, 0.0) + 0 * x.sum(), x)
        assert detached.verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("factor", [1.05, 0.0])
@pytest.mark.parametrize("rate", [1.0, -1.0])
def test_a_faint_output_is_no_excuse(factor, rate):
    """exp(-40) beside 40: a formula that is a product has all its digits there."""
    slipped = with_backward(
        lambda x: torch.exp(rate * x),
        lambda x, grad: factor * rate * grad * torch.exp(rate * x),
    )

    def f(x):
        return torch.stack([slipped(x[0]), x[1] ** 2])

    x = torch.tensor([-40.0 * rate, 20.0], dtype=torch.float64)
    assert gl.check(f, x).verdict == gl.Verdict.DISAGREES


# log(1 + exp(-x)) is exact far out; 1 / (1 + exp(-x)) - 1 counts in units of 1.1e-16
SURE = np.array([31.9597, 40.5716, 37.9488, 26.6])
WEIGHT = 1 / 3  # a mean: multiples of a third of such a unit are rounded once more


def _loss(x):
    return WEIGHT * np.log1p(np.exp(-x))


def _slopes(x, factor=1.0):
    return factor * WEIGHT * (1 / (1 + np.exp(-x)) - 1)


DOORS = {
    "grad": lambda k: gl.check(
        lambda x: _loss(x).sum(), SURE, grad=lambda x: _slopes(x, k)
    ),
    "jac": lambda k: gl.check(_loss, SURE, jac=lambda x: np.diag(_slopes(x, k))),
    "vjp": lambda k: gl.check(_loss, SURE, vjp=lambda up, x: up * _slopes(x, k)),
    "backward": lambda k: gl.check(
        lambda x: (_loss(x), x), SURE, backward=lambda up, x: up * _slopes(x, k)
    ),
    "dict": lambda k: gl.check(
        lambda p: (_loss(p["x"]).sum(), {"x": _slopes(p["x"], k)}), {"x": SURE}
    ),
}


def _in_place(factor):
    x = SURE.copy()
    return gl.check(
        lambda: (_loss(x).sum(), {"x": _slopes(x, factor)}), params={"x": x}
    )


@pytest.mark.parametrize("door", [*DOORS.values(), _in_place], ids=[*DOORS, "in place"])
def test_nor_does_what_cancels_in_a_backward_of_numpy(door):
    """Gradients beside the point are asked for there, through whatever door."""
    assert door(1.0).verdict == gl.Verdict.AGREES
    assert door(1.01).verdict == gl.Verdict.DISAGREES
    assert door(-1.0).verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("slope", [1.04, 0.96])
def test_multiples_of_a_point_are_no_digits(slope):
    """The gradient of a faint parabola has digits everywhere, if as a line has them."""
    x = np.array([0.37, -1.9])

    report = gl.check(
        lambda x: 1e-15 * (x**2).sum(), x, grad=lambda x: slope * 2e-15 * x
    )

    assert report.verdict == gl.Verdict.DISAGREES
