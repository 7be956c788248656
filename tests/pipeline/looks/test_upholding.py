"""Many accusations heard along one line: which are upheld, and which have to wait."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gradlab as gl
from gradlab import Verdict

COUNT = 40


def told(report):
    """The remark that a whole input was upheld at once."""
    return [remark for remark in report.remarks if "all at once" in remark]


def test_a_gradient_that_is_doubled_is_upheld_by_one_ladder():
    """Forty columns, elementwise: fewer evaluations than eight ladders would take."""
    x = np.random.default_rng(0).normal(size=COUNT)

    report = gl.check(np.tanh, x, jac=lambda x: np.diag(2 / np.cosh(x) ** 2))

    assert report.verdict == Verdict.DISAGREES
    assert report.diagnosis == "scale"
    assert told(report)
    assert "x" in told(report)[0]
    assert report.evaluations < 4 * COUNT


def test_slopes_that_differences_truncate_are_heard_one_by_one():
    """At an offset of 1e4 steps are too long for all of f: nobody is wrong."""
    x = 1e4 + np.random.default_rng(3).normal(size=(6, 2))

    def forward(x):
        hat = (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5)
        return hat, (hat, x.var(axis=0))

    def backward(up, cache):
        hat, var = cache
        inner = up - up.mean(axis=0) - hat * (up * hat).mean(axis=0)
        return inner / np.sqrt(var + 1e-5)

    report = gl.check(forward, x, backward=backward)

    assert report.verdict != Verdict.DISAGREES
    assert report.ok


@pytest.mark.parametrize("seed", range(6))
def test_a_right_column_among_doubled_ones_is_not_accused(seed):
    """It is no part of the line; what is right stays right."""
    x = np.random.default_rng(seed).normal(size=COUNT)
    factor = np.full(COUNT, 2.0)
    right = [3, 17, 31]
    factor[right] = 1.0

    report = gl.check(np.sin, x, jac=lambda x: np.diag(factor * np.cos(x)))

    wrong = (report["x0"].verdicts == Verdict.DISAGREES).any(axis=0)
    assert np.flatnonzero(~wrong).tolist() == right


def test_kinks_along_the_line_have_ladders_of_their_own():
    """Where f is not smooth along it, one line says nothing of any column."""
    x = np.zeros(COUNT)

    report = gl.check(
        lambda x: np.abs(x) + np.maximum(0.5 * x, 0),
        x,
        jac=lambda x: np.diag(np.full(len(x), 3.0)),
    )

    assert report.verdict == Verdict.DISAGREES
    assert not told(report)


def test_a_slip_of_half_a_percent_is_not_upheld_in_passing():
    """What may be truncation climbs the ladder column by column."""
    x = np.random.default_rng(1).normal(size=COUNT)

    report = gl.check(np.sin, x, jac=lambda x: np.diag(1.005 * np.cos(x)))

    assert report.verdict == Verdict.DISAGREES
    assert not told(report)


def test_several_inputs_share_one_line():
    """Weight, bias and data of a layer that is wrong throughout: one remark for all."""
    rng = np.random.default_rng(2)
    x, w, b = rng.normal(size=(4, 5)), rng.normal(size=(5, 6)), rng.normal(size=6)

    def forward(x, w, b):
        return x @ w + b, (x, w)

    def backward(up, cache):
        x, w = cache
        return 2 * up @ w.T, 2 * x.T @ up, 2 * up.sum(axis=0)

    report = gl.check(forward, x, w, b, backward=backward)

    assert report.verdict == Verdict.DISAGREES
    assert told(report)
    assert all(name in told(report)[0] for name in ("x", "w", "b"))
    assert {f.kind.value for f in report.findings[:3]} <= {"scale", "accumulated_grad"}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("count", [4, 6, 10, 14, 20])
@pytest.mark.parametrize("seed", range(3))
def test_what_differences_truncate_alike_never_cancels_along_the_line(count, seed):
    """At the minimum of a loss all slopes are 0, and every difference is off alike."""
    x = np.zeros(count)

    report = gl.check(
        lambda x: np.sum((x + x * x) ** 2),
        x,
        grad=lambda x: 2 * (x + x * x) * (1 + 2 * x),
        seed=seed,
    )

    assert report.verdict == Verdict.AGREES
    assert not report.findings


@pytest.mark.parametrize("seed", range(4))
def test_nor_among_several_inputs(seed):
    """Weights and biases that both begin at the minimum."""
    w, b = np.zeros(6), np.zeros(6)

    report = gl.check(
        lambda w, b: np.sum(np.expm1(w) ** 2) + np.sum(np.expm1(b) ** 2),
        w,
        b,
        grad=lambda w, b: (
            2 * np.expm1(w) * np.exp(w),
            2 * np.expm1(b) * np.exp(b),
        ),
        seed=seed,
    )

    assert report.verdict == Verdict.AGREES
    assert not report.findings


def test_what_a_long_line_upholds_is_no_matter_of_last_digits_nor_of_steps():
    """One wrong activation of a deep net: f was followed far along all of them at once.

    Of weights near zero the slip is within a last digit over so short a step as that of
    a difference; each of twelve inputs had thirteen evaluations to see its steps, and
    several were followed for a hundred and seventy.
    """
    rng = np.random.default_rng(5)
    data, widths = rng.normal(size=(8, 10)), [10] * 7 + [2]
    params = {}
    for k, pair in enumerate(itertools.pairwise(widths)):
        params[f"W{k}"] = rng.uniform(-0.3, 0.3, pair)
        params[f"b{k}"] = rng.uniform(-0.3, 0.3, pair[1])
    last = len(widths) - 2

    def loss_and_grads(params):
        hidden = [data]
        for k in range(last + 1):
            out = hidden[-1] @ params[f"W{k}"] + params[f"b{k}"]
            hidden.append(np.tanh(out) if k < last else out)
        error, grads = 2 * hidden[-1] / hidden[-1].size, {}
        for k in range(last, -1, -1):
            grads[f"W{k}"], grads[f"b{k}"] = hidden[k].T @ error, error.sum(axis=0)
            error = (error @ params[f"W{k}"].T) * (1 - hidden[k] ** 2)
            if k == last:
                error = error * (1.2 + 0.1 * hidden[k])
        return np.mean(hidden[-1] ** 2), grads

    report = gl.check(loss_and_grads, params, coverage="full", diagnose=False)

    told = {c.input.name: c.verdict for c in report.comparisons}
    right = {f"W{last}", f"b{last}"}
    assert {name for name, v in told.items() if v == Verdict.AGREES} == right
    count = sum(each.size for each in params.values())
    assert report.evaluations < 2 * count + 250
