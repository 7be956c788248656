"""Gradients that cancel to zero: what rounding leaves of them is nobody's mistake."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.subject.tensors.gradients.backward import Backward
from gradlab.subject.tensors.subjects import torch_subject
from tests.specimens.functions import with_backward
from tests.specimens.torch_sides import eye_of

torch = pytest.importorskip("torch")


def attention(x, keys, bias, last):
    """Softmax of products with keys, each moved by the same bias: that does nothing."""
    return torch.softmax(x @ (x @ keys + bias).mT, -1) @ x @ last


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_cancels_to_zero_still_goes_backwards_in_batches(monkeypatch, dtype):
    """The bias of keys leaves the softmax as it is, and its gradient is rounding."""
    torch.manual_seed(0)
    shapes = [(6, 4), (4, 4), (4,), (4, 4)]
    subject = torch_subject(
        attention, tuple(torch.randn(s, dtype=dtype).requires_grad_() for s in shapes)
    )
    calls = []
    plain = Backward._grad

    def counted(self, *args, **kwargs):
        calls.append(None)
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(Backward, "_grad", counted)
    values = subject.analytic.pull(eye_of(subject)).values

    assert np.abs(values[2]).max() < 100 * torch.finfo(dtype).eps
    assert subject.analytic.linear
    assert len(calls) == 2  # all rows at once, and the same added up


@pytest.mark.parametrize(
    ("share", "unit"),
    [(1.0, 1.0), (1e-4, 1.0), (1e-8, 1.0), (1e-12, 1.0), (1e-17, 1e17)],
)
def test_a_backward_that_is_not_linear_is_seen_beside_larger_gradients(share, unit):
    """It drops a sign, of an input that moves f by a small share of what others do.

    Of numbers as large as 1e17, gradients of 1e-17 move f as much as others do.
    """
    crooked = with_backward(lambda x: 2 * x, lambda x, g: 2 * g.abs())
    point = torch.ones(3, dtype=torch.float64)
    subject = torch_subject(
        lambda x, y: share * crooked(x) + y,
        ((unit * point).requires_grad_(), point.clone().requires_grad_()),
    )
    subject.analytic.pull(eye_of(subject))

    assert subject.analytic.linear is False
