"""Layers in half precision: checked in double, alone and together."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gradlab as gl
from tests.localisation.test_layers_disturbed import MODELS, X, square
from tests.specimens.functions import with_output

HALVES = [torch.bfloat16, torch.float16]


# Right: its derivative is 1 where its output is positive, else 0.
relu = with_output(lambda x: x.clamp(min=0), lambda out, grad: grad * (out > 0))


class Normed(nn.Module):
    """Three layers with a norm after each: roundings of one grow in the next."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        for layer in self.layers:
            x = self.norm(relu(layer(x)))
        return x


@pytest.mark.parametrize("seed", [62, 72, 122, 156, 190])
@pytest.mark.parametrize("dtype", HALVES)
def test_what_rounding_makes_of_a_right_model_is_no_mistake(seed, dtype):
    """Buffers of all layers are widened with them, so that it is asked in double."""
    torch.manual_seed(seed)
    model, x = Normed().to(dtype), torch.randn(6, 4).to(dtype)
    statistics = model.norm.running_mean.clone()

    audit = gl.blame(model, x)

    assert audit.verdict.name == "AGREES"
    assert "not checked" not in audit.rows[0].reason
    assert audit.evaluations < 100
    assert torch.equal(model.norm.running_mean, statistics)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_what_one_call_does_to_another_is_told_in_half_precision(model, dtype):
    """The slips are those of the models in double."""
    for wrong in (True, False):
        audit = gl.blame(model(wrong=wrong).to(dtype), X.to(dtype), loss=square)

        assert bool(audit.culprits) is wrong
        if wrong:
            assert "each right by itself" in audit.findings[0].evidence


@pytest.mark.parametrize("dtype", HALVES)
def test_a_frozen_weight_is_widened_with_its_layer(dtype):
    """A layer is linear in its input and its bias, whoever trains its weight."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[1].weight.requires_grad_(requires_grad=False)
    model.to(dtype)
    weight = model[1].weight

    audit = gl.blame(model, X.to(dtype))

    assert audit.verdict.name == "AGREES"
    assert audit.table["error"].max() < 1e-6
    assert model[1].weight is weight
    assert weight.dtype is dtype


def test_layers_that_double_cannot_run_together_are_not_said_to_be_checked():
    """One call each is right; what half precision makes of all is nobody's mistake."""

    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

        def forward(self, x):
            for layer in self.layers:
                # in double `layer` would not take what comes of this
                x = 9 * relu(layer(x).to(torch.bfloat16)).sin()
            return x

    torch.manual_seed(3)
    model, x = Fixed().to(torch.bfloat16), torch.randn(6, 4).to(torch.bfloat16)

    audit = gl.blame(model, x)

    assert not audit.culprits
    assert "not checked together with what is inside" in audit.rows[0].reason
    assert "piles up over its layers" in audit.rows[0].reason
