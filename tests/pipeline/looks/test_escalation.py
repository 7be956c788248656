"""Second looks: what a careful ladder may overrule, and what it must leave open."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import Verdict


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("method", ["forward", "backward", "central"])
def test_zeros_off_the_diagonal_do_not_stay_open(method, seed):
    """An elementwise sine has zeros that a forward difference alone cannot settle."""
    x = np.random.default_rng(seed).normal(size=6)

    report = gl.check(np.sin, x, jac=lambda x: np.diag(np.cos(x)), method=method)

    assert report.verdict == Verdict.AGREES


@pytest.mark.parametrize("method", ["forward", "backward", "central"])
def test_one_percent_shows_with_every_method(method):
    """Nor is a slip excused because some other entry was settled by the ladder."""
    x = np.random.default_rng(1).normal(size=6)

    report = gl.check(np.sin, x, jac=lambda x: np.diag(1.01 * np.cos(x)), method=method)

    assert report.verdict == Verdict.DISAGREES


def test_large_constant_hides_no_wrong_sign():
    """At 1e13 a slope of one moves f by 500 last digits at a step of one: enough."""

    def f(x):
        return 1e13 + np.abs(x).sum()

    x = np.array([0.4, 1.0, -2.0])

    assert gl.check(f, x, grad=lambda x: -np.sign(x)).verdict == Verdict.DISAGREES
    assert gl.check(f, x, grad=np.sign).verdict != Verdict.DISAGREES


@pytest.mark.parametrize("constant", [1e10, 1e12, 1e13, 1e14])
@pytest.mark.parametrize("distance", [1e-9, 1e-3, 0.3])
def test_kinks_under_a_large_constant_accuse_nobody(constant, distance):
    """Two slopes within reach of the only steps that show anything: no verdict."""
    x = np.array([distance, 1.0, -2.0])

    report = gl.check(lambda x: constant + np.abs(x).sum(), x, grad=np.sign)

    assert report.verdict != Verdict.DISAGREES


@pytest.mark.untraced
@pytest.mark.parametrize("distance", 10.0 ** np.arange(-12, -4))
@pytest.mark.parametrize("edge", [0.0, 1.0, -3.0])
def test_kinks_close_by_are_not_noise(distance, edge):
    """A ReLU whose edge is a trillionth away has a slope, and a wrong one is found."""
    x = np.array([edge + distance, edge + 1.2, edge - 2.0])

    def f(x):
        return np.maximum(x, edge).sum()

    right = gl.check(f, x, grad=lambda x: 1.0 * (x >= edge))
    wrong = gl.check(f, x, grad=lambda x: 1.2 * (x >= edge), diagnose=False)

    assert right.verdict == Verdict.AGREES
    assert wrong.verdict == Verdict.DISAGREES


@pytest.mark.parametrize("slip", [1.0, 2.0])
def test_step_too_long_for_a_hundred_entries_accuses_the_wrong_one_only(slip):
    """A chosen step of half a period is off everywhere; the ladder clears all of it."""

    def grad(x):
        slope = 9 * np.cos(9 * x)
        slope[77] *= slip
        return slope

    report = gl.check(
        lambda x: np.sin(9 * x).sum(),
        np.linspace(0.3, 1.4, 120),
        grad=grad,
        method=gl.Central(step=0.5),
        coverage="full",
    )

    wrong = report["x"].verdicts[0] == Verdict.DISAGREES
    assert np.flatnonzero(wrong).tolist() == ([] if slip == 1 else [77])


def test_an_attention_that_has_made_up_its_mind_is_settled_together():
    """Slopes of 1e-30 move nothing; four evaluations say so for all twelve queries."""
    rng = np.random.default_rng(4)
    queries = 40 + rng.normal(size=12)
    keys, values = np.array([1.0, -1.0]), np.array([2.0, 3.0])

    def attention(q):
        scores = q[:, None] * keys
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return float((weights @ values / weights.sum(axis=1)).sum())

    def slopes(q):
        return 2 * (values[0] - values[1]) * np.exp(-2 * q)

    report = gl.check(attention, queries, grad=slopes)

    assert report.verdict == gl.Verdict.AGREES
    assert (np.abs(slopes(queries)) > 0).all()
    assert report.evaluations < 5 * len(queries)
    wrong = gl.check(attention, queries, grad=lambda q: slopes(q) + 1e-6)
    assert wrong.verdict == gl.Verdict.DISAGREES


def test_clear_mistakes_are_not_measured_again_for_noise():
    """Outputs small by cancellation are noisy: a factor of two shows all the same."""
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((16, 12)), rng.standard_normal((12, 10))

    def jac(x, w):
        left = np.einsum("bc,de->bedc", np.eye(len(x)), w)  # d (x w)_be / d x_cd
        right = np.einsum("bd,ef->bedf", x, np.eye(w.shape[1]))
        return 2 * left.transpose(0, 1, 3, 2), 2 * right

    report = gl.check(np.matmul, x, w, jac=jac, coverage="full", diagnose=False)

    assert report.verdict == gl.Verdict.DISAGREES
    # two for each of 312 coordinates, and as many again, would be the noise
    assert report.evaluations < 2 * (x.size + w.size)


@pytest.mark.parametrize("seed", range(2))
def test_few_looks_among_dense_kinks(seed):
    """Where kinks leave some looks open, the others still speak for a wrong input."""
    rng = np.random.default_rng(seed)
    weights, offsets = rng.normal(size=(20_000, 200)), 3 * rng.normal(size=20_000)
    signs, x = rng.normal(size=20_000), rng.normal(size=200)

    def value(x):
        return signs @ np.maximum(weights @ x + offsets, 0.0)

    def gradient(x, threshold):
        return weights.T @ (signs * (weights @ x + offsets > threshold))

    wrong = gl.check(value, x, grad=lambda x: gradient(x, 1.0), diagnose=False)
    right = gl.check(value, x, grad=lambda x: gradient(x, 0.0), diagnose=False)

    assert (wrong.verdict.name, right.verdict.name) == ("DISAGREES", "AGREES")
    assert wrong.evaluations < 1_000  # 400 differences, and eight ladders or so
    assert np.mean(wrong["x"].verdicts == gl.Verdict.DISAGREES) > 0.95


def test_a_backward_that_raises_costs_no_second_looks():
    """Where there is nothing to compare, one difference of each coordinate will do."""

    def fails(W):
        raise KeyError("cache")

    W = np.random.default_rng(0).standard_normal((20, 20))
    report = gl.check(lambda W: float(np.tanh(W).sum()), W, grad=fails)
    assert report.verdict.name == "DISAGREES"
    assert report.evaluations < 3 * W.size
    (finding,) = report.findings
    assert finding.evidence.startswith("The grad raised KeyError: 'cache' (test_esc")
