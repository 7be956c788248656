"""Penalties that are in the loss or in the gradient only, on part of the parameters."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def _logistic(rng, *, wrong):
    """Logistic regression whose intercept has no penalty; `wrong(w)` is its slope."""
    x = np.c_[np.ones(9), rng.normal(size=(9, 3))]
    y = rng.integers(0, 2, 9) * 1.0

    def loss_and_grad(w):
        p = 1 / (1 + np.exp(-x @ w))
        data = -(y * np.log(p) + (1 - y) * np.log(1 - p)).mean()
        return data + 0.1 * (w[1:] ** 2).sum(), x.T @ (p - y) / 9 + wrong(w)

    return loss_and_grad, rng.normal(size=4)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda w: 0.2 * w, "in w[0] alone"),
        (lambda w: 0.4 * np.r_[0, w[1:]], "= 0.2 * w only in entries 1 to 3"),
        (lambda w: 0.2 * np.r_[0, np.sign(w[1:])], "in it"),
        (lambda w: 0 * w, "= -0.2 * w only in entries 1 to 3"),
    ],
)
def test_a_penalty_on_part_of_the_weights(rng, wrong, words):
    """An intercept that is penalised, or a penalty too strong elsewhere, is named."""
    report = gl.check(*_logistic(rng, wrong=wrong))

    assert report.diagnosis == "regularization"
    assert words in report.findings[0].evidence


@pytest.mark.parametrize(
    "wrong", [lambda w: 0.2 * np.r_[0.3, w[1:]], lambda w: 0.2 * np.r_[w[1], w[1:]]]
)
def test_other_errors_of_an_intercept_are_no_penalty(rng, wrong):
    """A constant, or another entry's penalty, is an error of one entry as well."""
    report = gl.check(*_logistic(rng, wrong=wrong))

    assert not report.ok
    assert "regularization" not in {f.kind for f in report.findings}


@pytest.mark.parametrize("entries", [slice(2, 5), slice(0, 5)])
def test_an_error_along_some_entries_is_no_penalty_where_its_factor_moves(rng, entries):
    """The slope of |v|**4 is 4 |v|**2 v: a multiple of v, another one at each point."""
    t = rng.normal(size=5)

    def loss(w):
        return float(t @ np.sin(w) + (w[entries] @ w[entries]) ** 2)

    report = gl.check(loss, rng.normal(size=5), grad=lambda w: t * np.cos(w))

    assert not report.ok
    assert "regularization" not in {f.kind for f in report.findings}
    assert "at other points another multiple" in report.findings[0].evidence


def test_a_penalty_on_some_entries_that_cannot_be_moved_is_hedged(rng):
    """Gradients that are given have one point: there any length looks like that."""
    t, w = rng.normal(size=5), rng.normal(size=5)

    report = gl.check(
        lambda w: float(t @ np.sin(w) + (w[2:] @ w[2:]) ** 2),
        w,
        grad={"w": t * np.cos(w)},
        names=["w"],
    )

    assert report.diagnosis == "regularization"
    assert "missing_term" in report.findings[0].doubts


def test_the_half_of_a_data_part_is_a_factor(rng):
    """Two is no number of samples here: the factor of the data part is told as one."""
    x, y = rng.normal(size=(7, 3)), rng.normal(size=(7, 4))

    def loss_and_grad(w):
        e = x @ w - y
        return (e**2).sum() + 0.05 * (w**2).sum(), x.T @ e + 0.1 * w

    report = gl.check(loss_and_grad, rng.normal(size=(3, 4)))

    assert report.diagnosis == "scale"
    assert "1/2" in report.findings[0].advice


def test_rows_penalised_once_for_each_use_are_no_lost_accumulation(rng):
    """Rows looked up twice are wrong here by the penalty, and by nothing else."""
    index, target = np.array([0, 1, 1, 2, 3, 3]), rng.normal(size=(6, 3))

    def loss_and_grad(table):
        e = table[index] - target
        grad = np.zeros_like(table)
        np.add.at(grad, index, e + 0.1 * table[index])
        return 0.5 * (e**2).sum() + 0.05 * (table**2).sum(), grad

    report = gl.check(loss_and_grad, rng.normal(size=(4, 3)))

    assert report.diagnosis == "regularization"


