"""A softmax along a short axis, by another way, is the same softmax."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

import gradlab as gl
from gradlab.subject.tensors.incremental import short_softmax as torch_narrow
from gradlab.subject.tensors.incremental.short_softmax import called

TARGET = torch.tensor([2, 0, 1, 2, -100])
OTHER = torch.tensor([2, 1, -99, 2, 0])
WEIGHT = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)


@pytest.fixture
def logits(rng):
    """Batch of 7 times 5 rows of 3 classes, some of them far apart."""
    values = torch.tensor(rng.normal(size=(7, 5, 3)))
    values[0] *= 300.0
    values[1, :, 0] = -torch.inf
    return values


@pytest.mark.parametrize(
    ("func", "args", "kwargs"),
    [
        (torch.softmax, (-1,), {}),
        (torch.softmax, (1,), {}),
        (torch.softmax, (0,), {}),
        (torch.log_softmax, (), {"dim": 1}),
        (functional.softmax, (), {"dim": -1}),
        (functional.log_softmax, (1,), {"dtype": torch.float32}),
        (torch.Tensor.log_softmax, (-1,), {}),
        (functional.cross_entropy, (TARGET,), {}),
        (functional.cross_entropy, (TARGET, WEIGHT), {"reduction": "none"}),
        (functional.cross_entropy, (TARGET.clamp(min=0),), {"reduction": "sum"}),
        (functional.cross_entropy, (OTHER,), {"ignore_index": -99}),
        (functional.cross_entropy, (TARGET,), {"label_smoothing": 0.1}),
        (
            functional.cross_entropy,
            (torch.full((5, 3), 1 / 3, dtype=torch.float64),),
            {},
        ),
    ],
)
def test_values_are_those_of_torch_sample_by_sample(logits, func, args, kwargs):
    """In a batch every function gives what it gives by itself."""
    found = torch.vmap(lambda z: called(func, (z, *args), kwargs))(logits)

    apart = torch.stack([func(each, *args, **kwargs) for each in logits])

    assert found.dtype == apart.dtype
    assert torch.allclose(found, apart, rtol=1e-14, atol=1e-15, equal_nan=True)


@pytest.mark.parametrize(
    "loss",
    [
        lambda z: functional.cross_entropy(z, TARGET),
        lambda z: functional.softmax(z, -1).square().sum(),
        lambda z: functional.log_softmax(z, dim=1).sum(),
        lambda z: z.log_softmax(-1).sum(),
    ],
)
def test_what_users_call_goes_the_other_way(monkeypatch, rng, loss):
    """As torch announces a call, with everything that nobody gave."""
    told = []
    real = torch_narrow._softmax

    def heard(*args, **kwargs):
        found = real(*args, **kwargs)
        told.append(found is not None)
        return found

    class Announced(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return called(func, args, kwargs or {})

    monkeypatch.setattr(torch_narrow, "_softmax", heard)
    torch_narrow._ways.cache_clear()
    logits = torch.tensor(rng.normal(size=(7, 5, 3)))
    try:
        with Announced():
            found = torch.vmap(loss)(logits)
    finally:
        torch_narrow._ways.cache_clear()

    assert any(told)
    assert torch.allclose(found, torch.stack([loss(z) for z in logits]), rtol=1e-14)


def test_outside_of_a_batch_nothing_is_touched(logits):
    """A single evaluation calls what the user called, to the bit."""
    found = called(functional.cross_entropy, (logits[2], TARGET), {})

    assert torch.equal(found, functional.cross_entropy(logits[2], TARGET))


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_every_entry_of_a_classifier_has_its_verdict(rng, factor):
    """Right weights agree; one row wrong by a thousandth is found."""

    class Slip(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(weight):
            return weight.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, gradient):
            scale = torch.ones(4, 1, dtype=gradient.dtype)
            scale[2] = factor
            return gradient * scale

    x = torch.tensor(rng.normal(size=(6, 64)))
    target = torch.tensor([0, 1, 2, 3, 0, 1])
    weight = torch.tensor(rng.normal(size=(4, 64)), requires_grad=True)

    def loss(weight):
        return functional.cross_entropy(x @ Slip.apply(weight).T, target)

    report = gl.check(loss, weight, coverage="full")

    wrong = (report.comparisons[0].verdicts == gl.Verdict.DISAGREES).reshape(4, 64)
    assert report.ok == (factor == 1.0)
    assert wrong.any(axis=1).tolist() == [False, False, factor != 1.0, False]
