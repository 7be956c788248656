"""Forward-mode autograd, against reverse mode and algebra."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.differentiation.autodiff import forward_jacobian
from gradlab.errors import SubjectError
from gradlab.subject.torch_subjects import torch_subject

torch = pytest.importorskip("torch")

F = torch.nn.functional
DOUBLE = torch.float64


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(2026)


def randn(*shape, dtype=DOUBLE, **options):
    """Normal numbers in float64."""
    return torch.randn(shape, dtype=dtype, **options)


def eye_of(subject):
    """One cotangent for each output row."""
    return np.eye(len(subject.row()))


def softmax_mix(x, w):
    """Several outputs, one of them a view."""
    return torch.softmax(x @ w, -1), (x**2).sum(), w.t()[0]


REAL = {
    "sigmoid": (torch.sigmoid, lambda: (randn(4, 3),)),
    "linear": (F.linear, lambda: (randn(3, 4), randn(2, 4), randn(2))),
    "several outputs": (softmax_mix, lambda: (randn(3, 4), randn(4, 2))),
    "inverse": (torch.linalg.inv, lambda: (randn(3, 3) + 3 * torch.eye(3),)),
    "0-d": (torch.sin, lambda: (randn(),)),
    "layer norm": (lambda x: F.layer_norm(x, (5,)), lambda: (randn(3, 5),)),
}


@pytest.mark.parametrize("name", REAL)
def test_forward_mode_equals_reverse_mode(name):
    """The two modes of autograd are independent formulas."""
    fn, make = REAL[name]
    subject = torch_subject(fn, make())
    reverse = subject.analytic.pull(eye_of(subject)).values

    for one, other in zip(forward_jacobian(subject), reverse, strict=True):
        assert one == pytest.approx(other, rel=1e-12, abs=1e-13)


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
    subject = torch_subject(Through.apply, (randn(2, 2), randn(2, 2)))
    with pytest.raises(SubjectError, match="jvp"):
        forward_jacobian(subject)

    pullback = torch_subject(
        Through.apply, (randn(2, 2), randn(2, 2)), mode="forward"
    ).analytic.pull(np.eye(4))
    assert {problem.kind for problem in pullback.problems} == {"raised"}


def test_forward_mode_of_modules():
    """Parameters have tangents as well."""
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh()
    ).double()
    subject = torch_subject(module, (randn(5, 3),))
    reverse = subject.analytic.pull(eye_of(subject)).values

    for one, other in zip(forward_jacobian(subject), reverse, strict=True):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-12)
