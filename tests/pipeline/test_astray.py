"""Slight mistakes in front of bars that are coarse: no agreement outside of a bar."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

# Functions that leave their slope three digits, beside the smooth one that they round.
COARSE = {
    "an offset": lambda y: 1e12 + y,
    "steps": lambda y: np.round(y / 1e-4) * 1e-4,
}


def smooth(x):
    return np.array([np.sin(x).sum() + (x**2).sum(), np.exp(0.3 * x).prod()])


def slopes(x):
    return np.array([np.cos(x) + 2 * x, 0.3 * np.exp(0.3 * x).prod() * np.ones(4)])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", COARSE)
def test_what_is_three_thousandths_off_does_not_agree(name, seed):
    """The bar is as wide as the mistake: nobody can tell, and nobody says that it can.

    Before, half of those behind an offset agreed, and nearly all behind steps.
    """
    x = np.random.default_rng(seed).uniform(-1, 1, 4)
    report = gl.check(
        lambda x: COARSE[name](smooth(x)), x, jac=lambda x: 1.003 * slopes(x)
    )
    assert report.verdict != gl.Verdict.AGREES
    assert not any(f.severity == "error" for f in report.findings)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", COARSE)
def test_what_is_right_is_not_accused(name, seed):
    x = np.random.default_rng(seed).uniform(-1, 1, 4)
    report = gl.check(lambda x: COARSE[name](smooth(x)), x, jac=slopes)
    assert report.verdict != gl.Verdict.DISAGREES
    assert report.ok
