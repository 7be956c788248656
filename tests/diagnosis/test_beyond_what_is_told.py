"""Readings that are true of a gradient and explain little of its error."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gradlab as gl


class Short(torch.autograd.Function):
    """A sine whose backward rounds to float32, and multiplies by a factor."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (ctx.factor * g * x.cos()).float().double(), None


@pytest.mark.parametrize(("factor", "kind"), [(1, "dtype"), (-1, "sign"), (2, "scale")])
def test_few_digits_are_no_cause_of_a_large_error(rng, factor, kind):
    """What rounds off a ten-millionth turns no sign: that is told as well, behind."""
    x = torch.from_numpy(rng.normal(size=6)).requires_grad_()

    report = gl.check(lambda x: Short.apply(x, factor), x)

    assert report.diagnosis == kind
    assert "dtype" in [finding.kind for finding in report.findings]


def test_an_array_of_few_digits_is_no_cause_of_a_large_error(rng):
    """The same of NumPy, where the dtype of what is returned tells it."""
    x = rng.normal(size=6)

    report = gl.check(
        lambda x: float(np.sin(x).sum()),
        x,
        grad=lambda x: (-np.cos(x)).astype(np.float32),
    )

    assert report.diagnosis == "sign"


def _network(rng, slip):
    """A layer of tanh and one of scores; `slip` changes the gradients of W1 and W2."""
    x, labels = rng.normal(size=(12, 4)), rng.integers(0, 3, size=12)
    params = {
        "W1": rng.normal(size=(4, 5)),
        "b1": rng.normal(size=5),
        "W2": rng.normal(size=(5, 3)),
    }

    def loss_and_grads(p):
        h = np.tanh(x @ p["W1"] + p["b1"])
        e = np.exp(h @ p["W2"])
        probabilities = e / e.sum(axis=1, keepdims=True)
        d = probabilities.copy()
        d[np.arange(12), labels] -= 1
        back = d @ p["W2"].T * (1 - h * h)
        grads = {"W1": x.T @ back, "b1": back.sum(axis=0), "W2": h.T @ d}
        slip(grads)
        return -np.log(probabilities[np.arange(12), labels]).sum(), grads

    return gl.check(loss_and_grads, params)


@pytest.mark.parametrize(
    ("name", "entry", "label"),
    [("W1", (2, 3), "W1[2, 3]"), ("b1", 2, "b1[2]"), ("W2", (2, 1), "W2[2, 1]")],
)
@pytest.mark.parametrize("factor", [1.01, 0.98])
def test_one_entry_that_is_slightly_off_is_named_and_nothing_else(
    rng, name, entry, label, factor
):
    """Neither a saved array nor a term that balances a row (of W2) spoils only one."""

    def slip(grads):
        grads[name][entry] *= factor

    report = _network(rng, slip)

    (finding,) = report.findings
    assert (finding.kind, finding.where) == ("unknown", name)
    assert f"{label} alone is wrong" in finding.evidence
    assert f"{factor:g} times as large as it should be" in finding.evidence


def test_an_entry_of_which_half_is_left_may_have_lost_the_other(rng):
    """One of few contributions may be overwritten; what is left is well below all."""

    def slip(grads):
        grads["b1"][2] *= 0.37

    finding = _network(rng, slip).findings[0]

    assert "lost_accumulation" in {finding.kind, *finding.doubts}


class Gates(torch.autograd.Function):
    """A GRU's gates: sigmoid(ar + br), tanh(an + r * bn); the backward forgets r."""

    @staticmethod
    def forward(ctx, a, b):
        r = torch.sigmoid(a[:, :2] + b[:, :2])
        n = torch.tanh(a[:, 2:] + r * b[:, 2:])
        ctx.save_for_backward(r, n, b)
        return n

    @staticmethod
    def backward(ctx, g):
        r, n, b = ctx.saved_tensors
        back = g * (1 - n * n)
        both = torch.cat([back * b[:, 2:] * r * (1 - r), back], dim=1)
        return both, both


def test_a_factor_left_out_of_one_summand_is_no_exchange(rng):
    """Most entries of both summands have one gradient: r alone tells them apart."""
    a, b = (torch.from_numpy(rng.normal(size=(3, 4))).requires_grad_() for _ in "ab")

    report = gl.check(Gates.apply, a, b, names=["a", "b"])

    (finding,) = report.findings
    assert (finding.kind, finding.where) == ("missing_term", "b")
    assert "is that of a, and should be in 6 of 12 entries" in finding.evidence


def test_what_a_solver_leaves_beside_a_factor_is_no_penalty(rng):
    """Half of the gradient, up to a ten-millionth: two numbers always fit better."""
    x, weights = rng.normal(size=4), rng.uniform(20, 60, size=4)
    rest = 1e-7 * weights * rng.normal(size=4)

    finding = gl.check(
        lambda x: float(weights @ np.sin(x)),
        x,
        grad=lambda x: 0.5 * weights * np.cos(x) + rest,
    ).findings[0]

    assert finding.kind == "scale"
    assert "penalty" not in finding.evidence


def test_one_large_entry_has_no_factor_that_small_ones_share():
    """Beside 7600 an entry of 1e-4 weighs nothing, and it is exact as it stands."""
    x = np.array([87.0, 3e-9, -6e-5])

    finding = gl.check(
        lambda x: float(x @ x),
        x,
        grad=lambda x: 2 * x * np.array([1.001, 1, 1]),
    ).findings[0]

    assert "wherever" not in finding.evidence
    assert "x[0] alone" in finding.evidence


def test_one_entry_of_zero_may_be_left_unwritten(rng):
    """No mask of a layer meets one entry of its weight: one guess of several."""

    def slip(grads):
        grads["W1"][2, 3] = 0

    finding = _network(rng, slip).findings[0]

    assert "in W1[2, 3] alone" in finding.evidence
    assert finding.confidence < 0.8
    assert {"wrong_index", "detached"} <= set(finding.doubts)
