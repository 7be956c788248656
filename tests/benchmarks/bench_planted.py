"""Whole checks of planted mistakes beside ``torch.autograd.gradcheck`` in slow mode.

The cases of `bench_gradcheck` with every gradient doubled, and with one entry of the
last one flipped: in a Function of its own, which torch cannot batch, for both. The
check finds the cause as well. gradcheck says that something is wrong, of one input.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time

import torch
from cases import CASES

import gradlab as gl

KEPT = torch.contiguous_format


def planted(fn, mistake):
    """Make a Function of `fn` whose backward has a mistake."""

    class Planted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            return fn(*inputs)

        @staticmethod
        def backward(ctx, cotangent):
            inputs = [each.detach().requires_grad_() for each in ctx.saved_tensors]
            with torch.enable_grad():
                out = fn(*inputs)
            gradients = torch.autograd.grad(out, inputs, cotangent)
            return mistake([torch.clone(g, memory_format=KEPT) for g in gradients])

    return Planted.apply


def doubled(gradients):
    """Double all of them."""
    return tuple(2 * each for each in gradients)


def flipped(gradients):
    """Flip the sign of one entry of the last."""
    gradients[-1].view(-1)[3] *= -1
    return tuple(gradients)


def _seconds(call):
    start = time.process_time()
    call()
    return time.process_time() - start


def measure(name, mistake, rounds):
    """Seconds of the check and of gradcheck, and the evaluations of the check."""
    torch.manual_seed(0)
    fn, inputs = CASES[name]()
    wrong = planted(fn, mistake)
    report = gl.check(wrong, *inputs, coverage="full")
    if report.verdict != gl.Verdict.DISAGREES:
        raise SystemExit(f"{name}: {mistake.__name__} was not found")
    ours = statistics.median(
        _seconds(lambda: gl.check(wrong, *inputs, coverage="full"))
        for _ in range(rounds)
    )
    theirs = _seconds(
        lambda: torch.autograd.gradcheck(
            wrong, inputs, fast_mode=False, raise_exception=False
        )
    )
    return ours, theirs, report.evaluations


def main():
    """Print one row for each case, and the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    print(f"{'case':32s} {'doubled':>30s} {'one entry flipped':>30s}")
    ratios = {doubled: [], flipped: []}
    for name in CASES:
        if options.only not in name or "256" in name:
            continue
        cells = []
        for mistake, found in ratios.items():
            ours, theirs, count = measure(name, mistake, options.rounds)
            found.append(theirs / ours)
            cells.append(
                f"{1e3 * ours:6.0f} / {1e3 * theirs:5.0f} ms {found[-1]:4.1f} "
                f"{count:6d}"
            )
        print(f"{name:32s} {cells[0]:>30s} {cells[1]:>30s}", flush=True)
    means = [math.exp(statistics.fmean(map(math.log, r))) for r in ratios.values()]
    print(f"geometric means {means[0]:.2f} and {means[1]:.2f}")


if __name__ == "__main__":
    main()
