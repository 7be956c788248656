"""A module of which one parameter has a gradient that is wrong by a factor."""

from __future__ import annotations

import torch
from torch.func import functional_call

__all__ = ["Planted"]


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, factor):
        ctx.factor = factor
        return values.clone()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.factor * gradient, None


class Planted(torch.nn.Module):
    """Computes what `module` does; the gradient of `name` comes out times `factor`."""

    def __init__(self, module, name, factor):
        super().__init__()
        self.module, self.name, self.factor = module, name, factor

    def forward(self, *args):
        weights = dict(self.module.named_parameters())
        weights[self.name] = _Times.apply(weights[self.name], self.factor)
        return functional_call(self.module, weights, args)
