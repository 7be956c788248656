"""What a finding claims is so: flat is flat, labels are labels, a layer is one."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

SLOPES = np.array([0.02, -0.01, 0.03, 0.015])


def first(report):
    """Kind and evidence of what is told first."""
    assert report.verdict == gl.Verdict.DISAGREES
    return report.findings[0].kind, report.findings[0].evidence


def log_softmax(z):
    """Row by row, shifted by the maximum."""
    z = z - z.max(axis=1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_only_a_label_at_the_wrong_index_is_called_one(rng, smoothing):
    """Smoothing left out of the gradient is in units of a fraction, and no label."""
    labels, wrong = rng.integers(0, 6, 9), np.arange(9) % 6
    soft = np.full((9, 6), smoothing / 6)
    soft[np.arange(9), labels] += 1 - smoothing

    def grad(logits):
        hard = np.zeros((9, 6))
        hard[np.arange(9), labels if smoothing else wrong] = 1
        return (np.exp(log_softmax(logits)) - hard) / 9

    report = gl.check(
        lambda logits: -(soft * log_softmax(logits)).sum() / 9,
        3 * rng.normal(size=(9, 6)),
        grad=grad,
    )

    kind, evidence = first(report)
    assert (kind == "wrong_index") is (not smoothing), evidence


def test_two_bounds_are_no_labels():
    """A clip that lets everything through is off by whole numbers that cancel."""
    x = np.array([-2.0, -0.5, 0.3, 0.5, 2.0])
    report = gl.check(
        lambda x: float(np.sum(np.abs(x) + np.clip(x, -1, 1) ** 2)),
        x,
        grad=lambda x: np.sign(x) + 2 * np.clip(x, -1, 1),
    )

    assert "labels are counted" not in first(report)[1]


@pytest.mark.parametrize("slope", [2.0, -1.5])
def test_a_kink_is_no_staircase(slope):
    """The tip of a cone is not flat; outside of its two slopes none is right."""
    report = gl.check(
        lambda x: float(np.linalg.norm(x)),
        np.zeros(3),
        grad=lambda x: np.full(3, slope),
    )

    kind, evidence = first(report)
    assert kind == "wrong_mask"
    assert "not between them" in evidence
    assert gl.check(np.linalg.norm, np.zeros(3), grad=np.zeros_like).ok


@pytest.mark.parametrize(
    ("f", "x", "gradient"),
    [
        (lambda x: float(np.prod(x)), [2.0, 0, 3, 0, 0.5], [0.0, 1, 0, 0, 0]),
        (lambda x: float(x[0] * x[1]), [0.0, 0], [1.0, 1]),
        (lambda x: 1 + float(x @ x) ** 2, [0.0, 0, 0], [1.0, 1, 1]),
        (lambda x: 7 - float((x**6).sum()), [0.0, 0, 0], [2.0, 1, 3]),
    ],
    ids=["product", "saddle", "fourth power", "sixth power"],
)
def test_a_point_without_a_slope_is_no_staircase(f, x, gradient):
    """A smooth function moves beside a saddle or a minimum: nothing is flat there."""
    report = gl.check(f, np.array(x), grad=lambda _: np.array(gradient))

    kind, evidence = first(report)
    assert kind != "surrogate"
    assert "staircase" not in evidence


@pytest.mark.parametrize("step", [1.0, 0.125])
def test_a_staircase_is_told_by_a_jump(rng, step):
    """However near to it one looks, it has the same height; a slope has not."""
    x = rng.normal(size=6)
    at, top = np.arange(6) == 2, x.max() + 0.5

    def check(f, grad):
        return first(gl.check(lambda x: float(f(x).sum()), x, grad=grad))

    kind, evidence = check(lambda x: step * np.round(x / step), lambda _: at * 0.5)
    assert kind == "surrogate"
    assert "staircase" in evidence
    assert "0.5 in 1 of 6 entries" in evidence
    kind, evidence = check(lambda x: np.maximum(x - top, 0), np.ones_like)
    assert kind == "surrogate"
    assert "is flat in x around the point" in evidence
    assert "1 throughout" in evidence


def test_rounding_is_no_movement():
    """What adds the same to all entries leaves a normalised batch as it was."""
    batch = np.random.default_rng(3).normal(size=(6, 4))

    def loss(shift):
        x = batch + shift
        normal = (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5)
        return float((normal**3).sum())

    report = gl.check(loss, np.ones(4), grad=lambda _: SLOPES)

    kind, evidence = first(report)
    assert kind == "extra_term"
    assert "staircase" not in evidence


@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_the_weight_of_one_output_is_no_bias(rng, shape):
    """``W2`` right and ``W1`` wrong are two layers: nothing is said of one line."""
    data = rng.normal(size=(8, 4))

    def loss_and_grads(params):
        hidden = data @ params["W1"]
        active = np.where(hidden > 0, hidden, 0.01 * hidden)
        second = params["W2"].reshape(5, 1)
        out = active @ second
        down = (2 * out / 8) @ second.T * np.where(hidden < 0, 1, 0.01)
        second_gradient = (active.T @ (2 * out / 8)).reshape(shape)
        return float((out**2).sum() / 8), {"W1": data.T @ down, "W2": second_gradient}

    report = gl.check(
        loss_and_grads, {"W1": rng.normal(size=(4, 5)), "W2": rng.normal(size=shape)}
    )

    assert report.culprits == ("W1",)
    assert all("same layer" not in f.evidence for f in report.findings)


@pytest.mark.parametrize(
    ("slip", "kind"), [(1.0004, "scale"), (0.99993, "scale"), (1.3, "scale")]
)
def test_a_factor_near_one_is_written_out(rng, slip, kind):
    """No line of code has the factor 1."""
    x = rng.normal(size=6)
    report = gl.check(
        lambda x: float(np.exp(x).sum()), x, grad=lambda x: slip * np.exp(x)
    )

    told, evidence = first(report)
    assert told == kind
    assert ("(1 " in evidence) is (abs(slip - 1) < 0.01)
    assert ("tolerance" in report.findings[0].advice) is (abs(slip - 1) < 0.01)


def test_a_gradient_that_is_nearly_right_is_called_so(rng):
    """A rounded coefficient leaves no term to look for."""
    x = rng.normal(size=(3, 4))

    def gradient(x, c):
        inner = 0.7978845608 * (x + c * x**3)
        t = np.tanh(inner)
        outer = 0.7978845608 * (1 + 3 * c * x**2)
        return 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * outer

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))

    weights = rng.normal(size=(4, 4))
    report = gl.check(
        lambda x: float((gelu(x @ weights) ** 2).sum()),
        x,
        grad=lambda x: (
            (2 * gelu(x @ weights) * gradient(x @ weights, 0.0447)) @ weights.T
        ),
    )

    assert "right but for" in first(report)[1]
    assert report.findings[0].doubts == ("wrong_derivative",)


def test_single_precision_in_a_backward_is_told_by_its_digits():
    """Cosines of float32 are off by 1e-7, which shows where the slope is small."""
    torch = pytest.importorskip("torch")

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, short):
            ctx.save_for_backward(x)
            ctx.short = short
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * (x.float().cos() if ctx.short else x.cos()), None

    x = torch.tensor([0.3, 1.5701, 2.0], dtype=torch.float64, requires_grad=True)

    assert gl.check(lambda x: Sine.apply(x, False), x).ok
    assert first(gl.check(lambda x: Sine.apply(x, True), x))[0] == "dtype"


def test_rows_that_are_off_by_very_little_are_not_permuted(rng):
    """Sorted, they are as close as unsorted."""
    x = rng.normal(size=5)
    weights = rng.normal(size=(4, 5))
    slips = 1 + 8e-6 * rng.uniform(0.5, 1.0, size=(4, 5))

    def jacobian(x):
        return (1 - np.tanh(weights @ x) ** 2)[:, None] * weights

    report = gl.check(
        lambda x: np.tanh(weights @ x), x, jac=lambda x: slips * jacobian(x)
    )

    assert first(report)[0] != "wrong_index"


def test_a_negative_factor_may_be_a_reversal():
    """Minus three tenths is told as a factor, and what it may be for beside it."""
    report = gl.check(
        lambda x: float(np.sin(x).sum()),
        np.arange(1.0, 5.0),
        grad=lambda x: -0.3 * np.cos(x),
    )

    assert [finding.kind for finding in report.findings] == ["scale"]
    assert "reverses gradients" in report.findings[0].advice


def test_what_is_nan_and_what_is_infinite_are_counted_apart():
    """One entry of each: neither is called the other, and both have a place."""
    x = np.array([0.0, 1.0, 4.0])

    def grad(x):
        with np.errstate(divide="ignore"):
            return np.where(x == 1, np.nan, 0.5 / np.sqrt(x))

    _, evidence = first(gl.check(lambda x: np.sqrt(x).sum(), x, grad=grad))

    assert evidence == (
        "The analytic gradient is nan in 1 of 3 entries, first at x[1]; and infinite "
        "in 1, first at x[0]."
    )


def test_a_missing_mean_is_read_off_the_input_that_is_wrong(rng):
    """Of sixty inputs of one shape the first is not named for the slip of another."""
    params = {f"layer{i}": rng.normal(size=(3, 4)) for i in range(60)}

    def loss_and_grads(params):
        grads = {name: 2 * value for name, value in params.items()}
        grads["layer31"] = 3 * grads["layer31"]
        return sum((value**2).sum() for value in params.values()), grads

    kind, evidence = first(gl.check(loss_and_grads, params))

    assert kind == "missing_reduction"
    assert "the length of axis 0 of layer31:" in evidence


def test_one_row_that_is_wrong_is_not_called_an_outer_product(rng):
    """Any row is one: of a look-up that forgets one of two terms nothing is said."""
    table, other = rng.normal(size=(7, 3)), rng.normal(size=(2, 3))

    def loss(table):
        return np.log1p(np.exp(other @ table[2])).sum() + np.sin(table).sum()

    def grad(table):
        slopes = np.cos(table)
        slopes[2] += other[0] / (1 + np.exp(-other[0] @ table[2]))
        return slopes

    report = gl.check(loss, table, grad=grad)

    assert not report.ok
    assert "outer product" not in str(report)
