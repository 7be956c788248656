"""Errors that are one number: of a label that is not taken off, or added to zero."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def test_a_label_that_is_not_taken_off(rng):
    """softmax(s) in place of softmax(s) - onehot: no number is added to it."""
    label = 3

    def loss(s):
        return np.log(np.exp(s).sum()) - s[label]

    finding = gl.check(
        loss, rng.normal(size=5), grad=lambda s: np.exp(s) / np.exp(s).sum()
    ).findings[0]

    assert (finding.kind, finding.doubts) == ("missing_term", ("extra_term",))
    assert "s[3] alone is wrong, too large by 1" in finding.evidence


def test_a_number_that_is_added_is_no_label(rng):
    """0.01 is 1/100, and what it is added to holds no probabilities."""

    def grad(s):
        slope = np.exp(s) / np.exp(s).sum() - np.eye(5)[3]
        slope[1] += 0.01
        return slope

    finding = gl.check(
        lambda s: np.log(np.exp(s).sum()) - s[3], rng.normal(size=5), grad=grad
    ).findings[0]

    assert finding.kind == "extra_term"


@pytest.mark.parametrize("added", [np.full(4, 1e-3), 0.1 * np.arange(1.0, 5.0)])
def test_what_is_added_to_a_gradient_of_zero_is_a_term_too_many(added):
    """At a minimum nothing has a factor, and nothing is missing that f shows."""
    report = gl.check(
        lambda x: ((x - 1) ** 2).sum(), np.ones(4), grad=lambda x: 2 * (x - 1) + added
    )

    finding = report.findings[0]
    assert (finding.kind, finding.doubts[0]) == ("extra_term", "missing_term")
    assert "e+" not in finding.evidence


@pytest.mark.parametrize(
    ("slip", "kind"), [(0.1, "extra_term"), (-0.5, "missing_term")]
)
def test_one_number_in_the_slope_of_every_entry(slip, kind, rng):
    """What is added is c times the incoming gradient: a term c x in one side only."""
    x = rng.uniform(1.0, 2.0, size=6)

    report = gl.check(np.exp, x, jac=lambda x: np.diag(np.exp(x) + slip))

    assert report.diagnosis == kind
    assert f"by {abs(slip):g}, the same in all 6" in report.findings[0].evidence


def _dice(p, t):
    return (
        1 - (2 * (p * t).sum((1, 2)) + 1) / (p.sum((1, 2)) + t.sum((1, 2)) + 1)
    ).sum()


@pytest.mark.parametrize("seed", range(3))
def test_half_of_a_quotient_rule(seed):
    """Without the slope of the denominator an image is off by one number."""
    rng = np.random.default_rng(seed)
    p, t = rng.uniform(size=(3, 4, 5)), rng.integers(0, 2, (3, 4, 5)) * 1.0

    def grad(p):
        below = (p.sum((1, 2)) + t.sum((1, 2)) + 1)[:, None, None]
        return -2 * t / below

    report = gl.check(lambda p: _dice(p, t), p, grad=grad)

    assert report.diagnosis == "missing_term"
    assert (
        "one number for all 20 entries along axes 1, 2" in report.findings[0].evidence
    )


def test_a_mixture_whose_deviations_are_not_normalised(rng):
    """Each deviation lacks the weight of its component, the same in both columns."""
    x, means = rng.normal(size=(30, 2)) * 2, rng.normal(size=(3, 2))

    def loss_and_grads(p, missing=0.0):
        z = (x[:, None] - p["mu"]) / np.exp(p["log_s"])
        logs = p["logits"] - 0.5 * (z**2).sum(axis=2) - p["log_s"].sum(axis=1)
        chances = np.exp(logs - np.logaddexp.reduce(logs, axis=1)[:, None])
        shares = np.exp(p["logits"] - np.logaddexp.reduce(p["logits"]))
        pull = chances[..., None] * z / np.exp(p["log_s"])
        loss = np.logaddexp.reduce(p["logits"])
        return loss - np.logaddexp.reduce(logs, axis=1).mean(), {
            "logits": shares - chances.mean(axis=0),
            "mu": -pull.mean(axis=0),
            "log_s": -(chances[..., None] * (z**2 - 1 + missing)).mean(axis=0),
        }

    params = {"logits": rng.normal(size=3), "mu": means, "log_s": 0.2 * means}
    assert gl.check(loss_and_grads, params).ok
    report = gl.check(lambda p: loss_and_grads(p, 1.0), params)

    assert (report.diagnosis, report.culprits) == ("missing_term", ("log_s",))
    assert "one number for all 2 entries along axis 1" in report.findings[0].evidence


def test_a_pair_that_is_counted_once():
    """Of two steps from 1 to 2, d[i, j] -= 1 takes off one: too large by 1."""
    steps = np.array([0, 1, 1, 2, 1]), np.array([1, 2, 2, 1, 0])
    table = np.random.default_rng(2).normal(size=(3, 3))

    def gradient(x):
        powers = np.exp(x)
        grad = 0.7 * powers / powers.sum()
        grad[steps] -= 1
        return grad

    report = gl.check(
        lambda x: 0.7 * np.log(np.exp(x).sum()) - x[steps].sum(), table, grad=gradient
    )

    assert report.diagnosis == "missing_term"
    (told,) = report.findings
    assert "x[1, 2] alone is wrong, too large by 1" in told.evidence
    assert told.doubts == ("extra_term",)


def test_targets_of_rows_that_are_left_out_are_no_sum(rng):
    """The error is one number in each row, and none that a weight moves."""
    z, y = rng.normal(size=(5, 4)), rng.normal(size=5)

    def loss(z):
        return ((z.sum(axis=1) - y) ** 2).sum() + (z**4).sum()

    report = gl.check(
        loss, z, grad=lambda z: 2 * z.sum(axis=1, keepdims=True) + 4 * z**3
    )

    assert report.diagnosis == "missing_term"
    assert "label or a target" in report.findings[0].evidence
