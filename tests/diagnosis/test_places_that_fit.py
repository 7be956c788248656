"""Which entry, which row, which axis: what is exchanged is told as what it is."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def first(report):
    """Kind, doubts and sentence of the first finding."""
    finding = report.findings[0]
    return str(finding.kind), set(map(str, finding.doubts)), finding.evidence


def test_a_slope_that_is_zero_shows_no_entries_kept_apart():
    """A softmax over lists of several lengths: what is padded stands still anyway."""
    rng = np.random.default_rng(0)
    s, lengths = rng.normal(size=(4, 6)), (6, 4, 5, 3)
    rank = np.argsort(rng.random((4, 6)), 1)

    def f(s):
        z = np.take_along_axis(s, rank, 1)
        return sum(
            np.log(np.exp(z[b, i:n]).sum()) - z[b, i]
            for b, n in enumerate(lengths)
            for i in range(n)
        )

    def grad(s, ends=(6,) * 4):
        z, d = np.take_along_axis(s, rank, 1), np.zeros_like(s)
        ranked = np.zeros_like(s)
        for b, n in enumerate(ends):
            for i in range(n):
                e = np.exp(z[b, i:n])
                ranked[b, i:n] += e / e.sum()
                ranked[b, i] -= 1
        np.put_along_axis(d, rank, ranked, 1)
        return d

    assert gl.check(f, s, grad=lambda s: grad(s, lengths))

    report = gl.check(f, s, grad=grad)

    assert not any("keeps the entries" in f.evidence for f in report.findings)
    assert report.diagnosis != "wrong_axis"


@pytest.mark.parametrize("seed", range(3))
def test_a_gradient_that_is_added_elsewhere_is_a_wrong_index(seed):
    """np.add.at with the users' indices where the items' belong."""
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, 6, (2, 25))
    y, bias = rng.normal(size=25), rng.normal(size=6)

    def grad(b):
        d = np.zeros(6)
        np.add.at(d, user, 2 * (bias[user] + b[item] - y))
        return d

    report = gl.check(
        lambda b: ((bias[user] + b[item] - y) ** 2).sum(),
        rng.normal(size=6),
        grad=grad,
    )

    kind, doubts, _ = first(report)
    assert "wrong_index" in {kind, *doubts}
    assert kind != "wrong_axis" or doubts


def test_rows_that_all_stand_twice_may_have_lost_an_accumulation(rng):
    """P[u] += g writes each row once; every user has rated something twice."""
    user, item = rng.permutation(np.arange(24) % 4), rng.integers(0, 5, 24)
    y, q = rng.normal(size=24), rng.normal(size=(5, 3))

    def grad(p):
        d = np.zeros_like(p)
        d[user] += 2 * ((p[user] * q[item]).sum(1) - y)[:, None] * q[item]
        return d

    report = gl.check(
        lambda p: (((p[user] * q[item]).sum(1) - y) ** 2).sum(),
        rng.normal(size=(4, 3)),
        grad=grad,
    )

    kind, doubts, _ = first(report)
    assert "lost_accumulation" in {kind, *doubts}


@pytest.mark.parametrize("tall", [True, False])
def test_a_square_part_of_a_jacobian_that_is_transposed(tall, rng):
    """Four rows of five are lower triangular, and upper in the Jacobian given."""
    square, rest = np.tril(rng.uniform(1, 2, (4, 4))), rng.uniform(1, 2, (1, 4))

    def joined(part):
        return np.vstack([part, rest]) if tall else np.hstack([part, rest.T])

    a = joined(square)
    report = gl.check(
        lambda x: a @ x, rng.normal(size=a.shape[1]), jac=lambda x: joined(square.T)
    )

    kind, doubts, words = first(report)
    assert (kind, doubts) == ("transpose", set())
    assert f"in its {'rows' if tall else 'columns'} 0 to 3" in words


def test_the_slope_of_a_constant_is_no_mask_for_sure():
    """One of three outputs does not move: what stands in its column is no slope."""
    angle = np.array([0.4, 1.2, 2.0])

    def f(x):
        return np.stack([0.28 + 0 * x, np.cos(x), 3 * np.cos(x) ** 2 - 1], -1)

    def jac(x):
        found, k = np.zeros((3, 3, 3)), np.arange(3)
        slopes = [0.28 + 0 * x, -np.sin(x), -6 * np.cos(x) * np.sin(x)]
        found[k, :, k] = np.stack(slopes, -1)
        return found

    kind, doubts, _ = first(gl.check(f, angle, jac=jac))

    assert kind == "wrong_mask"
    assert doubts == {"extra_term", "wrong_derivative"}


def test_a_mean_over_heads_is_a_wrong_axis(rng):
    """Each output knows the slope of its own head; all heads get the mean of it."""
    away, values = -np.arange(4.0), rng.normal(size=(2, 4, 3))
    scores = rng.normal(size=(2, 4, 4))

    def weights(slopes):
        e = np.exp(scores + slopes[:, None, None] * away)
        return e / e.sum(-1, keepdims=True)

    def vjp(up, slopes):
        p, d = weights(slopes), up[0] @ values.transpose(0, 2, 1)
        each = ((d - (d * p).sum(-1, keepdims=True)) * p * away).sum((1, 2))
        return (np.full(2, each.mean()),)

    report = gl.check(
        lambda slopes: (weights(slopes) @ values)[None], rng.normal(size=2), vjp=vjp
    )

    assert first(report)[0] == "wrong_axis"


def test_four_axes_are_no_image_without_a_kernel(rng):
    """Heads and tokens come in four axes as well: indices are counted."""
    x = rng.normal(size=(2, 3, 4, 5))

    def vjp(up, x):
        d = up * np.cos(x)
        d[:, :, 3] *= 0.9
        return (d,)

    words = first(gl.check(np.sin, x, vjp=vjp))[2]

    assert "image" not in words
    assert "axis 2" in words


def test_levels_of_a_transform_have_factors_and_no_slope(rng):
    """Means and differences of pairs, twice: each level lacks a root of two."""
    root = np.sqrt(2)
    step = np.array([[1.0, 1, 0, 0], [1, -1, 0, 0], [0, 0, 1, 1], [0, 0, 1, -1]])
    pairs = np.kron(np.eye(2), step) / root
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    once = pairs[order]
    twice = np.eye(8)
    twice[:4, :4] = step[[0, 2, 1, 3]] / root
    transform = twice @ once
    levels = np.r_[np.full(4, 0.5), np.full(4, 1 / root)]

    report = gl.check(
        lambda x: transform @ x,
        rng.normal(size=8),
        jac=lambda x: levels[:, None] * transform,
    )

    kind, doubts, words = first(report)
    assert kind == "scale"
    assert "wrong_derivative" in doubts
    assert "0.5, 0.7071" in words


def test_an_entry_read_at_another_index_may_be_that(rng):
    """Weights of edges divided by the degree of the wrong end."""
    source, target = (
        np.array([0, 0, 0, 1, 1, 2, 3, 3]),
        np.array([1, 2, 3, 0, 2, 3, 0, 1]),
    )
    degree = np.bincount(source)
    x = rng.normal(size=4)

    def f(w):
        out = np.zeros((8, 4))
        out[np.arange(8), target] = w * x[source] / degree[target]
        return out @ np.vander(np.arange(1.0, 5), 3)

    def jac(w):
        slopes = x[source] / degree[source]
        rows = np.zeros((8, 4, 8))
        rows[np.arange(8), target, np.arange(8)] = slopes
        return np.einsum("ijk,jl->ilk", rows, np.vander(np.arange(1.0, 5), 3))

    kind, doubts, _ = first(gl.check(f, rng.normal(size=8), jac=jac))

    assert kind != "stale_cache" or "wrong_index" in doubts


def test_a_sparse_input_is_no_table():
    """Its coordinates are fewer than its rows are long: no detector fails of that."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    places = torch.tensor([[0, 0, 1, 2, 2, 3], [1, 3, 0, 2, 4, 3]])

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, w):
            ctx.save_for_backward(a, w)
            return a @ w

        @staticmethod
        def backward(ctx, up):
            a, w = ctx.saved_tensors
            values = 0.5 * (up[places[0]] * w[places[1]]).sum(1)
            return torch.sparse_coo_tensor(places, values, a.shape), a.t() @ up

    values = torch.randn(6, dtype=torch.float64)
    a = torch.sparse_coo_tensor(places, values, (4, 5)).coalesce().requires_grad_()
    w = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)

    kind, _, _ = first(gl.check(Product.apply, a, w))

    assert kind == "scale"
