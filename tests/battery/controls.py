"""All correct programs of the battery."""

from __future__ import annotations

from tests.battery import (
    controls_modules,
    controls_numpy,
    controls_programs,
    controls_torch,
    fresh_controls_numpy,
    fresh_controls_programs,
    fresh_torch,
)

__all__ = ["CONTROLS"]

CONTROLS = {
    "NumPy functions": controls_numpy.CONTROLS,
    "NumPy programs": controls_programs.CONTROLS,
    "torch functions": controls_torch.CONTROLS,
    "torch modules": controls_modules.CONTROLS,
    "NumPy functions, 2": fresh_controls_numpy.CONTROLS,
    "NumPy programs, 2": fresh_controls_programs.CONTROLS,
    "torch, 2": fresh_torch.CONTROLS,
}
