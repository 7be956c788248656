"""Conditions that are no wrong formula are told as notes and warnings."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def severities(report):
    """Kinds of all findings with their severity."""
    return {str(finding.kind): finding.severity for finding in report.findings}


def test_kink_is_a_note():
    """A sub-gradient at a kink is right, and both slopes are told."""
    x = np.array([0.0, 1.0, -2.0])

    report = gl.check(lambda x: np.abs(x).sum(), x, grad=np.sign)

    assert report.ok
    assert severities(report) == {"nondifferentiable": "note"}
    assert "slope -1" in report.findings[0].evidence
    assert "x[0]" in report.findings[0].evidence


def test_wrong_at_a_kink_is_an_error():
    """A slope outside the two sides is wrong, kink or not."""
    x = np.array([0.0, 1.0])

    report = gl.check(
        lambda x: np.abs(x).sum(), x, grad=lambda x: np.sign(x) + np.array([1.5, 0])
    )

    assert not report.ok
    assert severities(report)["nondifferentiable"] == "warning"


def test_shared_memory_of_arrays(rng):
    """Two inputs that are one array are told; the gradient of each is still right."""
    x = rng.normal(size=3)

    report = gl.check(lambda a, b: (a * b).sum(), x, x, grad=lambda a, b: (b, a))

    assert report.ok
    assert severities(report)["aliasing"] == "warning"


def test_disjoint_views_share_nothing(rng):
    """Even and odd entries of one array do not overlap."""
    x = rng.normal(size=6)

    report = gl.check(
        lambda a, b: (a * b).sum(), x[::2], x[1::2], grad=lambda a, b: (b, a)
    )

    assert report.findings == ()


def test_frozen_draw_is_a_note():
    """A function that draws its dropout mask itself is checked with one draw."""
    random = np.random.RandomState(0)

    def forward(x):
        mask = random.rand(4) > 0.5
        return mask * x, mask

    report = gl.check(forward, np.ones(4), backward=lambda up, mask: up * mask)

    assert report.ok
    assert severities(report) == {"nondeterministic": "note"}


def test_nan_in_the_gradient():
    """0/0 in the backward is called not finite, and its entry is named."""
    x = np.array([1.0, 0.0, 2.0])

    def grad(x):
        with np.errstate(all="ignore"):
            return 2 * x * (x / x)

    report = gl.check(lambda x: (x**2).sum(), x, grad=grad)

    assert not report.ok
    assert report.diagnosis == "nonfinite"
    assert "x[1]" in report.findings[0].evidence


def test_overruled_step():
    """A step that is too long is blamed, not the gradient."""
    x = np.linspace(0.5, 1.5, 4)

    report = gl.check(
        lambda x: np.sin(20 * x).sum(),
        x,
        grad=lambda x: 20 * np.cos(20 * x),
        method=gl.Central(step=1e-2),
    )

    assert report.ok
    assert severities(report)["step_size"] == "warning"


def test_single_precision_is_a_note(rng):
    """A right float32 gradient gets a note on its arithmetic and nothing else."""
    x = rng.normal(size=4).astype(np.float32)

    report = gl.check(lambda x: np.tanh(x).sum(), x, grad=lambda x: 1 - np.tanh(x) ** 2)

    assert report.ok
    assert severities(report) == {"low_precision": "note"}


def test_derivative_of_zero_is_not_called_imprecise(rng):
    """What a mean takes away has derivative 0: its round-off is no sign of float32."""
    x, shift = rng.normal(size=(5, 3)), np.zeros(3)

    def centred(shift):
        moved = x + shift
        return np.sin(moved - moved.mean(axis=0)) + 1.0

    report = gl.check(centred, shift, jac=lambda shift: np.zeros((15, 3)))

    assert report.ok
    assert severities(report) == {}


def test_single_precision_inside_double_is_told(rng):
    """A cast to float32 on the way is found in the noise of the differences."""
    x = rng.normal(size=4)

    def cast(x):
        return float(np.tanh(x.astype(np.float32)).sum(dtype=np.float64))

    report = gl.check(cast, x, grad=lambda x: 1 - np.tanh(x) ** 2)

    assert report.ok
    assert severities(report) == {"low_precision": "note"}


def test_bias_before_a_norm_is_not_called_imprecise(rng):
    """A derivative of zero, all cancellation, says nothing about precision."""
    X = rng.normal(size=(6, 4))

    def loss(b):
        z = X + b
        return (((z - z.mean(0)) / z.std(0)) ** 3).sum()

    report = gl.check(loss, rng.normal(size=4), grad=lambda b: np.zeros(4))

    assert report.ok
    assert report.findings == ()


def test_a_loss_that_hardly_moves_is_not_called_imprecise(rng):
    """The mean square of what has been normalised is one: its own last digits show."""
    X, w = rng.normal(size=(6, 5)), rng.normal(size=(5, 8))

    def normalised(w):
        z = X @ w
        z = z - z.mean(axis=1, keepdims=True)
        return z, np.sqrt((z**2).mean(axis=1, keepdims=True) + 1e-5)

    def loss(w):
        z, size = normalised(w)
        return ((z / size) ** 2).mean()

    def grad(w):
        z, size = normalised(w)
        return X.T @ (2e-5 * z / size**4) / z.size

    report = gl.check(loss, w, grad=grad)

    assert report.ok
    assert report.findings == ()


def test_tie_is_a_kink_and_no_noise():
    """At a tie of max, one of the entries may take it all; only the kink is told."""
    report = gl.check(
        lambda x: x.max(),
        np.array([1.0, 1.0, 0.0]),
        grad=lambda x: np.array([1.0, 0.0, 0.0]),
    )

    assert report.ok
    assert severities(report) == {"nondifferentiable": "note"}


def test_nan_at_the_point_leads():
    """Where the function itself is nan, that is said first, not "unknown"."""
    with np.errstate(invalid="ignore"):
        report = gl.check(
            lambda x: np.log(x).sum(), np.array([1.0, -1.0]), grad=lambda x: 1 / x
        )

    assert report.diagnosis == "nonfinite"


def test_gradient_that_draws_is_not_called_a_formula(rng):
    """A gradient that differs from call to call is random, whatever its values."""
    draw = np.random.default_rng

    report = gl.check(
        lambda x: (x**2).sum(),
        rng.normal(size=5),
        grad=lambda x: 2 * x + 0.01 * draw().normal(size=5),
    )

    assert report.diagnosis == "nondeterministic"


def test_staircase_is_no_accumulation():
    """A constant gradient of a staircase is straight through, asked twice or not."""
    report = gl.check(
        lambda x: np.round(x).sum(), np.array([0.2, 1.3]), grad=np.ones_like
    )

    assert report.diagnosis == "surrogate"


class TestTorch:
    """Conditions only torch subjects can meet."""

    torch = pytest.importorskip("torch")

    def test_expanded(self):
        """Entries that share one number are told."""
        x = self.torch.ones(1, dtype=self.torch.float64).expand(4)

        report = gl.check(lambda x: (x**2).sum(), x)

        assert report.ok
        assert severities(report)["aliasing"] == "warning"

    def test_mutation(self):
        """A function that writes to its input is told, by the input's name."""
        x = self.torch.ones(3, dtype=self.torch.float64)

        report = gl.check(lambda x: x.mul_(2).sum(), x)

        named = {(f.where, str(f.kind)) for f in report.findings}
        assert ("x", "mutates_input") in named

    def test_hidden_upstream(self):
        """A loss whose backward ignores what comes in is wrong though it agrees."""
        torch = self.torch

        class Loss(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return (x**2).sum()

            @staticmethod
            def backward(ctx, upstream):
                return 2 * ctx.saved_tensors[0]

        report = gl.check(Loss.apply, torch.arange(3.0, dtype=torch.float64))

        assert not report.ok
        assert report.diagnosis == "ignores_upstream"

    def test_rough_backward(self):
        """A backward through logarithms of float32 is as linear as its digits allow."""
        torch = self.torch
        x = torch.full((5,), 1e4)

        report = gl.check(lambda x: torch.logcumsumexp(x, 0), x)

        assert report.ok

    def test_denormal_backward(self):
        """Of a gradient of 1e-42, in float32, twice is not twice to the last digit."""
        report = gl.check(lambda x: x * 1e-42, self.torch.tensor([1.0, 2.0, 3.0]))

        assert report.ok

    def test_noisy_backward(self):
        """A backward that draws its own mask is called not repeatable."""
        torch = self.torch

        class Noisy(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return 2 * x

            @staticmethod
            def backward(ctx, upstream):
                return 2 * upstream * (1 + 0.1 * torch.rand(1, dtype=torch.float64))

        report = gl.check(Noisy.apply, torch.ones(3, dtype=torch.float64))

        assert report.diagnosis == "nondeterministic"
        assert not report.ok


@pytest.mark.parametrize("method", ["auto", "forward"])
def test_a_named_method_takes_float32_as_it_is(method):
    """It runs in float64, and is not said not to; who asks for less is told so."""
    report = gl.check(
        lambda x: np.maximum(x[1:], x[:-1]),
        np.array([0.3, -1.2, 2.5, 0.9], np.float32),
        jac=lambda x: np.array([[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]], np.float32),
        method=method,
    )
    (found,) = [f for f in report.findings if f.kind == gl.BugKind.LOW_PRECISION]

    assert "does not run" not in found.evidence
    assert ("a method that is named" in found.evidence) is (method == "forward")
    assert ('method="auto"' in found.advice) is (method == "forward")


@pytest.mark.parametrize("times", [300.0, 1000.0, 3000.0])
def test_what_swings_fast_is_not_told_to_round(times, rng):
    """Bars of a step that is long beside a wave are truncation: no cast is inside."""
    report = gl.check(
        lambda x: np.sin(times * x),
        rng.normal(size=4),
        jac=lambda x: np.diag(times * np.cos(times * x)),
    )

    assert report.verdict == gl.Verdict.AGREES
    assert not report.findings


def test_a_logarithm_of_what_is_left_of_one_is_told_as_what_may_round():
    """1 - p of p = 1 - exp(-17) keeps eight digits: the cost of a sure net is rough."""
    z, target = np.array([17.0, 1.0, -0.5]), np.array([0.0, 1.0, 0.0])

    def cost(z):
        p = 1 / (1 + np.exp(-z))
        return -(target * np.log(p) + (1 - target) * np.log(1 - p)).sum()

    report = gl.check(cost, z, grad=lambda z: 1 / (1 + np.exp(-z)) - target)

    assert report.ok
    told = [f.advice for f in report.findings if f.kind == "low_precision"]
    assert told
    assert "log(1 - p)" in told[0]


def test_what_swings_fast_and_rounds_is_told_to_round(rng):
    """Single precision inside makes steps of its own, whatever bends around them."""

    def f(x):
        return np.sin(300.0 * x.astype(np.float32).astype(np.float64))

    jac = lambda x: np.diag(300.0 * np.cos(300.0 * x))
    report = gl.check(f, rng.normal(size=4), jac=jac)

    assert [finding.kind for finding in report.findings] == ["low_precision"]


@pytest.mark.parametrize("reads", [False, True])
def test_a_buffer_that_calls_write_and_read_is_state(reads):
    """What no call reads (a running mean in training) makes no second value."""
    torch = pytest.importorskip("torch")

    class Centred(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(3, dtype=torch.float64))

        def forward(self, x):
            out = (x - self.seen if reads else x) ** 2
            with torch.no_grad():
                self.seen.mul_(0.9).add_(x.mean(0), alpha=0.1)
            return out.sum()

    x = torch.arange(6.0, dtype=torch.float64).reshape(2, 3).requires_grad_()

    report = gl.check(Centred(), x)

    assert report.verdict == gl.Verdict.AGREES
    kinds = [finding.kind for finding in report.findings]
    assert kinds == (["stateful"] if reads else [])
    if reads:
        assert "changes module.seen" in report.findings[0].evidence
