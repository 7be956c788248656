"""A module of which one parameter has a gradient that is wrong by a factor."""

from __future__ import annotations

import torch
from torch.func import functional_call

from tests.specimens.functions import with_backward

__all__ = ["Planted"]


times = with_backward(
    lambda values, factor: values.clone(),
    lambda _values, factor, gradient: (factor * gradient, None),
)


class Planted(torch.nn.Module):
    """Computes what `module` does; the gradient of `name` comes out times `factor`."""

    def __init__(self, module, name, factor):
        super().__init__()
        self.module, self.name, self.factor = module, name, factor

    def forward(self, *args):
        weights = dict(self.module.named_parameters())
        weights[self.name] = times(weights[self.name], self.factor)
        return functional_call(self.module, weights, args)
