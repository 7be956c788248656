"""What a float32 program holds was rounded before: its formula is as good as that.

The numeric side evaluates in float64, and so does the formula of the gradient; what
both make of arrays in float32 alone, a product or a transform, they round each in its
way.
"""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.comparison.verdict import Verdict
from gradlab.subject.numpy_in_place import StandIns

torch = pytest.importorskip("torch")

N = 24


def short(rng, *shape):
    """Normal numbers in float32."""
    return rng.normal(size=shape).astype(np.float32)


def residuals(rng):
    """A mean of squares; the gradient multiplies out."""
    a, c, x = short(rng, N, N), short(rng, N), short(rng, N)
    return (
        lambda x: ((a @ x - c) ** 2).mean() / 2,
        lambda x: a.T @ a / np.float32(N) @ x - a.T @ c / N,
        x,
    )


def shifted(rng):
    """A tenth of an array, on both sides, in another order."""
    a, c, x = short(rng, N, N), short(rng, N), short(rng, N)
    tenth = np.float32(0.1)
    return (
        lambda x: ((a @ x + tenth * c - 0.3) ** 2).sum(),
        lambda x: 2 * (a.T @ a) @ x + 2 * a.T @ (tenth * c - np.float32(0.3)),
        x,
    )


def filtered(rng):
    """A circular convolution; transforms of float32 are complex64."""
    w, h, x = short(rng, N), short(rng, N), short(rng, N)
    back = np.fft.ifft(np.fft.fft(w) * np.fft.fft(h).conj()).real

    def f(x):
        y = np.fft.ifft(np.fft.fft(x) * np.fft.fft(h)).real
        return (w * y).sum() + (x**3).sum()

    return f, lambda x: back + 3 * x**2, x


def whitened(rng):
    """A square of half a solution, whose gradient is a solution."""
    root, x = short(rng, N, N), short(rng, N)
    matrix = root @ root.T + np.eye(N, dtype=np.float32)

    def f(x):
        return ((np.linalg.solve(np.linalg.cholesky(matrix), x)) ** 2).sum() / 2

    return f, lambda x: np.linalg.solve(matrix, x), x


PROGRAMS = (residuals, shifted, filtered, whitened)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_right_gradient_in_float32_is_not_accused(program, seed):
    """Of these twelve checks eight were: of entries a tenth as large as others."""
    f, grad, x = program(np.random.default_rng(seed))

    report = gl.check(f, x, grad=grad)

    assert report.verdict == gl.Verdict.AGREES, report


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_slip_in_the_least_entry_is_told(program):
    """One percent of the entry that is smallest, beside others a hundred times it."""
    f, grad, x = program(np.random.default_rng(1))
    least = int(np.abs(grad(x)).argmin())

    def slipped(x):
        found = grad(x)
        found[least] *= 1.01
        return found

    report = gl.check(f, x, grad=slipped)

    wrong = np.flatnonzero(report["x"].verdicts == gl.Verdict.DISAGREES)
    assert wrong.tolist() == [least]


class Guarded(torch.autograd.Function):
    """Causal attention with a guard in its row sums, as flash attentions have."""

    @staticmethod
    def forward(ctx, q, k, v):
        above = torch.ones(len(q), len(q), dtype=torch.bool).triu(1)
        scores = (q @ k.T).masked_fill(above, -1e30)
        top = scores.amax(-1, keepdim=True)
        sums = (scores - top).exp().sum(-1, keepdim=True) + 1e-10
        out = (scores - top).exp() @ v / sums
        ctx.save_for_backward(q, k, v, out, scores, sums.log() + top)
        return out

    @staticmethod
    def backward(ctx, upstream):
        q, k, v, out, scores, total = ctx.saved_tensors
        p = (scores - total).exp()
        slope = p * (upstream @ v.T - (upstream * out).sum(-1, keepdim=True))
        return slope @ k, slope.T @ q, p.T @ upstream


