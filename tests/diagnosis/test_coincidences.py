"""Numbers that happen to be a length, and zeros that happen to fit, are no proof."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def first(report):
    """Kind, doubts and sentence of the first finding."""
    finding = report.findings[0]
    return str(finding.kind), set(map(str, finding.doubts)), finding.evidence


def test_weights_of_two_classes_are_no_lengths_for_sure(rng):
    """1/4 and 3/4 are as 1 and 3, which groups of samples may have for lengths."""
    x, y = rng.normal(size=(7, 3)), rng.random((7, 3)) < 0.4
    weights = np.where(y, 0.25, 0.75)
    sign = np.where(y, -1.0, 1.0)

    report = gl.check(
        lambda x: (weights * np.log1p(np.exp(sign * x))).sum(),
        x,
        grad=lambda x: 0.25 * sign / (1 + np.exp(-sign * x)),
    )

    kind, doubts, words = first(report)
    assert "scale" in {kind, *doubts}
    assert "if these are lengths" in words


def test_halves_at_an_edge_are_no_lengths_for_sure(rng):
    """4 x analytic / numeric is 4, 2 and 1: nine entries are no groups of two."""

    def grad(x):
        d = np.cos(x)
        d[-1] *= 0.5
        d[:, -1] *= 0.5
        return d

    report = gl.check(lambda x: np.sin(x).sum(), rng.normal(size=(6, 5)), grad=grad)

    kind, doubts, _ = first(report)
    assert "scale" in {kind, *doubts}


def test_lengths_that_groups_have_are_told_with_certainty(rng):
    """Means over groups of 2, 3 and 4, whose gradient forgets to divide."""
    ids = np.repeat([0, 1, 2], [2, 3, 4])
    counts = np.bincount(ids)

    report = gl.check(
        lambda x: np.bincount(ids, x) / counts,
        rng.normal(size=9),
        vjp=lambda up, x: (up[ids],),
    )

    kind, doubts, words = first(report)
    assert (kind, doubts) == ("missing_reduction", set())
    assert "lengths of groups" in words


def _cox(counted):
    """Partial likelihood of some events among twelve samples, and its gradients."""
    rng = np.random.default_rng(0)
    covariates, at = rng.normal(size=(12, 3)), rng.permutation(12)
    events = np.flatnonzero(np.arange(12) % 4 > 0).tolist()
    mask = np.arange(12) % 4 > 0
    number = (lambda: int(mask.sum())) if counted else (lambda: 9)

    def f(b, x):
        e = x @ b
        return sum(np.log(np.exp(e)[at >= at[i]].sum()) - e[i] for i in events) / (
            number()
        )

    def grad(b, x):
        w, d = np.exp(x @ b), np.zeros(12)
        for i in events:
            there = np.where(at >= at[i], w, 0.0)
            d += there / there.sum()
            d[i] -= 1
        return x.T @ d, np.outer(d, b)

    return gl.check(f, np.array([0.3, -0.2, 0.5]), covariates, grad=grad)


def test_a_mean_over_events_is_one_over_a_mask():
    """Nine of twelve samples are events: nine is no number of samples."""
    kind, doubts, words = first(_cox(counted=True))

    assert (kind, doubts) == ("missing_reduction", set())
    assert "9 is the number of true entries of `mask`" in words


def test_a_number_that_no_array_has_is_named_as_what_it_may_be():
    """Of nine events that are listed nothing has the length but the list."""
    kind, doubts, words = first(_cox(counted=False))

    assert kind == "missing_reduction"
    assert doubts == {"scale"}
    assert "9 is " not in words
    assert "may be missing" in words


@pytest.mark.parametrize(("size", "hedged"), [(8, True), (7, False)])
def test_a_factor_that_people_write_may_be_one(size, hedged):
    """Eight is the length of x and a number in formulas; seven rather a length."""
    x = np.linspace(1, 2, size)

    report = gl.check(lambda x: np.sin(x).sum(), x, grad=lambda x: size * np.cos(x))

    kind, doubts, _ = first(report)
    assert kind == "missing_reduction"
    assert ("scale" in doubts) is hedged


def test_the_scale_of_a_layer_that_is_a_length_may_be_a_scale():
    """alpha / r = 8 of a low-rank adapter; A happens to hold eight numbers."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)

    class Adapted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, a, b):
            ctx.save_for_backward(x, a, b)
            return 8.0 * (x @ a.T) @ b.T

        @staticmethod
        def backward(ctx, up):
            x, a, b = ctx.saved_tensors
            return 8 * up @ b @ a, (up @ b).T @ x, 8 * up.T @ (x @ a.T)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Parameter(torch.randn(2, 4, dtype=torch.float64))
            self.b = torch.nn.Parameter(torch.randn(3, 2, dtype=torch.float64))

        def forward(self, x):
            return Adapted.apply(x, self.a, self.b)

    x = torch.randn(5, 4, dtype=torch.float64)
    report = gl.check(Model(), x, loss=lambda y: (y**2).mean())

    kind, doubts, words = first(report)
    assert "scale" in {kind, *doubts}
    assert "8 is the number of entries of its input 1" in words


