"""Forward-mode autograd, against reverse mode and algebra."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.subject.tensors.gradients.forward import ForwardMode
from gradlab.subject.tensors.subjects import torch_subject
from tests.specimens.torch_sides import REAL, Through, eye_of, randn

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", REAL)
def test_forward_mode_equals_reverse_mode(name):
    """The two modes of autograd are independent formulas."""
    fn, make = REAL[name]
    subject = torch_subject(fn, make())
    reverse = subject.analytic.pull(eye_of(subject)).values

    for one, other in zip(ForwardMode(subject).jacobian()[0], reverse, strict=True):
        assert one == pytest.approx(other, rel=1e-12, abs=1e-13)


def test_forward_mode_is_an_analytic_side():
    """Cotangents are multiplied with the forward Jacobian."""
    x = randn(4)
    subject = torch_subject(torch.sin, (x,), mode="forward")
    cotangents = np.arange(8.0).reshape(2, 4)
    pullback = subject.analytic.pull(cotangents)

    assert pullback.values[0] == pytest.approx(cotangents * np.cos(x.numpy()))
    assert "forward" in subject.analytic.description


def test_forward_mode_without_a_formula_says_so():
    """A custom Function without jvp has no forward mode."""
    pullback = torch_subject(
        Through.apply, (randn(2, 2), randn(2, 2)), mode="forward"
    ).analytic.pull(np.eye(4))
    assert {problem.kind for problem in pullback.problems} == {"raised"}
    assert "jvp" in pullback.problems[0].detail


def test_forward_mode_of_modules():
    """Parameters have tangents as well."""
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh()
    ).double()
    subject = torch_subject(module, (randn(5, 3),))
    reverse = subject.analytic.pull(eye_of(subject)).values

    for one, other in zip(ForwardMode(subject).jacobian()[0], reverse, strict=True):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-12)


def test_forward_mode_leaves_written_inputs_at_their_point():
    """What a batch of columns doubles in place is no longer doubled afterwards."""

    def f(x, w):
        w.mul_(2.0)
        return x * w

    subject = torch_subject(f, (randn(3), randn(3)), mode="forward")
    before = subject.row()

    subject.analytic.pull(np.eye(3))

    assert np.array_equal(subject.row(), before)
