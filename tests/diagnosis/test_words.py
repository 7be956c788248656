"""Where and what in words: places, ratios, advice."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.diagnosis.measuring.places import index_words


def evidence_of(mask, rng, shape=(8, 6)):
    """First sentence about a quadratic whose gradient is tripled where `mask` says."""
    x = rng.normal(size=shape)
    wrong = np.zeros(shape, bool)
    wrong[mask] = True
    report = gl.check(
        lambda W: (W**2).sum(), x, grad=lambda W: 2 * W * np.where(wrong, 3.7, 1)
    )
    return report.findings[0].evidence


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (np.s_[[3, 7]], "only in rows 3 and 7 of W"),
        (np.s_[:, ::2], "only in every second column from 0 of W"),
        (np.s_[-1], "only in the last row (7) of W"),
        (np.s_[2:5], "only in rows 2 to 4 of W"),
        (np.s_[4, 2], "W[4, 2] alone is wrong"),
        (np.s_[:], "in all 48 entries"),
        (([1, 5], [2, 0]), "only in W[1, 2] and W[5, 0]"),
        (np.s_[[0, 7], :], "only in rows 0 and 7 of W"),
    ],
)
def test_place(mask, words, rng):
    """Rows, strides, ends, ranges and single entries are called by their name."""
    assert words in evidence_of(mask, rng)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (np.triu(np.ones((6, 6)), 1), "only above the diagonal of W"),
        (np.tril(np.ones((6, 6))), "only on and below the diagonal of W"),
        (1 - np.eye(6), "only off the diagonal of W"),
        (np.eye(6), "on the diagonal of W"),
        (np.pad(np.zeros((4, 4)), 1, constant_values=1), "on the border of W"),
    ],
)
def test_pattern(mask, words, rng):
    """Triangles, diagonals and borders of a matrix have names."""
    assert words in evidence_of(mask.astype(bool), rng, (6, 6))


@pytest.mark.parametrize(
    ("step", "ordinal"), [(3, "third"), (11, "11th"), (21, "21st"), (22, "22nd")]
)
def test_ordinals(step, ordinal):
    """What comes again and again is counted as people count."""
    rows = np.arange(0, 3 * step + 1, step)
    assert index_words(rows, 3 * step + 1, "row") == f"every {ordinal} row from 0"


def test_channel_of_images(rng):
    """Axes of images and of kernels are called samples, channels and kernel rows."""
    x, w = rng.normal(size=(2, 3, 4, 5)), rng.normal(size=(6, 3, 3, 3))

    def loss(x, w):
        return (x**2).sum() + (w**2).sum()

    def grad(x, w):
        dx, dw = 2 * x, 2 * w
        dx[:, 1] *= 3.7
        dw[:, :, 0] *= 3.7
        return dx, dw

    report = gl.check(loss, x, w, grad=grad)

    told = {finding.where: finding.evidence for finding in report.findings[::-1]}
    assert "the first kernel row (0) of w" in told["w"]
    assert "only in channel 1 of x" in told["x"]


def test_all_of_a_short_input_is_no_only():
    """All four slopes are wrong: "only in x[0], x[1], x[2] and x[3]" is no news."""
    x = np.array([0.5, 1.0, -2.0, 4.0])
    report = gl.check(np.sin, x, jac=lambda x: 2 * np.diag(np.cos(x)))

    (told,) = {f.evidence for f in report.findings if f.kind == "scale"}
    assert "wherever it is not zero (4 of 16 entries)" in told
    assert "only" not in told


def test_no_slope_is_minus_zero():
    """The slope of the ReLU to the left of zero is 0."""
    x = np.array([-1.0, 0.0, 2.0])
    report = gl.check(lambda x: np.maximum(x, 0).sum(), x, grad=lambda x: 1.0 * (x > 0))

    (note,) = report.findings
    assert "slope 0 to the left, 1 to the right" in note.evidence


def test_ratio_is_told(rng):
    """The measured factor stands in the sentence."""
    assert "3.7" in evidence_of(np.s_[:], rng)


@pytest.mark.parametrize("diagnose", [True, False])
def test_unknown_without_explanation(diagnose, rng):
    """Without diagnosis the honest answer is "unknown", with the worst entry."""
    x = rng.normal(size=5)

    report = gl.check(
        lambda x: (x**2).sum(), x, grad=lambda x: 4 * x, diagnose=diagnose
    )

    assert report.diagnosis == ("scale" if diagnose else "unknown")
    assert not report.ok


def test_budget_bounds_diagnosis(rng):
    """Diagnosis spends no more than a few hundred evaluations on a small network."""
    x, w = rng.normal(size=(5, 4)), rng.normal(size=(4, 4))

    def loss(w, b):
        h = np.tanh(x @ w + b)
        return (h**2).sum(), (x.T @ h, h.sum(0))

    plain = gl.check(loss, w, np.ones(4), diagnose=False)
    full = gl.check(loss, w, np.ones(4))

    assert not full.ok
    assert full.evaluations - plain.evaluations < 250


def test_shape_of_a_jacobian_is_not_read_as_that_of_a_gradient():
    """A 5 x 3 Jacobian where 4 x 3 belongs is no gradient that was not summed."""
    report = gl.check(
        lambda x: np.append(x, x.sum()), np.ones(3), jac=lambda x: np.ones((5, 3))
    )

    kinds = [finding.kind for finding in report.findings]
    assert kinds == ["wrong_shape"]
    assert "has shape (5, 3), expected (4, 3)." in report.findings[0].evidence


def test_a_whole_factor_is_told_of_all_that_is_not_zero(rng):
    """Rows that no index names are zero: a factor is not "only" in the others."""
    index = np.array([3, 1, 1, 0])

    def backward(up, cache):
        grad = np.zeros((5, 2))
        np.add.at(grad, index, 3.7 * up)
        return grad

    report = gl.check(
        lambda w: (w[index], None), rng.normal(size=(5, 2)), backward=backward
    )

    told = report.findings[0].evidence
    assert told == "analytic = 3.7 x numeric wherever it is not zero (8 of 80 entries)."


def test_what_nothing_explains_is_told_by_its_length(rng):
    """A part across the gradient has no length along it, and no rank worth telling."""
    x, y = rng.normal(size=(2, 9, 4))
    across = rng.normal(size=(4, 4))

    def loss(w):
        return 0.5 * ((np.sin(x @ w) - y) ** 2).sum()

    def right(w):
        return x.T @ ((np.sin(x @ w) - y) * np.cos(x @ w))

    def grad(w):
        true = right(w)
        return true + across - true * (across * true).sum() / (true**2).sum()

    told = gl.check(loss, rng.normal(size=(4, 4)), grad=grad).findings[0].evidence

    assert "the right length; the error is at right angles to it." in told
    assert "rank" not in told


def test_what_nothing_explains_in_one_entry_is_told_as_a_ratio():
    """One number has no length along a gradient: 8 sin 2 for 12 is 0.61 of it."""
    report = gl.check(lambda x: x**3, 2.0, grad=lambda x: 8 * np.sin(x))
    told = report.findings[0].evidence

    assert "The analytic value is 0.61 times the numeric one." in told
    assert "length" not in told


def test_one_entry_of_several_parameters_may_have_a_formula_of_its_own(rng):
    """sigma is the last of a vector: |r|**2 / sigma**2 of its slope lacks a square.

    That is another factor at every point, and follows the other entries.
    """
    x, y = rng.normal(size=(9, 4)), rng.normal(size=9)

    def loss(w):
        return 9 * w[4] + ((y - x @ w[:4]) ** 2).sum() / w[4]

    def grad(w):
        r = y - x @ w[:4]
        return np.append(-2 * x.T @ r / w[4], 9 - (r @ r) / w[4])

    report = gl.check(loss, np.append(rng.normal(size=4), 1.3), grad=grad)
    finding = report.findings[0]

    assert "w[4] alone is wrong" in finding.evidence
    assert "several parameters are in one vector" in finding.advice


def test_a_name_is_not_said_twice(rng):
    """Heading and evidence of a backward that ignores what comes in: one sentence."""
    x = rng.normal(size=4)

    def backward(up, cache):
        return np.cos(cache) * np.ones_like(up)

    (found,) = gl.check(lambda x: (np.sin(x), x), x, backward=backward).findings

    assert found.kind == "ignores_upstream"
    assert found.evidence.startswith("All 4 rows of the analytic Jacobian of x are")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "in all 5,000 entries."),
        ({"coverage": "sample"}, "in all 64 entries that were looked at."),
        ({"coverage": "probe"}, "entries that were looked at."),
    ],
)
def test_all_entries_are_all_or_those_looked_at(options, words):
    """A factor of two is in 5,000 entries; a sample shows it in 64 of them."""
    x = np.linspace(0.1, 1.0, 5000)
    report = gl.check(
        lambda x: np.sin(x).sum(), x, grad=lambda x: 2 * np.cos(x), **options
    )
    assert report.findings[0].evidence.endswith(words)


def test_one_entry_that_was_looked_at_is_not_the_only_one():
    """A budget of 300 leaves one of 5,000 entries; every second of them is wrong."""
    x = np.linspace(0.1, 1.0, 5000)
    slip = np.where(np.arange(5000) % 2, 3.0, 1.0)
    report = gl.check(
        lambda x: np.sin(x).sum(), x, grad=lambda x: slip * np.cos(x), budget=300
    )
    assert "only" not in report.findings[0].evidence


def test_what_was_looked_at_is_said_once_for_all():
    """Of two inputs with one factor, one is seen as a whole and one in part."""
    x, b = np.linspace(0.1, 1.0, 5000), np.ones(3)
    report = gl.check(
        lambda x, b: np.sin(x).sum() + np.sin(b).sum(),
        x,
        b,
        grad=lambda x, b: (2 * np.cos(x), 2 * np.cos(b)),
        coverage="sample",
    )
    told = str(report)
    assert "x, b: scale" in told or "b, x: scale" in told
    assert "numeric in all entries that were looked at." in told


def test_little_beside_large_entries_is_no_little_of_its_own():
    """2 % of an entry are 1e-7 of a gradient whose first entry is 1e5 times it."""
    scales = np.array([1e5, 2.0, 1.0])
    report = gl.check(
        lambda x: float(scales @ np.sin(x)),
        np.array([0.4, 0.8, 1.1]),
        grad=lambda x: scales * np.cos(x) * [1.0, 1.0, 1.02],
    )

    (told,) = report.findings
    assert "1.02" in told.evidence
    assert "right but for" not in told.evidence
    assert "tolerance" not in told.advice


def test_one_entry_of_a_jacobian_is_named_with_its_output(rng):
    """Formulas spoil more than one; the smallest is off by a third."""
    matrix = rng.uniform(1, 2, size=(5, 4))
    slip = np.ones((5, 4))
    slip[3, 2] = 1.3719
    report = gl.check(
        lambda x: matrix @ x, np.ones(4), jac=lambda x: matrix * slip, names=["x"]
    )

    told = report.findings[0].evidence
    assert told.startswith(("analytic = 1.3719", "out[3] / x[2] alone is wrong"))


def test_what_is_off_by_little_is_told_with_what_is_off_by_much(rng):
    """It has no tolerance to be made smaller where the same mistake may spoil it."""
    slips = {"a": 0.3 * rng.normal(size=5), "b": 3e-5 * rng.normal(size=5)}
    params = {name: rng.uniform(0.5, 1.5, size=5) for name in slips}

    matrix = rng.normal(size=(6, 5))

    def loss_and_grads(p):
        inner = matrix @ (p["a"] * p["b"])
        signal, size = matrix.T @ np.cos(inner), np.exp(0.1 * inner.sum())
        grads = {
            "a": signal * p["b"] + slips["a"] * size,
            "b": signal * p["a"] + slips["b"] * size,
        }
        return np.sin(inner).sum(), grads

    (told,) = gl.check(loss_and_grads, params).findings

    assert (told.kind, set(told.places)) == ("unknown", {"a", "b"})
    assert "tolerance" not in told.advice
