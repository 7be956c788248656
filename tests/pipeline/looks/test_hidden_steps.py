"""Half precision hidden inside float64: not accused, and no shelter for large slips."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab import Verdict
from tests.specimens.functions import with_backward

pytestmark = pytest.mark.untraced

torch = pytest.importorskip("torch")


def half(a):
    """Round to float16 and back."""
    return a.astype("f2").astype(float)


def programs(seed):
    """Functions that round somewhere, and the gradients of what they stand for."""
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(4, 6)), rng.normal(size=(12, 6))
    x = rng.normal(size=6)

    def squares(x):
        return float((half(x) ** 2).sum())

    def hidden(x):
        return float((half(np.tanh(A @ x)) ** 2).sum())

    def hidden_grad(x):
        t = np.tanh(A @ x)
        return A.T @ (2 * t * (1 - t * t))

    def partly(x):
        return float((half(np.tanh(x)) * x).sum())

    def partly_grad(x):
        t = np.tanh(x)
        return t + x * (1 - t * t)

    def logistic(x):
        return float(np.logaddexp(0, half(half(B) @ half(x))).mean())

    def logistic_grad(x):
        return B.T @ (1 / (1 + np.exp(-B @ x))) / 12

    return x, {
        "at the input": (squares, lambda x: 2 * x),
        "in the middle": (hidden, hidden_grad),
        "in one factor": (partly, partly_grad),
        "in a product": (logistic, logistic_grad),
    }


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "name", ["at the input", "in the middle", "in one factor", "in a product"]
)
def test_hidden_half_precision_is_not_accused(name, seed):
    """Wherever it rounds; twice the gradient, or its negative, is wrong as ever."""
    x, cases = programs(seed)
    f, grad = cases[name]

    def verdict(factor):
        return gl.check(f, x, grad=lambda x: factor * grad(x), diagnose=False).verdict

    assert verdict(1) != Verdict.DISAGREES
    assert verdict(2) == Verdict.DISAGREES
    assert verdict(-1) == Verdict.DISAGREES


def test_it_is_told():
    """The finding says that something inside rounds, as a warning or a note."""
    x, cases = programs(0)
    f, grad = cases["in the middle"]

    findings = gl.check(f, x, grad=grad).findings

    assert [finding.kind for finding in findings] == [gl.BugKind.LOW_PRECISION]
    assert "half precision" in findings[0].evidence


@pytest.mark.parametrize("step", [0.25, 0.1, 0.01, 1 / 127, 2.0**-10])
def test_rounding_on_purpose_is_no_precision(step):
    """Evenly spaced steps are a quantiser, whose slope is zero and not one."""
    x = np.random.default_rng(2).normal(size=6)

    def quantise(x):
        return (np.round(x / step) * step * np.arange(1, 7)).sum()

    assert not gl.check(quantise, x, grad=lambda x: np.arange(1.0, 7)).ok
    assert gl.check(quantise, x, grad=lambda x: 0 * x).verdict == Verdict.AGREES


# Rounds to hundredths, and passes gradients straight through.
own_straight = with_backward(lambda x: torch.round(100 * x) / 100, lambda _x, g: g)


def test_torch_casts_are_seen_not_inferred():
    """Inside a network bfloat16 is excused, for its cast is seen; rounding is not."""
    generator = torch.Generator().manual_seed(3)
    x, w = (
        torch.randn(6, 4, generator=generator, dtype=torch.float64) for _ in range(2)
    )

    def cast(x, w):
        return torch.tanh((x.bfloat16() @ w.T.bfloat16()).double()).sum()

    def straight(x, w):
        return torch.tanh(own_straight(x @ w.T)).sum()

    assert gl.check(cast, x, w, diagnose=False).verdict != Verdict.DISAGREES
    assert gl.check(straight, x, w, diagnose=False).verdict == Verdict.DISAGREES


def test_fine_ripples_are_slopes():
    """A ripple is as fine as rounding and continuous: what small steps say counts."""
    x = np.random.default_rng(5).normal(size=6)

    def rippled(x):
        return (np.exp(x) + 1e-4 * np.sin(1e4 * x)).sum()

    assert gl.check(rippled, x, grad=np.exp).verdict == Verdict.DISAGREES


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_matrix_products_under_autocast(seed, factor):
    """Outputs that stand still over a step of bfloat16 are not flat."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, 6, generator=generator).requires_grad_()
    weight = torch.randn(6, 3, generator=generator)

    def layer(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            product = x @ weight
        out = torch.tanh(product.float())
        return factor * out - (factor - 1) * out.detach()

    report = gl.check(layer, x)

    assert (report.verdict == Verdict.DISAGREES) is (factor != 1.0), report


class InLess(torch.autograd.Function):
    """A product of matrices in fewer digits; a mistake of choice in its gradients."""

    @staticmethod
    def forward(ctx, x, w, dtype, mistake):
        less = x.to(dtype), w.to(dtype)
        ctx.save_for_backward(*less)
        ctx.mistake, ctx.own = mistake, x.dtype
        return (less[0].float() @ less[1].float()).to(x.dtype)

    @staticmethod
    def backward(ctx, upstream):
        x, w = (saved.float() for saved in ctx.saved_tensors)
        by_x, by_w = upstream.float() @ w.T, x.T @ upstream.float()
        if ctx.mistake == "sign":
            by_w = -by_w
        elif ctx.mistake == "factor":
            by_x = 1.3 * by_x
        elif ctx.mistake == "row":
            by_x = torch.cat([0 * by_x[:1], by_x[1:]])
        return by_x.to(ctx.own), by_w.to(ctx.own), None, None


@pytest.mark.thinned(3)
@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("less", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("own", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("mistake", "wrong"),
    [("", set()), ("sign", {"w"}), ("factor", {"x"}), ("row", {"x"})],
)
def test_digits_that_a_function_throws_away_accuse_nobody(
    mistake, wrong, own, less, coverage
):
    """Whatever is cast to less inside: mistakes are found, and rounding is none."""
    generator = torch.Generator().manual_seed(7)
    x, w = (
        torch.randn(shape, generator=generator).to(own).requires_grad_()
        for shape in ((3, 2), (2, 2))
    )

    report = gl.check(
        lambda x, w: InLess.apply(x, w, less, mistake), x, w, coverage=coverage
    )

    assert set(report.culprits) == wrong
    assert report.ok == (not wrong)
    assert not any(f.kind == gl.BugKind.ALIASING for f in report.findings)


def test_steps_closer_than_points_are_no_quantiser():
    """Steps that a scan cannot tell apart beat with it, and seem as wide as before."""
    x = np.array(
        [
            1.0654275247695242,
            1.122312164844651,
            -2.3424935717409165,
            -1.3461629620192832,
        ]
    )

    report = gl.check(lambda x: (half(x) ** 2).sum(), x, grad=lambda x: 2 * x)

    assert report.ok


def test_half_precision_that_overflows_is_no_warning_of_ours():
    """At eight times its inputs exp leaves float16: nothing is subtracted from inf."""
    x = np.random.default_rng(38_886).standard_normal(5)
    x = np.concatenate([x, [1.9, 2.5]])

    def f(x):
        with np.errstate(over="ignore"):  # the function's own overflow is its own
            return np.exp(x.astype(np.float16)).astype(float)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = gl.check(f, x, jac=lambda x: np.diag(np.exp(x)), coverage="full")

    assert report.verdict != gl.Verdict.DISAGREES


@pytest.mark.parametrize(
    ("f", "slope", "at"),
    [(torch.exp, torch.exp, 300.0), (torch.special.erfcx, None, 1e6)],
    ids=["overflows", "no number"],
)
def test_no_warning_where_f_is_no_number_far_out(f, slope, at):
    """Values that are infinite far from the point, or nan, make no noise.

    The slope of erfcx is 2 x erfcx(x) - 2 / sqrt(pi) (NIST, section 7.10).
    """

    def flipped_backward(x, up):
        if slope is not None:
            return -up * slope(x)
        return -up * (2 * x * f(x) - 2 / np.sqrt(np.pi))

    flipped = with_backward(f, flipped_backward)

    x = torch.tensor([at, -3.0, 0.5], dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gl.check(flipped, x).culprits


@pytest.mark.parametrize("seed", [5, 15])
def test_softmax_in_half_precision_is_not_accused(seed):
    """Outputs of like size at x and x / 8 round alike; and one jump is no slope.

    Of the two seeds one met the same spacing twice by chance, the other a difference
    over a single jump, beside which no jump was found.
    """

    def softmax(x, kind):
        exp = np.exp(x.astype(kind))
        return (exp / exp.sum()).astype(float)

    def jac(x):
        p = softmax(x, float)
        return np.diag(p) - np.outer(p, p)

    x = np.random.default_rng(7777 * 20 + seed).standard_normal(20)
    f = lambda x: softmax(x, np.float16)
    right = gl.check(f, x, jac=jac, coverage="full", diagnose=False)
    wrong = gl.check(f, x, jac=lambda x: 2 * jac(x), coverage="full", diagnose=False)
    assert right.verdict < Verdict.DISAGREES
    assert wrong.verdict == Verdict.DISAGREES
