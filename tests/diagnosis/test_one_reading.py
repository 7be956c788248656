"""One mistake gets one finding: what else its numbers could be called is no second."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def kinds(report):
    return [str(finding.kind) for finding in report.findings]


def layer(slip=""):
    """A square layer of tanh, with its weight's product in either order."""

    def forward(x, w):
        return np.tanh(x @ w), (x, w)

    def backward(up, cache):
        x, w = cache
        delta = up * (1 - np.tanh(x @ w) ** 2)
        return delta @ w.T, delta.T @ x if slip else x.T @ delta

    return forward, backward


def test_a_transpose_is_no_mask_and_no_axis_beside_it(rng):
    """The same zeros look like a wrong axis and a wrong mask: the transpose is told."""
    forward, backward = layer("delta.T @ x")

    report = gl.check(
        forward, rng.normal(size=(4, 4)), rng.normal(size=(4, 4)), backward=backward
    )

    assert kinds(report) == ["transpose"]


def test_what_is_not_sure_names_its_doubts_itself(rng):
    """Of a sum of which a part is gone, a loss tells little: one finding, and why."""
    target = rng.normal(size=(7, 5))

    def loss(w):
        return 0.5 * ((target - target @ w @ w.T) ** 2).sum()

    report = gl.check(
        loss,
        rng.normal(size=(5, 2)),
        grad=lambda w: -target.T @ (target - target @ w @ w.T) @ w,
    )

    assert kinds(report) == ["unknown"]
    assert report.findings[0].doubts == (
        "missing_term", "extra_term", "wrong_derivative",
    )  # fmt: skip
    assert "It could also be: missing term, extra" in report.findings[0].evidence


def test_a_gradient_of_none_lacks_no_term_beside_that():
    """A Function that returns None for an input is told to have cut it, and no more."""
    torch = pytest.importorskip("torch")

    class Squares(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *xs):
            ctx.save_for_backward(*xs)
            return sum(x**2 for x in xs)

        @staticmethod
        def backward(ctx, up):
            first, second, _ = ctx.saved_tensors
            return 2 * first * up, 2 * second * up, None

    tensors = [
        torch.arange(1.0, 5.0, dtype=torch.float64).requires_grad_() for _ in range(3)
    ]

    report = gl.check(Squares.apply, *tensors)

    assert [(str(f.kind), f.where) for f in report.findings] == [("detached", "xs.2")]


def windows(slip=""):
    """A convolution with stride two and a padding of one, by the loops of a course."""

    def places():
        return [(i, j) for i in range(3) for j in range(3)]

    def forward(x, w):
        wide = np.pad(x, ((0, 0), (1, 1), (1, 1)))
        out = [
            np.tensordot(w, wide[:, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3], 3)
            for i, j in places()
        ]
        return np.stack(out, 1).reshape(2, 3, 3), (wide, w)

    def backward(up, cache):
        wide, w = cache
        dwide, dw = np.zeros_like(wide), np.zeros_like(w)
        step, skip = (1 if slip == "stride" else 2), (1 if slip == "window" else 0)
        for i, j in places():
            a, b = step * i, step * j
            here = up[:, i, j]
            dwide[:, a : a + 3, b : b + 3] += np.tensordot(here, w, 1)
            seen = wide[:, 2 * i + skip : 2 * i + 3, 2 * j : 2 * j + 3]
            dw[:, :, : 3 - skip] += here[:, None, None, None] * seen
        return dwide[:, 1:-1, 1:-1], dw

    return forward, backward


@pytest.mark.parametrize("slip", ["", "stride", "window"])
def test_windows_at_wrong_places_make_no_new_numbers(rng, slip):
    """A stride that is forgotten, and a window cut one row late, are wrong indices."""
    forward, backward = windows(slip)
    x, w = rng.normal(size=(2, 5, 5)), rng.normal(size=(2, 2, 3, 3))

    report = gl.check(forward, x, w, backward=backward)

    assert kinds(report) == (["wrong_index"] if slip else [])


