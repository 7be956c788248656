"""Parts of a gradient in other places, or with other factors, told apart by sums."""

from __future__ import annotations

import numpy as np

import gradlab as gl


def first(report):
    """Kind and words of the first finding."""
    return str(report.findings[0].kind), report.findings[0].evidence


def test_rows_of_a_tied_table_that_are_shifted_sum_to_the_same(rng):
    """What one use of a table adds to other rows is missing from its own."""
    tokens, target = rng.integers(0, 6, 8), rng.normal(size=(8, 6))

    def loss_and_grad(table):
        h = np.tanh(table[tokens])
        e = h @ table.T - target
        grad = e.T @ h
        np.add.at(grad, (tokens + 1) % 6, (e @ table) * (1 - h * h))
        return 0.5 * (e**2).sum(), grad

    report = gl.check(loss_and_grad, rng.normal(size=(6, 3)))

    assert "sums to zero along axis 0" in first(report)[1]
    assert report.findings[0].doubts[0] == "wrong_index"


def test_a_mean_over_the_longest_group(rng):
    """Each group divided by the longest length is right in that group alone."""
    groups = [np.array([0, 1]), np.array([2, 3, 4]), np.array([1, 2, 3, 5])]

    def forward(x):
        return np.stack([x[g].mean(axis=0) for g in groups]), None

    def backward(up, cache):
        grad = np.zeros((6, 2))
        for g, row in zip(groups, up, strict=True):
            np.add.at(grad, g, row / 4)
        return grad

    kind, words = first(gl.check(forward, rng.normal(size=(6, 2)), backward=backward))

    assert kind == "missing_reduction"
    assert "(2, 3, 4)" in words


def test_a_gain_that_sums_over_its_whole_group(rng):
    """A straight line in the gain has no mask: the sum ran over channels as well."""
    x = rng.normal(size=(3, 4, 5))

    def forward(g):
        return x * g[:, None], None

    def backward(up, cache):
        return np.repeat((up * x).reshape(3, 2, -1).sum(axis=(0, 2)), 2)

    kind, words = first(gl.check(forward, rng.normal(size=4), backward=backward))

    assert kind == "wrong_axis"
    assert "depends on one entry of g" in words


def test_outputs_that_reach_other_entries_have_no_wrong_mask(rng):
    """No entry passes on both sides: there is nothing on which the two could agree."""
    index = np.array([0, 1, 1, 2, 2, 2])
    weights = 1 / np.bincount(index)

    def forward(x):
        return np.stack([x[index == k].mean(axis=0) for k in range(3)]), None

    def backward(up, cache):
        return (up * weights[:, None])[(index + 1) % 3]

    kind, _ = first(gl.check(forward, rng.normal(size=(6, 2)), backward=backward))

    assert kind == "wrong_index"


def test_each_entry_has_a_factor_of_its_own(rng):
    """The slope of the first function is another's: a factor for every column."""
    w = rng.normal(size=(4, 5))

    def forward(x):
        return np.exp(x) @ w, x

    def backward(up, x):
        return (up @ w.T) * (1 + x)

    kind, words = first(gl.check(forward, rng.normal(size=4), backward=backward))

    assert kind == "wrong_derivative"
    assert "Each entry of x has a factor of its own" in words


def test_one_entry_with_another_sign_is_that_and_no_factor_of_each(rng):
    """All other entries have the factor of 1, which is no sign of another slope."""
    w, signs = rng.normal(size=(4, 5)), np.array([1.0, 1.0, -1.0, 1.0])

    def forward(x):
        return np.exp(x) @ w, x

    def backward(up, x):
        return signs * (up @ w.T) * np.exp(x)

    report = gl.check(forward, rng.normal(size=4), backward=backward)

    assert [str(finding.kind) for finding in report.findings] == ["sign"]


