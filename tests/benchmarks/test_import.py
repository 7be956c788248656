"""How long ``import gradlab`` takes in a fresh interpreter, beside numpy's."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["numpy", "gradlab"])
def test_import(benchmark, module):
    """One interpreter, started and ended, with one import; compare the two rows."""
    run = [sys.executable, "-c", f"import {module}"]

    benchmark.pedantic(subprocess.run, (run,), {"check": True}, rounds=9)