@pytest.mark.parametrize("axis", [0, 1])
def test_weights_that_sum_to_one_along_another_axis(rng, axis):
    """The gradient of logsumexp over rows is a softmax over rows, not over columns."""

    def jac(x):
        weights = np.exp(x) / np.exp(x).sum(axis=axis, keepdims=True)
        return np.eye(4)[:, :, None] * weights[None]

    report = gl.check(
        lambda x: np.log(np.exp(x).sum(axis=1)), rng.normal(size=(4, 4)), jac=jac
    )

    assert kinds(report) == ([] if axis else ["wrong_axis"])


def test_an_order_that_is_not_reversed_is_no_mask(rng):
    """The backward of a running product runs from the end; forwards, zeros change."""

    def vjp(up, x):
        return np.cumsum(up * np.cumprod(x)) / x

    x = rng.uniform(0.5, 1.5, size=5)

    report = gl.check(np.cumprod, x, vjp=vjp)

    assert kinds(report) == ["transpose"]


def test_a_gain_that_is_left_out_is_named(rng):
    """Each output of a scaled sum is off by a gain: the report says whose it is."""
    mix = rng.normal(size=(3, 3))

    def forward(x, gain):
        return gain * np.tanh(x @ mix), (x, gain)

    def backward(up, cache):
        x, _ = cache
        y = np.tanh(x @ mix)
        return (up * (1 - y**2)) @ mix.T, (up * y).sum(0)

    gain = rng.uniform(1.5, 4, size=3)

    report = gl.check(forward, rng.normal(size=(4, 3)), gain, backward=backward)

    assert kinds(report) == ["wrong_derivative"]
    assert "it is 1 / gain, which is not multiplied by" in report.findings[0].evidence


def test_one_slope_spoils_a_bias_as_it_spoils_the_weights(rng):
    """A row of one number is some multiple of any: the weights tell which it is."""

    def forward(z, w, b):
        return np.outer(np.tanh(z @ w + b), [2.0, 3.0, 5.0]), (z, w)

    def backward(up, cache):
        z, w = cache
        delta = up @ np.array([2.0, 3.0, 5.0])  # without the slope of tanh
        return np.outer(delta, w), z.T @ delta, np.array([delta.sum()])

    inputs = rng.normal(size=(4, 3)), rng.normal(size=3), rng.normal(size=1)

    report = gl.check(forward, *inputs, backward=backward)

    assert set(kinds(report)) == {"wrong_derivative"}


@pytest.mark.parametrize("slip", [False, True])
def test_the_cell_after_the_step_in_place_of_that_before_it(rng, slip):
    """The product of gate and cell: its factor tells which array was taken."""

    def forward(x, before, w):
        keep = 1 / (1 + np.exp(-x @ w))
        return keep * before, (x, before, keep, w)

    def backward(up, cache):
        x, before, keep, w = cache
        delta = up * (keep * before if slip else before) * keep * (1 - keep)
        return delta @ w.T, up * keep, x.T @ delta

    inputs = rng.normal(size=(4, 3)), rng.normal(size=(4, 5)), rng.normal(size=(3, 5))

    report = gl.check(forward, *inputs, backward=backward)

    assert set(kinds(report)) == ({"stale_cache"} if slip else set())


def test_a_norm_that_is_left_out_is_no_array_in_place_of_another(rng):
    """Of y = x / |x| the norm is x / y: neither of these stands for the other."""

    def forward(x):
        norm = np.linalg.norm(x, axis=1, keepdims=True)
        return x / norm, x / norm

    def backward(up, y):
        return up - y * (up * y).sum(1, keepdims=True)

    report = gl.check(forward, rng.normal(size=(4, 5)), backward=backward)

    assert kinds(report) == ["wrong_derivative"]
    assert "x / out" not in report.findings[0].evidence


