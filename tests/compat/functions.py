"""Torch functions with one mistake each, and tensors to try them on."""

from __future__ import annotations

import pytest

from tests.specimens.functions import with_backward, with_output

torch = pytest.importorskip("torch")


def random(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=dtype, generator=generator).requires_grad_()


# The slip of the course: 1 + output for 1 - output.
wrong_sigmoid = with_output(torch.sigmoid, lambda out, grad: grad * out * (1 + out))


# Ignores the incoming gradient.
tripled = with_backward(
    lambda x: x.sum(), lambda _x, _grad: torch.ones(3, dtype=torch.float64)
)


# Backward with random numbers in it.
restless = with_backward(
    lambda x: x * 2, lambda _x, grad: grad * (2 + 1e-08 * torch.rand(()).item())
)


class NoneHater(torch.autograd.Function):
    """Backward that raises if an output's gradient is undefined."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, first, second):
        if first is None or second is None:
            raise RuntimeError("no gradient")
        return 2 * first + 3 * second


class Presuming(torch.autograd.Function):
    """Backward that takes an undefined gradient for ones, and is right otherwise."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return torch.full((3,), 2.0, dtype=torch.float64) if grad is None else 2 * grad


# z**2 with the conjugate forgotten.
unconjugated = with_backward(lambda z: z * z, lambda z, grad: grad * 2 * z)


class WrongTangent(torch.autograd.Function):
    """Right backward, wrong forward mode."""

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad * 2

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * 3


# x**3 whose backward forgets that it depends on x.
wrong_second = with_backward(lambda x: x**3, lambda x, grad: grad * (3 * x**2).detach())


def sparse(layout):
    dense = torch.tensor([[0.0, 2, 0, 1], [0, 0, 0, 0], [3, 0, 4, 0], [0, 5, 0, 6]])
    options = {"blocksize": (2, 2)} if "bs" in str(layout) else {}
    return dense.double().to_sparse(layout=layout, **options).requires_grad_()
