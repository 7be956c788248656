"""Cost of a check by random directions on large models, in training steps.

Run it as a program: ``python tests/benchmarks/bench_large.py [width ...]``. The model
is a transformer of four layers in float64 that predicts 64 tokens; a training step is
forward and backward. Both are measured by turns in one process.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import nn

import gradlab as gl

VOCABULARY, TOKENS = 4096, 64


class _Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        layer = {"dim_feedforward": 4 * width, "dropout": 0.0, "batch_first": True}
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 8, **layer) for _ in range(4)
        )
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids):
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x).flatten(0, 1)


def measure(width):
    """Parameters, seconds of a step and of the check, their quotient, the verdict."""
    torch.manual_seed(0)
    model = _Model(width).double()
    ids = torch.randint(0, VOCABULARY, (1, TOKENS))
    goal = torch.randint(0, VOCABULARY, (TOKENS,))

    def loss(out):
        return nn.functional.cross_entropy(out, goal)

    def step():
        start = time.perf_counter()
        loss(model(ids)).backward()
        seconds = time.perf_counter() - start
        model.zero_grad(set_to_none=True)
        return seconds

    step()
    seconds = [step() for _ in range(3)]
    start = time.perf_counter()
    report = gl.check(model, ids, loss=loss, coverage="probe")
    took = time.perf_counter() - start
    seconds += [step() for _ in range(3)]
    one = statistics.median(seconds)
    count = sum(p.numel() for p in model.parameters())
    return count, one, took, took / one, report


def main():
    """Print one row for each width."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("width", nargs="*", type=int, default=[320, 768])
    print("parameters   step s  check s  steps  evaluations  verdict")
    for width in parser.parse_args().width:
        count, one, took, steps, report = measure(width)
        print(
            f"{count:10,}  {one:7.2f}  {took:7.2f}  {steps:5.1f}  "
            f"{report.evaluations:11d}  {report.verdict.name}",
            flush=True,
        )


if __name__ == "__main__":
    main()
