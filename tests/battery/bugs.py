"""All wrong programs of the battery."""

from __future__ import annotations

from tests.battery import bugs_numpy, bugs_torch, fresh_bugs_numpy, fresh_torch

__all__ = ["BUGS"]

BUGS = {
    "NumPy": bugs_numpy.BUGS,
    "torch": bugs_torch.BUGS,
    "NumPy, 2": fresh_bugs_numpy.BUGS,
    "torch, 2": fresh_torch.BUGS,
}
