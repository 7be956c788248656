"""Whatever happens, the user's things are bitwise as they were."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradlab as gl
from tests.specimens.course import TwoLayerNet, data


class Stop(Exception):
    """Raised by a user's function."""


def _interrupting(loss, at, exception):
    calls = 0

    def fn(*arguments):
        nonlocal calls
        calls += 1
        if calls > at:
            raise exception
        return loss(*arguments)

    return fn


@given(at=st.integers(0, 400), kind=st.sampled_from([Stop, KeyboardInterrupt]))
def test_parameters_in_place_survive(at, kind):
    """An exception or Ctrl-C at any evaluation leaves the parameters as they were."""
    net, (inputs, labels) = TwoLayerNet(), data()
    before = {name: value.tobytes() for name, value in net.params.items()}
    arrays = {name: id(value) for name, value in net.params.items()}
    fn = _interrupting(lambda: net.loss(inputs, labels), at, kind)

    with contextlib.suppress(gl.GradlabError, KeyboardInterrupt):
        gl.check(fn, params=net.params)

    assert {name: value.tobytes() for name, value in net.params.items()} == before
    assert {name: id(value) for name, value in net.params.items()} == arrays


@given(at=st.integers(0, 60), kind=st.sampled_from([Stop, KeyboardInterrupt]))
def test_random_state_survives(at, kind):
    """The random state of Python and NumPy is what it was, wherever it stops."""
    x = np.linspace(0.5, 1.5, 6)
    random.seed(3)
    np.random.seed(3)

    def noisy(x):
        return float((x**2).sum() + 0 * random.random() + 0 * np.random.rand())

    state = random.getstate(), np.random.get_state()[1].tobytes()
    with contextlib.suppress(gl.GradlabError, KeyboardInterrupt):
        gl.check(_interrupting(noisy, at, kind), x, grad=lambda x: 2 * x)

    assert state == (random.getstate(), np.random.get_state()[1].tobytes())


def test_interrupt_returns_what_is_known():
    """Ctrl-C in the middle gives a partial report that says so."""
    x = np.linspace(0.5, 1.5, 2000)
    fn = _interrupting(lambda x: (x**2).sum(), 3000, KeyboardInterrupt)

    report = gl.check(fn, x, grad=lambda x: 2 * x, coverage="full")

    assert report.partial
    assert report.verdict == gl.Verdict.UNDECIDED
    assert any("interrupted" in remark for remark in report.remarks)


@pytest.mark.parametrize("train", [True, False])
def test_module_survives(train):
    """Parameters, statistics, .grad, mode, hooks and random state of a module."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5),
        torch.nn.Linear(4, 2),
    ).double().train(train)  # fmt: skip
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    x = torch.randn(5, 3, dtype=torch.float64)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    generator = torch.get_rng_state().clone()

    report = gl.check(model, x, loss=lambda out: (out**2).mean())

    assert report.verdict == gl.Verdict.AGREES
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all((p.grad == 1).all() for p in model.parameters())
    assert model.training is train
    assert torch.equal(torch.get_rng_state(), generator)
    assert x.grad is None


def test_mutating_function_is_told(rng):
    """A function that writes to its input is told so, and the input is put back."""
    x = rng.normal(size=4)
    before = x.copy()

    def shifts(x):
        x -= x.max()
        return float(np.exp(x).sum())

    def gradient(x):
        e = np.exp(x - x.max())
        e[np.argmax(x)] -= e.sum()
        return e

    report = gl.check(shifts, x, grad=gradient)

    assert np.array_equal(x, before)
    assert "mutates_input" in {str(f.kind) for f in report.findings}


def test_stateful_function_is_rewound():
    """A function that counts its calls is a function again, and told so."""

    class Drifting:
        calls = 0

        def __call__(self, x):
            self.calls += 1
            return float((x**2).sum() * (1 + 0.1 * self.calls))

    fn = Drifting()
    x = np.array([1.0, 2.0])

    report = gl.check(fn, x, grad=lambda x: 2.2 * x)

    assert report.verdict == gl.Verdict.AGREES
    assert fn.calls == 0
    assert "stateful" in {str(f.kind) for f in report.findings}
