"""Shares of gradients that float16 loses; what was never there is none."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.differentiation.noise.underflow import scaled_gradients, underflowed
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")

from gradlab.subject.tensors.subjects import torch_subject  # noqa: E402


def subject_of(fn, dtype=torch.float32):
    """A function of two ones, and what autograd makes of one row."""
    subject = torch_subject(fn, (torch.ones(2, dtype=dtype),))
    subject.row()
    return subject, subject.analytic.pull(np.ones((1, 1))).values


def test_what_is_lost_is_told_by_its_share():
    """Of 1 and 1e-9 the second, a billionth of the norm."""
    weights = torch.tensor([1.0, 1e-9])
    subject, own = subject_of(lambda x: (weights * x.half()).float().sum())
    wide = [np.array([[1.0, 1e-9]])]

    lost = underflowed(subject, own, wide, 1e-10)

    np.testing.assert_array_equal(own[0], [[1.0, 0.0]])
    np.testing.assert_allclose(lost[0], [[0.0, 1e-9]])
    assert subject.underflow == {0: pytest.approx(1e-9)}


def test_a_gradient_of_zero_has_no_share_to_lose():
    """Something small that comes of it at one scale alone is left to others."""
    fickle = with_backward(
        lambda x: 0.0 * x.sum(), lambda x, up: torch.where(up > 2, 0.0, 1e-7) + 0 * x
    )
    subject, own = subject_of(fickle)

    lost = underflowed(subject, own, [np.zeros((1, 2))], 0.05)

    assert own[0].all()
    assert lost[0].any()
    assert subject.underflow == {}


def test_what_does_not_come_again_did_not_underflow():
    """A backward that counts its calls is no matter of digits."""
    calls = []
    counting = with_backward(
        lambda x: x.sum(), lambda x, up: up / (calls.append(1) or len(calls)) + 0 * x
    )
    subject, own = subject_of(counting)

    assert np.isnan(scaled_gradients(subject, np.ones((1, 1)), own)[0]).all()


def test_nothing_is_asked_of_float64():
    """There is no less to lose."""
    subject, own = subject_of(torch.sum, torch.float64)

    assert scaled_gradients(subject, np.ones((1, 1)), own) is None
