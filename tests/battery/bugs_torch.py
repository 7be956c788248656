"""Wrong gradients in torch: custom functions and modules, as they are met."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tests.battery.shelf import Shelf

BUGS = Shelf()
add = BUGS.add
rng = np.random.default_rng(22)
torch.manual_seed(22)


def T(*shape, dtype=torch.float64):
    return torch.tensor(rng.normal(size=shape)).to(dtype)


def Z(*shape):
    return torch.complex(T(*shape), T(*shape))


def custom(forward, backward, *, save=lambda inputs, out: inputs):
    """Make an `autograd.Function` from two functions, and apply it."""

    class Custom(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            out = forward(*inputs)
            ctx.save_for_backward(*save(inputs, out))
            return out

        @staticmethod
        def backward(ctx, *cotangents):
            return backward(*cotangents, *ctx.saved_tensors)

    return Custom.apply


# --- custom functions
tanh = torch.tanh
for e in (1e-5, 1e-3, 1.0):
    add(f"tanh times {1 + e}", custom(tanh, lambda g, x, e=e: g * (1 - x.tanh() ** 2)
                                      * (1 + e)), T(6))  # fmt: skip
add("tanh, saved output used as input",
    custom(tanh, lambda g, y: g * (1 - y.tanh() ** 2), save=lambda i, o: (o,)),
    T(6))  # fmt: skip
add("upstream ignored", custom(torch.sin, lambda g, x: x.cos()),
    T(5))  # fmt: skip
add("upstream squared", custom(torch.sin, lambda g, x: g.abs() * 2 * x.cos()), T(5))
add("sign", custom(lambda x: -x * x, lambda g, x: 2 * g * x), T(5))
add("second input forgotten", custom(lambda x, w: x * w, lambda g, x, w: (g * w, None)),
    T(4), T(4))  # fmt: skip
add("inputs swapped", custom(lambda x, w: x * w, lambda g, x, w: (g * x, g * w)),
    T(4), T(4))  # fmt: skip
add("not summed over the batch",
    custom(lambda x, b: x + b, lambda g, x, b: (g, g[0])), T(3, 4), T(4))  # fmt: skip
add("mean for sum", custom(lambda x, b: x + b, lambda g, x, b: (g, g.mean(0))), T(3, 4),
    T(4))  # fmt: skip
add("transposed", custom(lambda x, w: x @ w, lambda g, x, w: (g @ w, x.T @ g)),
    T(3, 3), T(3, 3))  # fmt: skip
add("straight through", custom(torch.round, lambda g, x: g), T(5))
add("reversal", custom(lambda x: x.clone(), lambda g, x: -g), T(5))
add("clipped backward", custom(lambda x: 5 * x, lambda g, x: (5 * g).clamp(-1, 1)),
    T(3))  # fmt: skip
add("relu mask with >= of the wrong sign",
    custom(torch.relu, lambda g, x: g * (x <= 0)), T(6))  # fmt: skip
add("leaky slope 0.01 for 0.02",
    custom(lambda x: F.leaky_relu(x, 0.02), lambda g, x: g * torch.where(
        x > 0, 1.0, 0.01)), T(6))  # fmt: skip
add("conjugate forgotten", custom(lambda z: z * z, lambda g, z: g * 2 * z), Z(3))
add("modulus, half", custom(lambda z: z.abs(), lambda g, z: g * z / z.abs() / 2), Z(3))
add("permuted", custom(lambda x: x.flip(0), lambda g, x: g), T(5))
add("shifted by one", custom(lambda x: x.cumsum(0), lambda g, x: g.flip(0).cumsum(
    0).flip(0).roll(1)), T(5))  # fmt: skip
add("softmax, diagonal only", custom(lambda x: x.softmax(-1), lambda g, x: g
    * x.softmax(-1) * (1 - x.softmax(-1))), T(2, 4))  # fmt: skip
add("wrong axis", custom(lambda x: x - x.mean(0), lambda g, x: g - g.mean(
    1, keepdim=True)), T(4, 4))  # fmt: skip
add("cast to half", custom(torch.exp, lambda g, x: (g * x.exp()).half().double()), T(6))
add("cast to float", custom(torch.exp, lambda g, x: (g * x.exp()).bfloat16().double()),
    T(6))  # fmt: skip
add("one element zeroed", custom(torch.sin, lambda g, x: g * x.cos() * (
    torch.arange(200) != 77)), T(200))  # fmt: skip
add("small entries lost", custom(lambda x: x**2, lambda g, x: torch.where(
    x.abs() < 0.1, 0.0, 2 * g * x)),
    torch.linspace(-1, 1, 41).double() + 0.003)  # fmt: skip
add("float32, 0.3 percent", custom(torch.exp, lambda g, x: 1.003 * g * x.exp()),
    T(5, dtype=torch.float32))  # fmt: skip
add("float32, 1e-4", custom(torch.exp, lambda g, x: 1.0001 * g * x.exp()),
    T(5, dtype=torch.float32))  # fmt: skip
add("bfloat16, factor 1.5", custom(tanh, lambda g, x: 1.5 * g * (1 - x.tanh() ** 2)),
    T(5, dtype=torch.bfloat16))  # fmt: skip
add("float16, sign", custom(tanh, lambda g, x: -g * (1 - x.tanh() ** 2)),
    T(5, dtype=torch.float16))  # fmt: skip
twice = custom(torch.sin, lambda g, x: 2 * g * x.cos())
add("integer beside, doubled", lambda x: (twice(x), x.argsort()), T(4))  # fmt: skip
add("only the second output", lambda x: (x.sin(), custom(
    torch.exp, lambda g, x: 1.01 * g * x.exp())(x)), T(4))  # fmt: skip
# --- plain functions with something detached
add("detached factor", lambda x: x * x.detach(), T(4))
add("detached mean", lambda x: (x - x.mean().detach()) ** 2, T(4))
add("item", lambda x: x * float(x.sum()), T(4))
add("numpy round trip", lambda x: x.sum()
    + torch.tensor(np.sin(x.detach().numpy())).sum(), T(4))  # fmt: skip
add("data", lambda x: x.data * 2 + x, T(4))
add(
    "new tensor",
    lambda x: torch.stack([torch.tensor(v.item() ** 2) for v in x]) + x,
    T(3),
)
add("no_grad part", lambda x, w: x * _frozen(w) + w, T(3), T(3))
add("argmax as value", lambda x: x.sum() + x.argsort().double().sum() * 0
    + x.detach()[0] ** 3, T(4))  # fmt: skip


def _frozen(w):
    with torch.no_grad():
        return w.exp()


# --- second order
def cube_backward(g, x):
    return 3 * g * x.detach() ** 2


add("order 2: detached", custom(lambda x: x**3, cube_backward), T(4), order=2)


class _CubeBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, g, x):
        ctx.save_for_backward(g, x)
        return 3 * g * x**2

    @staticmethod
    def backward(ctx, h):
        g, x = ctx.saved_tensors
        return 3 * h * x**2, 3 * h * g * x  # 6


class _Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        return _CubeBackward.apply(g, *ctx.saved_tensors)


add("order 2: wrong factor", _Cube.apply, T(4), order=2)


# --- modules
def square(out):
    return (out**2).mean()


class Piece(nn.Module):
    """A layer around a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


