"""Parameters that a function reads where they are, in float64 all the same."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import Verdict
from gradlab.subject.numpy_in_place import StandIns
from tests.battery import controls_programs

X = np.random.default_rng(3).normal(size=(6, 3)).astype("f4")


def quadratic(read):
    """Build ``sum tanh(X w)**2`` over weights that `read` returns, and its gradient."""

    def loss_and_grad(factor=1.0):
        z = np.tanh(X @ read())
        return (z**2).sum(), {"W": factor * (X.T @ (2 * z * (1 - z * z)))}

    return loss_and_grad


def weights():
    return np.random.default_rng(4).normal(size=(3, 4)).astype("f4")


@pytest.mark.thinned(2)
@pytest.mark.untraced
@pytest.mark.parametrize("seed", range(8))
def test_correct_float32_network_in_place_agrees(seed, monkeypatch):
    """Whatever the weights, and a slip of one percent is found in all of them."""
    monkeypatch.setattr(controls_programs, "rng", np.random.default_rng(seed))
    loss, params = controls_programs.mlp((6, 12, 8, 3), dtype=np.float32)

    def slip():
        value, grads = loss(params)
        return value, {**grads, "W1": grads["W1"] * np.float32(1.01)}

    clean = gl.check(lambda: loss(params), params=params, diagnose=False)
    wrong = gl.check(slip, params=params, diagnose=False)

    assert clean.verdict == Verdict.AGREES
    assert wrong.verdict == Verdict.DISAGREES
    assert wrong.culprits == ("W1",)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("size", [5e-4, 1e-3, 2e-3])
def test_what_cancels_in_float32_is_asked_for_in_float64(size, in_place):
    """Of log(cosh(x)) next to 0 float32 has a digit or none, and float64 enough."""
    x = np.array([size, -0.1 * size], dtype="f4")

    def loss_and_grad(x):
        value = (np.logaddexp(x, -x) - np.log(x.dtype.type(2))).sum()
        return value, {"x": np.tanh(x)}

    report = (
        gl.check(lambda: loss_and_grad(x), params={"x": x})
        if in_place
        else gl.check(lambda p: loss_and_grad(p["x"]), {"x": x})
    )

    assert report.verdict == Verdict.AGREES, report


class Net:
    """Reads an attribute; the dict is only a list of names."""

    def __init__(self):
        self.W = weights()
        self.params = {"W": self.W}
        self.loss = quadratic(lambda: self.W)


W_GLOBAL = weights()


def test_attributes_closures_and_globals_are_followed():
    """The reference is found wherever the function reads the array from."""
    net, closed = Net(), weights()
    for fn, params in (
        (net.loss, net.params),
        (quadratic(lambda: closed), {"W": closed}),
        (quadratic(lambda: W_GLOBAL), {"W": W_GLOBAL}),
    ):
        report = gl.check(fn, params=params)

        assert report.verdict == Verdict.AGREES
        assert "in float64" in report.findings[0].evidence


def test_places_hold_the_users_arrays_again():
    """The same objects, bit for bit, in every place; also when the function raises."""
    net = Net()
    kept, bits = net.W, net.W.tobytes()
    calls = []

    def fails_in_float64():
        calls.append(net.W.dtype.name)
        if net.W.dtype == np.float64:
            raise ValueError("no float64 here")
        return net.loss()

    report = gl.check(fails_in_float64, params=net.params)

    assert "float64" in calls
    assert report.ok
    assert net.W is kept
    assert net.params["W"] is kept
    assert kept.tobytes() == bits


def test_function_that_reads_elsewhere_keeps_its_own_precision():
    """Copies in a dict that the function does not read would show no slope at all."""
    W = weights()
    hidden = ((W,),)  # only what holds the outer tuple could be written to

    report = gl.check(quadratic(lambda: hidden[0][0]), params={"W": W})

    assert report.verdict == Verdict.AGREES
    assert "its differences carry" in report.findings[0].evidence


def test_single_precision_inside_is_no_reference():
    """A cast inside makes a staircase of the wider twin, which is seen and left."""
    W = weights()
    params = {"W": W}

    def casts():
        z = np.tanh(X @ params["W"].astype("f4"))
        return float((z**2).sum()), {"W": X.T @ (2 * z * (1 - z * z))}

    report = gl.check(casts, params=params)

    assert report.ok
    assert "its differences carry" in report.findings[0].evidence


def test_gradients_in_float32_buffers_are_judged_as_float32():
    """What is collected in a float32 array is no float64 gradient, whatever came in."""
    params = {"W": weights()}
    buffer = np.zeros((3, 4), "f4")
    loss = quadratic(lambda: params["W"])

    def buffered(factor=1.0):
        value, grads = loss(factor)
        buffer[...] = grads["W"]
        return value, {"W": buffer}

    assert gl.check(buffered, params=params).verdict == Verdict.AGREES
    assert gl.check(lambda: buffered(1.01), params=params).verdict == Verdict.DISAGREES


def test_an_array_that_stands_nowhere_cannot_be_replaced():
    """There is no place to put a copy of what only a tuple holds."""
    W = weights()

    assert StandIns.of([W], [W.astype(float)], [(W,)]) is None
