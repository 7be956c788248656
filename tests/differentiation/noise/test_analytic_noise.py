"""The measured round-off of the analytic side covers the true one, and little more."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.differentiation.metering.budget import Budget
from gradlab.differentiation.metering.meter import Meter
from gradlab.differentiation.noise.analytic_noise import (
    SCATTER,
    analytic_noise,
    rounding_noise,
    value_noise,
)
from gradlab.subject.tensors.subjects import torch_subject
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")


def batch_norm_model():
    """A bias in front of a batch normalisation has the gradient zero."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6))
    return torch_subject(module, (torch.randn(8, 4),), loss=lambda y: (y**3).mean())


def matrix_chain():
    """Sums of products, of all sizes."""
    arguments = (torch.randn(5, 8), torch.randn(8, 3))
    return torch_subject(lambda x, w: torch.tanh(x @ w).sum(), arguments)


@pytest.mark.parametrize("make", [batch_norm_model, matrix_chain])
def test_noise_has_the_size_of_the_true_error(make):
    """Against float64 gradients: within a factor of ten for nearly all entries."""
    subject = make()
    subject.row()
    one = np.ones((1, 1))
    rough = subject.analytic.pull(one).values
    exact = subject.in_double().analytic.pull(one).values
    noise = analytic_noise(subject, one)

    error = np.concatenate(
        [np.abs(a - b)[0] for a, b in zip(rough, exact, strict=True)]
    )
    bar = np.concatenate([block[0] for block in noise])
    assert np.mean(error <= 10 * bar) >= 0.98
    assert np.median(bar) <= 100 * max(np.median(error), 1e-9)


def test_noise_of_float64_is_far_below_any_tolerance():
    """In double precision there is next to nothing to forgive."""
    x = torch.randn(6, dtype=torch.float64)
    subject = torch_subject(lambda x: torch.sin(x).sum(), (x,))

    (noise,) = analytic_noise(subject, np.ones((1, 1)))
    assert noise.max() < 1e-15


def test_noise_of_values_is_their_scatter_under_roundings_of_x():
    """None of a constant; of sin(1e8 x), which turns x's last digit into 2e-8, some."""
    x = torch.linspace(1.0, 2.0, 5, dtype=torch.float64)
    subject = torch_subject(lambda x: (5 + 0 * x, torch.sin(1e8 * x)), (x,))
    still, moved = np.split(value_noise(subject, Meter(), seed=0), 2)

    assert (still == 0).all()
    assert (moved == moved[0]).all()
    assert 1e-9 < moved[0] < 1e8 * 2.3e-16 * 2


def test_noise_of_values_is_charged_for_even_where_no_budget_is_left():
    """Five evaluations are five on the meter; a spent budget does not prevent them."""
    x = torch.linspace(1.0, 2.0, 5, dtype=torch.float64)
    calls = []
    subject = torch_subject(lambda x: (calls.append(1), torch.sin(x))[1], (x,))
    subject.row()  # what a subject does once, it has done
    calls.clear()
    meter = Meter(Budget(evaluations=1), evaluations=1)

    value_noise(subject, meter, seed=0)

    assert meter.evaluations - 1 == len(calls) == 5


def test_point_is_put_back_after_an_exception():
    """A function that fails in the middle leaves the subject at its point."""
    calls = 0

    def fails_later(x):
        nonlocal calls
        calls += 1
        if calls > 5:
            raise KeyboardInterrupt
        return torch.sin(x)

    subject = torch_subject(fails_later, (torch.randn(3),))
    before = subject.row()
    with pytest.raises(KeyboardInterrupt):
        analytic_noise(subject, np.eye(3))
    calls = 0

    assert np.array_equal(subject.row(), before)


def test_subjects_without_an_analytic_side_have_no_noise():
    """There is nothing that could be noisy."""
    subject = torch_subject(torch.sin, (torch.randn(3),))
    subject.analytic = None

    assert not analytic_noise(subject, np.eye(3))[0].any()


class Sine(torch.nn.Module):
    """An activation that bends."""

    def forward(self, x):
        return torch.sin(x)


@pytest.fixture
def _double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("_double")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_debris_of_cancellation_is_no_slip(seed):
    """A bias in front of a batch norm has the gradient zero, as 1e-17 in few digits."""
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), Sine())

    report = gl.check(net, torch.randn(2, 3), order=2)

    assert report.ok
    assert not [c for c in report.comparisons if c.verdict is gl.Verdict.DISAGREES]


def _lost_digits(x):
    """A second-order remainder, which loses two digits for each of x."""
    return (torch.exp(x) - 1 - x) / x**2


def _beside_double(fn, x):
    subject = torch_subject(fn, (x,))
    subject.row()
    twin = subject.in_double()
    each = np.eye(len(x))
    gap = subject.analytic.pull(each).values[0] - twin.analytic.pull(each).values[0]
    (noise,) = rounding_noise(subject, each, twin=twin)
    return np.diagonal(gap), np.diagonal(noise), (subject, twin)


def test_rounding_inside_is_seen_where_moving_x_by_a_digit_does_not_show_it():
    """(exp(x) - 1 - x) / x**2 at 0.01 in float32: off by a tenth, covered by it."""
    x = torch.linspace(0.008, 0.02, 40)

    gap, noise, _ = _beside_double(_lost_digits, x)

    assert np.abs(gap).max() > 0.02
    assert (np.abs(gap) <= SCATTER * noise).all()
    assert np.median(noise) <= 10 * np.median(np.abs(gap))


# The sine, whose derivative is ten percent too large in float32.
single_only = with_backward(
    torch.sin,
    lambda x, grad: grad * torch.cos(x) * (1.1 if x.dtype == torch.float32 else 1.0),
)


def test_a_slip_of_single_precision_is_no_rounding():
    """Ten percent too large in float32 alone: a smooth difference, hence no noise."""
    x = torch.linspace(-1.0, 1.0, 9)

    gap, noise, _ = _beside_double(single_only, x)

    assert (np.abs(gap) >= 0.05).all()
    assert (SCATTER * noise <= 1e-3 * np.abs(gap)).all()
    assert gl.check(single_only, x).verdict == gl.Verdict.DISAGREES


def test_both_points_are_put_back_bit_for_bit():
    """Neither the subject nor its twin has moved afterwards."""
    x = torch.tensor([0.1, 1e-20, 3e8])

    *_, sides = _beside_double(torch.sin, x)

    exact = x.double().numpy()
    for side in sides:
        assert np.array_equal([float(v) for v in side.coordinates(0)], exact)


def test_gradients_that_round_off_spoils_accuse_nobody():
    """The formula is right in float64, and float32 scatters about it."""
    x = torch.tensor([0.3, 0.01, 1.0])

    assert gl.check(_lost_digits, x).verdict == gl.Verdict.AGREES
    assert gl.check(_lost_digits, x, coverage="probe").verdict == gl.Verdict.AGREES
