"""A branch, an argmax or a table jumps beside the point, and is no solver for that."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

TABLE = np.array([1.0, 3.0, 2.0, 5.0, 4.0, 1.0])
GATES = np.random.default_rng(5).normal(size=(3, 4))


def _looked_up(x):
    nearest = np.clip(np.rint(2 * x).astype(int) + 2, 0, 5)
    return TABLE[nearest] * np.exp(x)


def _kept(x):
    return np.where(np.abs(x) > 0.5, x, 0)


def _branch(x):
    return x.mean() > 0


def _expert(x):
    return int(np.argmax(GATES @ x))


CASES = {
    "table": (lambda x: _looked_up(x).sum(), _looked_up),
    "threshold": (lambda x: 3 * (_kept(x) ** 2).sum(), lambda x: 6 * _kept(x)),
    "branch": (
        lambda x: (x**3).sum() if _branch(x) else 2 * (x**2).sum() + 1,
        lambda x: 3 * x**2 if _branch(x) else 4 * x,
    ),
    "expert": (
        lambda x: (_expert(x) + 2) * (x**3).sum() + 2,
        lambda x: (_expert(x) + 2) * 3 * x**2,
    ),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CASES)
def test_a_slip_of_three_thousandths_is_told(name, seed):
    f, gradient = CASES[name]
    x = np.random.default_rng(seed).normal(size=4)
    slips = np.ones(4)
    slips[np.argmax(np.abs(gradient(x)))] = 1.003
    report = gl.check(f, x, grad=lambda x: slips * gradient(x))
    assert report.verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CASES)
def test_a_right_one_agrees(name, seed):
    f, gradient = CASES[name]
    x = np.random.default_rng(seed).normal(size=4)
    assert gl.check(f, x, grad=gradient).verdict == gl.Verdict.AGREES


def test_where_a_function_jumps_far_away_a_percent_is_told():
    def f(x):
        return np.where(x < 1.2, np.sin(x), np.sin(x) + 5)

    x = np.array([0.3])
    report = gl.check(f, x, jac=lambda x: np.diag(1.01 * np.cos(x)))
    assert report.verdict == gl.Verdict.DISAGREES
    assert gl.check(f, x, jac=lambda x: np.diag(np.cos(x))).ok
