"""Weights measured by the products that they enter: the same slopes, in fewer calls."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import gradlab as gl
from gradlab.differentiation.evaluation import base_row
from gradlab.differentiation.metering.budget import Budget
from gradlab.differentiation.metering.meter import Meter
from gradlab.differentiation.products.through_products import ThroughProducts
from gradlab.subject.tensors.subjects import torch_subject
from tests.specimens.functions import with_backward
from tests.specimens.torch_sides import randn

torch = pytest.importorskip("torch")

F = torch.nn.functional

BATCH, WIDE, HIDDEN, CLASSES = 4, 50, 20, 6
SHAPES = ((BATCH, WIDE), (HIDDEN, WIDE), (HIDDEN,), (CLASSES, HIDDEN), (CLASSES,))
NAMES = ("x", "w1", "b1", "w2", "b2")
GOAL = torch.tensor([0, 1, 2, 3])


def _loss(x, w1, b1, w2, b2):
    return F.cross_entropy(F.linear(torch.tanh(F.linear(x, w1, b1)), w2, b2), GOAL)


def _logits(x, w1, b1, w2, b2):
    return 3 + torch.tanh(x @ w1.T + b1) @ w2.T + b2  # none is small by cancellation


def _point(scale=0.3):
    torch.manual_seed(0)
    return tuple((scale * randn(*shape)).requires_grad_() for shape in SHAPES)


def _measured(fn, point, **budget):
    subject = torch_subject(fn, point, names=NAMES[: len(point)])
    meter = Meter(**budget)
    base = base_row(subject, meter)
    products = ThroughProducts(subject, range(len(point)), base, meter)
    return [products.of(which) for which in range(len(point))], meter


def _steep(x, w1, b1, w2, b2):
    return torch.sigmoid(20 * F.linear(x, w1, b1)).sum() + (w2 @ w2.T).sum() + b2.sum()


def _rounded(x, w1, b1, w2, b2):
    return torch.tanh(F.linear(x, w1, b1).float()).double().sum() + w2.sum() + b2.sum()


@pytest.mark.parametrize("fn", [_steep, _rounded])
def test_bars_cover_truncation_and_rounding_inside(fn):
    """Curvature on a scale of a twentieth, and noise of single precision."""
    point = _point()
    truth = torch.autograd.functional.jacobian(fn, point)

    found, _ = _measured(fn, point)

    for exact, quotients in list(zip(truth, found, strict=True))[:3]:
        error = np.abs(quotients.value - exact.reshape(1, -1).numpy())
        assert (error <= 1.5 * quotients.error).all()


@pytest.mark.parametrize("fn", [_loss, _logits])
def test_slopes_are_those_of_autograd(fn):
    """Within three bars; and the bars are narrow."""
    point = _point()
    truth = torch.autograd.functional.jacobian(fn, point)

    found, _ = _measured(fn, point)

    alone = ["b2"] if fn is _logits else []  # of which a constant is part as well
    assert [n for n, each in zip(NAMES, found, strict=True) if each is None] == alone
    for exact, quotients in zip(truth, found, strict=True):
        if quotients is None:
            continue
        wanted = exact.reshape(quotients.value.shape).numpy()
        error = np.abs(quotients.value - wanted)
        assert (error <= 3 * quotients.error).all()
        assert quotients.error.max() <= 1e-7 * np.abs(wanted).max()


def test_a_product_is_displaced_once_for_all_its_factors():
    """Two evaluations an entry, six along a direction each, one to find them."""
    found, meter = _measured(_loss, _point())

    assert all(found)
    entries = BATCH * (HIDDEN + CLASSES)
    assert meter.evaluations == 1 + 1 + 2 * entries + 6


def test_a_check_takes_a_tenth_of_the_evaluations_and_says_so():
    """The report tells what was displaced."""
    point = _point()

    report = gl.check(_loss, *point, coverage="full", names=NAMES)

    own = 2 * sum(tensor.numel() for tensor in point)
    assert report.verdict is gl.Verdict.AGREES
    assert report.evaluations < own / 5
    assert any(remark.endswith("rule: x, w1, b1, w2, b2") for remark in report.remarks)


# A linear map of which entries of one gradient are changed.
own_wrong = with_backward(
    lambda x, w, change: x @ w.T,
    lambda x, w, change, grad: (grad @ w, change(grad.T @ x), None),
)


def _one(factor):
    def change(gradient):
        gradient = gradient.clone()
        gradient[3, 7] *= factor
        return gradient

    return change


def test_a_function_that_cannot_be_batched_is_evaluated_one_by_one():
    """A custom Function without a rule for vmap: as few evaluations as any other."""
    x, w1, *_ = _point()

    def fn(x, w1):
        return torch.tanh(own_wrong(x, w1, lambda gradient: gradient)).square().sum()

    report = gl.check(fn, x, w1, coverage="full", names=("x", "w1"))

    assert report.verdict is gl.Verdict.AGREES
    assert report.evaluations < 2 * BATCH * HIDDEN + 10
    assert report.remarks[0].endswith("x, w1")


@pytest.mark.parametrize("factor", [0.0, -1.0, 1.01, 2.0])
def test_one_wrong_entry_is_named(factor):
    """Nothing else is accused: neither of the weight nor of its neighbours."""
    x, w1, *_ = _point()

    def fn(x, w1):
        return torch.tanh(own_wrong(x, w1, _one(factor))).square().sum()

    report = gl.check(fn, x, w1, coverage="full", names=("x", "w1"))

    right, wrong = report.comparisons
    assert right.verdict is gl.Verdict.AGREES
    assert wrong.verdict is gl.Verdict.DISAGREES
    assert wrong.counts[gl.Verdict.DISAGREES] == 1
    assert wrong.worst(1)["label"].item() == "w1[3, 7]"


def test_what_else_becomes_of_a_weight_is_measured_as_ever():
    """A penalty whose gradient is lost is found, although a product is there."""
    x, w1, *_ = _point()

    def fn(x, w1):
        return torch.tanh(x @ w1.T).sum() + w1.detach().square().sum()

    report = gl.check(fn, x, w1, coverage="full", names=("x", "w1"))

    assert report.verdict is gl.Verdict.DISAGREES
    assert not any(remark.endswith("w1") for remark in report.remarks)


def test_a_corner_is_met_as_ever():
    """A hidden unit exactly at the corner of relu: what autograd takes is a slope."""
    x, w1, *_ = _point()
    with torch.no_grad():
        w1[3] = 0.0

    def fn(x, w1):
        hidden = torch.relu(x @ w1.T)
        return hidden.square().sum() + hidden.sum()

    report = gl.check(fn, x, w1, coverage="full", names=("x", "w1"))

    assert report.verdict is gl.Verdict.AGREES
    assert any("kink" in str(finding) for finding in (*report.findings, report))


def test_units_that_sleep_take_no_second_looks():
    """Their slopes are zero on both sides, and the small weights have narrow bars."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(400, 60), torch.nn.ReLU(), torch.nn.Linear(60, 5)
    ).double()
    x = torch.rand(4, 400, dtype=torch.float64)
    x[:, :50] = 0.0  # pixels that are black in all of them
    asleep = int((model[:2](x) == 0).all(dim=0).sum())

    report = gl.check(
        model, x, loss=lambda y: F.cross_entropy(y, GOAL), coverage="full"
    )

    assert asleep > 0
    assert report.verdict is gl.Verdict.AGREES
    assert report.evaluations < 2 * 4 * (60 + 5) + 30
    assert not any("looked at again" in remark for remark in report.remarks)


