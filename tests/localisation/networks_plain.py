"""Networks of textbooks: series, branches, loops, attention, convolution."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.localisation.networks import NETWORKS, Case, Swish, entropy, network


@network
def series(slip):
    """Layers one after the other."""
    net = nn.Sequential(
        nn.Linear(5, 7), Swish(), nn.Linear(7, 6), Swish(slip), nn.Linear(6, 3)
    )
    return Case(net, (torch.randn(4, 5),), "3", loss=entropy())


@network
def series_without_loss(slip):
    """No loss: all outputs count."""
    net = nn.Sequential(nn.Linear(5, 7), Swish(slip), nn.Linear(7, 3))
    return Case(net, (torch.randn(4, 5),), "1")


@network
def input_requires_grad(slip):
    """The input is differentiated, too."""
    net = nn.Sequential(nn.Linear(5, 7), Swish(slip), nn.Linear(7, 3))
    return Case(net, (torch.randn(4, 5, requires_grad=True),), "1")


@network
def branches(slip):
    """Two branches, one of them wrong."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Linear(5, 6)
            self.left = nn.Sequential(nn.Linear(6, 6), Swish())
            self.right = nn.Sequential(nn.Linear(6, 6), Swish(slip))
            self.head = nn.Linear(12, 3)

        def forward(self, x):
            h = self.stem(x)
            return self.head(torch.cat([self.left(h), self.right(h)], -1))

    return Case(Net(), (torch.randn(4, 5),), "right.1", loss=entropy())


@network
def residual(slip):
    """Three residual blocks, the middle one wrong."""

    class Block(nn.Module):
        def __init__(self, slip):
            super().__init__()
            self.norm, self.fc, self.act = nn.LayerNorm(6), nn.Linear(6, 6), Swish(slip)

        def forward(self, x):
            return x + self.act(self.fc(self.norm(x)))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            slips = ["right", slip, "right"]
            self.blocks = nn.ModuleList(Block(s) for s in slips)
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    return Case(Net(), (torch.randn(4, 6),), "blocks.1.act", loss=entropy())


@network
def recurrent_by_hand(slip):
    """A cell called in a loop."""

    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.xh, self.hh, self.act = nn.Linear(4, 5), nn.Linear(5, 5), Swish(slip)

        def forward(self, x, h):
            return self.act(self.xh(x) + self.hh(h))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = Cell(), nn.Linear(5, 3)

        def forward(self, xs):
            h = xs.new_zeros(xs.shape[1], 5)
            for x in xs:
                h = self.cell(x, h)
            return self.head(h)

    return Case(Net(), (torch.randn(6, 4, 4),), "cell.act", loss=entropy())


@network
def lstm(slip):
    """torch's LSTM before the wrong layer."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(4, 5, num_layers=2, batch_first=True)
            self.act, self.head = Swish(slip), nn.Linear(5, 3)

        def forward(self, x):
            out, (_h, _c) = self.rnn(x)
            return self.head(self.act(out[:, -1]))

    return Case(Net(), (torch.randn(4, 6, 4),), "act", loss=entropy())


@network
def attention_by_hand(slip):
    """A causal transformer block with a tied head."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
            self.register_buffer("mask", torch.tril(torch.ones(5, 5)) == 0)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            scores = q @ k.transpose(-1, -2) / 8**0.5
            scores = scores.masked_fill(self.mask, float("-inf"))
            return self.out(scores.softmax(-1) @ v)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(8), nn.LayerNorm(8)
            self.attn = Attention()
            self.up, self.act, self.down = (
                nn.Linear(8, 16),
                Swish(slip),
                nn.Linear(16, 8),
            )

        def forward(self, x):
            x = x + self.attn(self.ln1(x))
            return x + self.down(self.act(self.up(self.ln2(x))))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(11, 8)
            self.places = nn.Parameter(torch.randn(5, 8))
            self.block, self.norm = Block(), nn.LayerNorm(8)

        def forward(self, ids):
            x = self.tokens(ids) + self.places
            # Tied: the embedding is the head, too.
            return F.linear(self.norm(self.block(x)), self.tokens.weight)

    ids = torch.randint(0, 11, (2, 5))
    goal = torch.randint(0, 11, (10,))
    return Case(
        Net(),
        (ids,),
        "block.act",
        loss=lambda out: F.cross_entropy(out.flatten(0, 1), goal),
    )


@network
def torch_transformer(slip):
    """torch's encoder, with dropout."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2)
            self.act = Swish(slip)

        def forward(self, x):
            return self.act(self.encoder(x))

    return Case(Net(), (torch.randn(2, 5, 8),), "act")


@network
def torch_transformer_evaluated(slip):
    """The same in eval mode, where torch has a fast path."""
    case = NETWORKS["torch_transformer"](slip)
    case.module.eval()
    return case


@network
def multihead(slip):
    """torch's attention behind the wrong layer."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
            self.act = Swish(slip)

        def forward(self, x):
            h = self.act(x)
            return self.attn(h, h, h)[0]

    return Case(Net(), (torch.randn(2, 5, 8, requires_grad=True),), "act")


@network
def convolutional(slip):
    """Convolutions, batch norm, in-place relu, pooling."""
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, padding=1),
        Swish(slip),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )
    return Case(net, (torch.randn(4, 2, 8, 8),), "5", loss=entropy())


@network
def convolutional_evaluated(slip):
    """The same in eval mode."""
    case = NETWORKS["convolutional"](slip)
    case.module.eval()
    return case


@network
def shared_module(slip):
    """One activation called twice."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.act, self.head = nn.Linear(5, 5), Swish(slip), nn.Linear(5, 3)

        def forward(self, x):
            h = self.act(self.fc(x))
            h = self.act(self.fc(h))
            return self.head(h)

    return Case(Net(), (torch.randn(4, 5),), "act", loss=entropy())


@network
def registered_twice(slip):
    """One activation registered under two names."""
    act = Swish(slip)
    net = nn.Sequential(nn.Linear(5, 5), act, nn.Linear(5, 5), act, nn.Linear(5, 3))
    return Case(net, (torch.randn(4, 5),), "1", loss=entropy())


@network
def tied_weights(slip):
    """Embedding and head share one parameter."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.head = nn.Embedding(9, 6), nn.Linear(6, 9, bias=False)
            self.head.weight = self.tokens.weight
            self.act = Swish(slip)

        def forward(self, ids):
            return self.head(self.act(self.tokens(ids)))

    return Case(Net(), (torch.randint(0, 9, (4,)),), "act", loss=entropy(9))
