"""Laws that derivatives obey whatever the function: linear, chained, in any unit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradlab as gl
from gradlab.comparison.verdict import Verdict

SEEDS = st.integers(0, 2**32 - 1)
POWERS = st.integers(-10, 10)  # of two: by these nothing is rounded
METHODS = ["central", "adaptive", "complex-step"]
BARS = 10.0  # an error bar is an estimate; ten of them are promised to be enough


def smooth(rng, m, n):
    """Return a smooth function of n numbers with m results, as NumPy writes it."""
    weights, shift = rng.normal(size=(m, n)), rng.normal(size=m)
    return lambda x: np.tanh(weights @ x + shift) + np.sin(weights @ x)


def measured(f, x, method):
    """Measure a Jacobian and its bars."""
    jacobian = gl.numeric_jacobian(f, x, method=method)
    return jacobian.value, jacobian.error


@pytest.mark.parametrize("method", METHODS)
@given(seed=SEEDS, a=st.floats(-3, 3), b=st.floats(-3, 3))
def test_differentiation_is_linear(method, seed, a, b):
    """That of a f + b g is a times that of f plus b times that of g."""
    rng = np.random.default_rng(seed)
    f, g, x = smooth(rng, 3, 2), smooth(rng, 3, 2), rng.normal(size=2)

    (one, e1), (two, e2) = measured(f, x, method), measured(g, x, method)
    both, error = measured(lambda x: a * f(x) + b * g(x), x, method)

    bound = BARS * (error + abs(a) * e1 + abs(b) * e2)
    assert (np.abs(both - (a * one + b * two)) <= bound + 1e-13).all()


@pytest.mark.parametrize("method", METHODS)
@given(seed=SEEDS)
def test_chain_rule(method, seed):
    """That of g after f is that of g, at f(x), times that of f."""
    rng = np.random.default_rng(seed)
    f, g, x = smooth(rng, 3, 2), smooth(rng, 2, 3), rng.normal(size=2)

    (inner, e1), (outer, e2) = measured(f, x, method), measured(g, f(x), method)
    whole, error = measured(lambda x: g(f(x)), x, method)

    bound = BARS * (error + np.abs(outer) @ e1 + e2 @ np.abs(inner))
    assert (np.abs(whole - outer @ inner) <= bound + 1e-13).all()


@pytest.mark.parametrize("method", METHODS)
@given(seed=SEEDS)
def test_product_rule(method, seed):
    """That of f g is that of f times g plus f times that of g."""
    rng = np.random.default_rng(seed)
    f, g, x = smooth(rng, 3, 2), smooth(rng, 3, 2), rng.normal(size=2)

    (one, e1), (two, e2) = measured(f, x, method), measured(g, x, method)
    both, error = measured(lambda x: f(x) * g(x), x, method)

    u, v = f(x)[:, None], g(x)[:, None]
    bound = BARS * (error + e1 * np.abs(v) + e2 * np.abs(u))
    assert (np.abs(both - (one * v + u * two)) <= bound + 1e-13).all()


@pytest.mark.parametrize("method", ["central", "adaptive"])
@given(seed=SEEDS, outer=POWERS, inner=POWERS)
def test_units_scale_slopes_and_bars_alike(method, seed, outer, inner):
    """Of c f(d x) at x / d: c d times both, to the bit, for powers of two."""
    rng = np.random.default_rng(seed)
    f, x = smooth(rng, 3, 2), rng.normal(size=2)
    c, d = 2.0**outer, 2.0**inner

    value, error = measured(f, x, method)
    other, bar = measured(lambda x: c * f(d * x), x / d, method)

    assert (other == c * d * value).all()
    assert (bar == c * d * error).all()


def verdicts(f, jac, x):
    """Verdict of every entry."""
    report = gl.check(f, x, jac=jac, coverage="full", diagnose=False)
    return np.asarray(report.comparisons[0].verdicts)


def slipped(rng, m, n):
    """Return a function and its Jacobian, with slips from none to large in it."""
    weights = rng.normal(size=(m, n))
    off = 1 + rng.choice([0.0, 0.0, 1e-10, 1e-3, 0.2, -2.0], (m, n))
    return (
        lambda x: np.sin(weights * x).sum(axis=1),
        lambda x: off * weights * np.cos(weights * x),
        np.abs(off - 1) > 1e-6,
    )


@given(seed=SEEDS)
def test_exactly_the_slips_are_accused(seed):
    """Nothing beside them, whatever stands in the same row and column."""
    rng = np.random.default_rng(seed)
    f, jac, wrong = slipped(rng, 3, 4)
    x = rng.uniform(0.2, 0.6, 4)

    assert ((verdicts(f, jac, x) == Verdict.DISAGREES) == wrong).all()


@given(seed=SEEDS, outer=POWERS, inner=POWERS)
def test_units_of_f_and_x_change_no_verdict(seed, outer, inner):
    """Of c f(d x) at x / d, for powers of two: the same answer in every entry."""
    rng = np.random.default_rng(seed)
    f, jac, _ = slipped(rng, 3, 4)
    x, c, d = rng.uniform(0.2, 0.6, 4), 2.0**outer, 2.0**inner

    there = verdicts(lambda x: c * f(d * x), lambda x: c * d * jac(d * x), x / d)

    assert (there == verdicts(f, jac, x)).all()


@given(seed=SEEDS)
def test_order_of_inputs_and_outputs_changes_no_verdict(seed):
    """Coordinates and outputs in another order have their verdicts in that order."""
    rng = np.random.default_rng(seed)
    f, jac, _ = slipped(rng, 3, 4)
    x, rows, columns = rng.uniform(0.2, 0.6, 4), rng.permutation(3), rng.permutation(4)
    back = np.argsort(columns)

    there = verdicts(
        lambda x: f(x[back])[rows],
        lambda x: jac(x[back])[np.ix_(rows, columns)],
        x[columns],
    )

    assert (there == verdicts(f, jac, x)[np.ix_(rows, columns)]).all()
