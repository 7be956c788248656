"""What a first check brings into memory: nothing that it does not use."""

from __future__ import annotations

import subprocess
import sys

import pytest

NUMPY = """
import sys
import numpy as np
import gradlab as gl
report = gl.check(np.sin, np.ones(3), jac=lambda x: np.diag(np.cos(x)))
assert report.ok
print([name for name in UNUSED if name in sys.modules])
"""
TORCH = """
import sys
import torch
before = set(sys.modules)
import gradlab as gl
x = torch.ones(3, 4, dtype=torch.float64, requires_grad=True)
assert gl.check(torch.sigmoid, x).ok
new = set(sys.modules) - before
print([name for name in UNUSED if name in new])
"""
DRAWING = ("pandas", "matplotlib", "IPython", "ipywidgets", "anywidget", "tqdm")
POOLS = ("concurrent.futures.process", "multiprocessing.connection", "cloudpickle")
SYMBOLS = ("sympy", "torch._dynamo", "torch.fx.experimental.symbolic_shapes")


@pytest.mark.parametrize(
    ("code", "unused"),
    [(NUMPY, ("torch", *DRAWING, *POOLS)), (TORCH, (*DRAWING, *POOLS, *SYMBOLS))],
    ids=["numpy", "torch"],
)
def test_nothing_is_imported_before_it_is_needed(code, unused):
    """No drawing, no pools of processes, no symbolic shapes for a small check."""
    done = subprocess.run(
        [sys.executable, "-c", code.replace("UNUSED", repr(unused))],
        check=True,
        capture_output=True,
        text=True,
    )

    assert done.stdout.strip() == "[]"
