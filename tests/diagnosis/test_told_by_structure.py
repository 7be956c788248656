"""Kinds that the structure of a Jacobian tells: powers, axes, states, norms, digits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gradlab as gl
from tests.specimens.functions import with_backward


def told(forward, *inputs, **options):
    """Return the only finding of a check; None where there is none."""
    findings = gl.check(forward, *inputs, **options).findings
    assert len(findings) < 2
    return findings[0] if findings else None


def batch_norm(power):
    def forward(x):
        apart = x - x.mean(axis=0)
        deviation = np.sqrt((apart**2).mean(axis=0))
        return apart / deviation, (apart, deviation)

    def backward(up, cache):
        apart, deviation = cache
        by_variance = -0.5 * (up * apart).sum(axis=0) / deviation**power
        direct = up / deviation + by_variance * 2 * apart / len(apart)
        return direct - direct.mean(axis=0)

    return forward, backward


@pytest.mark.parametrize(("power", "factor"), [(1, "s**2"), (2, "s**1"), (5, "s**-2")])
def test_a_wrong_power_of_the_variance_is_named(power, factor, rng):
    """The derivative of var**-0.5 is -0.5 * var**-1.5, that is, one by s**3."""
    x = rng.normal(size=(7, 3)) * [1, 2, 0.5]
    forward, backward = batch_norm(power)

    found = told(forward, x, backward=backward)

    assert found.kind == "wrong_derivative"
    assert f"the factor {factor}, where s is the standard deviation" in found.evidence


def test_a_right_batch_norm_has_no_finding(rng):
    """The twin of these."""
    forward, backward = batch_norm(3)

    assert told(forward, rng.normal(size=(7, 3)), backward=backward) is None


@pytest.mark.parametrize("axis", [0, 1])
def test_a_bias_summed_over_its_own_axis_is_a_wrong_axis(axis, rng):
    """Of as many samples as features both sums have the shape of the bias."""
    x = rng.normal(size=(4, 4))

    def forward(b):
        return np.tanh(x + b), 1 - np.tanh(x + b) ** 2

    found = told(
        forward, rng.normal(size=4), backward=lambda up, s: (up * s).sum(axis=axis)
    )

    if axis == 0:
        assert found is None
    else:
        assert found.kind == "wrong_axis"
        assert "along axis 1 uses the entry of b with that index" in found.evidence


@pytest.mark.parametrize("rows", [slice(None), slice(1), slice(-1, None)])
def test_a_slope_for_each_feature_behind_a_mask_is_summed_over_samples(rows, rng):
    """Kept for one sample alone it is no mask: which entries serve, shapes tell."""
    x = rng.normal(size=(5, 4))

    def forward(slopes):
        return np.where(x > 0, x, slopes * x), None

    def backward(up, _):
        return (up * x * (x <= 0))[rows].sum(axis=0)

    found = told(forward, rng.uniform(0.1, 0.5, 4), backward=backward)

    if rows == slice(None):
        assert found is None
    else:
        assert found.kind == "broadcast_reduction"


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_a_backward_in_half_precision_is_one_finding(dtype, rng):
    """Every number is the right one rounded off, in the weight and in the bias."""
    x = rng.normal(size=(6, 3))

    def loss(params):
        y = np.tanh(x @ params["W"] + params["b"])
        d = 2 * y * (1 - y**2)
        grads = {"W": x.T @ d, "b": d.sum(axis=0)}
        grads = {k: g.astype(dtype).astype(float) for k, g in grads.items()}
        return (y**2).sum(), grads

    found = told(loss, {"W": rng.normal(size=(3, 2)), "b": rng.normal(size=2)})

    if dtype is np.float64:
        assert found is None
    else:
        assert (found.kind, set(found.places)) == ("dtype", {"W", "b"})
        assert "each is the right one rounded off" in found.evidence


def test_a_part_that_another_input_has_as_well_is_missing(rng):
    """The anchor of a triplet gets nothing from the negative one; that is right."""
    a, p, n = (rng.normal(size=(4, 3)) for _ in range(3))

    def loss(anchor, positive, negative, *, lost=True):
        near, far = anchor - positive, np.exp(anchor - negative)
        grads = (near if lost else near - far, -near, far)
        return 0.5 * (near**2).sum() - far.sum(), grads

    found = told(loss, a, p, n)

    assert (found.kind, found.where) == ("missing_term", "anchor")
    assert "the right one + that of negative, which is right itself" in found.evidence
    assert found.doubts == ("extra_term",)
    assert told(lambda *x: loss(*x, lost=False), a, p, n) is None


def test_a_symmetric_gradient_is_no_sum_of_samples(rng):
    """Of an eigenvector's part none is left: no loop that overwrites does that."""
    b = rng.normal(size=4)

    def energy(A):
        w, V = np.linalg.eigh(A + A.T)
        v = V[:, 0]
        return w[0] ** 2 + (b @ v) ** 2, 4 * w[0] * np.outer(v, v)

    found = told(energy, rng.normal(size=(4, 4)))

    assert found.kind != "lost_accumulation"


@pytest.mark.parametrize("lost", [False, True])
def test_a_norm_as_a_constant_is_seen_from_all_outputs(lost, rng):
    """Weights behind a norm do not change anything along themselves."""
    x = rng.normal(size=(5, 3))

    def forward(V):
        size = np.linalg.norm(V, axis=1, keepdims=True)
        return x @ (V / size).T, (V / size, size)

    def backward(up, cache):
        unit, size = cache
        d = up.T @ x
        along = 0 if lost else unit * (unit * d).sum(axis=1, keepdims=True)
        return (d - along) / size

    found = told(forward, rng.normal(size=(4, 3)), backward=backward)

    if lost:
        assert found.kind == "missing_term"
        assert "does not change when each row of V is stretched" in found.evidence
    else:
        assert found is None