def _penalised(penalty):
    """A regression whose loss has w**2 / 10; `penalty` adds to (dw, db)."""
    rng = np.random.default_rng(5)
    x, t = rng.normal(size=(10, 4)), (rng.random(10) > 0.5) * 1.0

    def loss_and_grads(p):
        z = x @ p["w"] + p["b"]
        loss = (np.logaddexp(0, z) - t * z).mean() + 0.1 * (p["w"] ** 2).sum()
        e = (1 / (1 + np.exp(-z)) - t) / 10
        dw, db = penalty(p)
        return loss, {"w": x.T @ e + dw, "b": e.sum() + db}

    return gl.check(loss_and_grads, {"w": rng.normal(size=4), "b": np.array(0.7)})


def test_a_penalty_of_another_power_is_a_penalty():
    """0.2 w**2 for 0.2 w is neither odd nor constant, and of its own entry alone."""
    (told,) = _penalised(lambda p: (0.2 * p["w"] ** 2, 0.0)).findings

    assert (told.kind, told.where) == ("regularization", "w")
    assert "and changes with it" in told.evidence


def test_an_error_without_a_mirror_image_is_not_called_odd():
    """log(a) - 1 / 2a for digamma(a): at -a the one is nan, and no sign is seen."""
    special = pytest.importorskip("scipy.special")
    successes, tries = np.array([3, 0, 5, 7, 2]), 10

    def loss_and_grads(p):
        a, b = p["a"], p["b"]
        failures, both = tries - successes, special.digamma(a + b)
        loss = -special.betaln(successes + a, failures + b).sum()
        rows = special.digamma(tries + a + b)
        da = -(special.digamma(successes + a) - rows).sum()
        db = -(special.digamma(failures + b) - rows).sum()
        one, other = np.log(a) - 0.5 / a, special.digamma(b)
        loss += 5 * special.betaln(a, b)
        return loss, {"a": da + 5 * (one - both), "b": db + 5 * (other - both)}

    with np.errstate(invalid="ignore"):
        report = gl.check(loss_and_grads, {"a": np.array(1.3), "b": np.array(2.1)})

    assert report.culprits == ("a",)
    assert "odd" not in report.findings[0].evidence


def test_a_penalty_on_one_number_is_told_by_moving_the_others():
    """An intercept of one entry that is penalised in the gradient only."""
    (told,) = _penalised(lambda p: (0.2 * p["w"], 0.2 * p["b"])).findings

    assert (told.kind, told.where) == ("regularization", "b")
    assert not _penalised(lambda p: (0.2 * p["w"], 0.0)).findings