def test_weights_that_a_function_holds_are_named_where_they_are_left_out(rng):
    """Samples are weighted on the way forward, and not on the way back."""
    noise = rng.normal(size=(4, 3))

    def forward(x, w):
        return x @ w * noise, (x, w)

    def backward(up, cache):
        x, w = cache
        return up @ w.T, x.T @ up

    report = gl.check(
        forward, rng.normal(size=(4, 5)), rng.normal(size=(5, 3)), backward=backward
    )

    assert set(kinds(report)) == {"wrong_derivative"}
    assert all("1 / noise" in finding.evidence for finding in report.findings)


def test_a_penalty_on_sizes_that_is_left_out_is_no_label(rng):
    """Tenths that sum to zero may count samples: moved weights tell they do not."""
    data, target = rng.normal(size=(8, 4)), rng.normal(size=8)
    w = np.array([0.7, -0.4, 1.1, -0.9])

    def loss(w):
        return ((data @ w - target) ** 2).sum() + 0.1 * np.abs(w).sum()

    report = gl.check(loss, w, grad=lambda w: 2 * data.T @ (data @ w - target))

    assert kinds(report) == ["regularization"]


@pytest.mark.parametrize("intercept", [0, 1])
def test_a_data_part_with_its_sign_flipped_beside_a_right_penalty(rng, intercept):
    """Target minus output: the penalty keeps its sign, and the first entry has none."""
    data, target = rng.normal(size=(8, 5)), rng.normal(size=8)

    def loss(w):
        return 0.5 * ((data @ w - target) ** 2).sum() + 2 * (w[intercept:] ** 2).sum()

    def grad(w):
        slope = data.T @ (target - data @ w)
        slope[intercept:] += 4 * w[intercept:]
        return slope

    report = gl.check(loss, rng.normal(size=5), grad=grad)

    assert kinds(report) == ["sign"]


def recurrent(slip):
    """Three steps of a recurrent layer, all of whose states are given out."""

    def forward(x, h, w):
        states = [h]
        for t in range(3):
            states.append(np.tanh(x[t] + states[-1] @ w))
        return np.stack(states[1:]), (states, w)

    def backward(up, cache):
        states, w = cache
        later, dx, dw = np.zeros_like(states[0]), np.zeros((3, 2, 3)), np.zeros((3, 3))
        for t in (2, 1, 0):
            come = up[t] if t == 2 or not slip else 0.0
            dx[t] = (come + later) * (1 - states[t + 1] ** 2)
            dw += states[t].T @ dx[t]
            later = dx[t] @ w.T
        return dx, later, dw

    return forward, backward


@pytest.mark.parametrize("slip", [False, True])
def test_outputs_that_no_input_hears_of_are_one_mistake(rng, slip):
    """Only the last state's gradient is used: no line about one input explains that."""
    forward, backward = recurrent(slip)
    sizes = (3, 2, 3), (2, 3), (3, 3)

    report = gl.check(forward, *(rng.normal(size=s) for s in sizes), backward=backward)

    assert set(kinds(report)) == ({"missing_term"} if slip else set())


@pytest.mark.parametrize(
    ("slip", "kind"), [("lost", "missing_term"), ("assigned", "lost_accumulation")]
)
def test_two_of_three_contributions_are_not_what_an_assignment_leaves(rng, slip, kind):
    """What is assigned over leaves one of three; a line that is not there, two."""

    def forward(x):
        return np.roll(x, 1) - 3 * x + np.roll(x, -1), None

    def backward(up, cache):
        if slip == "assigned":
            return np.roll(up, 1)
        return np.roll(up, -1) - 3 * up

    report = gl.check(forward, rng.normal(size=8), backward=backward)

    assert kinds(report) == [kind]


def test_a_table_that_is_assigned_to_is_not_detached(rng):
    """Of rows that are looked up twice one use is left: each output reads one entry."""

    def forward(table, rows):
        return table[rows.astype(int)], rows.astype(int)

    def backward(up, rows):
        table = np.zeros((5, 3))
        table[rows] = up
        return table, None

    table, rows = rng.normal(size=(5, 3)), np.array([0, 2, 2, 1, 2])

    report = gl.check(forward, table, rows, backward=backward)

    assert kinds(report) == ["lost_accumulation"]
