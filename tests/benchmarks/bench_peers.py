"""Dense numeric Jacobians beside numdifftools, jacobi and SciPy: calls, time, error.

Run it as a program: ``python tests/benchmarks/bench_peers.py [n ...]``. The function is
``sin(A x)`` with a dense matrix A, whose Jacobian is known; "calls" counts points at
which it is evaluated, however many are passed in one call; seconds are processor time,
after a first call. A peer that takes more than
20 seconds at one size is left out at the next.
"""

from __future__ import annotations

import argparse
import time
import warnings

import jacobi
import numdifftools
import numpy as np
from scipy.differentiate import jacobian as scipy_jacobian
from scipy.optimize._numdiff import approx_derivative

import gradlab as gl

PATIENCE = 20.0  # seconds


class _Counted:
    """The function, how often it was asked, and its Jacobian."""

    def __init__(self, n):
        rng = np.random.default_rng(n)
        self.matrix = rng.normal(size=(n, n)) / np.sqrt(n)
        self.x = rng.normal(size=n)
        self.calls = 0

    def __call__(self, x):
        x = np.asarray(x)
        self.calls += x.size // len(self.x)
        return np.sin(np.tensordot(self.matrix, x, axes=1))

    @property
    def exact(self):
        return np.cos(self.matrix @ self.x)[:, None] * self.matrix


METHODS = {
    "gradlab central": lambda f: gl.numeric_jacobian(f, f.x, method="central").value,
    "gradlab adaptive": lambda f: gl.numeric_jacobian(f, f.x).value,
    "gradlab complex-step": lambda f: (
        gl.numeric_jacobian(f, f.x, method="complex-step").value
    ),
    "scipy approx_derivative": lambda f: approx_derivative(f, f.x, method="3-point"),
    "scipy.differentiate": lambda f: scipy_jacobian(f, f.x).df,
    "jacobi": lambda f: jacobi.jacobi(f, f.x)[0],
    "numdifftools": lambda f: numdifftools.Jacobian(f)(f.x),
}


def main():
    """Print one row for each method and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", nargs="*", type=int, default=[10, 100, 1000])
    print(
        f"{'n':>5s} {'method':24s} {'calls':>8s} {'seconds':>9s} {'worst error':>12s}"
    )
    slow = set()
    for run in METHODS.values():  # what is imported and compiled is no evaluation
        run(_Counted(3))
    for n in parser.parse_args().n:
        for name, run in METHODS.items():
            if name in slow:
                continue
            f = _Counted(n)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                start = time.process_time()
                try:
                    found = run(f)
                except RecursionError:  # jacobi nests a function for each coordinate
                    print(f"{n:5d} {name:24s} RecursionError of its own")
                    continue
                seconds = time.process_time() - start
            worst = np.abs(np.asarray(found) - f.exact).max()
            print(f"{n:5d} {name:24s} {f.calls:8d} {seconds:9.4f} {worst:12.1e}")
            if seconds > PATIENCE / 50:  # ten times the size is a hundred the work
                slow.add(name)


if __name__ == "__main__":
    main()
