"""Whole checks beside ``torch.autograd.gradcheck`` in slow mode, case by case.

Run it as a program: ``OMP_NUM_THREADS=1 python tests/benchmarks/bench_gradcheck.py``.
Both run in one process, by turns, on the same tensors; the figures are medians of the
processor time of one thread, so that other programs count for little. The check looks
at every entry, keeps the whole error matrix and gives every entry a verdict; gradcheck
answers yes or no. With ``--device cuda`` all is on a GPU, and the figures are seconds
of the clock.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time

import torch
from cases import CASES

import gradlab as gl


def _timed(call, device):
    if device == "cpu":
        start = time.process_time()
        call()
        return time.process_time() - start
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(name, rounds, device="cpu"):
    """Median seconds of the check and of gradcheck, the quotient, and the verdict."""
    torch.manual_seed(0)
    with torch.device(device):
        fn, inputs = CASES[name]()
    report = gl.check(fn, *inputs, coverage="full", diagnose=False)
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(_timed(lambda: gl.check(fn, *inputs, coverage="full"), device))
        theirs.append(
            _timed(
                lambda: torch.autograd.gradcheck(fn, inputs, fast_mode=False), device
            )
        )
    ours, theirs = statistics.median(ours), statistics.median(theirs)
    return ours, theirs, theirs / ours, report


def main():
    """Print one row for each case, and the geometric mean."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    print(f"{'case':34s} {'check':>9s} {'gradcheck':>10s} {'ratio':>6s}  verdict")
    ratios = []
    for name in CASES:
        if options.only not in name:
            continue
        ours, theirs, ratio, report = measure(name, options.rounds, options.device)
        ratios.append(ratio)
        print(
            f"{name:34s} {1e3 * ours:6.1f} ms {1e3 * theirs:7.1f} ms {ratio:6.1f}  "
            f"{report.verdict.name} {report.evaluations}",
            flush=True,
        )
    mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
    print(f"geometric mean {mean:.1f}, smallest {min(ratios):.1f}")


if __name__ == "__main__":
    main()