@pytest.mark.parametrize("seed", range(6))
def test_units_that_sleep_stay_asleep_in_batches(seed):
    """Where a batch gives the loss another last digit than the point, none wakes up."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
    ).double()
    x = torch.rand(4, 784, dtype=torch.float64)

    report = gl.check(
        model, x, loss=lambda y: F.cross_entropy(y, GOAL), coverage="full"
    )

    assert report.verdict is gl.Verdict.AGREES
    assert report.evaluations < 3 * 4 * (128 + 10)


def test_a_bias_whose_slopes_cancel_is_not_torn():
    """In front of a batch normalisation nothing depends on it: no kink is told."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDE, HIDDEN), torch.nn.BatchNorm1d(HIDDEN), torch.nn.Tanh()
    ).double()

    report = gl.check(model, randn(6, WIDE), loss=torch.sum, coverage="full")

    assert report.verdict is gl.Verdict.AGREES
    assert {finding.kind.value for finding in report.findings} == {"stateful"}


def test_a_batch_of_nothing_has_no_products():
    """No rows: the loss depends on the bias behind them alone."""
    w = randn(30, 40).requires_grad_()

    report = gl.check(
        lambda w: (torch.zeros(0, 40, dtype=w.dtype) @ w.T).sum() + 2.0, w
    )

    assert report.verdict is gl.Verdict.AGREES


def _recurrent(x, w, u, b):
    hidden = torch.zeros(2, HIDDEN, dtype=x.dtype)
    for step in x:
        hidden = torch.tanh(step @ w + hidden @ u + b)
    return hidden.square().sum()


def _tied(table, w):
    return F.cross_entropy(torch.tanh(table[GOAL] @ w) @ table.T, GOAL)


