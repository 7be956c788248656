"""Hessians: rate 3, linear, symmetric."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import InputError

X = np.linspace(0.5, 1.5, 4)


def _cost(x):
    return (x**3).sum() + x[0] * x[1] * x[2]


def _grad(x):
    g = 3 * x**2
    g[:3] += np.array([x[1] * x[2], x[0] * x[2], x[0] * x[1]])
    return g


def _hess(x):
    h = np.diag(6 * x)
    for i, j, k in ((0, 1, 2), (0, 2, 1), (1, 2, 0)):
        h[i, j] = h[j, i] = x[k]
    return h


def _check(**options):
    return gl.check_hessian(_cost, X, grad=_grad, **options)


def test_right_hessian_passes():
    """As a matrix and as a product."""
    matrix = _check(hess=_hess)
    product = _check(hvp=lambda x, v: _hess(x) @ v)

    for found in (matrix, product):
        assert found.verdict == gl.Verdict.AGREES
        assert found.rate == pytest.approx(3, abs=0.05)
        assert max(found.linearity, found.symmetry) < 1e-14


def test_asymmetric_hessian():
    """Half of the mixed derivatives is a Hessian along no direction."""
    found = _check(hess=lambda x: np.triu(_hess(x)))

    assert found.symmetry > 0.01
    assert found.linearity < 1e-14
    assert "not symmetric" in found.reading
    assert f"{100 * found.symmetry:.0f} % of their terms" in found.reading


def test_product_that_is_not_linear():
    """|v| passes for v where all is positive; not with a negative factor."""
    found = _check(hvp=lambda x, v: _hess(x) @ np.abs(v))

    assert found.linearity > 0.01
    assert "not linear" in found.reading
    assert found.verdict == gl.Verdict.DISAGREES


def test_symmetric_and_wrong():
    """A factor leaves structure intact; only the Taylor test sees it."""
    found = _check(hess=lambda x: 1.5 * _hess(x))

    assert max(found.linearity, found.symmetry) < 1e-14
    assert found.verdict == gl.Verdict.DISAGREES
    # what is wrong stands in the first line, what is right behind it
    assert repr(found).startswith("✗ disagrees: The second derivative is wrong (rate 2")
    assert found.reading.endswith("The Hessian is linear and symmetric.")
    right = _check(hess=_hess).reading
    assert right.startswith("The Hessian is linear and symmetric. The grad")


def test_product_made_by_differences_needs_a_tolerance():
    """What is linear to six digits passes with rtol=1e-5, not by default."""

    def hvp(x, v):
        return (_grad(x + 1e-5 * v) - _grad(x - 1e-5 * v)) / 2e-5

    assert not _check(hvp=hvp).ok
    assert _check(hvp=hvp, rtol=1e-5).ok


def test_several_inputs_by_product():
    """`hvp` takes one direction and returns one array for each input."""
    found = gl.check_hessian(
        lambda a, b: (a * b).sum(),
        X,
        X + 1,
        grad=lambda a, b: (b, a),
        hvp=lambda a, b, u, v: (v, u),
    )

    assert found.verdict == gl.Verdict.AGREES


def test_torch_network():
    """A module brings its own second derivatives, and stays as it was."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)
    ).double()
    x = torch.randn(2, 3, dtype=torch.float64)
    found = gl.check_hessian(net, x, loss=lambda y: (y**2).sum())

    assert found.verdict == gl.Verdict.AGREES
    assert all(p.grad is None for p in net.parameters())


def test_bad_arguments_are_refused():
    """No second derivative, or a tolerance that is none."""
    with pytest.raises(InputError, match=r"need hvp= .* or hess="):
        _check()
    with pytest.raises(InputError, match="rtol must be a number >= 0 or None, got -1"):
        _check(hess=_hess, rtol=-1)
    with pytest.raises(InputError, match="seed must be an integer >= 0, got -1"):
        _check(hess=_hess, seed=-1)


def test_linear_function_has_a_hessian_of_zeros():
    """Zero agrees with differences that are round-off."""
    found = gl.check_hessian(
        np.sum, X, grad=np.ones_like, hess=lambda x: np.zeros((4, 4))
    )

    assert found.verdict == gl.Verdict.AGREES


def test_dropout_and_batch_norm():
    """Every product sees the same random draw and the same statistics."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 6),
        torch.nn.BatchNorm1d(6),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(6, 1),
    ).double()
    x = torch.randn(8, 4, dtype=torch.float64)
    mean = net[1].running_mean.clone()
    found = gl.check_hessian(net, x, loss=lambda y: (y**2).sum())

    assert max(found.linearity, found.symmetry) < 1e-12
    assert found.ok
    assert torch.equal(net[1].running_mean, mean)
