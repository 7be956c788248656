"""Every gradient of small models beside ``torch.autograd.gradcheck`` in slow mode.

Run it: ``OMP_NUM_THREADS=1 python tests/benchmarks/bench_whole_models.py``. Both look
at each entry in float64, by turns in one process; seconds are processor time of one
thread, once for gradcheck and the median of three for the check.
"""

from __future__ import annotations

import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

import gradlab as gl


class Digits(nn.Module):
    """A network of 784, 128 and 10 units."""

    batch = (torch.rand(4, 784, dtype=torch.float64), torch.tensor([1, 2, 3, 4]))

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, x, goal):
        """Loss of a batch."""
        return F.cross_entropy(self.net(x), goal)


class Characters(nn.Module):
    """A table of 500 characters, and a network that reads three of them."""

    batch = (torch.randint(0, 500, (8, 3)), torch.randint(0, 27, (8,)))

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(500, 10)
        self.hidden, self.out = nn.Linear(30, 64), nn.Linear(64, 27)

    def forward(self, x, goal):
        """Loss of a batch."""
        hidden = torch.tanh(self.hidden(self.table(x).flatten(1)))
        return F.cross_entropy(self.out(hidden), goal)


class Pictures(nn.Module):
    """Two convolutions and two linear layers."""

    batch = (torch.randn(2, 1, 28, 28, dtype=torch.float64), torch.tensor([1, 2]))

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            *(nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 16, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(16 * 49, 32), nn.Tanh(), nn.Linear(32, 10)),
        )

    def forward(self, x, goal):
        """Loss of a batch."""
        return F.cross_entropy(self.net(x), goal)


class Series(nn.Module):
    """An LSTM that reads eight numbers of twenty features each."""

    batch = (torch.randn(2, 8, 20, dtype=torch.float64), torch.tensor([1, 2]))

    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(20, 48, batch_first=True)
        self.out = nn.Linear(48, 10)

    def forward(self, x, goal):
        """Loss of a batch."""
        return F.cross_entropy(self.out(self.layer(x)[0][:, -1]), goal)


class Tied(nn.Module):
    """A table of 300 words that is read from and compared with."""

    batch = (torch.randint(0, 300, (2, 6)), torch.randint(0, 300, (2, 6)))

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(300, 48)
        self.hidden, self.norm = nn.Linear(48, 48), nn.LayerNorm(48)

    def forward(self, x, goal):
        """Loss of a batch."""
        hidden = self.norm(torch.tanh(self.hidden(self.table(x).cumsum(1))))
        logits = hidden @ self.table.weight.T
        return F.cross_entropy(logits.flatten(0, 1), goal.flatten())


class Block(nn.Module):
    """Attention and a perceptron, each after a normalisation."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.parts, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        wide = 4 * width
        self.mlp = nn.Sequential(
            nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width)
        )

    def forward(self, x):
        """Add what attention and the perceptron make of x."""
        shape = (*x.shape[:2], self.heads, -1)
        parts = self.parts(self.first(x)).chunk(3, -1)
        heads = (part.reshape(shape).transpose(1, 2) for part in parts)
        seen = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


class Words(nn.Module):
    """A transformer of two blocks."""

    batch = (torch.randint(0, 65, (2, 8)), torch.randint(0, 65, (2, 8)))

    def __init__(self, words=65, width=32, heads=4):
        super().__init__()
        self.table, self.places = nn.Embedding(words, width), nn.Embedding(8, width)
        self.blocks = nn.Sequential(Block(width, heads), Block(width, heads))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x, goal):
        """Loss of a batch."""
        hidden = self.table(x) + self.places(torch.arange(x.shape[1]))
        logits = self.out(self.norm(self.blocks(hidden)))
        return F.cross_entropy(logits.flatten(0, 1), goal.flatten())


def measure(kind):
    """Seconds of the check and of gradcheck, parameters, and the report."""
    torch.manual_seed(0)
    model = kind().double()
    names = [name for name, _ in model.named_parameters()]
    values = tuple(p.detach().clone().requires_grad_() for p in model.parameters())

    def loss(*given):
        parts = dict(zip(names, given, strict=True))
        return torch.func.functional_call(model, parts, kind.batch)

    ours = []
    for _ in range(3):
        start = time.process_time()
        report = gl.check(model, *kind.batch, coverage="full")
        ours.append(time.process_time() - start)
    start = time.process_time()
    torch.autograd.gradcheck(loss, values, fast_mode=False)
    theirs = time.process_time() - start
    return statistics.median(ours), theirs, sum(v.numel() for v in values), report


def main():
    """Print one row for each model."""
    print("model       parameters  evaluations      check   gradcheck  ratio")
    for kind in (Digits, Characters, Pictures, Series, Tied, Words):
        ours, theirs, count, report = measure(kind)
        print(
            f"{kind.__name__:12s} {count:9,d} {report.evaluations:12,d} {ours:8.2f} s "
            f"{theirs:9.1f} s {theirs / ours:6.0f}  {report.verdict.name}",
            flush=True,
        )


if __name__ == "__main__":
    main()
