"""Numbers that are nearly a factor are none, and exact readings come before vague ones.

Programs as courses and notebooks have them, each with one slip.
"""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from tests.specimens.activations import sigmoid, softmax

COUPONS, YEARS = np.array([5.0, 5, 5, 105]), np.arange(1, 5)


def errors(report, name):
    """Kinds of what is wrong with one input, the most convincing first."""
    assert report.verdict == gl.Verdict.DISAGREES
    told = [f for f in report.findings if f.where == name and f.severity == "error"]
    return [str(finding.kind) for finding in told]


def test_ratios_that_differ_by_half_a_percent_are_no_factor():
    """A duration off by one year is wrong by 0.74 at each of three yields, nearly."""

    def price(y):
        return (COUPONS / (1 + y[:, None]) ** YEARS).sum(axis=1)

    def slope(y):
        terms = COUPONS * (YEARS - 1) / (1 + y[:, None]) ** (YEARS + 1)
        return np.diag(-terms.sum(axis=1))

    report = gl.check(price, np.array([0.02, 0.05, 0.08]), jac=slope)

    assert errors(report, "y")[0] == "wrong_derivative"
    assert not any("analytic = " in finding.evidence for finding in report.findings)


def test_sizes_that_differ_by_two_percent_are_no_flipped_sign():
    """The sign of the larger of two terms is wrong: sizes are not right then."""
    x = np.linspace(0.5, 1.5, 6)

    report = gl.check(
        lambda x: (x**3 + 0.01 * np.sin(9 * x)).sum(),
        x,
        grad=lambda x: -3 * x**2 + 0.09 * np.cos(9 * x),
    )

    assert not any("sizes are right" in finding.evidence for finding in report.findings)
    assert errors(report, "x")[0] not in ("sign", "scale")


def test_one_number_has_no_surrogate():
    """Whatever is wrong, one number is some multiple of what it should be."""
    report = gl.check(lambda x: np.exp(x) - 3 * x, 0.5, grad=lambda x: 2.3 * np.exp(x))

    assert "surrogate" not in errors(report, "x")


def test_a_square_weight_is_transposed_though_the_output_is_a_vector(rng):
    """Every entry moves every output: nothing is summed over an axis of it."""
    keys = rng.normal(size=(5, 4))

    def forward(w, v):
        hidden = np.tanh(keys @ w)
        weights = softmax(hidden @ v)
        return weights @ keys, (hidden, v, weights)

    def backward(up, cache):
        hidden, v, weights = cache
        inner = keys @ up
        scores = weights * (inner - weights @ inner)
        delta = np.outer(scores, v) * (1 - hidden**2)
        return delta.T @ keys, hidden.T @ scores

    report = gl.check(
        forward, rng.normal(size=(4, 4)), rng.normal(size=4), backward=backward
    )

    assert errors(report, "w")[0] == "transpose"


def test_a_sum_over_the_other_axis_of_a_square_is_a_wrong_axis(rng):
    """Each entry is part of one output alone."""
    report = gl.check(
        lambda x: ((x**2).sum(axis=0), x.shape),
        rng.normal(size=(4, 4)),
        backward=lambda up, shape: np.broadcast_to(up[:, None], shape).copy(),
    )

    assert "wrong_axis" in errors(report, "x")


def test_a_gradient_that_is_another_input_s_is_told_before_anything_vague(rng):
    """The lower diagonal of a tridiagonal matrix gets what belongs to the upper one."""
    weights = rng.normal(size=6)

    def matrix(low, high):
        return 4 * np.eye(6) + np.diag(low, -1) + np.diag(high, 1)

    def solve(low, high):
        return np.linalg.solve(matrix(low, high), np.arange(1.0, 7)) @ weights

    def grad(low, high):
        x = np.linalg.solve(matrix(low, high), np.arange(1.0, 7))
        dual = np.linalg.solve(matrix(low, high).T, weights)
        upper = -dual[:-1] * x[1:]
        return upper, upper

    report = gl.check(solve, rng.normal(size=5), rng.normal(size=5), grad=grad)

    assert errors(report, "low") == ["wrong_index"]
    assert report.culprits == ("low",)


def test_a_backward_that_does_not_look_at_what_comes_in_is_called_so(rng):
    """It is a factor too, of the one number that follows the loss."""
    torch = pytest.importorskip("torch")
    labels = torch.arange(6) % 4

    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x.softmax(1))
            return -x.log_softmax(1)[range(6), labels].mean()

        @staticmethod
        def backward(ctx, up):
            delta = ctx.saved_tensors[0].clone()
            delta[range(6), labels] -= 1
            return delta / 6

    x = torch.from_numpy(rng.normal(size=(6, 4))).requires_grad_()

    report = gl.check(lambda x: 3 * Loss.apply(x), x)

    assert errors(report, "x") == ["ignores_upstream"]


