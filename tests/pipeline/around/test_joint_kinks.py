"""Several kinks of one output: sub-gradients of each that are none of all together."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

TIES = np.array([1.0, 3.0, 3.0, 0.0, 3.0])


def windows(x):
    """Pairs of neighbours, as a pooling layer sees them."""
    return x.reshape(-1, 2)


def pool(x):
    """Maximum of each pair; the backward gets the pairs."""
    return windows(x).max(axis=1), windows(x)


def to_first(upstream, pairs):
    """Give the gradient to the first of equals."""
    dx = np.zeros_like(pairs)
    np.put_along_axis(
        dx, pairs.argmax(axis=1)[:, None], np.asarray(upstream)[:, None], 1
    )
    return (dx.ravel(),)


def to_each(upstream, pairs):
    """Give all of it to each of equals: counted double."""
    mask = pairs == pairs.max(axis=1, keepdims=True)
    return ((mask * np.asarray(upstream)[:, None]).ravel(),)


@pytest.mark.parametrize("weight", [1.0, -2.0, 1e6])
@pytest.mark.parametrize(
    ("gradient", "right"),
    [
        (lambda mask: mask / mask.sum(), True),
        (lambda mask: mask * (np.arange(5) == np.argmax(mask)), True),
        (lambda mask: mask, False),
    ],
    ids=["shared", "first", "each"],
)
def test_ties_of_a_maximum(gradient, right, weight):
    """Moved together, three equal entries move the maximum once and not three times."""
    report = gl.check(
        lambda x: weight * x.max(),
        TIES,
        grad=lambda x: weight * gradient(1.0 * (x == x.max())),
    )

    assert report.ok is right
    assert report.diagnosis == ("nondifferentiable" if right else "wrong_mask")
    assert report.culprit == (None if right else "x")


@pytest.mark.parametrize("bend", [1e-10, 1e-9, 1e-8, 1e-6])
def test_ties_of_a_maximum_that_bends_at_once(bend):
    """A root of x**2 + 1e-9 is no line within the steps that kinks are followed by."""

    def f(x):
        return x.max() * np.sqrt(x.max() ** 2 + bend)

    def first(x):
        slope = (2 * x.max() ** 2 + bend) / np.sqrt(x.max() ** 2 + bend)
        return slope * (np.arange(x.size) == x.argmax())

    report = gl.check(f, np.zeros(4), grad=first)

    assert report.ok, report


@pytest.mark.parametrize("seed", range(4))
def test_a_kink_among_many_that_are_met_within_the_step(seed):
    """A table of numbers behind weights of 1e6: at 1e-5 the table has long ended."""
    weights = 1e6 * np.random.default_rng(seed).normal(size=(5, 12))
    at, table = [-2.0, -1.0, 0.0, 0.5, 2.0], [0.0, 0.3, 1.0, 0.2, 0.1]
    slopes = np.array([0.0, *np.diff(table) / np.diff(at), 0.0])

    report = gl.check(
        lambda x: np.interp(weights @ x, at, table).sum(),
        np.zeros(12),
        grad=lambda x: slopes[np.searchsorted(at, weights @ x)] @ weights,
    )

    assert report.ok, report


@pytest.mark.parametrize("backward", [to_first, to_each])
def test_ties_in_windows(backward):
    """Each output has ties of its own, as on an image of whole numbers."""
    x = np.array([1.0, 1.0, 2.0, 5.0, 0.0, 0.0, 4.0, 4.0])

    report = gl.check(pool, x, backward=backward)

    assert report.ok is (backward is to_first)


@pytest.mark.parametrize("strict", [True, False])
def test_ties_between_two_inputs(strict):
    """``maximum(x, y)`` with ``x >= y`` and ``y >= x`` counts a tie double."""

    def forward(x, y):
        return np.maximum(x, y), (x, y)

    def backward(upstream, cache):
        x, y = cache
        return upstream * (x >= y), upstream * (y > x if strict else y >= x)

    x, y = np.array([1.0, 2.0, 3.0]), np.array([1.0, 5.0, 3.0])

    assert gl.check(forward, x, y, backward=backward).ok is strict


@pytest.mark.parametrize(
    ("gradient", "right"),
    [
        (np.zeros(3), True),
        (np.array([0.6, 0.0, -0.8]), True),
        (np.ones(3), False),
    ],
)
def test_norm_at_zero_has_sub_gradients_of_length_one_at_most(gradient, right):
    """Ones are sub-gradients along each axis, and too long by the square root of 3."""
    report = gl.check(
        lambda x: float(np.linalg.norm(x)), np.zeros(3), grad=lambda _: gradient
    )

    assert report.ok is right


def test_kinks_that_bend_up_and_down_are_not_one_function():
    """(0, 0) is in the generalised gradient of relu(x) - relu(-y), whose sum is x + y.

    Along (1, 1) its slope is 1 on both sides; Clarke's set is the product of two
    intervals all the same, as the function is a sum over its entries.
    """
    report = gl.check(
        lambda x: max(x[0], 0.0) - max(-x[1], 0.0),
        np.zeros(2),
        grad=lambda _: np.zeros(2),
    )

    assert report.ok


def test_without_ties_nothing_is_followed():
    """A single kink, or none, costs not one evaluation more."""
    smooth = gl.check(lambda x: (x**2).sum(), TIES, grad=lambda x: 2 * x)

    assert smooth.evaluations <= 2 * len(TIES) + 1


def variation(x):
    """Sum of all steps from one number to the next; constant runs are kinks."""
    return float(np.abs(np.diff(x)).sum() + np.sin(x).sum())


def signs_of_steps(x):
    """Its gradient, with the slope of 0 for steps that are none."""
    signs = np.sign(np.diff(x))
    return np.append(0, signs) - np.append(signs, 0) + np.cos(x)


RUNS = np.array([0.3, 0.3, 1.2, 1.2, 1.2, -0.4, -0.4])


@pytest.mark.parametrize("slip", ["scale", "entry", "other"])
def test_a_few_percent_between_both_sides_of_every_kink(slip):
    """Each entry lies between its slopes; moved with its run it has one slope."""

    def grad(x):
        wrong = signs_of_steps(x)
        if slip == "scale":
            return 1.01 * wrong
        wrong[0 if slip == "entry" else 5] += 0.05
        return wrong

    assert gl.check(variation, RUNS, grad=signs_of_steps).ok
    assert not gl.check(variation, RUNS, grad=grad).ok


@pytest.mark.parametrize("rank", [1, 2])
def test_a_nuclear_norm_at_a_matrix_of_low_rank(rank, rng):
    """Its gradient is U V' and any contraction beyond; 1.01 U V' is none of them."""
    x = rng.normal(size=(3, rank)) @ rng.normal(size=(rank, 4))
    u, _, v = np.linalg.svd(x, full_matrices=False)
    uv = u[:, :rank] @ v[:rank]
    beyond = u[:, rank:] @ v[rank:]

    def ok(grad):
        return gl.check(
            lambda x: float(np.linalg.norm(x, "nuc")), x, grad=lambda _: grad
        ).ok

    assert ok(uv)
    assert ok(uv + 0.7 * beyond)
    assert not ok(1.01 * uv)
    assert not ok(1.01 * uv + 0.5 * beyond)


def test_a_limit_of_gradients_where_kinks_bend_both_ways():
    """(1, -1) is one of |x| - |y|, though along (1, -1) f stands still."""
    for grad in ([1.0, -1.0], [1.0, 1.0], [0.0, 0.0], [0.4, -0.9]):
        report = gl.check(
            lambda x: abs(x[0]) - abs(x[1]), np.zeros(2), grad=lambda _, g=grad: g
        )
        assert report.ok, report
