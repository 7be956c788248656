"""Functions of tensors as custom autograd Functions, with any backward."""

from __future__ import annotations

import inspect

import pytest

torch = pytest.importorskip("torch")


def with_backward(forward, backward):
    """Return `forward` with the gradient ``backward(*inputs, g)``, right or wrong.

    Inputs that are no tensors come back to `backward` as they are, and it returns None
    for them.
    """

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*filter(torch.is_tensor, inputs))
            ctx.others = [None if torch.is_tensor(x) else (x,) for x in inputs]
            return forward(*inputs)

        @staticmethod
        def backward(ctx, *upstream):
            saved = iter(ctx.saved_tensors)
            inputs = (next(saved) if o is None else o[0] for o in ctx.others)
            return backward(*inputs, *upstream)

    try:
        named = inspect.signature(forward)
    except ValueError:  # torch.sin and its like have none, and one input
        named = inspect.signature(lambda x: x)
    ctx = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [ctx, *named.parameters.values()]
    Function.forward.__signature__ = named.replace(parameters=parameters)
    return Function.apply


# Tanh with a slope times a factor.
bent = with_backward(
    lambda x, factor: torch.tanh(x),
    lambda x, factor, up: (factor * up * (1 - torch.tanh(x) ** 2), None),
)


def with_output(forward, backward):
    """Return `forward` of one tensor with the gradient ``backward(output, g)``."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            out = forward(x)
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx, g):
            return backward(*ctx.saved_tensors, g)

    return Function.apply


class Spoiled(torch.autograd.Function):
    """The identity, with any slip in its backward: ``slip(g)`` may write to `g`."""

    @staticmethod
    def forward(ctx, x, slip):
        ctx.slip = slip
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return ctx.slip(g.clone()), None


def stray(size):
    """Return a backward of ``2 * x`` with one entry more, where none should be."""

    def backward(x, g):
        gradient = 2 * g
        gradient[11, 17] += size * g[3, 5]
        return gradient

    return backward
