"""What two processes save on a slow NumPy function, beside one process.

Run it as a program. n = 1000; one function that waits for 10 ms (whatever else the
machine does), one that computes for about 10 ms (which needs two idle cores).
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

import gradlab as gl

N = 1000
LOOPS = 10_000


def waiting(x):
    """Wait for 10 ms."""
    time.sleep(0.01)
    return (x**2).sum()


def computing(x):
    """Compute for about 10 ms, in Python, on one core."""
    total = 0.0
    for i in range(LOOPS * 20):
        total += i & 1
    return (x**2).sum() + 0.0 * total


def seconds(f, **options):
    """Seconds of one check, and its Jacobian as bytes."""
    start = time.perf_counter()
    report = gl.check(f, np.ones(N), grad=lambda x: 2 * x, coverage="full", **options)
    took = time.perf_counter() - start
    return took, report.comparisons[0].numeric.tobytes()


def main():
    """Print the seconds of both, their ratio, and whether the numbers are the same."""
    print("function     one process  two processes  ratio  same bits")
    for f in (waiting, computing):
        alone, here = seconds(f)
        with ProcessPoolExecutor(2) as pool:
            together, there = seconds(f, executor=pool)
        told = f"{alone:10.1f} s {together:12.1f} s  {alone / together:5.2f}"
        print(f"{f.__name__:11s}  {told}  {here == there}")


if __name__ == "__main__":
    main()
