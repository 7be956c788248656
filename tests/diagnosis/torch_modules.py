"""Modules of torch with slips: layers, hooks, cut graphs; the layer is the culprit."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from tests.diagnosis.pieces import Program
from tests.diagnosis.tensors import Bent, _function


def _data(rng, *shape):
    return torch.tensor(rng.normal(size=shape))


def _seeded(rng):
    torch.manual_seed(int(rng.integers(1 << 30)))


class Norm(nn.Module):
    """Layer norm by hand."""

    def __init__(self, d, slip):
        super().__init__()
        self.g, self.slip = nn.Parameter(torch.ones(d)), slip

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        var = ((x - mean) ** 2).mean(-1, keepdim=True)
        if self.slip == "norm detached":
            mean, var = mean.detach(), var.detach()
        if self.slip == "norm item":
            var = torch.tensor(var.mean().item(), dtype=x.dtype)
        return self.g * (x - mean) / (var + 1e-5).sqrt()


class Attend(nn.Module):
    """Self-attention."""

    def __init__(self, d, slip):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.slip = slip
        self.soft = Bent(
            _function(
                lambda x: x.softmax(-1),
                (lambda up, x, y: y * up)
                if slip == "softmax"
                else (lambda up, x, y: y * (up - (up * y).sum(-1, keepdim=True))),
            )
        )

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        if self.slip == "keys detached":
            k = k.detach()
        if self.slip == "values data":
            v = v.data
        s = q @ k.mT / k.shape[-1] ** 0.5
        return self.o(self.soft(s) @ v)


class Block(nn.Module):
    """Pre-norm block with a swish that may be wrong."""

    def __init__(self, d, slip):
        super().__init__()
        self.norm, self.attend = Norm(d, slip), Attend(d, slip)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        swish = lambda x: x * torch.sigmoid(x)
        slopes = {
            "swish factor": lambda s, x: 1.01 * s * (1 + x * (1 - s)),
            "swish no product": lambda s, x: s,
            "swish sigmoid": lambda s, x: s * (1 - s),
            "swish ignores": lambda s, x: s * (1 + x * (1 - s)),
        }
        slope = slopes.get(slip, lambda s, x: s * (1 + x * (1 - s)))
        self.act = Bent(
            _function(
                swish,
                lambda up, x, y: (
                    (1 if slip == "swish ignores" else up) * slope(torch.sigmoid(x), x)
                ),
            )
        )

    def forward(self, x):
        x = x + self.attend(self.norm(x))
        return x + self.down(self.act(self.up(x)))


def transformer(rng, slip):
    _seeded(rng)
    net = nn.Sequential(nn.Linear(2, 3), Block(3, slip), nn.Linear(3, 2))
    x, t = _data(rng, 2, 3, 2), _data(rng, 2, 3, 2)
    return Program(net.to(x.dtype), (x,), {"loss": lambda out: ((out - t) ** 2).mean()})


class Conv(nn.Module):
    """A small network on images."""

    def __init__(self, slip):
        super().__init__()
        self.slip = slip
        self.conv, self.bn = nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2)
        relu = {
            "relu through": lambda up, x, y: up,
            "relu upstream": lambda up, x, y: up * (up > 0),
        }.get(slip, lambda up, x, y: up * (x > 0))
        self.relu = Bent(_function(torch.relu, relu))
        self.fc = nn.Linear(8, 3)
        if slip == "hook":
            self.relu.register_full_backward_hook(lambda m, gi, go: (gi[0] * 0.5,))
        if slip == "parameter hook":
            self.conv.weight.register_hook(lambda g: g.clamp(-0.01, 0.01))

    def forward(self, x):
        h = self.relu(self.bn(self.conv(x)))
        if self.slip == "no grad":
            with torch.no_grad():
                h = functional.avg_pool2d(h, 2)
        else:
            h = functional.avg_pool2d(h, 2)
        if self.slip == "numpy":
            h = torch.from_numpy(h.detach().numpy())
        return self.fc(h.flatten(1))


def convolutional(rng, slip):
    _seeded(rng)
    net, x = Conv(slip), _data(rng, 3, 1, 4, 4)
    y = torch.tensor(rng.integers(0, 3, 3))
    loss = lambda out: functional.cross_entropy(out, y)
    if slip == "loss detached":
        loss = lambda out: functional.cross_entropy(out.detach() + 0 * out, y)
    return Program(net.to(x.dtype), (x,), {"loss": loss})


class Recurrent(nn.Module):
    """A cell that is called at every step."""

    def __init__(self, slip):
        super().__init__()
        self.cell, self.out, self.slip = nn.Linear(5, 3), nn.Linear(3, 1), slip
        slope = {
            "tanh of input": lambda up, x, y: up * (1 - x * x),
            "tanh scaled": lambda up, x, y: 2 * up * (1 - y * y),
        }.get(slip, lambda up, x, y: up * (1 - y * y))
        self.tanh = Bent(_function(torch.tanh, slope))

    def forward(self, x):
        h = x.new_zeros(x.shape[1], 3)
        for step in x:
            if self.slip == "state detached":
                h = h.detach()
            h = self.tanh(self.cell(torch.cat([step, h], 1)))
        return self.out(h)


def recurrent_module(rng, slip):
    _seeded(rng)
    net, x, t = Recurrent(slip), _data(rng, 4, 3, 2), _data(rng, 3, 1)
    return Program(net.to(x.dtype), (x,), {"loss": lambda out: ((out - t) ** 2).sum()})


class Embed(nn.Module):
    """Word vectors, tied to the output layer."""

    def __init__(self, slip):
        super().__init__()
        self.table, self.slip = nn.Parameter(torch.randn(5, 3)), slip
        self.mix = nn.Linear(3, 3)

        def back(up, table, ids, y):
            g = torch.zeros_like(table)
            if slip == "lookup assigns":
                g[ids] = up
            else:
                g.index_put_((ids,), up, accumulate=True)
            return g, None

        self.look = _function(lambda table, ids: table[ids], back, "Lookup")

    def forward(self, ids):
        h = torch.tanh(self.mix(self.look(self.table, ids)))
        table = self.table.detach() if self.slip == "tied detached" else self.table
        return h @ table.T


def language(rng, slip):
    _seeded(rng)
    dtype = _data(rng, 1).dtype
    ids, y = torch.tensor([0, 2, 2, 1]), torch.tensor([2, 2, 1, 4])
    loss = lambda out: functional.cross_entropy(out, y)
    return Program(Embed(slip).to(dtype), (ids,), {"loss": loss})


_ACT = ("1.act",)
_CELL = ("", "Recurrent", "cell.weight", "cell.bias", "cell")
_CUT = (
    "", "Conv", "conv", "conv.weight", "conv.bias", "bn", "bn.weight", "bn.bias",
)  # fmt: skip
_LAST = ("", "loss", "fc", "fc.weight", "fc.bias")
SLIPS = {
    (transformer, "swish factor"): ("scale", (), _ACT),
    (transformer, "swish no product"): ("missing_term", ("wrong_derivative",), _ACT),
    (transformer, "swish sigmoid"): ("wrong_derivative", ("missing_term",), _ACT),
    (transformer, "swish ignores"): ("ignores_upstream", (), _ACT),
    (transformer, "softmax"): ("missing_term", (), ("1.attend.soft",)),
    (transformer, "norm detached"): ("detached", (), ("1.norm",)),
    (transformer, "norm item"): ("detached", (), ("1.norm",)),
    (transformer, "keys detached"): ("detached", (), ("1.attend", "1.attend.k")),
    (transformer, "values data"): ("detached", (), ("1.attend", "1.attend.v")),
    (convolutional, "relu through"): ("wrong_mask", (), ("relu",)),
    (convolutional, "relu upstream"): ("wrong_mask", ("ignores_upstream",), ("relu",)),
    (convolutional, "hook"): ("scale", ("surrogate",), ("relu",)),
    (convolutional, "parameter hook"): ("surrogate", (), ("conv.weight", "conv")),
    (convolutional, "no grad"): ("detached", (), _CUT),
    (convolutional, "numpy"): ("detached", (), _CUT),
    (convolutional, "loss detached"): ("detached", (), _LAST),
    (recurrent_module, "tanh of input"): (
        "stale_cache", ("wrong_derivative",), ("tanh",),
    ),
    (recurrent_module, "tanh scaled"): ("scale", (), ("tanh",)),
    (recurrent_module, "state detached"): ("detached", (), _CELL),
    (language, "lookup assigns"): (
        "lost_accumulation", (), ("Lookup", "", "Embed", "table"),
    ),
    (language, "tied detached"): ("detached", (), ("", "Embed", "table")),
}  # fmt: skip

CONTROLS = (transformer, convolutional, recurrent_module, language)
