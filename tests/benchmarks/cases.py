"""The twelve float64 cases on which a whole check is compared with gradcheck.

Each entry of `CASES` makes a case anew: a function and its inputs, all of which require
grad.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["CASES"]


def _leaves(*shapes, scale=1.0):
    return tuple(
        (scale * torch.randn(*shape, dtype=torch.float64)).requires_grad_()
        for shape in shapes
    )


class _Cube(torch.autograd.Function):
    """Without a vmap rule, so that nothing can batch it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(x.detach().cpu().numpy() ** 3).to(x.device)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g


def _sigmoid():
    return torch.sigmoid, _leaves((20, 10))


def _custom():
    return _Cube.apply, _leaves((30, 10))


def _linear():
    return F.linear, _leaves((16, 32), (32, 32), (32,))


def _conv():
    fn = lambda x, w, b: F.conv2d(x, w, b, padding=1)
    return fn, _leaves((2, 3, 8, 8), (4, 3, 3, 3), (4,))


def _layer_norm():
    fn = lambda x, w, b: F.layer_norm(x, (32,), w, b)
    return fn, _leaves((16, 32), (32,), (32,))


def _batch_norm():
    fn = lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True)
    return fn, _leaves((16, 12), (12,), (12,))


def _softmax():
    return (lambda x: torch.softmax(x, -1)), _leaves((24, 16))


def _attention():
    return F.scaled_dot_product_attention, _leaves(*[(1, 2, 10, 8)] * 3)


def _inverse():
    (x,) = _leaves((12, 12))
    return torch.linalg.inv, ((x + 4 * torch.eye(12)).detach().requires_grad_(),)


def _gru():
    cell = nn.GRUCell(8, 10).double()
    names = [name for name, _ in cell.named_parameters()]

    def fn(x, h, *values):
        parts = dict(zip(names, values, strict=True))
        return torch.func.functional_call(cell, parts, (x, h))

    values = tuple(p.detach().clone().requires_grad_() for p in cell.parameters())
    return fn, (*_leaves((4, 8), (4, 10)), *values)


def _perceptron(*widths):
    goal = torch.randint(0, widths[-1], (8,))

    def fn(x, w1, b1, w2, b2):
        hidden = torch.tanh(F.linear(x, w1, b1))
        return F.cross_entropy(F.linear(hidden, w2, b2), goal)

    first, second, third = widths
    shapes = ((8, first), (second, first), (second,), (third, second), (third,))
    return fn, _leaves(*shapes, scale=0.2)


CASES = {
    "sigmoid 20x10": _sigmoid,
    "custom Function, no vmap, 30x10": _custom,
    "linear 16x32 to 32": _linear,
    "conv2d 2x3x8x8": _conv,
    "layer_norm 16x32": _layer_norm,
    "batch_norm 16x12": _batch_norm,
    "softmax 24x16": _softmax,
    "attention 1x2x10x8": _attention,
    "inverse 12x12": _inverse,
    "GRU cell 8x10": _gru,
    "cross-entropy of MLP 64-64-10": lambda: _perceptron(64, 64, 10),
    "cross-entropy of MLP 256-100-10": lambda: _perceptron(256, 100, 10),
}
