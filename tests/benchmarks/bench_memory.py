"""Memory and time of a full check of a dense 10,000 x 10,000 Jacobian, streamed.

Run it as a program; ``bench_memory.py 3000`` for a smaller one. The function is a
convolution by FFT, which has no matrix of its own to hold; one entry of the gradient is
wrong by a thousandth. Peak memory is that of the process above what it was before.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

import gradlab as gl


def peak():
    """Most memory that this process ever held, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def subject(n):
    """Build a dense function, its vjp, wrong in one entry, and a point."""
    rng = np.random.default_rng(0)
    kernel = np.fft.rfft(rng.normal(size=n) / np.sqrt(n))
    i, j = n // 3, n // 7

    def f(x):
        return np.fft.irfft(np.fft.rfft(np.tanh(x)) * kernel, n)

    def vjp(cotangent, x):
        slope = 1 - np.tanh(x) ** 2
        back = np.fft.irfft(np.fft.rfft(cotangent) * kernel.conj(), n) * slope
        back[j] += 1e-3 * cotangent[i]
        return (back,)

    return f, vjp, rng.normal(size=n), f"out[{i}] / x[{j}]"


def main():
    """Print what one check took, what it kept, and whether it found the entry."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    f, vjp, x, wrong = subject(n)
    small, small_vjp, y, _ = subject(16)
    gl.check(small, y, vjp=small_vjp).to_html()
    before = peak()
    start = time.perf_counter()
    report = gl.check(f, x, vjp=vjp, coverage="full")
    seconds = time.perf_counter() - start
    checked = peak() - before
    start = time.perf_counter()
    report.plot()
    page = report.to_html()
    shown = time.perf_counter() - start
    block = report["x"]
    print(f"{n:,} x {n:,}: {8 * n * n / 2**20:,.0f} MiB for each matrix")
    print(f"check    {seconds:6.1f} s, peak {checked:6.0f} MiB more than before it")
    print(
        f"show     {shown:6.1f} s, peak {peak() - before:6.0f} MiB, page {len(page):,}"
    )
    print(f"counts   {block.counts}; worst {block.worst(1).label[0]}, planted {wrong}")


if __name__ == "__main__":
    main()