@pytest.mark.parametrize("mixed", [True, False])
def test_a_constant_looks_like_a_penalty_only_where_signs_differ(rng, mixed):
    """An entropy without its -1 is no penalty on probabilities: all are positive."""
    p = rng.uniform(0.2, 0.9, size=12) * (rng.choice([-1, 1], 12) if mixed else 1)

    report = gl.check(lambda p: (np.exp(p) + np.abs(p)).sum(), p, grad=np.exp)

    assert errors(report, "p")[0] == ("regularization" if mixed else "missing_term")


ACTIVATIONS = {
    "tanh": (np.tanh, lambda y: 1 - y**2),
    "sigmoid": (sigmoid, lambda y: y * (1 - y)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_bias_before_the_slope_in_a_loop_is_told(rng, name):
    """A recurrent network whose Wx and Wh are right; no step of the sum got lost."""
    f, slope = ACTIVATIONS[name]
    xs, ys = rng.normal(size=(5, 3)), rng.normal(size=(5, 4))

    def loss_and_grads(p):
        states, loss = [np.zeros(4)], 0.0
        for x, y in zip(xs, ys, strict=True):
            states.append(f(p["Wx"] @ x + p["Wh"] @ states[-1] + p["bh"]))
            loss += 0.5 * ((states[-1] - y) ** 2).sum()
        grads, back = {key: np.zeros_like(value) for key, value in p.items()}, 0.0
        for t in reversed(range(5)):
            up = states[t + 1] - ys[t] + back
            delta = up * slope(states[t + 1])
            grads["Wx"] += np.outer(delta, xs[t])
            grads["Wh"] += np.outer(delta, states[t])
            grads["bh"] += up
            back = p["Wh"].T @ delta
        return loss, grads

    shapes = {"Wx": (4, 3), "Wh": (4, 4), "bh": (4,)}
    params = {key: 0.5 * rng.normal(size=shape) for key, shape in shapes.items()}

    report = gl.check(loss_and_grads, params)

    assert report.culprits == ("bh",)
    assert errors(report, "bh")[0] == "wrong_derivative"
    assert f"slope of {name}" in report.findings[0].evidence


def test_a_bias_before_the_slope_in_a_layer_is_told(rng):
    """Read out output by output, where nothing is summed that could be lost."""
    x = rng.normal(size=(5, 3))

    def forward(w, b):
        y = np.tanh(x @ w + b)
        return y**2, y

    def backward(up, y):
        before = up * 2 * y
        return x.T @ (before * (1 - y**2)), before.sum(axis=0)

    report = gl.check(
        forward, rng.normal(size=(3, 4)), rng.normal(size=4), backward=backward
    )

    assert errors(report, "b")[0] == "wrong_derivative"


def test_a_bias_without_the_mask_of_its_weight_is_told(rng):
    """Above zero it is right, below it is not."""
    x, y = rng.normal(size=(9, 3)), rng.normal(size=(9, 2))

    def loss_and_grads(p):
        z = x @ p["W1"] + p["b1"]
        out = np.maximum(z, 0) @ p["W2"] + p["b2"]
        up = 2 * (out - y) / 9
        delta = up @ p["W2"].T
        return ((out - y) ** 2).sum() / 9, {
            "W1": x.T @ (delta * (z > 0)),
            "b1": delta.sum(axis=0),
            "W2": np.maximum(z, 0).T @ up,
            "b2": up.sum(axis=0),
        }

    shapes = {"W1": (3, 5), "b1": (5,), "W2": (5, 2), "b2": (2,)}
    params = {key: rng.normal(size=shape) for key, shape in shapes.items()}

    report = gl.check(loss_and_grads, params)

    assert report.culprits == ("b1",)
    assert errors(report, "b1")[0] == "wrong_mask"


def responses(theta, a, b):
    """Two-parameter item responses, all answered."""
    return np.logaddexp(0, a * (theta[:, None] - b)).sum()


def test_a_sum_over_the_wrong_axis_is_no_other_function(rng):
    """The abilities of persons do not meet in the loss; in the gradient they do."""

    def grad(theta, a, b):
        slopes = sigmoid(a * (theta[:, None] - b))
        return (
            (slopes * a).sum(axis=0),
            (slopes * (theta[:, None] - b)).sum(axis=0),
            -(slopes * a).sum(axis=0),
        )

    theta, b = rng.normal(size=(2, 6))

    report = gl.check(responses, theta, rng.uniform(0.5, 1.5, 6), b, grad=grad)

    assert report.culprits == ("theta",)
    assert errors(report, "theta")[0] == "wrong_axis"


def test_a_slope_at_the_entry_before_is_a_wrong_index(rng):
    """One other entry moves the gradient: that at which it was evaluated."""
    weights = rng.uniform(1, 2, 7)

    report = gl.check(
        lambda x: (weights * np.sin(x)).sum(),
        rng.normal(size=7),
        grad=lambda x: weights * np.cos(np.roll(x, 1)),
    )

    assert errors(report, "x")[0] == "wrong_index"


SLIPS = {"scale": lambda g: 2 * g, "sign": lambda g: np.where(g == g.max(), -g, g)}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_factor_is_told_as_far_as_noise_allows(slip):
    """Where f rounds to single precision inside no factor is a constant to 0.1 %."""
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(4, 60)) / 2, rng.normal(size=(60, 8)) / 2

    def f(w):
        return float((np.tanh((x @ w).astype(np.float32)).astype(float) ** 2).sum())

    def grad(w):
        up = np.tanh(x @ w)
        return SLIPS[slip](x.T @ (2 * up * (1 - up**2)))

    report = gl.check(f, w, grad=grad, names=["w"])

    assert errors(report, "w")[0] == slip


def test_one_small_input_with_a_wrong_sign_is_told_as_such(rng):
    """Beside slopes of a million one of a millionth: no penalty, and no other order."""
    sizes = 10.0 ** np.arange(-6, 7, 2)
    signs = np.array([1, 1, 1, 1, 1, 1, -1])

    report = gl.check(
        lambda x: np.sin(x / sizes).sum(),
        sizes * rng.uniform(0.5, 1.2, 7),
        grad=lambda x: signs * np.cos(x / sizes) / sizes,
    )

    assert errors(report, "x") == ["sign"]
    assert "in x[6] alone" in report.findings[0].evidence


def test_one_small_output_with_a_wrong_factor_is_told_as_such(rng):
    """Beside outputs of 1e8, whose last digits are a thousand times as large."""
    sizes = 10.0 ** np.arange(-8, 9, 2)
    factors = np.where(np.arange(9) == 0, 2, 1)

    report = gl.check(
        lambda x: sizes * np.sin(x),
        rng.uniform(0.2, 1.2, 9),
        vjp=lambda up, x: factors * up * sizes * np.cos(x),
    )

    assert errors(report, "x") == ["scale"]
    assert "analytic = 2 x numeric" in report.findings[0].evidence


def test_one_column_of_a_balance_has_a_factor_by_accident(rng):
    """Of one sample q[y] stands where q[y] - 1 belongs: a factor, that nobody wrote."""
    table, context, label = rng.normal(size=(5, 4)), np.array([0, 3, 1]), 2

    def loss_and_grads(p):
        hidden = p["E"][context].mean(axis=0)
        scores = hidden @ p["W"]
        q = np.exp(scores - scores.max())
        q /= q.sum()
        grad = np.zeros_like(p["E"])
        np.add.at(grad, context, p["W"] @ q / 3)
        return -np.log(q[label]), {"E": grad, "W": np.outer(hidden, q)}

    finding = gl.check(loss_and_grads, {"E": table, "W": table.T.copy()}).findings[0]

    assert finding.where == "W"
    assert finding.kind == "missing_term"
    assert "sums to zero along axis 1" in finding.evidence


@pytest.mark.parametrize("bias", [0.3, np.array(0.3), np.array([0.3])])
def test_one_number_with_one_factor_everywhere_has_it(rng, bias):
    """The mean over nine samples is a ninth of their sum, wherever it is asked."""
    x, y = rng.normal(size=(9, 4)), rng.normal(size=9)

    def loss_and_grads(b, w):
        off = np.tanh(b + x @ w) - y
        slopes = 2 * off * (1 - np.tanh(b + x @ w) ** 2)
        return off @ off, (np.reshape(slopes.mean(), np.shape(b)), x.T @ slopes)

    report = gl.check(loss_and_grads, bias, rng.normal(size=4))

    assert errors(report, "b") == ["missing_reduction"]
    assert "1/9" in report.findings[0].evidence


def test_one_number_with_another_factor_elsewhere_has_none(rng):
    """The slope of u + u**2 / 2 for that of u is 1.7 times as large at 0.7 alone."""
    a, u = rng.uniform(1, 2, 5), np.array([0.5, 1.3, 0.7])

    def loss(u):
        return np.log(a.sum() + u[0] ** 2 * u[1] + u[2] * u[1])

    def grad(u):
        inner = a.sum() + u[0] ** 2 * u[1] + u[2] * u[1]
        slopes = np.array([2 * u[0] * u[1], u[0] ** 2 + u[2], u[1] * (1 + u[2])])
        return slopes / inner

    report = gl.check(loss, u, grad=grad)

    assert not any("analytic = 1.7" in finding.evidence for finding in report.findings)
    assert errors(report, "u") == ["wrong_derivative"]