def _attention(x, parts, out):
    q, k, v = (torch.einsum("ti,oi->to", x, part) for part in parts.chunk(3))
    return (torch.softmax(q @ k.T / 3, -1) @ v @ out).square().sum()


SEVERAL = {
    "logistic regression": (
        lambda x, w, b: F.softplus(x @ w + b).sum(),
        ((4, 300), (300,), ()),
        2 * 4,
    ),
    "recurrent": (
        _recurrent,
        ((3, 2, WIDE), (WIDE, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN,)),
        2 * 3 * 2 * HIDDEN,
    ),
    "tied": (_tied, ((300, 20), (20, 20)), 2 * (4 * 20 + 4 * 20 + 4 * 300)),
    "attention": (
        _attention,
        ((4, 40), (120, 40), (40, 40)),
        2 * (3 * 4 * 40 + 4 * 40),
    ),
    "convolution": (
        lambda x, w, b: F.conv2d(x, w, b, padding=1).tanh().square().sum(),
        ((1, 32, 3, 3), (16, 32, 3, 3), (16,)),
        2 * 16 * 9,
    ),
}


@pytest.mark.parametrize(("fn", "shapes", "displaced"), SEVERAL.values(), ids=SEVERAL)
def test_weights_that_are_used_in_several_places(fn, shapes, displaced):
    """The slopes of all uses add up; the evaluations are those of their entries."""
    torch.manual_seed(0)
    x, *weights = ((0.3 * randn(*shape)).requires_grad_() for shape in shapes)
    if fn is _tied:
        given, own = fn, (x, *weights)
    else:
        given, own = functools.partial(fn, x.detach()), tuple(weights)
    truth = torch.autograd.functional.jacobian(given, own)

    found, meter = _measured(given, own)

    assert meter.evaluations <= displaced + 20
    for exact, quotients in zip(truth, found, strict=True):
        wanted = exact.reshape(quotients.value.shape).numpy()
        error = np.abs(quotients.value - wanted)
        assert (error <= 3 * quotients.error).all()
        assert quotients.error.max() <= 1e-7 * np.abs(wanted).max()


LAYERS = {
    "lstm": (lambda: torch.nn.LSTM(30, 40), 2 * 3 * 160),
    "gru": (lambda: torch.nn.GRU(30, 40), 2 * 3 * 160),
    "transformer": (
        lambda: torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0),
        2 * 6 * (3 * 32 + 32 + 64 + 32) + 4 * 2 * 32,
    ),
}


@pytest.mark.parametrize(("make", "displaced"), LAYERS.values(), ids=LAYERS)
def test_layers_that_torch_has_as_one_function(make, displaced):
    """What becomes of their weights inside is followed."""
    torch.manual_seed(0)
    layer = make().double()
    width = 30 if isinstance(layer, torch.nn.RNNBase) else 32
    x = randn(3, 2, width)

    def loss(out):
        out = out[0] if isinstance(out, tuple) else out
        return (out * torch.linspace(-1, 2, out.shape[-1]).sin()).sum()

    report = gl.check(layer, x, loss=loss, coverage="full")

    assert report.verdict is gl.Verdict.AGREES
    assert report.evaluations <= 2 * displaced + 200


@pytest.mark.parametrize("which", [0, 1])
def test_a_use_without_a_gradient_is_found(which):
    """One of two products by which a weight enters is cut off from autograd."""
    torch.manual_seed(0)
    x, w = randn(2, 60), (0.3 * randn(60, 60)).requires_grad_()

    def fn(w):
        uses = [w, w]
        uses[which] = w.detach()
        return (torch.tanh(x @ uses[0]) @ uses[1]).square().sum()

    report = gl.check(fn, w, coverage="full")

    assert report.verdict is gl.Verdict.DISAGREES
    assert report.diagnosis == "detached"


def test_a_small_budget_is_left_to_the_entries():
    """What cannot be paid is not begun."""
    found, meter = _measured(_loss, _point(), budget=Budget(evaluations=100))

    assert found == [None] * 5
    assert meter.evaluations <= 100


def test_an_input_of_zeros_has_no_slopes_and_finite_bars():
    """A pixel that is black in every picture moves nothing, whatever its weight."""
    x, *rest = (tensor.detach() for tensor in _point())
    x[:, 5] = 0.0

    found, _ = _measured(_loss, (x, *rest))

    dead = found[1].value.reshape(HIDDEN, WIDE)[:, 5]
    bars = found[1].error.reshape(HIDDEN, WIDE)[:, 5]
    assert not dead.any()
    assert np.isfinite(found[1].step).all()
    assert ((bars > 0) & (bars < 1e-8)).all()
