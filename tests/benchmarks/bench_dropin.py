"""The drop-in ``gradlab.compat.torch.gradcheck`` beside torch's own, in slow mode.

Run it as a program: ``OMP_NUM_THREADS=1 python tests/benchmarks/bench_dropin.py``. The
first sample of twenty operators of PyTorch's database, both by turns, best of fifteen.
The difference that does not grow is state: memory, buffers and random generators are
saved before and compared after.
"""

from __future__ import annotations

import functools
import importlib
import math
import time
import warnings

import torch

from gradlab.compat.torch import gradcheck

original = importlib.import_module("torch.autograd.gradcheck").gradcheck
NAMES = (
    *("add", "mul", "matmul", "softmax", "logsumexp", "linalg.inv", "linalg.det"),
    *("nn.functional.conv2d", "nn.functional.layer_norm", "cumsum", "prod", "sort"),
    *("gather", "nn.functional.gelu", "norm", "var", "nn.functional.cross_entropy"),
    *("nn.functional.batch_norm", "linalg.svd", "nn.functional.conv1d"),
)
MOST, ROUNDS = 300, 15


def _case(op_db, name):
    """The first sample with no more than 300 numbers."""
    op = next(op for op in op_db if op.name == name)
    for sample in op.sample_inputs("cpu", torch.float64, requires_grad=True):
        inputs = (sample.input, *sample.args)
        count = sum(t.numel() for t in inputs if isinstance(t, torch.Tensor))
        if 0 < count <= MOST:
            return functools.partial(op, **sample.kwargs), inputs
    raise LookupError(name)


def _best(checks, func, inputs):
    """Least seconds of each, by turns."""
    seconds = [math.inf] * len(checks)
    for _ in range(ROUNDS):
        for k, check in enumerate(checks):
            start = time.perf_counter()
            check(func, inputs)
            seconds[k] = min(seconds[k], time.perf_counter() - start)
    return seconds


def main():
    """Print a line for each operator, and the means."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

        print(f"{'operator':<28} {'torch':>9} {'gradlab':>9}  ratio")
        ratios, extra = [], []
        for name in NAMES:
            torch.manual_seed(0)
            theirs, ours = _best((original, gradcheck), *_case(op_db, name))
            ratios.append(ours / theirs)
            extra.append(ours - theirs)
            print(
                f"{name:<28} {1e3 * theirs:6.1f} ms {1e3 * ours:6.1f} ms "
                f"{ratios[-1]:6.2f}"
            )
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    extra.sort()
    print(
        f"geometric mean of the ratios {mean:.2f}; median difference "
        f"{1e3 * extra[len(extra) // 2]:.1f} ms"
    )


if __name__ == "__main__":
    main()