def test_residuals_beyond_a_bound_are_no_penalty():
    """What is constant until a sample crosses a bound moves with its own entry too."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(11, 3))
    t = a @ np.array([1.0, -2.0, 0.5]) + 3 * rng.normal(size=11)

    def loss(w):
        r = np.abs(a @ w - t)
        return np.where(r <= 1, 0.5 * r**2, r - 0.5).mean()

    def grad(w):
        r = a @ w - t
        return a.T @ np.where(np.abs(r) <= 1, r, 0) / 11

    report = gl.check(loss, rng.normal(size=3), grad=grad)

    assert not report.ok
    assert report.diagnosis != "regularization"


def test_a_constant_has_no_penalty_for_certain():
    """``2 x`` is the gradient of the square that was meant as well as of a penalty."""
    x = np.arange(1.0, 7.0)
    report = gl.check(lambda x: 3.0, x, grad=lambda x: 2 * x)
    (found,) = report.findings
    assert (found.kind, found.severity) == ("extra_term", "error")
    assert "does not depend on x" in found.evidence


def test_a_mask_that_is_missing_from_a_square_is_no_penalty():
    """``2 x`` for ``2 max(x, 0)``: what is too much is 2 x where f does not move."""
    x = np.random.default_rng(0).normal(size=(4, 3))

    report = gl.check(lambda x: (np.maximum(x, 0) ** 2).sum(), x, grad=lambda x: 2 * x)

    assert report.diagnosis == "wrong_mask"


def test_a_penalty_on_an_intercept_of_counts_is_no_added_number(rng):
    """Its slope 3 * 0.1 is a round number, and another one where the weight moves."""
    x = np.c_[np.ones(30), rng.normal(size=(30, 3))]
    y, w = rng.poisson(20, 30), np.array([0.1, 0.3, -0.2, 0.05])

    def loss(w):
        eta = x @ w + 3
        return (np.exp(eta) - y * eta).sum() + 1.5 * (w[1:] @ w[1:])

    report = gl.check(loss, w, grad=lambda w: x.T @ (np.exp(x @ w + 3) - y) + 3 * w)

    assert report.diagnosis == "regularization"
    assert "in proportion" in report.findings[0].evidence


def test_signs_of_weights_of_which_some_are_zero_are_no_labels(rng):
    """With 0.1 |w| subtracted for added the error is -0.2 sign(w): whole fifths."""
    x, y = rng.normal(size=(20, 5)), rng.normal(size=20)
    w = np.array([0.5, 0, 0, -1.2, 0])

    def loss(w):
        return 0.5 * ((x @ w - y) ** 2).mean() + 0.1 * np.abs(w).sum()

    report = gl.check(loss, w, grad=lambda w: x.T @ (x @ w - y) / 20 - 0.1 * np.sign(w))

    assert report.diagnosis == "regularization"
    assert "by its sign alone" in report.findings[0].evidence


def test_a_term_of_each_entry_that_is_no_penalty_may_be_missing():
    """Of Rosenbrock's function (1 - x)**2 is left out: a term of its entry, no odd one.

    An error that follows its own entry in some other way is not called a penalty alone.
    """

    def rosenbrock(x):
        return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    def grad(x):
        slope, step = np.zeros_like(x), x[1:] - x[:-1] ** 2
        slope[1:] += 200 * step
        slope[:-1] -= 400 * x[:-1] * step
        return slope

    finding = gl.check(rosenbrock, np.array([-1.2, 1, 0.7, 0.5]), grad=grad).findings[0]

    assert "missing_term" in {finding.kind, *finding.doubts}


def test_a_lost_term_of_one_number_may_be_no_penalty(rng):
    """A Weibull has n log k in its log likelihood: without it n / k is lost."""
    x = 2 * rng.weibull(1.7, 30)

    def loss(k, scale):
        z = x / scale
        return -(np.log(k / scale) + (k - 1) * np.log(z) - z**k).sum()

    def vjp(up, k, scale):
        z = x / scale
        own = -(np.log(z) - z**k * np.log(z)).sum()
        return up * own, up * (30 * k / scale - k / scale * (z**k).sum())

    finding = gl.check(loss, np.array(1.4), np.array(1.8), vjp=vjp).findings[0]

    assert finding.where == "k"
    assert "missing_term" in {finding.kind, *finding.doubts}


def test_a_decay_of_rows_that_the_loss_does_not_look_up_is_a_penalty(rng):
    """The loss decays the rows that are looked up, its gradient all of them."""
    table, ids, v = rng.normal(size=(6, 3)), np.array([0, 2, 3, 2]), rng.normal(size=3)

    def loss(table):
        decay = 0.1 * (table[np.unique(ids)] ** 2).sum()
        return ((table[ids] @ v) ** 2).sum() + decay

    def grad(table):
        slope = np.zeros_like(table)
        np.add.at(slope, ids, 2 * (table[ids] @ v)[:, None] * v)
        return slope + 0.2 * table

    assert gl.check(loss, table, grad=grad).diagnosis == "regularization"


def test_a_penalty_left_out_of_a_layer_with_a_dead_unit(rng):
    """Where data leave no gradient the analytic side is zero, and the penalty all."""
    hidden, y = rng.uniform(0, 2, (4, 12)), rng.integers(0, 2, (1, 12))
    hidden[2] = 0

    def loss_and_grads(p):
        a = 1 / (1 + np.exp(-p["W3"] @ hidden - p["b3"]))
        data = -(y * np.log(a) + (1 - y) * np.log(1 - a)).mean()
        back = (a - y) / 12
        grads = {"W3": back @ hidden.T, "b3": back.sum(axis=1, keepdims=True)}
        return data + 0.05 * (p["W3"] ** 2).sum(), grads

    params = {"W3": rng.normal(size=(1, 4)) / 2, "b3": np.zeros((1, 1))}
    report = gl.check(loss_and_grads, params)

    assert report.diagnosis == "regularization"


def test_logarithms_two_of_which_are_not_zero_are_no_penalty():
    """Two sizes of an error are what any two penalties add; here exp is left out."""
    theta = np.log([1.0, 1.0, 2.0, 1.0, 1.0, 0.1])
    of = np.array([1.0, -2.0, 0.7, 1.5, 0.3, -1.1])

    def slipped(theta):
        return of * np.cos(np.exp(theta))

    def f(theta):
        return of @ np.sin(np.exp(theta))

    assert gl.check(f, theta, grad=slipped).diagnosis != "regularization"
