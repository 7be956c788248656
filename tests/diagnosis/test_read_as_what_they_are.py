"""Errors with a neighbour that looks alike, told by one more look at the function."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def softmax(z, axis):
    e = np.exp(z - z.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def centred(rng, axis):
    """A layer, its mean over samples taken off, and a sum of squares."""
    x, target = rng.normal(size=(6, 4)), rng.normal(size=(6, 3))
    params = {"W": rng.normal(size=(4, 3)), "b": rng.normal(size=3)}

    def loss_and_grads(p):
        z = x @ p["W"] + p["b"]
        h = np.tanh(z - z.mean(axis=0))
        back = (h - target) * (1 - h * h)
        dz = back if axis is None else back - back.mean(axis=axis, keepdims=True)
        loss = 0.5 * ((h - target) ** 2).sum()
        return loss, {"W": x.T @ dz, "b": dz.sum(axis=0)}

    return loss_and_grads, params


def test_a_bias_is_not_detached_where_its_signal_sums_to_nothing(rng):
    """Of a softmax over samples: the weight of the layer is wrong, and not zero."""
    x, target = rng.normal(size=(6, 4)), softmax(rng.normal(size=(6, 3)), 0)
    params = {"W": rng.normal(size=(4, 3)), "b": rng.normal(size=3)}

    def loss_and_grads(p):
        s = x @ p["W"] + p["b"]
        loss = (np.log(np.exp(s).sum(axis=1)) - (target * s).sum(axis=1)).sum()
        ds = softmax(s, 0) - target
        return loss, {"W": x.T @ ds, "b": ds.sum(axis=0)}

    (told,) = gl.check(loss_and_grads, params).findings

    assert (told.kind, set(told.places)) == ("wrong_axis", {"W", "b"})
    assert "sums to zero over samples" in told.evidence


@pytest.mark.parametrize("axis", [None, 1])
def test_a_bias_before_a_mean_that_is_taken_off_lacks_its_term(axis, rng):
    """The function stands still with it; that it has a gradient is the term missing."""
    (told,) = gl.check(*centred(rng, axis)).findings

    assert (told.kind, set(told.places)) == ("missing_term", {"W", "b"})
    assert "wrong_axis" in told.doubts
    assert gl.check(*centred(rng, 0)).findings == ()


def test_a_penalty_on_sizes_without_its_sign(rng):
    """Wrong by one number exactly where the weights are negative."""
    x, y = rng.normal(size=(9, 8)), rng.normal(size=9)
    w = np.where(np.arange(8) % 2, 1.0, -1.0) * rng.uniform(0.5, 1, 8)

    def loss(w):
        return ((x @ w - y) ** 2).mean() + 0.3 * np.abs(w).sum()

    def grad(w):
        return 2 * x.T @ (x @ w - y) / 9 + 0.3

    (told,) = gl.check(loss, w, grad=grad).findings

    assert told.kind == "regularization"
    assert "0.3 * |w| without its sign" in told.evidence


def hinge(rng, slip):
    """Multi-class hinge loss of the scores themselves."""
    labels, rows = rng.integers(0, 4, 6), np.arange(6)

    def margins(s):
        m = 1 + s - s[rows, labels][:, None]
        m[rows, labels] = 0
        return m

    def grad(s):
        on = (margins(s) > (1 if slip == "no margin" else 0)).astype(float)
        on[rows, labels] = 0
        on[rows, labels] = -1 if slip == "minus one" else -on.sum(axis=1)
        if slip == "values":
            on = np.maximum(margins(s), 0)
            on[rows, labels] = -on.sum(axis=1)
        return on

    loss = lambda s: np.maximum(margins(s), 0).sum()
    return loss, 2 * rng.normal(size=(6, 4)), grad


@pytest.mark.parametrize(
    ("slip", "kind"),
    [
        ("no margin", {"wrong_mask"}),
        ("minus one", {"missing_term"}),
        ("values", {"wrong_derivative", "unknown"}),
    ],
)
def test_a_mask_keeps_margins_balanced_and_stands_still(slip, kind, rng):
    """What one class gets the label loses, whichever margins are counted."""
    loss, s, grad = hinge(rng, slip)
    (told,) = gl.check(loss, s, grad=grad).findings

    assert told.kind in kind


def test_pieces_that_no_entry_is_on_are_found_far_off(rng):
    """Quantiles with both sides exchanged: slopes that stand nowhere else."""
    target, tau = rng.normal(size=(4, 3)), np.array([0.1, 0.35, 0.9])

    def loss(s):
        r = target - s
        return np.maximum(tau * r, (tau - 1) * r).sum()

    (told,) = gl.check(
        loss,
        rng.normal(size=(4, 3)),
        grad=lambda s: np.where(target > s, 1 - tau, -tau),
    ).findings

    assert told.kind == "wrong_mask"


def test_slopes_of_other_entries_of_a_straight_line_are_no_pieces(rng):
    """The array that a weight meets is read in another order."""
    x, order = rng.normal(size=4), rng.permutation(12) % 4

    def forward(w):
        return x[order] * w, w

    wrong = np.tile(x, 3)
    wrong[: len(wrong) // 2] = x[order][: len(wrong) // 2]
    (told,) = gl.check(
        forward, rng.normal(size=12), backward=lambda up, _: up * wrong
    ).findings

    assert told.kind in {"wrong_index", "stale_cache"}


def test_a_copy_that_gets_lost_is_a_sum_that_is_too_short(rng):
    """Each pixel is copied to four; two of them hand nothing back."""

    def forward(x):
        return np.repeat(np.repeat(x, 2, axis=0), 2, axis=1), x.shape

    def backward(up, shape):
        return up.reshape(shape[0], 2, shape[1], 2).sum(axis=1)[..., 0]

    (told,) = gl.check(forward, rng.normal(size=(3, 4)), backward=backward).findings

    assert told.kind == "broadcast_reduction"
    assert "4 of each; the gradients of 2 of them are lost" in told.evidence
