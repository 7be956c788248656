"""Gradients in half precision: what its arithmetic costs is forgiven, and no more."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import gradlab as gl

HALVES = [torch.float16, torch.bfloat16]


def trained(dtype, seed=0):
    """Return a loss of a small network, its parameters, and what `.grad` holds."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)
    x, y = torch.randn(20, 6).to(dtype), torch.randint(0, 3, (20,))

    def part(rows):
        out = model(x[rows])
        return nn.functional.cross_entropy(out, y[rows], reduction="sum") / 20

    return part, dict(model.named_parameters())


def gradients(part, parameters, batches):
    """Add the gradients of batches up, as a training loop does."""
    for rows in batches:
        part(rows).backward()
    held = {name: p.grad.clone() for name, p in parameters.items()}
    for p in parameters.values():
        p.grad = None
    return held


def check(part, parameters, held):
    """Check what is held."""
    return gl.check(lambda: part(slice(None)), params=parameters, grad=held)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("size", [20, 5, 1])
def test_gradients_that_were_added_up(dtype, size):
    """All at once, in batches of five or one by one: rounded otherwise, and right."""
    part, parameters = trained(dtype)
    batches = [slice(start, start + size) for start in range(0, 20, size)]

    report = check(part, parameters, gradients(part, parameters, batches))

    assert report.verdict == gl.Verdict.AGREES


@pytest.mark.parametrize(
    ("dtype", "factor"), [(torch.float16, 1.05), (torch.bfloat16, 1.2)]
)
def test_one_entry_that_is_off(dtype, factor):
    """Ten times what the arithmetic rounds off was within a tenth, and agreed."""
    part, parameters = trained(dtype)
    held = gradients(part, parameters, [slice(None)])
    flat = held["2.weight"].view(-1)
    flat[flat.abs().argmax()] *= factor

    report = check(part, parameters, held)

    assert report.verdict == gl.Verdict.DISAGREES
    assert report.culprits == ("2.weight",)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_small_entry_that_is_off(dtype):
    """Half of a small entry is a hundredth of the largest: that agreed too."""
    part, parameters = trained(dtype)
    held = gradients(part, parameters, [slice(None)])
    flat = held["2.weight"].view(-1)
    flat[flat.abs().argsort()[12]] *= 1.5

    assert check(part, parameters, held).verdict == gl.Verdict.DISAGREES


def test_a_tensor_that_is_off_by_a_factor():
    """Two percent of a whole tensor in float16."""
    part, parameters = trained(torch.float16)
    held = gradients(part, parameters, [slice(None)])
    held["0.weight"] = held["0.weight"] * 1.02

    assert check(part, parameters, held).culprits == ("0.weight",)


@pytest.mark.parametrize("factor", [1.0, 1.05, 1.2])
def test_a_product_of_short_numbers_alone(factor):
    """The only entry of a formula with few digits has all of them beside the point."""
    report = gl.check(
        lambda x: (x * x).sum(),
        np.array([1.7], np.float16),
        grad=lambda x: 2 * x * np.float16(factor),
    )

    expected = gl.Verdict.AGREES if factor == 1 else gl.Verdict.DISAGREES
    assert report.verdict == expected


def test_what_is_rounded_whatever_comes_in():
    """A gradient that is cast to float16 at its end has no digits beside, either."""
    report = gl.check(
        lambda x: np.sin(x).sum(),
        np.array([1.7, 0.3, -2.0], np.float16),
        grad=lambda x: np.cos(x).astype(np.float16),
    )

    assert report.verdict == gl.Verdict.AGREES