def test_a_layer_that_hands_a_gradient_to_one_input_hands_on_some():
    """That of the variance is None, that of the mean is right."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)

    class Divergence(torch.autograd.Function):
        @staticmethod
        def forward(ctx, mean, log):
            ctx.save_for_backward(mean)
            return 0.5 * (mean**2 + log.exp() - 1 - log).sum()

        @staticmethod
        def backward(ctx, up):
            (mean,) = ctx.saved_tensors
            return up * mean, None

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(5, 4)

        def forward(self, x):
            return Divergence.apply(*self.linear(x).chunk(2, 1))

    report = gl.check(Encoder().double(), torch.randn(6, 5, dtype=torch.float64))

    kind, _, words = first(report)
    assert kind == "detached"
    assert "hands on no gradient to input 1" in words


@pytest.mark.parametrize("strength", [0.1, 40.0])
def test_a_square_of_great_weight_is_a_penalty_or_another_term(strength, rng):
    """Nobody holds weights by 40 w^2 / 2; a self energy may be as large."""
    report = gl.check(
        lambda w: np.sin(w).sum() + strength / 2 * (w**2).sum(),
        rng.normal(size=9),
        grad=np.cos,
    )

    kind, doubts, _ = first(report)
    assert kind == "regularization"
    assert doubts == ({"missing_term"} if strength > 1 else set())


def test_factors_of_samples_behind_one_vector_are_no_weights(rng):
    """X @ b alone is used: any wrong error signal is a factor for each sample of X."""
    b = rng.normal(size=3)
    right = np.arange(12) == 4

    def grad(x):
        z = x @ b
        return np.outer(np.where(right, np.cos(z), np.exp(-z)), b)

    x = np.abs(rng.normal(size=(12, 3))) * np.sign(b) / 9  # where the cosine is > 0
    report = gl.check(lambda x: np.sin(x @ b).sum(), x, grad=grad)

    assert first(report)[0] != "scale"


def test_a_mean_runs_over_data_and_not_over_another_weight(rng):
    """Twelve is the number of samples, in columns, and by chance that of W1 as well."""
    x, y = rng.normal(size=(3, 12)), rng.normal(size=(1, 12))
    params = {"W1": rng.normal(size=(4, 3)), "W2": rng.normal(size=(1, 4))}

    def loss_and_grads(p):
        hidden = np.tanh(p["W1"] @ x)
        error = p["W2"] @ hidden - y
        inner = p["W2"].T @ error * (1 - hidden**2)
        grads = {"W1": inner @ x.T / 12, "W2": error @ hidden.T}
        return 0.5 * (error**2).sum() / 12, grads

    (told,) = gl.check(loss_and_grads, params).findings

    assert (told.kind, told.where) == ("missing_reduction", "W2")
    assert "W1" not in told.evidence
    assert "12 is the" in told.evidence
