"""Probes and searches in short arithmetic: round-off is accused by none, slips are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gradlab as gl
from gradlab.localisation.searching.precise import Precise
from gradlab.subject.tensors.subjects import torch_subject
from tests.localisation.planted import Planted

nn = torch.nn


def squares(out):
    return (out**2).mean()


def normalised(dtype):
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
    )
    return module.to(dtype), (torch.randn(9, 8, dtype=dtype),)


def attention(dtype):
    """With squares(), a loss that does not move: the last norm fixes it at 1."""
    torch.manual_seed(0)
    module = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    return module.to(dtype).eval(), (torch.randn(2, 5, 16, dtype=dtype),)


def embedded(dtype):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Embedding(7, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    return module.to(dtype), (torch.tensor([[0, 3, 3], [5, 1, 0]]),)


def convolved(dtype):
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.SiLU(), nn.GroupNorm(3, 3)
    )
    return module.to(dtype), (torch.randn(2, 2, 6, 6, dtype=dtype),)


MODULES = [normalised, attention, embedded, convolved]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("make", MODULES)
@pytest.mark.parametrize("training", [True, False])
def test_right_modules_are_not_accused(make, dtype, training):
    """Zeros by cancellation, flat losses, tables of which few rows are read."""
    module, inputs = make(dtype)
    module.train(training)
    report = gl.check(module, *inputs, loss=squares, coverage="probe")

    assert report.verdict == gl.Verdict.AGREES


@pytest.mark.parametrize("make", MODULES)
def test_locate_accuses_no_right_module(make):
    """Nor does the search for entries."""
    module, inputs = make(torch.float32)

    assert gl.locate(module, *inputs, loss=squares).ok


@pytest.mark.parametrize("coverage", ["full", "probe"])
def test_round_off_alone_is_no_gradient(coverage):
    """A bias in front of a batch norm, and nothing beside it to compare it with."""
    module, inputs = normalised(torch.float32)
    report = gl.check(module, *inputs, loss=squares, coverage=coverage, wrt="0.bias")

    assert report.verdict == gl.Verdict.AGREES


@pytest.mark.thinned(2)
@pytest.mark.untraced
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("factor", [1.01, 1.1, 0.0, -1.0])
@pytest.mark.parametrize("name", ["0.weight", "0.bias", "2.weight", "2.bias"])
def test_a_slip_in_one_tensor_is_found(name, factor, dtype):
    """One percent, ten percent, dropped, flipped; in tensors of 6 and of 1,600 entries.

    In single precision as in double: the gradients are compared in float64.
    """
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 6)).to(dtype)
    x = torch.randn(9, 40, dtype=dtype)
    planted = Planted(module, name, factor)
    report = gl.check(planted, x, loss=squares, coverage="probe", budget=4000)

    wrong = {
        c.input.name for c in report.comparisons if c.verdict == gl.Verdict.DISAGREES
    }
    assert wrong == {f"module.{name}"}


def test_a_slip_in_a_faint_tensor_is_found():
    """One percent of a gradient that is 1e-4 of another: round-off in float32.

    f = sum(sin x) + 1e-4 sum(cos y), y's gradient 1 % too large in one entry.
    """
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=50).astype(np.float32) for _ in range(2))

    def grad(x, y):
        gy = -y.dtype.type(1e-4) * np.sin(y)
        gy[17] *= 1.01
        return np.cos(x), gy

    def f(x, y):
        return np.sin(x).sum() + y.dtype.type(1e-4) * np.cos(y).sum()

    report = gl.check(f, x, y, grad=grad, coverage="probe")
    found = gl.locate(f, x, y, grad=grad)

    assert report["y"].verdict == gl.Verdict.DISAGREES
    assert report["x"].verdict == gl.Verdict.AGREES
    assert [(e.input, e.index) for e in found.entries] == [("y", (17,))]


def test_a_slip_that_only_single_precision_makes_is_found():
    """The formula is right in float64; in float32 one entry is a third too large."""
    x = np.linspace(0.5, 2.0, 60, dtype=np.float32)

    def grad(x):
        slope = np.cos(x)
        slope[7] *= 4 / 3 if x.dtype == np.float32 else 1
        return slope

    found = gl.locate(lambda x: np.sin(x).sum(), x, grad=grad)

    assert [entry.index for entry in found.entries] == [(7,)]


def test_numbers_that_do_not_follow_are_compared_as_float32():
    """Gradients computed beforehand in float32 are as exact as float32 can be."""
    x = np.linspace(0.1, 3.0, 400, dtype=np.float32)
    slopes = np.cos(x)
    report = gl.check(
        lambda x: np.sin(x).sum(), x, grad=lambda x: slopes, coverage="probe"
    )

    assert report.verdict == gl.Verdict.AGREES


@pytest.mark.parametrize("numbers", [20, 0])
def test_what_round_off_explains_is_replaced_and_nothing_else(monkeypatch, numbers):
    """x**2 in float32: the search sees float64, except where float32 says another.

    With more numbers than scatter is measured of, one input after the other.
    """
    monkeypatch.setattr("gradlab.localisation.searching.precise.MOST_NUMBERS", numbers)
    x = torch.rand(20)
    subject = torch_subject(lambda x: (x**3).sum(), (x,))
    subject.row()
    twin = subject.in_double()
    twin.row()
    precise = Precise.of_twin(subject, twin, (0.5,), seed=0)
    own = subject.analytic.pull(np.ones((1, 1)))
    own.values[0][0, 3] *= 2
    kept = float(own.values[0][0, 3])
    seen = precise.of(own, np.ones((1, 1))).values[0][0]

    exact = 3 * x.double().numpy() ** 2
    others = np.arange(20) != 3
    np.testing.assert_allclose(seen[others], exact[others], rtol=1e-15)
    assert seen[3] == kept
    assert precise.epsilon(0) < 1e-15


def test_the_report_says_that_float64_was_evaluated():
    """Also where nothing was looked at entry by entry."""
    module, inputs = normalised(torch.float32)
    report = gl.check(module, *inputs, loss=squares, coverage="probe")

    told = [f.evidence for f in report.findings if f.kind == "low_precision"]
    assert len(told) == 1
    assert "compared with the same function in float64" in told[0]
