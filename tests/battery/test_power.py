"""`report.power` is true: errors above it are caught, and nothing clean is flagged."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

import gradlab as gl
from gradlab import Verdict
from tests.sizes import drawn

pytestmark = [pytest.mark.slow, pytest.mark.untraced]

A = np.random.default_rng(5).normal(size=(9, 6))
# name: function, gradient, point
SUBJECTS = {
    "sine": (lambda x: np.sin(x).sum(), np.cos, 1.0),
    "exponential": (lambda x: np.exp(x).sum(), np.exp, 1.0),
    "offset 1e6": (lambda x: 1e6 + np.sin(x).sum(), np.cos, 1.0),
    "offset 1e11": (lambda x: 1e11 + np.sin(x).sum(), np.cos, 1.0),
    "tiny scale": (lambda x: 1e-9 * np.sin(x).sum(), lambda x: 1e-9 * np.cos(x), 1.0),
    "large inputs": (lambda x: np.tanh(x / 1e6).sum(),
                     lambda x: (1 - np.tanh(x / 1e6) ** 2) / 1e6, 1e6),
    "oscillating": (lambda x: np.sin(200 * x).sum(),
                    lambda x: 200 * np.cos(200 * x), 1.0),
    "logistic": (lambda x: np.logaddexp(0, A @ x).sum(),
                 lambda x: A.T @ special.expit(A @ x), 1.0),
    "quartic": (lambda x: (x**4).sum(), lambda x: 4 * x**3, 1.0),
    "relu": (lambda x: np.maximum(A @ x, 0).sum(),
             lambda x: A.T @ (A @ x > 0).astype(float), 1.0),
    "rounded": (lambda x: np.round(np.sin(x).sum(), 9), np.cos, 1.0),
    "single inside": (lambda x: float(np.cos(x.astype("f4")).sum()),
                      lambda x: -np.sin(x), 1.0),
}  # fmt: skip
SEEDS = drawn(3, 5)
ABOVE, BELOW = (1.05, 2.0, 10.0), (0.01, 0.1)


def verdict(name, x, position=None, error=0.0):
    """Verdict and power of one subject, with `error` added to one gradient entry."""
    fn, grad, _ = SUBJECTS[name]

    def wrong(x):
        values = grad(x).copy()
        if position is not None:
            values[position] += error
        return values

    report = gl.check(fn, x, grad=wrong, diagnose=False)
    return report.verdict, report.power["x"]


def trials():
    """For each subject and seed: clean, then single errors above and below power."""
    clean, above, below = {}, {}, {}
    for name, (*_, scale) in SUBJECTS.items():
        for seed in range(SEEDS):
            rng = np.random.default_rng([7, seed])
            x = scale * rng.normal(size=6)
            found, power = verdict(name, x)
            clean[name, seed] = found
            if not np.isfinite(power):  # undecided: no error is promised to be caught
                continue
            for factor in ABOVE:
                i, sign = int(rng.integers(6)), rng.choice([-1, 1])
                above[name, seed, factor] = verdict(name, x, i, sign * factor * power)[
                    0
                ]
            for factor in BELOW:
                i = int(rng.integers(6))
                below[name, seed, factor] = verdict(name, x, i, factor * power)[0]
    print(f"\n{len(above)} errors above the power, {len(below)} below")
    return clean, above, below


@pytest.mark.slow
def test_power_is_true():
    """No clean gradient is flagged, 99 % of errors above the stated power are.

    And it is no boast: most errors of a hundredth of it pass.
    """
    clean, above, below = trials()
    missed = [k for k, v in above.items() if v != Verdict.DISAGREES]
    tiny = [v for (_, _, factor), v in below.items() if factor == min(BELOW)]

    assert [k for k, v in clean.items() if v == Verdict.DISAGREES] == []
    assert len(above) > 20 * SEEDS
    assert len(missed) <= 0.01 * len(above), missed
    assert np.mean([v != Verdict.DISAGREES for v in tiny]) > 0.5


def test_power_is_finite_and_positive():
    """Every block of a report states its power."""
    report = gl.check(lambda x: np.sin(x).sum(), np.ones(3), grad=np.cos)

    assert set(report.power) == {"x"}
    assert 0 < report.power["x"] < 1e-5
