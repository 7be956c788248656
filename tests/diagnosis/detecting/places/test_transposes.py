"""Transposes that are lost between two inputs, in held matrices, along some axes."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from tests.specimens.activations import softmax


def scores(wrong):
    """Attention weights by queries and keys; the keys get ds @ q for ds.T @ q."""

    def forward(q, k):
        p = softmax(q @ k.T)
        return p, (q, k, p)

    def backward(up, cache):
        q, k, p = cache
        ds = p * (up - (up * p).sum(axis=1, keepdims=True))
        return ds @ k, (ds if wrong else ds.T) @ q

    return forward, backward


@pytest.mark.parametrize("length", [3, 8])
def test_keys_with_the_signal_of_queries(length, rng):
    """q.T @ ds @ q is the transpose of q.T @ ds.T @ q, whatever the softmax does."""
    q, k = rng.normal(size=(2, length, 4))
    forward, backward = scores(wrong=True)

    report = gl.check(forward, q, k, backward=backward)

    assert [(str(f.kind), f.where) for f in report.findings] == [("transpose", "k")]
    assert "ds.T @ q" in report.findings[0].advice
    forward, backward = scores(wrong=False)
    assert gl.check(forward, q, k, backward=backward).findings == ()


@pytest.mark.parametrize("wrong", [True, False])
def test_weights_of_keys_in_a_loss(wrong, rng):
    """The same of Wq and Wk behind data that the loss holds."""
    x, goal = rng.normal(size=(2, 6, 4))

    def loss_and_grads(p):
        q, k = x @ p["Wq"], x @ p["Wk"]
        a = softmax(q @ k.T)
        da = (a @ x - goal) @ x.T
        ds = a * (da - (da * a).sum(axis=1, keepdims=True))
        dk = (ds if wrong else ds.T) @ q
        return 0.5 * ((a @ x - goal) ** 2).sum(), {
            "Wq": x.T @ ds @ k,
            "Wk": x.T @ dk,
        }

    params = {name: 0.5 * rng.normal(size=(4, 4)) for name in ("Wq", "Wk")}
    report = gl.check(loss_and_grads, params)

    told = [(str(f.kind), f.where) for f in report.findings]
    assert told == ([("transpose", "Wk")] if wrong else [])


def test_neighbours_that_the_function_holds(rng):
    """A for A.T on the way back through a graph, whatever stands behind it."""
    a = rng.uniform(size=(5, 5)) + np.eye(5)
    w = rng.normal(size=(3, 2))

    def loss(x):
        return float(np.log(np.cosh(a @ x @ w)).sum())

    def grad(x, back=a):
        return back @ np.tanh(a @ x @ w) @ w.T

    x = rng.normal(size=(5, 3))
    report = gl.check(loss, x, grad=grad)

    assert report.diagnosis == "transpose"
    assert "Look for a in the backward" in report.findings[0].advice
    assert gl.check(loss, x, grad=lambda x: grad(x, a.T)).findings == ()


def test_one_matrix_that_spoils_several_inputs_is_told_once(rng):
    """The sentence about W is the same for all before it, and printed once."""
    target = rng.normal(size=(6, 3))

    def loss_and_grads(p):
        h = np.tanh(p["x"] @ p["V"])
        g = np.tanh(h @ p["W"])
        e = (g - target) * (1 - g * g)
        back = (e @ p["W"]) * (1 - h * h)
        return 0.5 * ((g - target) ** 2).sum(), {
            "x": back @ p["V"].T,
            "V": p["x"].T @ back,
            "W": h.T @ e,
        }

    shapes = {"x": (6, 4), "V": (4, 3), "W": (3, 3)}
    params = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    report = gl.check(loss_and_grads, params)

    (told,) = report.findings
    assert (told.kind, sorted(told.places)) == ("transpose", ["V", "x"])
    assert str(report).count("symmetric part") == 1


@pytest.mark.parametrize("kernel", [True, False])
def test_a_matrix_along_an_axis_of_images_is_no_kernel(kernel, rng):
    """Only what slides along an axis can be reversed; a matrix is transposed."""
    m, taps, w = rng.normal(size=(5, 5)), rng.normal(size=3), rng.normal(size=(3, 2))

    def along(x):
        if not kernel:
            return np.einsum("ij,ncjk->ncik", m, x)
        wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)))
        return sum(tap * wide[:, :, k : k + 5] for k, tap in enumerate(taps))

    first = gl.check(
        lambda x: (np.einsum("fc,ncik->nfik", w, along(x)), None),
        rng.normal(size=(2, 2, 5, 3)),
        backward=lambda up, _: np.einsum("fc,nfik->ncik", w, along(up)),
    ).findings[0]

    assert first.kind == ("wrong_index" if kernel else "transpose")
    assert ("kernel" in first.advice) is kernel


def test_an_error_as_small_as_an_agreement_is_no_transpose(rng):
    """A millionth of W is wrong here and anywhere; what x lacks is told first."""
    w, x = rng.normal(size=(5, 5)), rng.normal(size=(3, 5))
    off = 1 + 4e-6 * rng.uniform(-1, 1, size=(5, 5))

    def forward(w, x):
        y = np.tanh(np.tanh(x) @ w)
        return y, (w, x, y)

    def backward(up, cache):
        w, x, y = cache
        down = up * (1 - y**2)
        return off * (np.tanh(x).T @ down), down @ w.T

    report = gl.check(forward, w, x, backward=backward)

    assert report.verdict == gl.Verdict.DISAGREES
    assert "transpose" not in {finding.kind for finding in report.findings}
    assert report.findings[0].where == "x"


@pytest.mark.parametrize("kind", ["csr_array", "csc_matrix", "coo_array"])
def test_a_sparse_matrix_that_is_held_is_a_matrix(kind, rng):
    """The neighbours of a graph: of sum((A x)**3) the gradient is A.T 3 (A x)**2."""
    sparse = pytest.importorskip("scipy.sparse")
    edges = getattr(sparse, kind)(np.triu(rng.normal(size=(5, 5))))
    x = rng.normal(size=(5, 3))

    def grad(x):
        return edges @ (3 * (edges @ x) ** 2)

    report = gl.check(lambda x: ((edges @ x) ** 3).sum(), x, grad=grad)

    assert [str(f.kind) for f in report.findings] == ["transpose"]
    assert "W = edges.T" in report.findings[0].evidence


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_a_sparse_tensor_that_is_held_is_a_matrix(layout, rng):
    """The same with tensors: no detector fails of them."""
    torch = pytest.importorskip("torch")
    edges = getattr(torch.tensor(np.triu(rng.normal(size=(5, 5)))), layout)()
    x = torch.tensor(rng.normal(size=(5, 3)))

    class Cubes(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return ((edges @ x) ** 3).sum()

        @staticmethod
        def backward(ctx, up):
            (x,) = ctx.saved_tensors
            return up * (edges @ (3 * (edges @ x) ** 2))

    report = gl.check(lambda x: Cubes.apply(x) + 0 * (edges @ x).sum(), x)

    assert [str(f.kind) for f in report.findings] == ["transpose"]
