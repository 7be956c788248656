"""A differentiable variable of our own with Chainer's protocol, in a hundred lines.

Backward passes are made of variables themselves, so that they can be differentiated
again. Enough for `gradlab.compat.chainer`, which asks for ``array``, ``grad``,
``grad_var``, ``cleargrad``, ``backward``, ``reshape``, ``@`` and ``+``.
"""

from __future__ import annotations

import numpy as np


class Variable:
    """An array and how it was made."""

    def __init__(self, data=None, *, requires_grad=True):
        self.array = data
        self.requires_grad = requires_grad
        self.grad_var = None
        self.parents = ()
        self.pull = None

    @property
    def grad(self):
        """The gradient as an array."""
        return None if self.grad_var is None else self.grad_var.array

    @property
    def shape(self):
        """Shape of the array."""
        return self.array.shape

    @property
    def dtype(self):
        """Dtype of the array."""
        return self.array.dtype

    def cleargrad(self):
        """Forget the gradient."""
        self.grad_var = None

    def backward(self, *, enable_double_backprop=False):
        """Accumulate gradients of everything that this variable was made from."""
        self.grad_var = Variable(np.ones_like(self.array))
        for node in _order(self):
            if node.pull is None:
                continue
            found = node.pull(node.grad_var)
            for parent, gradient in zip(node.parents, found, strict=True):
                if gradient is None or not parent.requires_grad:
                    continue
                # without double backprop the gradient is cut off from its making
                part = gradient if enable_double_backprop else Variable(gradient.array)
                old = parent.grad_var
                parent.grad_var = part if old is None else old + part

    def reshape(self, shape):
        """Return the same numbers in another shape."""
        before = self.shape
        return made(self.array.reshape(shape), (self,), lambda g: (g.reshape(before),))

    def transpose(self):
        """Swap the two axes."""
        return made(self.array.T, (self,), lambda g: (g.transpose(),))

    def __add__(self, other):
        return made(self.array + other.array, (self, other), lambda g: (g, g))

    def __mul__(self, other):
        return made(
            self.array * other.array,
            (self, other),
            lambda g: (g * other, g * self),
        )

    def __matmul__(self, other):
        if self.array.ndim == 1:  # an inner product
            size = self.array.size
            return made(
                self.array @ other.array,
                (self, other),
                lambda g: (spread(g, size) * other, spread(g, size) * self),
            )
        return made(
            self.array @ other.array,
            (self, other),
            lambda g: (g @ other.transpose(), self.transpose() @ g),
        )


def made(array, parents, pull):
    """Wrap a result with the way back."""
    out = Variable(array, requires_grad=any(p.requires_grad for p in parents))
    out.parents, out.pull = parents, pull
    return out


def spread(scalar, size):
    """Repeat a number."""
    ones = np.ones(size, scalar.dtype)
    return made(
        scalar.array * ones, (scalar,), lambda g: (g.reshape((-1,)) @ Variable(ones),)
    )


def tanh(x):
    """Return the hyperbolic tangent; its backward can be differentiated."""

    def pull(g):
        minus = Variable(-np.ones_like(y.array))
        return (g * (Variable(np.ones_like(y.array)) + minus * y * y),)

    y = made(np.tanh(x.array), (x,), pull)
    return y


def scaled(x, factor):
    """Return x**2, whose gradient is `factor` times x, right or wrong."""
    return made(
        x.array**2,
        (x,),
        lambda g: (g * x * Variable(np.full_like(x.array, factor)),),
    )


def _order(last):
    """Everything that leads to a variable, each after all that is made from it."""
    seen, order = set(), []

    def visit(node):
        if id(node) in seen:
            return
        seen.add(id(node))
        for parent in node.parents:
            visit(parent)
        order.append(node)

    visit(last)
    for node in order[:-1]:
        if node.pull is not None:
            node.grad_var = None
    return [node for node in reversed(order) if node is last or node.requires_grad]
