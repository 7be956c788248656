"""Torch programs, right and wrong, written after the method was finished."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tests.battery.bugs_torch import custom
from tests.battery.shelf import Shelf

CONTROLS, BUGS = Shelf(), Shelf()
right, wrong = CONTROLS.add, BUGS.add
rng = np.random.default_rng(51)
torch.manual_seed(51)
f64, f32, bf16, f16 = torch.float64, torch.float32, torch.bfloat16, torch.float16


def T(*shape, dtype=f64):
    return torch.tensor(rng.normal(size=shape)).to(dtype)


def square(out):
    return (out**2).mean()


def tag(dtype):
    return str(dtype).rsplit(".", maxsplit=1)[-1]


# --- functions
for dtype in (f64, f32, bf16, f16):
    right(f"log softmax {tag(dtype)}", lambda x: F.log_softmax(3 * x, -1),
          T(3, 5, dtype=dtype))  # fmt: skip
    right(f"softplus of product {tag(dtype)}", lambda x, w: F.softplus(x @ w).sum(),
          T(4, 3, dtype=dtype), T(3, 2, dtype=dtype))  # fmt: skip
    right(f"normalise {tag(dtype)}", lambda x: F.normalize(x, dim=-1),
          T(3, 4, dtype=dtype))  # fmt: skip
    right(f"huber {tag(dtype)}", lambda x: F.huber_loss(x, torch.zeros_like(x)),
          3 * T(6, dtype=dtype))  # fmt: skip
    right(f"cumulative product {tag(dtype)}", lambda x: torch.cumprod(x, 0),
          T(5, dtype=dtype))  # fmt: skip
    right(f"mean of 500 {tag(dtype)}", lambda x: (x * x).mean(), T(500, dtype=dtype))
    right(f"relu chain {tag(dtype)}", lambda x: torch.relu(torch.relu(x) * 2 - 1).sum(),
          T(7, dtype=dtype))  # fmt: skip
    wrong(f"sine, 20 percent {tag(dtype)}",
          custom(torch.sin, lambda g, x: 1.2 * g * x.cos()), T(6, dtype=dtype),
          )  # fmt: skip
    wrong(f"relu passes all {tag(dtype)}", custom(torch.relu, lambda g, x: g),
          T(6, dtype=dtype))  # fmt: skip
    wrong(f"product, other factor {tag(dtype)}",
          custom(lambda x, w: x * w, lambda g, x, w: (g * x, g * w)),
          T(5, dtype=dtype), T(5, dtype=dtype))  # fmt: skip
    wrong(f"mean without its count {tag(dtype)}",
          custom(lambda x: x.mean(), lambda g, x: g.expand_as(x)), T(8, dtype=dtype),
          )  # fmt: skip
for offset in (1e6, 1e9):
    right(f"distance to a far point {offset:g}",
          lambda x, c=offset: ((x - c) ** 2).sum(), offset + T(4))  # fmt: skip
    right(f"loss offset {offset:g}", lambda x, c=offset: c + torch.tanh(x).sum(), T(4))
    wrong(f"loss offset {offset:g}, half", lambda x, c=offset: c + custom(
        torch.tanh, lambda g, x: 0.5 * g * (1 - x.tanh() ** 2))(x).sum(), T(4),
        )  # fmt: skip
for scale in (1e-7, 1e7):
    right(f"inputs of {scale:g}", lambda x, s=scale: torch.exp(-((x / s) ** 2)).sum(),
          scale * T(5))  # fmt: skip
    wrong(f"inputs of {scale:g}, sign", lambda x, s=scale: custom(
        lambda x: torch.exp(-((x / s) ** 2)),
        lambda g, x: 2 * g * x / s**2 * torch.exp(-((x / s) ** 2)))(x).sum(),
        scale * T(5))  # fmt: skip
right("gelu, both tails", F.gelu, torch.tensor([-7.0, -5.5, -0.1, 0.0, 6.0]).double())
right("elu at zero", F.elu, torch.tensor([0.0, -1e-9, 1e-9, -3.0]).double())
right("max pool of ties", lambda x: F.max_pool1d(x, 2), torch.ones(1, 1, 6).double())
right("median", lambda x: x.median(), T(7))
right("interpolate", lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"),
      T(1, 1, 4, 4))  # fmt: skip
right("grid sample", lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False),
      T(1, 1, 4, 4), T(1, 3, 3, 2))  # fmt: skip
right("einsum", lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c), T(2, 3), T(3, 2),
      T(2, 3))  # fmt: skip
right("roll and flip", lambda x: x.roll(1).flip(0) * x, T(6))
right("complex log", lambda z: torch.log(z).abs(), torch.complex(T(3), T(3)))
right("inverse fft", lambda z: torch.fft.ifft(z).real ** 2, torch.complex(T(5), T(5)))
right("renormalised spectrum", torch.linalg.svdvals, T(4, 3))
right("solve", lambda a, b: torch.linalg.solve(a + 4 * torch.eye(3), b), T(3, 3),
      T(3, 2))  # fmt: skip
right("Newton inside", lambda c: sum(_newton(v) for v in c), torch.tensor(
    [0.4, 2.0]).double())  # fmt: skip
right("clamped logarithm", lambda x: torch.log(x.clamp(min=1e-6)).sum(),
      torch.tensor([1e-7, 2e-6, 0.5]).double())  # fmt: skip
right("angle between", lambda a, b: torch.acos(F.cosine_similarity(a, b, dim=0)), T(4),
      T(4))  # fmt: skip
right("dropout, functional", lambda x: F.dropout(x, 0.5) ** 2, T(20))
right("gumbel softmax", lambda x: F.gumbel_softmax(x, tau=0.7), T(2, 4))
right("noise added", lambda x: (x + 0.1 * torch.randn_like(x)) ** 3, T(5))
right("huge logits", lambda z: F.cross_entropy(z, torch.tensor([1, 0])), 1e4 * T(2, 3))
right("zeros times infinity avoided", lambda x: torch.xlogy(x, x).sum(),
      torch.tensor([1e-12, 0.3]).double())  # fmt: skip


def _newton(c):
    y = torch.ones_like(c)
    for _ in range(30):
        y = y - (y**3 + y - c) / (3 * y * y + 1)
    return y


# --- wrong functions
wrong("softmax without its sum", custom(lambda x: x.softmax(-1), lambda g, x: (
    g * x.softmax(-1))), T(2, 4))  # fmt: skip
wrong("normalise, projection lost", custom(lambda x: x / x.norm(), lambda g, x: (
    g / x.norm())), T(4))  # fmt: skip
wrong("log, eps", custom(torch.log, lambda g, x: g / (x + 1e-3)), T(4).abs() + 0.01)
wrong("sqrt, clamped", custom(torch.sqrt, lambda g, x: g / (2 * x.sqrt().clamp(
    min=0.3))), torch.tensor([0.01, 0.04, 0.5]).double())  # fmt: skip
wrong("hinge, mask of the sign", custom(
    lambda x: F.relu(1 - x), lambda g, x: -g * (x > 0)), T(8))  # fmt: skip
wrong("clip in the backward only", custom(
    torch.exp, lambda g, x: (g * x.exp()).clamp(max=1.0)), T(6).abs())  # fmt: skip
wrong("sum over the wrong axis", custom(
    lambda x, b: x + b, lambda g, x, b: (g, g.sum(1))), T(3, 3), T(3))  # fmt: skip
wrong("stale input", custom(lambda x: x**2, lambda g, x: 2 * g * x.roll(1)), T(6))
wrong("variance, n for n minus 1", custom(
    lambda x: x.var(), lambda g, x: 2 * g * (x - x.mean()) / x.numel()),
    T(6))  # fmt: skip
wrong("three parts in a thousand of one entry", custom(
    torch.tanh, lambda g, x: g * (1 - x.tanh() ** 2) * (1 + 3e-3 * (
        torch.arange(50) == 17))), T(50))  # fmt: skip
wrong("quantised to tenths", custom(lambda x: (10 * x).round() / 10, lambda g, x: g),
      T(6))  # fmt: skip
wrong("sign as hard tanh", custom(torch.sign, lambda g, x: g * (x.abs() < 1)), T(6))
wrong("complex, conjugate twice", custom(
    lambda z: z * z, lambda g, z: 2 * g * z), torch.complex(T(3), T(3)))  # fmt: skip
wrong("real part only", custom(
    lambda z: z.abs() ** 2, lambda g, z: 2 * g * z.real + 0j),
    torch.complex(T(3), T(3)))  # fmt: skip
wrong("tail of gelu", custom(F.gelu, lambda g, x: g * torch.sigmoid(1.702 * x)), T(6))
wrong("gumbel by argmax", lambda x: F.gumbel_softmax(x, tau=0.7, hard=True), T(2, 4))
wrong("detached norm", lambda x: x / x.norm().detach(), T(5))
wrong("detached maximum in a mean", lambda x: (x - x.max().detach()).exp().mean(), T(5))
wrong("through numpy", lambda x: x.sum() * float(np.linalg.norm(x.detach().numpy())),
      T(4))  # fmt: skip
wrong("no grad around the middle", lambda x: _middle(x) * x, T(4))


def _middle(x):
    with torch.no_grad():
        return x.sin()


# --- modules
def nets(dtype):
    """Networks of several kinds, with inputs and a loss."""
    yield (
        "deep tanh",
        nn.Sequential(
            *[part for _ in range(6) for part in (nn.Linear(5, 5), nn.Tanh())]
        ),
        (4, 5),
    )
    yield (
        "silu, layer norm",
        nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.SiLU(), nn.Linear(7, 2)),
        (4, 5),
    )
    yield (
        "convolution",
        nn.Sequential(
            nn.Conv1d(2, 3, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Flatten(),
            nn.Linear(9, 2),
        ),
        (2, 2, 6),
    )
    yield "batch norm, dropout", nn.Sequential(
        nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ELU(), nn.Dropout(0.3),
        nn.Linear(6, 2)), (6, 5)  # fmt: skip


class Slip(nn.Module):
    """A layer whose backward is off by a factor."""

    def __init__(self, factor):
        super().__init__()
        self.call = custom(lambda x: x.clone(), lambda g, x: factor * g)

    def forward(self, x):
        return self.call(x)


for dtype in (f64, f32, bf16):
    for name, net, shape in nets(dtype):
        right(f"{name}, {tag(dtype)}", copy.deepcopy(net).to(dtype),
              T(*shape, dtype=dtype), loss=square)  # fmt: skip
        right(f"{name}, {tag(dtype)}, large input", copy.deepcopy(net).to(dtype),
              100 * T(*shape, dtype=dtype), loss=square)  # fmt: skip
        factor = 1.05 if dtype != bf16 else 2.0
        parts = list(copy.deepcopy(net))
        wrong(f"{name}, {tag(dtype)}, slip", nn.Sequential(
            *parts[:-1], Slip(factor), parts[-1]).to(dtype), T(*shape, dtype=dtype),
            loss=square)  # fmt: skip