@pytest.mark.parametrize("seed", range(4))
def test_float32_is_not_accused_of_what_its_copy_in_float64_has_alone(seed):
    """The first row sees itself: slopes of 0, which the guard makes 1e-10 in float64.

    In float32 it makes no difference, to the last bit.
    """
    torch.manual_seed(seed)
    given = [torch.randn(5, 4, requires_grad=True) for _ in range(3)]

    report = gl.check(Guarded.apply, *given)

    assert report.verdict == gl.Verdict.AGREES, report


@pytest.mark.parametrize("seed", range(3))
def test_float32_attention_with_a_bias_that_does_nothing_agrees(seed):
    """The bias of its keys moves no output: roundings of 1e-9 are within tolerance.

    Nor are they what the largest relative error is of.
    """
    torch.manual_seed(seed)
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 5, 8)
    report = gl.check(
        lambda x: attention(x, x, x)[0].square().mean(),
        x,
        params=dict(attention.named_parameters()),
    )
    assert report.verdict == Verdict.AGREES
    assert report["in_proj_bias"].max_rel_error < 1e-2


def half(rng, *shape):
    """Normal numbers in float16."""
    return rng.normal(size=shape).astype(np.float16)


def waves(rng):
    """A gradient that multiplies what f holds in float16 before x comes in."""
    w, c, x = np.float16(rng.uniform(8, 60)), half(rng, 6), half(rng, 6)
    return (lambda x: np.sum(c * np.sin(w * x)), lambda x: c * w * np.cos(w * x), x)


class Layer:
    """Parameters and data in float16; its forward keeps what its backward reads."""

    def __init__(self, rng):
        self.w, self.data = half(rng, 3, 5), half(rng, 5)
        self.forward(half(rng, 5))

    def forward(self, x):
        """Return the loss, and keep its input, of which another one may be there."""
        self.x = x
        return ((self.w @ (x * self.data)) ** 2).sum()

    def grad(self, x):
        """Square the weights first; `x` is read where the forward has put it."""
        self.forward(x)
        square = (self.w * self.data).T @ (self.w * self.data)
        return 2 * square @ self.x


def cached(rng):
    """A layer that has been run before, on other numbers."""
    layer = Layer(rng)
    return layer.forward, layer.grad, half(rng, 5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("program", [waves, cached])
def test_constants_in_half_precision_are_widened(program, seed):
    """Their products have three digits: all of these eight gradients were accused."""
    f, grad, x = program(np.random.default_rng(seed))

    assert gl.check(f, x, grad=grad).verdict == gl.Verdict.AGREES

    slipped = gl.check(f, x, grad=lambda x: np.multiply(grad(x), 1.01))
    assert slipped.verdict == gl.Verdict.DISAGREES


def test_parameters_beside_constants_in_half_precision():
    """Those that are read in place stand in float64 beside what else is held."""
    rng = np.random.default_rng(0)
    params, a, c = {"w": half(rng, 5)}, half(rng, 4, 5), half(rng, 4)

    def loss_and_grads():
        w = params["w"]
        return ((a @ w - c) ** 2).sum(), {"w": 2 * (a.T @ a) @ w - 2 * a.T @ c}

    report = gl.check(loss_and_grads, params=params)

    assert report.verdict == gl.Verdict.AGREES, report
    assert params["w"].dtype == a.dtype == np.float16


def test_what_a_layer_keeps_meanwhile_is_left_to_it():
    """Constants are put back; a place that the code has written to holds its own."""
    held = {"scale": np.float16(0.5), "cache": np.ones(2, np.float16)}

    def run():
        held["cache"] = held["scale"] * np.ones(3)
        return held["scale"]

    around = StandIns.of_halves([held]).around(run)

    assert around().dtype == np.float64
    assert held["scale"].dtype == np.float16
    assert held["cache"].tolist() == [0.5] * 3