SLIPS = {
    "swish 0.1 percent": custom(
        F.silu,
        lambda g, x: 1.001 * g * x.sigmoid() * (1 + x * (1 - x.sigmoid())),
    ),
    "relu forgets": custom(torch.relu, lambda g, x: g),
    "sigmoid of the output": custom(
        torch.sigmoid,
        lambda g, y: g * y.sigmoid() * (1 - y.sigmoid()),
        save=lambda i, o: (o,),
    ),
    "detached half": lambda x: torch.cat([x[:, :3].detach(), x[:, 3:]], 1).tanh(),
    "scaled": custom(lambda x: x / 3, lambda g, x: g),
    "centred, mean forgotten": custom(lambda x: x - x.mean(1, keepdim=True),
                                      lambda g, x: g),
    "one channel": custom(torch.tanh, lambda g, x: g * (1 - x.tanh() ** 2)
                          * torch.tensor([1, 1, 0.9, 1, 1, 1]).to(x.dtype)),
}  # fmt: skip
for name, slip in SLIPS.items():
    for dtype in (torch.float64, torch.float32):
        tag = str(dtype).rsplit(".", maxsplit=1)[-1]
        net = nn.Sequential(nn.Linear(4, 6), Piece(slip), nn.Linear(6, 2)).to(dtype)
        add(f"module, {name}, {tag}", net, T(5, 4, dtype=dtype), loss=square)
big = SLIPS["scaled"]
for dtype in (torch.bfloat16, torch.float16):
    net = nn.Sequential(nn.Linear(4, 6), Piece(big), nn.Linear(6, 2)).to(dtype)
    add(f"module, scaled, {dtype}", net, T(5, 4, dtype=dtype), loss=square)


class Held(nn.Module):
    """Uses a copy of its weight, so that autograd never sees the original."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 3)

    def forward(self, x):
        return F.linear(x, self.lin.weight.detach().clone(), self.lin.bias).tanh()


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 5), nn.Linear(5, 2)
        self.a.register_full_backward_hook(lambda m, i, o: tuple(
            None if v is None else 0.5 * v for v in i))  # fmt: skip

    def forward(self, x):
        return self.b(self.a(x).tanh())


class StatesCut(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.RNNCell(2, 3)

    def forward(self, xs):
        h = torch.zeros(xs.shape[1], 3, dtype=xs.dtype)
        for x in xs:
            h = self.cell(x, h.detach())
        return h


add("module, weight detached", Held().double(), T(3, 4), loss=square)
add("module, hook halves", Hooked().double(), T(3, 4).requires_grad_(), loss=square)
add("module, states cut", StatesCut().double(), T(4, 2, 2), loss=square)
add("module, loss on detached", nn.Linear(3, 2).double(), T(3, 3),
    loss=lambda o: (o * o.detach()).mean())  # fmt: skip
add("module, loss of 1e6 plus", nn.Sequential(nn.Linear(4, 6), Piece(big)).double(),
    T(5, 4), loss=lambda o: 1e6 + (o**2).mean())  # fmt: skip
frozen = nn.Linear(3, 1).double()
frozen(torch.ones(1, 3).double()).sum().backward()
frozen(torch.ones(1, 3).double()).sum().backward()
add("module, gradients of two passes", lambda w, b: F.linear(
    torch.ones(1, 3).double(), w, b).sum(), frozen.weight.detach(),
    frozen.bias.detach(),
    grad={"w": frozen.weight.grad, "b": frozen.bias.grad})  # fmt: skip
