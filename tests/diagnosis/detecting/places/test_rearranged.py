"""Right numbers at wrong places: copies, shifts, factors along the other axis."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from tests.diagnosis.measure import run, seeded
from tests.diagnosis.pieces import Program, linear


def told_first(program):
    """Kind of the first finding."""
    return run(program).diagnosis


def with_slip(rng, slip):
    """Program of a linear layer whose gradient of W is changed by `slip` in place."""
    right = linear(rng, "")
    backward = right.options["backward"]

    def wrong(up, cache):
        dx, dW, db = backward(up, cache)
        slip(dW)
        return dx, dW, db

    return Program(right.fn, right.inputs, {"backward": wrong})


def test_copied_row():
    """A row that holds the gradient of another row is a wrong index, not a factor."""

    def slip(dW):
        dW[1] = dW[0]

    assert told_first(with_slip(seeded(5, "row"), slip)) == "wrong_index"


def test_mask_of_maximum_is_no_index(rng):
    """A maximum picks by value: its slip is a mask; a lookup's is an index."""
    x, rows = rng.normal(size=(4, 5)), np.arange(4)

    maximum = Program(
        lambda x: (x.max(1), x),
        (x,),
        {"backward": lambda up, x: up[:, None] * (x == x.min(1, keepdims=True))},
    )

    def back(up, _):
        g = np.zeros((4, 5))
        g[rows, 2] = up
        return g

    lookup = Program(lambda x: (x[rows, 1], None), (x,), {"backward": back})

    assert told_first(maximum) == "wrong_mask"
    assert told_first(lookup) == "wrong_index"


@pytest.mark.parametrize("factor", [-1.0, 4.0])
def test_factor_on_couplings_only(factor, rng):
    """The term through a mean with a wrong sign, or summed, is told apart from 1/N."""
    x = rng.normal(size=4)

    def jac(x):
        return 3 * np.eye(4) - factor * np.ones((4, 4)) / 4

    report = gl.check(lambda x: 3 * x - x.mean(), x, jac=jac)

    assert report.diagnosis == ("sign" if factor < 0 else "missing_reduction")


def test_two_readings_of_a_constant(rng):
    """One number too much everywhere may be a term too many or one that is missing."""
    report = gl.check(
        lambda x: (x**2).sum(), rng.normal(size=5), grad=lambda x: 2 * x + 0.3
    )

    told = report.findings[0].evidence
    assert [str(finding.kind) for finding in report.findings] == ["missing_term"]
    assert "0.3" in told
    assert "missing, or one too much" in told
    assert report.findings[0].doubts == ("extra_term",)


@pytest.mark.parametrize(
    ("factor", "words"), [(1j, "analytic = -1j x"), (0.5 - 0.5j, "(0.5+0.5j) x")]
)
def test_one_complex_factor(factor, words, rng):
    """Of a product whose factor is conjugated twice, or was left where it stood."""
    z, w = rng.normal(size=(2, 4)) + 1j * rng.normal(size=(2, 4))

    report = gl.check(
        lambda z: w * z, z, vjp=lambda up, z: up * w.conj() * np.conj(factor)
    )

    assert report.diagnosis == "scale"
    assert words in report.findings[0].evidence


@pytest.mark.parametrize("left", [False, True])
def test_conjugated_but_not_transposed(rng, left):
    """A complex product whose backward has the conjugate and lacks the transpose."""
    torch = pytest.importorskip("torch")

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return w @ x if left else x @ w

        @staticmethod
        def backward(ctx, up):
            x, w = ctx.saved_tensors
            if left:
                return w.conj() @ up, up @ x.conj().T
            return up @ w.conj(), x.conj().T @ up

    def draw(*shape):
        return torch.tensor(rng.normal(size=shape) + 1j * rng.normal(size=shape))

    shape = (3, 2) if left else (2, 3)
    report = gl.check(Product.apply, draw(*shape), draw(3, 3), names=("x", "w"))

    assert report.culprits == ("x",)
    assert report.diagnosis == "transpose"


def test_new_numbers_among_many_are_not_called_misplaced(rng):
    """Where any number is near some slope, that says nothing of where it belongs."""
    A = rng.uniform(0.5, 1.0, size=(300, 300))
    B = A.copy()
    B[7, 3:9] = rng.uniform(0.5, 1.0, size=6)

    report = gl.check(lambda x: A @ x, rng.normal(size=300), jac=lambda _: B)

    assert report.verdict is gl.Verdict.DISAGREES
    assert "wrong_index" not in {str(f.kind) for f in report.findings}


def test_an_assignment_may_look_like_numbers_at_wrong_places():
    """Of v[t + 1] - v[t] and what follows one term is kept: numbers known elsewhere."""
    g, lam = 0.9, 0.8

    def advantages(r, v):
        delta = r + g * v[1:] - v[:-1]
        out, carried = np.zeros(len(r)), 0.0
        for t in reversed(range(len(r))):
            carried = out[t] = delta[t] + g * lam * carried
        return out, None

    def backward(dout, _cache):
        error, carried = np.zeros(len(dout)), 0.0
        for t in range(len(dout)):
            carried = error[t] = dout[t] + g * lam * carried
        dv = np.zeros(len(dout) + 1)
        dv[:-1] = -error
        dv[1:] = g * error
        return error, dv

    rng = np.random.default_rng(0)
    report = gl.check(
        advantages, rng.normal(size=5), rng.normal(size=6), backward=backward
    )

    (finding,) = report.findings
    kinds = {str(finding.kind)} | {str(doubt) for doubt in finding.doubts}
    assert "lost_accumulation" in kinds
    assert "+= belongs" in finding.advice or finding.kind == "lost_accumulation"


def test_a_long_order_is_told_to_go_on(rng):
    """Twelve of twenty-four indices, and that there are more."""
    order, weights = rng.permutation(24), rng.normal(size=24)
    (found,) = gl.check(
        lambda x: weights @ x**2,
        rng.normal(size=24),
        grad=lambda x: (2 * weights * x)[order],
    ).findings

    assert f"in the order {order.tolist()[:12]}"[:-1] + ", ...]" in found.evidence
