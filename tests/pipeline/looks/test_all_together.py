"""Inputs of which no entry is told by itself move f together, or do not move it.

The truth is algebra: the derivative of each term by itself.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import gradlab as gl


def faint(size):
    """A sine of so little size on top of one."""
    return (
        lambda x: size * np.sin(x).sum() + 1,
        lambda x: size * np.cos(x),
        0.0,
    )


ALONE = {  # f, its gradient, how far from zero
    "1e-10": faint(1e-10),
    "1e-11": faint(1e-11),
    "1e-12": faint(1e-12),
    "sigmoid": (
        lambda x: (1 / (1 + np.exp(-x))).sum(),
        lambda x: np.exp(-x) / (1 + np.exp(-x)) ** 2,
        25.0,
    ),
    "tail": (lambda x: np.exp(-25 - x).sum() + 1, lambda x: -np.exp(-25 - x), 0.0),
}
SLIPS = {
    "zero": lambda g: 0 * g,
    "sign": lambda g: -g,
    "twice": lambda g: 2 * g,
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("name", ALONE)
def test_a_gradient_of_hardly_any_size_is_told(name, coverage, seed):
    """f moves by a few thousand of its roundings, over steps that are long enough."""
    f, slope, far = ALONE[name]
    x = np.random.default_rng(seed).normal(size=12) + far

    right = gl.check(f, x, grad=slope, coverage=coverage)
    wrong = {
        slip: gl.check(f, x, grad=lambda x, of=of: of(slope(x)), coverage=coverage)
        for slip, of in SLIPS.items()
    }

    assert right.verdict == gl.Verdict.AGREES
    assert {slip: r.verdict.name for slip, r in wrong.items()} == dict.fromkeys(
        SLIPS, "DISAGREES"
    )


BESIDE = {  # f of two inputs, and both gradients
    "a sum": (
        lambda a, b: 1e3 * np.sin(a).sum() + 1e-9 * np.sin(b).sum(),
        lambda a, b: 1e3 * np.cos(a),
        lambda a, b: 1e-9 * np.cos(b),
    ),
    "a product": (
        lambda a, b: np.sin(a).sum() * (2 + 1e-11 * np.sin(b).sum()),
        lambda a, b: np.cos(a) * (2 + 1e-11 * np.sin(b).sum()),
        lambda a, b: 1e-11 * np.sin(a).sum() * np.cos(b),
    ),
}


@pytest.mark.parametrize("slip", [*SLIPS, "none"])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", BESIDE)
def test_nor_is_it_forgiven_beside_an_input_of_great_influence(name, seed, slip):
    """A few thousand roundings of what the other does are no roundings of this one."""
    f, first, second = BESIDE[name]
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=12), rng.normal(size=12) + 0.3
    of = SLIPS.get(slip, lambda g: g)

    report = gl.check(f, a, b, grad=lambda a, b: (first(a, b), of(second(a, b))))

    assert report.verdict.name == ("AGREES" if slip == "none" else "DISAGREES")
    assert report.culprits == (() if slip == "none" else ("b",))


def test_an_error_of_a_percent_is_told_where_bars_are_narrow():
    """1e-12 is 4,500 roundings of one, and two hundred and fifty bars."""
    f, slope, _ = faint(1e-10)
    x = np.random.default_rng(0).normal(size=12)

    report = gl.check(f, x, grad=lambda x: 1.01 * slope(x))

    assert report.verdict == gl.Verdict.DISAGREES


def test_what_only_adds_up_is_left_open():
    """Each of a hundred slopes moves f by four hundred roundings; all by more."""

    def f(x):
        return 1 + 1e-13 * np.sin(x).sum()

    x = np.random.default_rng(0).normal(size=100)

    report = gl.check(f, x, grad=np.zeros_like, coverage="full")

    assert report.verdict == gl.Verdict.UNDECIDED


# ------------------------------------------------ zeros stay cheap, and right
def rows(seed):
    """A table of a hundred thousand rows."""
    return np.random.default_rng(seed).normal(size=(100_000, 3))


def shifted(table):
    """Squares about the mean: what is added to all of them changes nothing."""
    inner = table - table.mean(axis=0)

    def f(w, b):
        out = table @ w + b
        return ((out - out.mean()) ** 2).sum()

    return f, lambda w, b: (2 * inner.T @ (inner @ w), 0 * b)


@pytest.mark.parametrize("seed", range(4))
def test_noise_of_a_large_sum_is_no_slope(seed):
    """A bias that is taken off again moves 1e5 terms by their roundings."""
    f, grad = shifted(rows(seed))
    w, b = np.array([0.3, -0.2, 1.0]), np.array([0.7])

    report = gl.check(f, w, b, grad=grad)

    assert report.verdict == gl.Verdict.AGREES
    assert report.evaluations < 75


IDLE = {  # of v, beside a sine of w
    "unused": lambda v: 0.0 * v.sum(),
    "asleep": lambda v: np.maximum(v - 9, 0).sum(),
    "about to wake up": lambda v: np.maximum(v - 1.02 * V, 0).sum(),
    "at a minimum": lambda v: ((v - V) ** 2).sum(),
    "at a minimum of a cubic": lambda v: ((v - V) ** 2 + (v - V) ** 3).sum(),
    "of one length": lambda v: float(np.linalg.norm(v / np.linalg.norm(v))),
    "shifted back": lambda v: float(np.ptp((V + v[0]) - v[0])),
}
V = np.array([1.3, 0.4, 2.1, 0.9])


@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("name", IDLE)
def test_gradients_that_are_zero_agree(name, coverage):
    """Whatever the reason: no slope, no accusation, and few evaluations."""
    w = np.array([0.2, -1.1, 0.7])

    report = gl.check(
        lambda w, v: np.sin(w).sum() + IDLE[name](v),
        w,
        V.copy(),
        grad=lambda w, v: (np.cos(w), 0 * v),
        coverage=coverage,
    )

    assert report.verdict == gl.Verdict.AGREES
    assert report.evaluations < 160


class Normalised(nn.Module):
    """Biases in front of a batch normalisation, and units that are asleep."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.second = nn.Linear(6, 5)
        self.asleep = nn.Linear(4, 3)
        with torch.no_grad():
            self.asleep.bias -= 50

    def forward(self, x):
        """Add both branches."""
        out = self.second(self.norm(self.first(x)).tanh())
        return out.sum(dim=1) + self.asleep(x).relu().sum(dim=1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("seed", range(3))
def test_biases_before_a_normalisation_agree(seed, coverage, dtype):
    """What is taken off again is rounding on both sides."""
    torch.manual_seed(seed)
    model, x = Normalised().to(dtype), torch.randn(8, 4, dtype=dtype)

    report = gl.check(model, x, loss=lambda o: o.square().sum(), coverage=coverage)

    assert report.verdict == gl.Verdict.AGREES
