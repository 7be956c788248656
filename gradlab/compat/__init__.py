"""Drop-in replacements for the familiar checkers, behind their own signatures.

``gl.compat.torch``, ``gl.compat.chainer`` and ``gl.compat.cs231n`` are loaded when they
are first used: only the first of them imports torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["chainer", "cs231n", "torch"]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return importlib.import_module(f"gradlab.compat.{name}")
    msg = f"module 'gradlab.compat' has no attribute {name!r}"
    raise AttributeError(msg)
