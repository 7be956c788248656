"""Backwards that are right for the cotangents of a Jacobian and for no others."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import Verdict
from tests.specimens.functions import with_output

torch = pytest.importorskip("torch")

# what each makes of the incoming gradient: itself, for a one among zeros
FLAWS = {
    "sign lost": abs,
    "cut off": lambda g: g.clip(-1, 1),
    "normalised": lambda g: g / ((g * g).sum() ** 0.5 + 1e-30),
    "neighbours multiplied": lambda g: g + 0.2 * g * (g.sum() - g),
    "enlarged where none is zero": lambda g: g * (1.1 if (g != 0).all() else 1.0),
    "largest alone": lambda g: g * (abs(g) == abs(g).max()),
}
X = np.random.default_rng(3).normal(size=6)
COVERAGES = ("full", "sample", "probe")


def by_numpy(change):
    def forward(x):
        return np.tanh(x), np.tanh(x)

    def backward(upstream, kept):
        return change(upstream) * (1 - kept**2)

    return (forward, X), {"backward": backward}


def by_torch(change):
    tanh = with_output(
        lambda x: x.tanh(), lambda y, upstream: change(upstream) * (1 - y**2)
    )

    return (tanh, torch.tensor(X)), {}


@pytest.mark.parametrize("coverage", COVERAGES)
@pytest.mark.parametrize("made", [by_numpy, by_torch])
@pytest.mark.parametrize("flaw", FLAWS)
def test_a_backward_that_is_no_linear_map_is_wrong(made, flaw, coverage):
    """Every row of its Jacobian is right, and what training sends comes back wrong."""
    inputs, options = made(FLAWS[flaw])

    report = gl.check(*inputs, **options, coverage=coverage)

    assert report.verdict == Verdict.DISAGREES
    kind = "surrogate" if flaw == "normalised" else "ignores_upstream"
    assert [str(f.kind) for f in report.findings if f.severity == "error"] == [kind]


@pytest.mark.parametrize("coverage", COVERAGES)
@pytest.mark.parametrize("made", [by_numpy, by_torch])
def test_one_that_is_a_linear_map_is_right(made, coverage):
    """The same programs with the incoming gradient as it comes."""
    inputs, options = made(lambda g: g)

    report = gl.check(*inputs, **options, coverage=coverage)

    assert report.verdict == Verdict.AGREES
    assert not report.findings


@pytest.mark.parametrize("made", [by_numpy, by_torch])
def test_who_asks_for_no_cause_hears_of_it(made):
    """A verdict does not depend on whether causes are looked for."""
    inputs, options = made(FLAWS["cut off"])

    report = gl.check(*inputs, **options, diagnose=False)

    assert report.verdict == Verdict.DISAGREES


def test_half_of_the_digits_of_what_comes_in():
    """A cotangent cast to bfloat16 is exact for a one, and 0.4 % off in training."""
    inputs, options = by_torch(lambda g: g.bfloat16().to(g.dtype))

    assert gl.check(*inputs, **options).verdict == Verdict.DISAGREES


def test_a_loss_with_its_gradient_is_asked_for_nothing_else():
    """What a NumPy loss returns beside its value has no use for a cotangent."""

    def backward(upstream, kept):
        return 2 * kept

    report = gl.check(lambda x: ((x**2).sum(), x), X, backward=backward)

    assert report.verdict == Verdict.AGREES
    assert [f.severity for f in report.findings] == ["warning"]


@pytest.mark.parametrize("tolerance", [1e-4, 1e-6])
def test_an_adjoint_that_stops_early_is_as_linear_as_it_is_solved(tolerance):
    """Conjugate gradients answer a sum otherwise than its parts, within tolerance."""
    rng = np.random.default_rng(5)
    root = rng.normal(size=(8, 8))
    matrix = root @ root.T + 8 * np.eye(8)

    def solved(b):
        x, r = np.zeros(8), b.copy()
        p, limit = r.copy(), tolerance * np.linalg.norm(b)
        while np.linalg.norm(r) > limit:
            step = (r @ r) / (p @ matrix @ p)
            x, new = x + step * p, r - step * matrix @ p
            p, r = new + (new @ new) / (r @ r) * p, new
        return x

    report = gl.check(
        lambda b: np.linalg.solve(matrix, b),
        rng.normal(size=8),
        vjp=lambda upstream, b: solved(upstream),
        rtol=1e-2,
        atol=1e-3,
    )

    assert report.verdict == Verdict.AGREES


@pytest.mark.parametrize("coverage", COVERAGES)
def test_what_float32_leaves_of_zero_is_no_map_of_anything(coverage):
    """A bias that a normalisation takes away has a gradient of rounding alone."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 2)
    )

    report = gl.check(net, torch.randn(7, 4), coverage=coverage)

    assert report.ok
