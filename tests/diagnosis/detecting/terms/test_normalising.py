"""Terms of a normalisation: each factor that is planted is read off again."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.diagnosis.finding import BugKind
from tests.specimens.activations import softmax


def normalisation(axis, *, mean=1.0, variance=1.0):
    """Batch or layer norm with a gain; its two terms with factors."""

    def forward(x, gain):
        apart = x - x.mean(axis=axis, keepdims=True)
        width = np.sqrt((apart**2).mean(axis=axis, keepdims=True) + 1e-5)
        return gain * apart / width, (apart / width, width, gain)

    def backward(up, cache):
        hat, width, gain = cache
        inner = up * gain
        first = inner.mean(axis=axis, keepdims=True)
        second = hat * (inner * hat).mean(axis=axis, keepdims=True)
        return (inner - mean * first - variance * second) / width, (up * hat).sum(0)

    return forward, backward


def point(axis):
    """Seven samples of five features, their gains, and how many share a mean."""
    rng = np.random.default_rng(11)
    x = 2 * rng.normal(size=(7, 5)) + 1
    return x, rng.uniform(0.5, 2.0, 5), x.shape[axis]


SLIPS = [
    ("variance", lambda n: n / (n - 1), BugKind.MISSING_REDUCTION, "- 1 stands"),
    ("variance", lambda _: 0.0, BugKind.MISSING_TERM, "variance"),
    ("variance", lambda _: -1.0, BugKind.SIGN, "variance"),
    ("variance", lambda n: n, BugKind.MISSING_REDUCTION, "a sum stands"),
    ("variance", lambda _: 0.5, BugKind.WRONG_DERIVATIVE, "0.5"),
    ("mean", lambda n: n, BugKind.MISSING_REDUCTION, "a sum stands"),
    ("mean", lambda _: -1.0, BugKind.SIGN, "mean"),
]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("term", "factor", "kind", "words"), SLIPS)
def test_the_factor_of_a_term_is_read_off(axis, term, factor, kind, words):
    """Whatever the gain is, and along either axis."""
    x, gain, count = point(axis)
    forward, backward = normalisation(axis, **{term: factor(count)})

    finding = gl.check(forward, x, gain, backward=backward).findings[0]

    assert finding.where == "x"
    assert finding.kind == kind
    assert words in finding.evidence
    assert "normalises x along axis" in finding.evidence or kind == BugKind.MISSING_TERM


@pytest.mark.parametrize("axis", [0, 1])
def test_a_right_normalisation_has_no_finding(axis):
    """With both factors at one there is nothing to tell."""
    x, gain, _ = point(axis)
    forward, backward = normalisation(axis)

    assert gl.check(forward, x, gain, backward=backward).findings == ()


def test_another_function_that_sums_to_zero_is_no_normalisation():
    """Softmax does not change when it is shifted, but it does when it is stretched."""
    x = np.random.default_rng(2).normal(size=(4, 5))

    def forward(x):
        out = softmax(x)
        return out, out

    def backward(up, out):
        return out * up

    finding = gl.check(forward, x, backward=backward).findings[0]

    assert finding.kind == BugKind.MISSING_TERM
    assert "normalises" not in finding.evidence


@pytest.mark.parametrize(
    ("slip", "kind"),
    [("no array", BugKind.MISSING_TERM), ("raw", BugKind.STALE_CACHE), ("", None)],
)
def test_a_gain_is_judged_beside_its_shift(slip, kind, rng):
    """A shift that is right vouches for the error signal: it is the array, or none."""
    mixed, target = rng.normal(size=(4, 3)), rng.normal(size=(6, 3))

    def loss_and_grads(p):
        x = p["x"] - p["x"].mean(axis=1, keepdims=True)
        deviation = np.sqrt((x**2).mean(axis=1, keepdims=True))
        h = x / deviation
        left = (p["gamma"] * h + p["beta"]) @ mixed - target
        e = left @ mixed.T
        d = e * p["gamma"]
        d = d - d.mean(axis=1, keepdims=True) - h * (d * h).mean(axis=1, keepdims=True)
        array = {"no array": 1, "raw": p["x"]}.get(slip, h)
        grads = {"gamma": (e * array).sum(axis=0), "beta": e.sum(axis=0)}
        return 0.5 * (left**2).sum(), {"x": d / deviation, **grads}

    shapes = {"x": (6, 4), "gamma": (4,), "beta": (4,)}
    params = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    findings = gl.check(loss_and_grads, params).findings

    assert [(f.kind, f.where) for f in findings] == [(kind, "gamma")][: bool(kind)]


@pytest.mark.parametrize(
    ("mean", "variance", "told"),
    [
        (0, 1, "sums to zero over axes 2 and 3 together"),
        (1, 0, "each block over axes 2 and 3 of x is stretched"),
        (1, 6, "each block over axes 2 and 3 of x is stretched"),
    ],
)
def test_terms_of_an_instance_norm_in_a_loss(rng, mean, variance, told):
    """Each channel of each sample is normalised over its places, by its own moments."""
    x, w, over = *rng.normal(size=(2, 2, 3, 2, 3)), (2, 3)

    def normed(x):
        scale = np.sqrt(x.var(over, keepdims=True) + 1e-5)
        return (x - x.mean(over, keepdims=True)) / scale, scale

    def grad(x):
        h, scale = normed(x)
        along = (w * h).mean(over, keepdims=True)
        return (w - mean * w.mean(over, keepdims=True) - variance * h * along) / scale

    finding = gl.check(lambda x: (w * normed(x)[0]).sum(), x, grad=grad).findings[0]

    assert finding.kind == "missing_term"
    assert told in finding.evidence
