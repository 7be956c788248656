"""The last factor of the chain rule: the slope of what an entry is put into."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

X = np.random.default_rng(6).uniform(0, 3, (12, 2))
Y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(7).normal(size=12)
APART = (X[:, None] - X) ** 2


def likelihood(params):
    """Negative log likelihood of a Gaussian process, and its slopes in its scales."""
    lengths, (size, noise) = params[:2], params[2:]
    smooth = size**2 * np.exp(-0.5 * (APART / lengths**2).sum(axis=-1))
    k = smooth + noise**2 * np.eye(12)
    inverse = np.linalg.inv(k)
    a = inverse @ Y
    slopes = [smooth * APART[..., i] / lengths[i] ** 3 for i in range(2)]
    slopes += [2 * smooth / size, 2 * noise * np.eye(12)]
    grad = [0.5 * ((inverse - np.outer(a, a)) * slope).sum() for slope in slopes]
    return 0.5 * Y @ a + 0.5 * np.linalg.slogdet(k)[1], np.array(grad)


@pytest.mark.parametrize(
    ("power", "told"), [(0, "exp(logs) is left out"), (2, "exp(logs) is there twice")]
)
def test_logarithms_of_scales_need_the_slope_of_exp(power, told):
    """With s = exp(t) the slope in t is that in s, times s."""

    def loss_and_grads(p):
        value, grad = likelihood(np.exp(p["logs"]))
        return value, {"logs": grad * np.exp(power * p["logs"])}

    params = {"logs": np.array([0.3, -0.5, 0.2, -1.5])}
    finding = gl.check(loss_and_grads, params).findings[0]

    assert finding.kind == "wrong_derivative"
    assert told in finding.evidence
    assert "chain rule" in finding.advice


@pytest.mark.parametrize(
    ("put", "slope", "told"),
    [
        (lambda u: 2 / (1 + np.exp(-u)), None, "the logistic function of u"),
        (np.log1p, lambda u: 1 / u, "put into first is wrong"),
        (lambda u: np.log1p(np.exp(u)), None, "softplus(u)"),
    ],
)
def test_one_number_that_is_put_into_a_function(put, slope, told):
    """A rate of decay that is kept in bounds: a weight beside it moves both."""
    t, y = np.linspace(0, 1, 9), np.cos(np.arange(9.0))

    def loss_and_grads(p):
        fading = np.exp(-t * put(p["u"]))
        off = p["c"] * fading - y
        grad = (off * p["c"] * -t * fading).sum()
        return 0.5 * off @ off, {
            "u": grad * (1 if slope is None else slope(p["u"])),
            "c": off @ fading,
        }

    params = {"u": np.array(0.7), "c": np.array(1.5)}
    finding = gl.check(loss_and_grads, params).findings[0]

    assert finding.where == "u"
    assert finding.kind == "wrong_derivative"
    assert told in finding.evidence


@pytest.mark.parametrize("slip", [lambda s, x: 1.7 * s, lambda s, x: s + x[0] * x[1]])
def test_a_factor_and_a_term_are_no_slope(rng, slip):
    """One number does not follow an entry; a term follows others too."""
    a = rng.normal(size=(6, 3))

    def loss(x):
        return np.log(np.exp(a @ np.exp(x)).sum())

    def grad(x):
        e = np.exp(a @ np.exp(x))
        return slip(e @ a / e.sum() * np.exp(x), x)

    report = gl.check(loss, rng.normal(size=3), grad=grad)

    assert not report.ok
    assert "nothing else" not in str(report)


@pytest.mark.parametrize(
    ("slip", "told", "advice"),
    [
        (lambda v: 1 / v, "as 1 / p does", "Multiply by p in the line"),
        (lambda v: v**2, "as p**2 does", "Divide by p**2 in the line"),
    ],
)
def test_one_number_of_a_vector_has_no_constant_factor(slip, told, advice):
    """A volume of 4 left out of f / V is a factor of 1/4 at this point alone.

    With f = dose exp(-k t) / V the slope in V is -f / V.
    """
    times = np.linspace(0.5, 6, 9)
    seen = 2 + np.sin(times)

    def loss(p):
        return ((10 * np.exp(-p[0] * times) / p[1] - seen) ** 2).sum()

    def grad(p):
        f = 10 * np.exp(-p[0] * times) / p[1]
        along = f * 2 * (f - seen)
        return np.array([-(times * along).sum(), -along.sum() / p[1] * slip(p[1])])

    finding = gl.check(loss, np.array([0.3, 4.0]), grad=grad).findings[0]

    assert finding.kind == "wrong_derivative"
    assert told in finding.evidence
    assert advice in finding.advice