@pytest.mark.parametrize("step", [0, 1])
def test_the_state_of_another_step_is_a_stale_one(step, rng):
    """h = a[t] h + x[t]: all outputs of an entry are off by h[t + 1] / h[t]."""
    x = rng.normal(size=(6, 2))

    def forward(a):
        states = [np.zeros(2)]
        for gate, entering in zip(a, x, strict=True):
            states.append(gate * states[-1] + entering)
        return np.stack(states[1:]), (a, states)

    def backward(up, cache):
        a, states = cache
        carried, grads = np.zeros(2), np.zeros_like(a)
        for t in reversed(range(len(a))):
            carried = carried + up[t]
            grads[t] = carried * states[t + step]
            carried = carried * a[t]
        return grads

    found = told(forward, rng.uniform(0.5, 1.5, (6, 2)), backward=backward)

    if step:
        assert found.kind == "stale_cache"
        assert "a straight line in each entry" in found.evidence
    else:
        assert found is None


def test_a_slope_of_the_first_function_stays_a_wrong_derivative(rng):
    """What is no straight line in its entries is multiplied by a slope."""
    m = rng.normal(size=(5, 4))

    def forward(x):
        return m @ np.sin(x), x

    found = told(
        forward, rng.normal(size=4), backward=lambda up, x: m.T @ up * np.sin(x)
    )

    assert found.kind == "wrong_derivative"


def test_a_factor_for_every_pair_is_no_weight_of_a_class(rng):
    """Twelve factors in twelve pairs follow neither samples nor features."""
    x, other = rng.uniform(1, 2, (4, 3)), rng.uniform(1, 2, (4, 3))

    def forward(W):
        return np.sin(x @ W), np.cos(x @ W)

    found = told(
        forward, rng.normal(size=(3, 5)), backward=lambda up, c: other.T @ (up * c)
    )

    assert found.kind != "scale"


@pytest.mark.parametrize("kept", [0.8, 1.0])
def test_a_factor_of_all_inputs_is_no_mean_over_a_few_entries(kept):
    """Four of five units are on, and 0.8 stands in front of all: that of a dropout."""
    rng = np.random.default_rng(0)
    x, on = rng.normal(size=(6, 3)), np.array([1, 1, 0, 1, 1.0])

    def loss(params):
        first = np.tanh(x @ params["W1"] + params["b1"])
        second = np.tanh(first @ params["W2"] + params["b2"]) * on / 0.8
        d2 = second * on / 0.8 * (1 - (second * 0.8) ** 2) * kept
        d1 = d2 @ params["W2"].T * (1 - first**2)
        grads = {"W1": x.T @ d1, "b1": d1.sum(axis=0)}
        grads |= {"W2": first.T @ d2, "b2": d2.sum(axis=0)}
        return 0.5 * (second**2).sum(), grads

    shapes = {"W1": (3, 5), "b1": 5, "W2": (5, 5), "b2": 5}
    found = told(loss, {name: rng.normal(size=size) for name, size in shapes.items()})

    if kept == 1:
        assert found is None
    else:
        assert (found.kind, len(found.places)) == ("scale", 4)


# A sum of squares that forgets what comes back to it, or does not.
own_energy = with_backward(
    lambda x, forgets: (x**2).sum(),
    lambda x, forgets, up: (2 * x * (1 if forgets else up), None),
)


@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("forgets", [True, False])
def test_a_loss_that_forgets_the_incoming_gradient_is_told_at_any_coverage(
    coverage, forgets
):
    """A check by random directions has asked for other cotangents as well."""
    x = torch.linspace(-1, 2, 6, dtype=torch.float64)

    found = told(lambda x: own_energy(x, forgets), x, coverage=coverage)

    if forgets:
        assert (found.kind, found.where) == ("ignores_upstream", "x")
    else:
        assert found is None


def test_no_fractions_are_cut_off_where_there_are_none():
    """Ones in place of the incoming gradient are whole numbers, and not cut off."""

    def forward(x):
        return x[::2].copy(), None

    def ones(up, _):
        grad = np.zeros(6, dtype=int)
        grad[::2] = 1
        return grad

    report = gl.check(forward, np.linspace(1, 2, 6), backward=ones)

    errors = [f for f in report.findings if f.severity == "error"]
    assert [f.kind for f in errors] == ["ignores_upstream"]
    assert not any("fractions" in f.evidence for f in report.findings)


def test_fractions_that_are_cut_off_are_an_error():
    """The twin: slopes below one, as whole numbers."""

    def loss(x):
        return np.sin(x).sum(), np.cos(x).astype(int)

    report = gl.check(loss, np.linspace(0.5, 1.2, 5))

    assert report.findings[0].kind == "dtype"
    assert "its fractions were cut off" in report.findings[0].evidence


def test_gradients_that_are_never_zeroed_are_one_finding(rng):
    """No error signal spoils the weight: both add to what earlier calls left."""
    x, kept = rng.normal(size=(6, 3)), {"W": 0.0, "b": 0.0}

    def loss(params):
        y = np.tanh(x @ params["W"] + params["b"])
        d = 2 * y * (1 - y**2)
        for name, grad in (("W", x.T @ d), ("b", d.sum(axis=0))):
            kept[name] = kept[name] + grad
        return (y**2).sum(), dict(kept)

    found = told(loss, {"W": rng.normal(size=(3, 2)), "b": rng.normal(size=2)})

    assert (found.kind, set(found.places)) == ("accumulated_grad", {"W", "b"})
    assert "error signal" not in found.evidence
