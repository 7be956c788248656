"""Full checks of large sparse Jacobians beside ``torch.autograd.gradcheck``, slow mode.

Run it as a program: ``OMP_NUM_THREADS=1 python tests/benchmarks/bench_sparse.py``. Each
function maps n x n numbers to as many, so that a whole matrix has n to the fourth
entries; where that is too much for gradcheck (10,000 x 10,000 take 800 MB, twice) only
gradlab runs. The custom Function cannot be batched.
"""

from __future__ import annotations

import resource
import time

import torch
import torch.nn.functional as F

import gradlab as gl

SIZES, BOTH = (40, 64, 100), 40


class _Cube(torch.autograd.Function):
    """Neither side can be batched: both go through NumPy."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(x.detach().numpy() ** 3)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.from_numpy(3 * x.numpy() ** 2 * g.numpy())


CASES = {
    "custom Function": _Cube.apply,
    "softmax of rows": lambda x: torch.softmax(x, -1),
    "layer_norm of rows": lambda x: F.layer_norm(x, x.shape[1:]),
}


def _seconds(check):
    """Time of one call, and what it gave."""
    start = time.perf_counter()
    found = check()
    return time.perf_counter() - start, found


def main():
    """Print a line for each function and size."""
    start = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gl.check(torch.sin, start)  # imports
    print(f"{'n x n':>9} {'function':<19} {'check':>8} {'gradcheck':>10}  verdict")
    for n in SIZES:
        torch.manual_seed(0)
        x = torch.randn(n, n, dtype=torch.float64, requires_grad=True)
        for name, fn in CASES.items():
            mine, report = _seconds(lambda f=fn, x=x: gl.check(f, x, coverage="full"))
            theirs = "-"
            if n <= BOTH:
                slow, _ = _seconds(
                    lambda f=fn, x=x: torch.autograd.gradcheck(f, x, fast_mode=False)
                )
                theirs = f"{slow:.1f} s"
            print(
                f"{n:>4} x {n:<3} {name:<19} {mine:6.2f} s {theirs:>10}  "
                f"{report.verdict.name} {report.evaluations}"
            )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of the process {peak:,.0f} MiB")


if __name__ == "__main__":
    main()
