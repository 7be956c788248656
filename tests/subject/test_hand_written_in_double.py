"""Backward passes written by hand on float32 tensors are compared in float64."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.comparison.verdict import Verdict

torch = pytest.importorskip("torch")


def layer(seed):
    """A layer that reads its data where they stand; its parameters."""
    drawn = torch.Generator().manual_seed(seed)
    x, w, b = (torch.randn(*s, generator=drawn) for s in ((7, 5), (5, 3), (3,)))
    return x, w, b


def by_cache(x, slip):
    """As lessons write it: ``forward`` with a cache, and ``backward``."""

    def forward(w, b):
        y = torch.tanh(x @ w + b)
        return y, (y, w)

    def backward(d, cache):
        y, _ = cache
        z = d * (1 - y * y)
        grown = torch.zeros(3)
        grown += z.sum(0)
        return slip * (x.T @ z), grown

    return forward, {"backward": backward}


def by_vjp(x, slip):
    """As libraries take it; one that makes leaves of its own."""

    def fn(w, b):
        return torch.tanh(x @ w + b)

    def vjp(d, w, b):
        w, b = (t.detach().requires_grad_() for t in (w, b))
        found = torch.autograd.grad(fn(w, b), (w, b), d)
        return slip * found[0], found[1]

    return fn, {"vjp": vjp}


@pytest.mark.parametrize("written", [by_cache, by_vjp])
@pytest.mark.parametrize("seed", range(3))
def test_right_gradients_agree_in_float32(written, seed):
    """Also where ``1 - y * y`` leaves few digits; data and zeros are widened."""
    x, w, b = layer(seed)
    fn, options = written(x, 1.0)

    report = gl.check(fn, w, b, **options)

    assert report.verdict == Verdict.AGREES
    assert "evaluated in float64" in str(report)
    assert x.dtype is w.dtype is torch.get_default_dtype() is torch.float32
    truth = torch.autograd.functional.jacobian(
        lambda w: torch.tanh(x.double() @ w + b.double()), w.double()
    )
    numeric = report.comparisons[0].numeric
    assert np.allclose(numeric, truth.reshape(21, 15).numpy(), atol=1e-8)


@pytest.mark.parametrize("written", [by_cache, by_vjp])
@pytest.mark.parametrize("seed", range(2))
def test_one_percent_is_told(written, seed):
    """In the parameter that has it, and in no other."""
    x, w, b = layer(seed)
    fn, options = written(x, 1.01)

    report = gl.check(fn, w, b, **options)

    assert report.verdict == Verdict.DISAGREES
    assert report.culprits == ("w",)


def test_backward_that_writes_to_short_numbers_is_not_held_to_float64():
    """Its digits are those of float32, and no mistake."""
    x, w, b = layer(0)

    def fn(w, b):
        return torch.tanh(x @ w + b)

    def vjp(d, w, b):
        z = d * (1 - fn(w, b) ** 2)
        into = torch.zeros(5, 3, dtype=torch.float32)
        into[:] = x.T @ z
        return into, z.sum(0)

    assert gl.check(fn, w, b, vjp=vjp).verdict != Verdict.DISAGREES


@pytest.mark.parametrize("container", ["dict", "tuple", "predictions"])
def test_gradients_taken_for_outputs_are_said_to_be(container):
    """A torch function is asked autograd of all it returns, its own gradients too."""
    x, w, b = (each.double() for each in layer(0))

    def values(w, b):
        y = torch.tanh(x @ w + b)
        z = 4 * y * (1 - y * y)  # twice too large
        return (y**2).sum(), x.T @ z, z.sum(0), y

    def in_dict(p):
        loss, dw, db, _ = values(p["w"], p["b"])
        return loss, {"w": dw, "b": db}

    def in_tuple(w, b):
        loss, dw, db, y = values(w, b)
        return loss, ((dw, db) if container == "tuple" else (y, y))

    given = ({"w": w, "b": b},) if container == "dict" else (w, b)
    report = gl.check(in_dict if container == "dict" else in_tuple, *given)

    said = any("nobody has compared them" in each for each in report.remarks)
    assert said == (container != "predictions")