def test_a_number_of_samples_is_named_after_the_data(rng):
    """Eight is the length of X and the size of W2: samples are what a mean is over."""
    X, y = rng.normal(size=(8, 3)), rng.normal(size=(8, 2))

    def loss_and_grads(params):
        h = np.tanh(X @ params["W1"])
        e = h @ params["W2"] - y
        d = (e @ params["W2"].T) * (1 - h * h)
        return 0.5 * (e**2).sum() / 8, {"W1": X.T @ d, "W2": h.T @ e}

    params = {"W1": rng.normal(size=(3, 4)), "W2": rng.normal(size=(4, 2))}
    kind, words = first(gl.check(loss_and_grads, params))

    assert kind == "missing_reduction"
    assert "the length of axis 0 of `" in words


def test_one_slope_for_two_is_no_copied_index(rng):
    """A hinge has two slopes: an entry with the wrong one holds no other's gradient."""
    y = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, -1.0, -1.0])

    report = gl.check(
        lambda q: float(np.where(y > q, 0.8 * (y - q), 0.2 * (q - y)).sum()),
        np.zeros(8) + 0.1 * rng.random(8),
        grad=lambda q: np.full(8, 0.2),
    )

    assert "wrong_index" not in {f.kind for f in report.findings}


def test_what_several_inputs_lose_alike_is_no_assignment(rng):
    """A step back in time that one of two loops lost takes from x and its weight."""
    x, u = rng.normal(size=(4, 3)), 0.5 * np.eye(2)

    def run(x, w):
        h = [np.zeros(2)]
        for step in x:
            h.append(np.tanh(step @ w + h[-1] @ u))
        return np.array(h[1:])

    def back(up, x, w, h, carried):
        grad_x, grad_w, carry = np.zeros_like(x), np.zeros_like(w), 0
        for t in reversed(range(len(x))):
            d = (up[t] + carry) * (1 - h[t] ** 2)
            grad_x[t], grad_w = d @ w.T, grad_w + np.outer(x[t], d)
            carry = carried * (d @ u.T)
        return grad_x, grad_w

    def forward(x, w, v):
        h, g = run(x, w), run(x[::-1], v)
        return np.concatenate([h, g[::-1]], axis=1), (x, w, v, h, g)

    def backward(up, cache):
        x, w, v, h, g = cache
        first, grad_w = back(up[:, :2], x, w, h, 1)
        second, grad_v = back(up[::-1, 2:], x[::-1], v, g, 0)
        return first + second[::-1], grad_w, grad_v

    weights = rng.normal(size=(2, 3, 2))
    report = gl.check(forward, x, *weights, backward=backward)
    told = {f.where: f for f in report.findings}

    assert set(told) == {"x", "v"}
    assert str(told["x"].kind) == "missing_term"
    assert "for which v is wrong as well" in told["x"].evidence


def test_the_weights_of_a_dead_unit_do_not_speak_for_all(rng):
    """Slopes stand still behind a unit that is off: no sum over entries is seen there.

    The penalty alone moves them, whatever is wrong of the others.
    """
    x, y = rng.normal(size=(8, 3)), rng.normal(size=(8, 4))
    h = np.maximum(x @ rng.normal(size=(3, 4)), 0) * np.array([0, 1, 1, 1])
    other = h + rng.normal(size=h.shape)

    def loss_and_grad(w):
        p = np.exp(h @ w)
        p /= p.sum(axis=1, keepdims=True)
        return ((p - y) ** 2).sum() + 0.1 * (w**2).sum(), other.T @ (p - y) + 0.2 * w

    report = gl.check(loss_and_grad, rng.normal(size=(4, 4)))

    assert not any("keeps the entries" in f.evidence for f in report.findings)


def test_a_mask_the_wrong_way_round_agrees_nowhere(rng):
    """Where one side passes the other stops: no agreement is claimed."""
    w = rng.normal(size=(4, 5))
    report = gl.check(
        lambda x: (np.maximum(x @ w, 0), x),
        rng.normal(size=(3, 4)),
        backward=lambda up, x: (up * (x @ w < 0)) @ w.T,
    )

    kind, words = first(report)
    assert kind == "wrong_mask"
    assert "nowhere is neither zero" in words
