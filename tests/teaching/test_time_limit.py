"""What is loaded for the first time is not the time of the code that is judged."""

from __future__ import annotations

import subprocess
import sys

_LOADED = """
import sys, torch
from gradlab.teaching.time_limit import call_within

late = "torch.fx.experimental.symbolic_shapes"
assert late not in sys.modules
before = call_within(5.0, lambda: late in sys.modules)
x = torch.ones(2, requires_grad=True)
known = set(sys.modules)
call_within(5.0, lambda: torch.autograd.grad(2 * x, x, torch.ones(2)))
print(before, sorted(m for m in set(sys.modules) - known if "sympy" in m))
"""


def test_autograd_loads_nothing_while_the_time_runs():
    """Half of sympy, where it was interrupted, stayed in the process for good."""
    run = [sys.executable, "-c", _LOADED]
    done = subprocess.run(run, capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "True []"


def test_without_torch_nothing_is_loaded():
    """A course without torch does not wait for it."""
    code = (
        "import sys\n"
        "from gradlab.teaching.time_limit import call_within\n"
        "call_within(5.0, lambda: None)\n"
        "print('torch' in sys.modules)"
    )
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "False"
