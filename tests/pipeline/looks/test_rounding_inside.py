"""Small outputs carry the rounding of larger numbers inside: that is no kink."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")


def filtered(z):
    """Convolve around a circle: of real z the imaginary part is rounding alone."""
    n = len(z)
    kernel = torch.cos(torch.arange(n) ** 2) / n**0.5
    waves = torch.fft.fft(torch.tanh(z)) * torch.fft.fft(kernel.to(z.dtype))
    return torch.fft.ifft(waves)


def test_rounding_of_imaginary_parts_is_no_kink():
    """One imaginary part of 240 had one, and its gradient was left undecided."""
    z = torch.linspace(0.2, 1.5, 240).to(torch.complex64).requires_grad_()

    report = gl.check(filtered, z, coverage="full")

    assert report.verdict == gl.Verdict.AGREES
    assert "nondifferentiable" not in {finding.kind for finding in report.findings}


@pytest.mark.parametrize(("slope", "verdict"), [(0.5e-3, 0), (1e-3, 0), (3e-3, 2)])
def test_a_kink_of_a_small_output_beside_large_ones_is_one(slope, verdict):
    """Slopes between both sides agree, one outside does not."""
    at = np.linspace(0.5, 2.0, 6)
    fn = lambda x: np.concatenate([np.exp(x), 1e-3 * np.abs(x - at)])
    jac = lambda x: np.concatenate([np.diag(np.exp(x)), slope * np.eye(6)])

    report = gl.check(fn, at, jac=jac)

    assert report.verdict == verdict
    assert any(finding.kind == "nondifferentiable" for finding in report.findings)


@pytest.mark.filterwarnings("error")
def test_an_infinite_imaginary_part_leaves_the_real_part_alone():
    """A product with 1j would make nan of it, and warn."""
    z = np.array([1 + 1j, 2 - 1j])
    jac = lambda z: np.diag([complex(2.0, np.inf), 2.0])

    (found,) = gl.check(lambda z: 2 * z, z, jac=jac).comparisons[:1]

    assert np.diag(found.analytic.real).tolist() == [2.0, 2.0]


# A convolution that rounds to float32 inside; its gradient does not.
def in_single_backward(x, w, upstream):
    back = torch.nn.grad
    return (
        back.conv2d_input(x.shape, w, upstream),
        back.conv2d_weight(x, w.shape, upstream),
    )


in_single = with_backward(
    lambda x, w: torch.nn.functional.conv2d(x.float(), w.float()).double(),
    in_single_backward,
)


def test_single_precision_inside_is_no_such_rounding():
    """A ladder has to go below it: it accused 31 right entries of a convolution."""
    torch.manual_seed(0)
    shapes = (2, 3, 8, 8), (4, 3, 3, 3)
    inputs = [torch.randn(shape, dtype=torch.float64) for shape in shapes]

    report = gl.check(in_single, *(x.requires_grad_() for x in inputs))

    assert report.verdict != gl.Verdict.DISAGREES
