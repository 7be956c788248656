"""Correct `nn.Module`s in every mode and precision."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.battery.shelf import Shelf

CONTROLS = Shelf()
add = CONTROLS.add
rng = np.random.default_rng(14)
torch.manual_seed(14)


def T(*shape, dtype=torch.float64):
    return torch.tensor(rng.normal(size=shape)).to(dtype)


def square(out):
    return (out**2).mean()


def first(out):
    return (out[0] ** 2).mean()


classes = nn.CrossEntropyLoss()
target = torch.tensor([0, 2, 1, 0, 2])


def entropy(out):
    return classes(out, target)


def both(name, module, *inputs, **options):
    """Add a module in float64 and in float32."""
    add(f"{name}, float64", copy.deepcopy(module).double(), *inputs, **options)
    single = tuple(
        v.float() if torch.is_tensor(v) and v.is_floating_point() else v for v in inputs
    )
    add(f"{name}, float32", copy.deepcopy(module).float(), *single, **options)


both("ReLU network", nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 3)),
     T(5, 4), loss=entropy)  # fmt: skip
both("bias before batch norm",
     nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)),
     T(5, 4), loss=entropy)  # fmt: skip
both("convolution, batch norm",
     nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.GELU(), nn.Flatten(),
                   nn.Linear(8, 3)), T(5, 1, 4, 4), loss=entropy)  # fmt: skip
both("group norm", nn.Sequential(nn.Conv1d(2, 4, 2), nn.GroupNorm(2, 4), nn.SiLU()),
     T(2, 2, 5), loss=square)  # fmt: skip
both("layer norm", nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.Softplus()),
     T(3, 5), loss=square)  # fmt: skip
both("dropout", nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.4), nn.Linear(8, 2)),
     T(3, 4), loss=square)  # fmt: skip
both("LSTM", nn.LSTM(3, 4, num_layers=2), T(4, 2, 3), loss=first)
both("GRU", nn.GRU(3, 4, bidirectional=True), T(4, 2, 3), loss=first)
both("attention", nn.MultiheadAttention(6, 2, batch_first=True), *[T(2, 3, 6)] * 3,
     loss=first)  # fmt: skip
both("encoder layer", nn.TransformerEncoderLayer(6, 2, 8, batch_first=True).eval(),
     T(2, 3, 6), loss=square)  # fmt: skip
both("embedding", nn.Sequential(nn.Embedding(7, 3, padding_idx=0), nn.Flatten(),
                                nn.Linear(6, 3)),
     torch.tensor([[4, 1], [2, 2], [5, 4], [1, 1], [3, 6]]), loss=entropy)  # fmt: skip
both("embedding bag", nn.EmbeddingBag(6, 3, mode="mean"),
     torch.tensor([[0, 1], [2, 2]]), loss=square)  # fmt: skip
both("transposed convolution", nn.ConvTranspose2d(2, 1, 3, stride=2), T(1, 2, 2, 2),
     loss=square)  # fmt: skip
both("bilinear", nn.Bilinear(3, 2, 4), T(2, 3), T(2, 2), loss=square)
both("saturated", nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 3)),
     60 * T(5, 4), loss=entropy)  # fmt: skip
both("instance norm", nn.InstanceNorm1d(2, affine=True), T(2, 2, 6), loss=square)
both("spectral norm, eval",
     nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)).eval(), T(2, 4),
     loss=square)  # fmt: skip
both("weight norm", nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), T(2, 4),
     loss=square)  # fmt: skip
both("max pool", nn.Sequential(nn.Conv2d(1, 2, 2), nn.MaxPool2d(2), nn.Flatten()),
     T(2, 1, 5, 5), loss=square)  # fmt: skip
both("dead units", nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1)),
     -100 * torch.ones(2, 3).double(), loss=square)  # fmt: skip
both("frozen statistics", nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval(),
     T(3, 3), loss=square)  # fmt: skip
both("huge loss", nn.Linear(4, 2), T(3, 4), loss=lambda o: 1e8 * (o**2).mean())
both("tiny loss", nn.Linear(4, 2), T(3, 4), loss=lambda o: 1e-10 * (o**2).mean())


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.out = nn.Linear(4, 6, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens):
        return self.out(torch.tanh(self.embed(tokens))).flatten(0, 1)


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4))

    def forward(self, x):
        return x + checkpoint(self.inner, x, use_reentrant=False)


class Residual(nn.Module):
    """In-place activations, a buffer, a skip connection, a keyword argument."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("shift", torch.linspace(-1, 1, 4))

    def forward(self, x, scale=2.0):
        h = F.relu(self.a(x), inplace=True)
        h = h + self.shift.to(h.dtype)
        h.mul_(scale)
        return x + F.elu(self.b(h), inplace=True)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.RNNCell(2, 3)

    def forward(self, xs):
        h = torch.zeros(xs.shape[1], 3, dtype=xs.dtype)
        for x in xs:
            h = self.cell(x, h)
        return h


class CausalAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(6, 18), nn.Linear(6, 6)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y)


class DictOut(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x):
        y = self.lin(x)
        return {"mean": y[:, :1], "scale": F.softplus(y[:, 1:])}


tokens = torch.tensor([[0, 1], [4, 4]])
both("tied weights", Tied(), tokens,
     loss=lambda o: classes(o, torch.tensor([1, 2, 3, 0])))  # fmt: skip
both("checkpoint", Checkpointed(), T(3, 4), loss=square)
both("in-place residual", Residual(), T(3, 4), loss=square)
both("recurrent loop", Recurrent(), T(5, 2, 2), loss=square)
both("causal attention", CausalAttention(), T(2, 4, 6), loss=square)
both("dict output", DictOut(), T(3, 3),
     loss=lambda o: (o["mean"] ** 2 / o["scale"]).mean())  # fmt: skip
both("no loss", nn.Sequential(nn.Linear(3, 2), nn.Hardtanh()), T(3, 3))
for dtype in (torch.bfloat16, torch.float16):
    tag = str(dtype).rsplit(".", maxsplit=1)[-1]
    add(f"tanh network, {tag}",
        nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype),
        T(5, 4, dtype=dtype), loss=square)  # fmt: skip
    add(f"layer norm network, {tag}",
        nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU()).to(dtype),
        T(5, 4, dtype=dtype), loss=square)  # fmt: skip
    add(f"attention, {tag}", CausalAttention().to(dtype), T(2, 3, 6, dtype=dtype),
        loss=square)  # fmt: skip
