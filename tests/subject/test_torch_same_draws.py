"""Functions in short precision that draw their own noise: a copy draws the same."""

from __future__ import annotations

import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")

from gradlab.subject.tensors.in_double import same_draws  # noqa: E402

NOISY = {
    "randn_like": lambda x: x + torch.randn_like(x),
    "randn of a shape": lambda x: x + torch.randn(x.shape, dtype=x.dtype),
    "its own generator": lambda x: (
        x
        + torch.randn(
            x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(3)
        )
    ),
    "rand_like": lambda x: x * torch.rand_like(x),
    "a mask": lambda x: x * (torch.rand_like(x) > 0.3),
    "bernoulli": lambda x: x * torch.bernoulli(torch.full_like(x, 0.7)),
    "normal_": lambda x: x + x.new_empty(x.shape).normal_(0.0, 0.5),
    "uniform_": lambda x: x * torch.empty_like(x).uniform_(0.5, 1.5),
    "normal": lambda x: x + torch.normal(torch.zeros_like(x), torch.ones_like(x)),
    "mixup": lambda x: torch.lerp(x, x.flip(0), torch.rand((), dtype=x.dtype)),
}


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def x(request, rng):
    """Two dozen numbers: torch draws sixteen normal ones and more in another way."""
    return torch.tensor(rng.normal(size=(6, 4)), dtype=request.param)


@pytest.mark.parametrize("noisy", NOISY.values(), ids=NOISY)
def test_noise_of_its_own(noisy, x):
    """A right gradient agrees by every door, whatever noise is added on the way."""

    def loss(x):
        return (noisy(x).float() ** 2).mean()

    report = gl.check(loss, x)

    assert report.verdict is gl.Verdict.AGREES
    assert not gl.locate(loss, x).table.size


def test_wrong_beside_noise(x):
    """A factor is found beside noise."""
    doubled = with_backward(lambda x: x.clone(), lambda _x, upstream: 2 * upstream)

    report = gl.check(lambda x: (doubled(x) + torch.rand_like(x)).sin().sum(), x)

    assert report.diagnosis == "scale"


def test_other_draws_accuse_nobody():
    """Where the copy cannot draw the same, as inside pooling, it is no reference."""
    x = torch.arange(81.0).reshape(1, 1, 9, 9).sin()

    def loss(x):
        pooled = torch.nn.functional.fractional_max_pool2d(
            x, 2, output_ratio=(0.5, 0.5)
        )
        return (pooled**2).mean()

    assert gl.check(loss, x).ok


# What the dtype decides on a GPU alone; drawn on a processor here.
THERE = {
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.3),
    "dropout, not training": lambda x: torch.nn.functional.dropout(x, 0.3, False),
    "dropout, by position": lambda x: torch.dropout(x, 0.3, True),
    "dropout in place": lambda x: torch.nn.functional.dropout(
        x.clone(), 0.2, True, True
    ),
    "dropout_": lambda x: torch.dropout_(x.clone(), 0.2, True),
    "dropout of all": lambda x: torch.nn.functional.dropout(x, 1.0),
    "dropout2d": lambda x: torch.nn.functional.dropout2d(x[None, :, :, None], 0.4),
    "feature_dropout": lambda x: torch.feature_dropout(x[None, :, :, None], 0.4, True),
    "module": torch.nn.Dropout(0.3),
    "bernoulli_": lambda x: x * torch.empty_like(x).bernoulli_(0.3),
    "exponential_": lambda x: x * torch.empty_like(x).exponential_(),
    "poisson": lambda x: x * torch.poisson(x.abs()),
}


@pytest.mark.parametrize("noisy", THERE.values(), ids=THERE)
def test_draws_of_a_gpu_are_those_of_the_short_dtype(noisy, rng, monkeypatch):
    """The mask is that of float32, the numbers are those of float64."""
    everywhere = same_draws._DRAWING | same_draws._DRAWING_THERE
    monkeypatch.setattr(same_draws, "_DRAWING", everywhere)
    x = torch.tensor(rng.normal(size=(6, 4)))
    torch.manual_seed(1)
    short = noisy(x.float())
    seen = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.extend(a.dtype for a in args if isinstance(a, torch.Tensor))
            return func(*args, **(kwargs or {}))

    torch.manual_seed(1)
    with Watch(), same_draws.SameDraws(torch.float32).left_out():
        found = noisy(x)

    assert found.dtype is torch.float64
    assert torch.float32 in seen  # what is drawn on a processor goes by no dtype
    torch.testing.assert_close(found, short.double(), rtol=1e-6, atol=1e-7)
